//! A mutex without poisoning, over that of the scheduler.
//!
//! **Invariants**
//! - A guard's `held` is empty only inside of a call that gives the lock up for a while.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{PoisonError, TryLockError},
};

/// Mutual exclusion.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// The lock, held as long as this lives.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    pub(super) held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.acquire()) }
    }

    /// The lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: self, held: Some(held) })
    }

    /// The value, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn acquire(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Gives the lock back; who gets it next is for the scheduler to say anyway.
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }

    /// Gives the lock back for the time of `act`.
    pub fn unlocked<R>(guard: &mut Self, act: impl FnOnce() -> R) -> R {
        drop(guard.held.take());
        let outcome = act();
        guard.held = Some(guard.mutex.acquire());
        outcome
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
