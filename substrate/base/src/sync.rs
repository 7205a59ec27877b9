//! Locks, atomics and whatever else threads meet at, for every crate of the store.
//!
//! A normal build gets the well-known types and nothing else: `parking_lot` locks, the atomics of `std`,
//! `ArcSwap`. With `--cfg testudo_shuttle` the same names are those of a scheduler that decides, seeded,
//! which thread runs next at each of these meeting points, so that the whole store can be run through
//! thousands of schedules (docs/decisions/0009).
//!
//! **Invariants**
//! - Both sets have the same names with the same signatures; a crate never asks which one it got.
//! - Statics that only spread load stay atomics of `std`: what they held before must not change a schedule.

#[cfg(testudo_shuttle)]
mod scheduled;
#[cfg(not(testudo_shuttle))]
mod threads;

#[cfg(testudo_shuttle)]
pub use scheduled::{
    ArcSwap, Backoff, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, ShardedLock,
    ShardedLockReadGuard, ShardedLockWriteGuard, WaitTimeoutResult, atomic, spin_loop, thread_local,
    yield_now,
};
pub use std::sync::{Arc, OnceLock, Weak};
#[cfg(not(testudo_shuttle))]
pub use threads::{
    ArcSwap, Backoff, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, ShardedLock,
    ShardedLockReadGuard, ShardedLockWriteGuard, WaitTimeoutResult, atomic, spin_loop, thread_local,
    yield_now,
};

/// Whether somebody holds `lock`, for assertions of who requires it. Where threads are a scheduler's nothing
/// is asked, which would be a step of the schedule.
#[must_use]
pub fn is_held<T>(lock: &Mutex<T>) -> bool {
    #[cfg(testudo_shuttle)]
    let is_locked = {
        let _ = lock;
        true
    };
    #[cfg(not(testudo_shuttle))]
    let is_locked = lock.is_locked();
    is_locked
}

/// `many` as it is, or `few` where looking at each of them is a step of the schedule.
pub const fn scaled(many: usize, few: usize) -> usize {
    if cfg!(testudo_shuttle) { few } else { many }
}

/// So many atomic words of zero, in memory that the system hands out zeroed where it can: what is never
/// touched then takes no time and no memory.
#[must_use]
pub fn zeroed_words(count: usize) -> Box<[atomic::AtomicU32]> {
    #[cfg(testudo_shuttle)]
    let words = (0..count).map(|_| atomic::AtomicU32::new(0)).collect();
    #[cfg(not(testudo_shuttle))]
    let words = bytemuck::zeroed_slice_box(count);
    words
}
