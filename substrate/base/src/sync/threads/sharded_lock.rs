//! A lock whose readers do not contend: each thread locks one of a few shards, a writer locks all of them.
//!
//! **Invariants**
//! - As with the other locks, a panic of the holder does not poison it.

use std::{
    hint,
    sync::{PoisonError, TryLockError},
};

pub use crossbeam_utils::sync::{ShardedLockReadGuard, ShardedLockWriteGuard};

/// Spins of a reader before it sleeps, about twenty microseconds. A writer that already has all shards
/// finishes sooner, and sleeping and waking takes longer.
const SPINS: u32 = 400;

/// A lock for many readers, which share no written cache line, or one writer, which pays for that. About 1
/// KiB. A thread must not lock it twice.
#[derive(Debug)]
pub struct ShardedLock<T>(crossbeam_utils::sync::ShardedLock<T>);

impl<T> ShardedLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self(crossbeam_utils::sync::ShardedLock::new(value))
    }

    /// Acquires the read lock.
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

    /// Acquires the write lock.
    pub fn write(&self) -> ShardedLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
