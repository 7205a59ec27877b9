//! A mutex without poisoning, over the scheduler's mutex.
//!
//! **Invariants**
//! - A guard's `held` is empty only inside a call that releases the lock temporarily.
//! - `is_held` mirrors the scheduler's lock; reading it is no scheduling step.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A mutual-exclusion lock.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    is_held: AtomicBool,
    lock: shuttle::sync::Mutex<T>,
}

/// Holds the lock while it lives.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), lock: shuttle::sync::Mutex::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Acquires the lock, waiting for it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.guard(held)
    }

    /// Acquires the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.lock.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.guard(held))
    }

    /// Whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// Exclusive access to the value.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard<'a>(&'a self, held: shuttle::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.is_held.store(true, Relaxed);
        MutexGuard { mutex: self, held: Some(held) }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Releases the lock; the scheduler chooses the next owner anyway.
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }

    /// Releases the lock while `act` runs.
    pub fn unlocked<R>(guard: &mut Self, act: impl FnOnce() -> R) -> R {
        drop(guard.give_up());
        let outcome = act();
        guard.take_back(guard.mutex.lock.lock().unwrap_or_else(PoisonError::into_inner));
        outcome
    }

    /// Releases the scheduler's lock until `take_back`.
    pub(super) fn give_up(&mut self) -> shuttle::sync::MutexGuard<'a, T> {
        self.mutex.is_held.store(false, Relaxed);
        self.held.take().expect("held outside of waits")
    }

    pub(super) fn take_back(&mut self, held: shuttle::sync::MutexGuard<'a, T>) {
        self.mutex.is_held.store(true, Relaxed);
        self.held = Some(held);
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.mutex.is_held.store(false, Relaxed);
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held outside of waits")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held outside of waits")
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
