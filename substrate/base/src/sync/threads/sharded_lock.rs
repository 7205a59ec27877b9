//! A lock whose readers do not meet: each thread locks one of a few shards, a writer locks all of them.
//!
//! **Invariants**
//! - As with the other locks, a panic of who held it does not poison it.

use std::{
    hint,
    sync::{PoisonError, TryLockError},
};

pub use crossbeam_utils::sync::{ShardedLockReadGuard, ShardedLockWriteGuard};

/// Turns that a reader waits before it sleeps, about twenty microseconds. A writer that has what it waited
/// for needs less than that, and to be put to sleep and woken takes more.
const SPINS: u32 = 400;

/// Many readers, which write to no cache line in common, or one writer, which pays for that. About 1 KiB.
/// A thread must not lock it twice.
#[derive(Debug)]
pub struct ShardedLock<T>(crossbeam_utils::sync::ShardedLock<T>);

impl<T> ShardedLock<T> {
    /// Not locked.
    pub fn new(value: T) -> Self {
        Self(crossbeam_utils::sync::ShardedLock::new(value))
    }

    /// Locks it for reading.
    #[inline]
    pub fn read(&self) -> ShardedLockReadGuard<'_, T> {
        for _ in 0..SPINS {
            match self.0.try_read() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
                Err(TryLockError::WouldBlock) => hint::spin_loop(),
            }
        }
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it for writing.
    pub fn write(&self) -> ShardedLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
