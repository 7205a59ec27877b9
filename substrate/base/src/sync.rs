//! Locks, atomics and all other synchronization between threads, for every crate of the store.
//!
//! A normal build uses the well-known types directly: `parking_lot` locks, the atomics of `std`, `ArcSwap`.
//! With `--cfg testudo_shuttle` the same names belong to a seeded scheduler. At each operation, a scheduling
//! point, it decides which thread runs next, so that the whole store can run through thousands of schedules
//! (docs/decisions/0009).
//!
//! **Invariants**
//! - Both sets have the same names with the same signatures; a crate never checks which one it uses.
//! - Statics that only spread load stay atomics of `std`: their previous values must not change a schedule.

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

/// Whether `lock` is held, for assertions about required locks. Under the scheduler it is always true: a
/// check would be a step of the schedule.
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

/// A scheduling point for code that synchronizes without anything from this module.
#[inline]
pub fn step() {
    #[cfg(testudo_shuttle)]
    yield_now();
}

/// Returns `many`, or `few` where accessing each element is a step of the schedule.
pub const fn scaled(many: usize, few: usize) -> usize {
    if cfg!(testudo_shuttle) { few } else { many }
}

/// Elements with locks or atomics that threads share: a [`LargeSlice`](crate::LargeSlice), unless threads are
/// the scheduler's.
#[cfg(not(testudo_shuttle))]
pub type SharedSlice<T> = crate::LargeSlice<T>;
/// Elements with locks or atomics that threads share, under the scheduler.
#[cfg(testudo_shuttle)]
pub type SharedSlice<T> = Box<[T]>;

/// `count` elements of the default value.
#[must_use]
pub fn shared_slice<T: Default>(count: usize) -> SharedSlice<T> {
    #[cfg(testudo_shuttle)]
    let elements = (0..count).map(|_| T::default()).collect();
    #[cfg(not(testudo_shuttle))]
    let elements = crate::LargeSlice::of_default(count);
    elements
}

/// `count` zero atomic words, in memory that the system provides zeroed where possible: untouched words then
/// cost neither time nor memory.
#[must_use]
pub fn zeroed_words(count: usize) -> SharedSlice<atomic::AtomicU32> {
    #[cfg(testudo_shuttle)]
    let words = shared_slice(count);
    #[cfg(not(testudo_shuttle))]
    let words = crate::LargeSlice::zeroed(count);
    words
}
