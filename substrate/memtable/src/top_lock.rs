//! The lock around the top level. Every insert and lookup takes it for reading; a leaf split takes it for
//! writing, once in a few dozen inserts.
//!
//! It starts as an ordinary lock, because there may be thousands of memtables with one record each. Once the
//! table has some leaves, the top level moves into a sharded lock, whose readers write to no common cache
//! line.
//!
//! **Invariants**
//! - The top level is in one of the two locks. It moves once, under the ordinary lock, which is released only
//!   after the move.

use std::ops::{Deref, DerefMut};

use testudo_base::sync::{
    OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, ShardedLock, ShardedLockReadGuard,
    ShardedLockWriteGuard, scaled,
};

use crate::top::Top;

/// Number of leaves at which the top level moves: some hundred kilobytes of records.
const SHARDED_LEAVES: usize = scaled(64, 2);
/// Bytes of the shards, including allocation overhead.
const SHARDS_BYTES: u64 = 2 << 10;

#[derive(Debug)]
pub(crate) struct TopLock<'id> {
    single: RwLock<Option<Top<'id>>>,
    sharded: OnceLock<Box<ShardedLock<Top<'id>>>>,
}

/// The top level, locked for reading.
pub(crate) enum TopReadGuard<'a, 'id> {
    Single(RwLockReadGuard<'a, Option<Top<'id>>>),
    Sharded(ShardedLockReadGuard<'a, Top<'id>>),
}

/// The top level, locked for writing.
pub(crate) enum TopWriteGuard<'a, 'id> {
    Single(RwLockWriteGuard<'a, Option<Top<'id>>>),
    Sharded(ShardedLockWriteGuard<'a, Top<'id>>),
}

impl<'id> TopLock<'id> {
    pub(crate) fn new(top: Top<'id>) -> Self {
        Self { single: RwLock::new(Some(top)), sharded: OnceLock::new() }
    }

    #[inline]
    pub(crate) fn read(&self) -> TopReadGuard<'_, 'id> {
        if let Some(sharded) = self.sharded.get() {
            return TopReadGuard::Sharded(sharded.read());
        }
        let single = self.single.read();
        match self.sharded.get() {
            None => TopReadGuard::Single(single),
            Some(sharded) => TopReadGuard::Sharded(sharded.read()),
        }
    }

    /// Whether it has not moved into shards.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        self.sharded.get().is_none()
    }

    pub(crate) fn write(&self) -> TopWriteGuard<'_, 'id> {
        if let Some(sharded) = self.sharded.get() {
            return TopWriteGuard::Sharded(sharded.write());
        }
        let single = self.single.write();
        match self.sharded.get() {
            None => TopWriteGuard::Single(single),
            Some(sharded) => TopWriteGuard::Sharded(sharded.write()),
        }
    }

    /// Moves the top level into shards if it is large enough; returns the bytes of the shards.
    pub(crate) fn shard(&self, guard: TopWriteGuard<'_, 'id>) -> u64 {
        let TopWriteGuard::Single(mut single) = guard else { return 0 };
        if single.as_ref().is_none_or(|top| top.leaf_count() < SHARDED_LEAVES) {
            return 0;
        }
        let Some(top) = single.take() else { return 0 };
        let moved = self.sharded.set(Box::new(ShardedLock::new(top)));
        debug_assert!(moved.is_ok(), "the top level moves once");
        drop(single);
        SHARDS_BYTES
    }

    /// Bytes of the shards beyond the top level.
    #[cfg(test)]
    pub(crate) fn shards_bytes(&self) -> u64 {
        if self.sharded.get().is_some() { SHARDS_BYTES } else { 0 }
    }
}

const IN_ONE: &str = "the top level has not moved";

impl<'id> Deref for TopReadGuard<'_, 'id> {
    type Target = Top<'id>;

    #[inline]
    fn deref(&self) -> &Top<'id> {
        match self {
            Self::Single(top) => top.as_ref().expect(IN_ONE),
            Self::Sharded(top) => top,
        }
    }
}

impl<'id> Deref for TopWriteGuard<'_, 'id> {
    type Target = Top<'id>;

    fn deref(&self) -> &Top<'id> {
        match self {
            Self::Single(top) => top.as_ref().expect(IN_ONE),
            Self::Sharded(top) => top,
        }
    }
}

impl<'id> DerefMut for TopWriteGuard<'_, 'id> {
    fn deref_mut(&mut self) -> &mut Top<'id> {
        match self {
            Self::Single(top) => top.as_mut().expect(IN_ONE),
            Self::Sharded(top) => top,
        }
    }
}
