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

/// Where another thread may come between, for code that meets others without anything of this module.
#[inline]
pub fn step() {
    #[cfg(testudo_shuttle)]
    yield_now();
}

/// `many` as it is, or `few` where looking at each of them is a step of the schedule.
pub const fn scaled(many: usize, few: usize) -> usize {
    if cfg!(testudo_shuttle) { few } else { many }
}

/// Elements with locks or atomics that threads share: a [`LargeSlice`](crate::LargeSlice), where threads are
/// not a scheduler's.
#[cfg(not(testudo_shuttle))]
pub type SharedSlice<T> = crate::LargeSlice<T>;
/// Elements with locks or atomics that threads share, where these are a scheduler's.
#[cfg(testudo_shuttle)]
pub type SharedSlice<T> = Box<[T]>;

/// So many elements of the default value.
#[must_use]
pub fn shared_slice<T: Default>(count: usize) -> SharedSlice<T> {
    #[cfg(testudo_shuttle)]
    let elements = (0..count).map(|_| T::default()).collect();
    #[cfg(not(testudo_shuttle))]
    let elements = crate::LargeSlice::of_default(count);
    elements
}

/// So many atomic words of zero, in memory that the system hands out zeroed where it can: what is never
/// touched then takes no time and no memory.
#[must_use]
pub fn zeroed_words(count: usize) -> SharedSlice<atomic::AtomicU32> {
    #[cfg(testudo_shuttle)]
    let words = shared_slice(count);
    #[cfg(not(testudo_shuttle))]
    let words = crate::LargeSlice::zeroed(count);
    words
}
