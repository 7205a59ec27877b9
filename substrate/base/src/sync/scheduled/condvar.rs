//! A condition variable whose timed waits end after a random number of steps.
//!
//! **Invariants**
//! - A thread in a timed wait takes no wake-up away from a thread that waits without a timeout.

use std::{
    sync::{
        PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use shuttle::rand::Rng;

use super::MutexGuard;

/// Maximum steps of a timed wait.
const TIMED_STEPS_MAX: u32 = 12;

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar {
    waiters: shuttle::sync::Condvar,
    /// Number of notify calls, whether or not any thread waited.
    wake_count: AtomicU64,
}

/// Whether a wait ended by timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait timed out.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self { waiters: shuttle::sync::Condvar::new(), wake_count: AtomicU64::new(0) }
    }

    /// Releases the lock, waits for a wake-up, and reacquires the lock.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.give_up();
        guard.take_back(self.waiters.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Like [`Condvar::wait`], with a timeout.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> WaitTimeoutResult {
        let before = self.wake_count.load(Relaxed);
        let steps = shuttle::rand::thread_rng().gen_range(1..=TIMED_STEPS_MAX);
        let is_woken = || self.wake_count.load(Relaxed) != before;
        MutexGuard::unlocked(guard, || {
            for _ in 0..steps {
                super::yield_now();
                if is_woken() {
                    break;
                }
            }
        });
        WaitTimeoutResult(!is_woken())
    }

    /// Waits with a timeout while `condition` holds.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        while condition(guard) {
            if self.wait_for(guard, timeout).timed_out() {
                return WaitTimeoutResult(condition(guard));
            }
        }
        WaitTimeoutResult(false)
    }

    /// Wakes one thread.
    pub fn notify_one(&self) {
        self.wake_count.fetch_add(1, Relaxed);
        self.waiters.notify_one();
    }

    /// Wakes all threads.
    pub fn notify_all(&self) {
        self.wake_count.fetch_add(1, Relaxed);
        self.waiters.notify_all();
    }
}
