//! A readers-writer lock whose write lock can be downgraded to a read lock.
//!
//! The value is in a real lock that is only ever tried; after a failed attempt a thread waits in the
//! scheduler.
//!
//! **Invariants**
//! - There is no scheduling point between a failed attempt and registering as a waiter, so no release is
//!   missed.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The waiters of one lock.
#[derive(Debug, Default)]
struct Gate {
    waiter_count: AtomicUsize,
    lock: shuttle::sync::Mutex<()>,
    released: shuttle::sync::Condvar,
}

impl Gate {
    fn acquire<G>(&self, attempt: impl Fn() -> Option<G>) -> G {
        super::meet();
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
            let gate = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(guard) = attempt() {
                return guard;
            }
            self.waiter_count.fetch_add(1, Relaxed);
            drop(self.released.wait(gate).unwrap_or_else(PoisonError::into_inner));
            self.waiter_count.fetch_sub(1, Relaxed);
        }
    }

    fn wake(&self) {
        if self.waiter_count.load(Relaxed) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.released.notify_all();
        }
    }
}

/// A lock for many readers or one writer.
#[derive(Default)]
pub struct RwLock<T> {
    gate: Gate,
    value: parking_lot::RwLock<T>,
}

/// Holds the read lock while it lives.
pub struct RwLockReadGuard<'a, T> {
    gate: &'a Gate,
    held: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

/// Holds the write lock while it lives.
pub struct RwLockWriteGuard<'a, T> {
    gate: &'a Gate,
    held: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub fn new(value: T) -> Self {
        Self { gate: Gate::default(), value: parking_lot::RwLock::new(value) }
    }

    /// Acquires the read lock, waiting for a writer to finish.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = self.gate.acquire(|| self.value.try_read());
        RwLockReadGuard { gate: &self.gate, held: Some(held) }
    }

    /// Acquires the write lock, waiting for all readers and writers.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.gate.acquire(|| self.value.try_write());
        RwLockWriteGuard { gate: &self.gate, held: Some(held) }
    }

    /// Acquires the write lock if it is free of readers and writers.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        super::meet();
        let held = self.value.try_write()?;
        Some(RwLockWriteGuard { gate: &self.gate, held: Some(held) })
    }

    /// Exclusive access to the value.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<'a, T> RwLockWriteGuard<'a, T> {
    /// Downgrades to a read lock atomically, so that no writer can get in between. Wakes waiting readers.
    pub fn downgrade(mut guard: Self) -> RwLockReadGuard<'a, T> {
        let held = guard.held.take().map(parking_lot::RwLockWriteGuard::downgrade);
        RwLockReadGuard { gate: guard.gate, held }
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        self.gate.wake();
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        self.gate.wake();
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held until dropped")
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held until dropped")
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
