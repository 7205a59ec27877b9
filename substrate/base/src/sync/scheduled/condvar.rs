//! A condition variable whose timed waits end after a drawn number of steps.
//!
//! **Invariants**
//! - A thread in a timed wait takes no wake-up away from one that waits without a timeout.

use std::{
    sync::{
        PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use shuttle::rand::Rng;

use super::MutexGuard;

/// A timed wait lasts at most this many steps.
const TIMED_STEPS_MAX: u32 = 12;

/// Where threads wait until something has changed.
#[derive(Debug, Default)]
pub struct Condvar {
    waiters: shuttle::sync::Condvar,
    /// Number of calls that woke somebody, or would have.
    wake_count: AtomicU64,
}

/// Whether a wait ended for want of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was up.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self { waiters: shuttle::sync::Condvar::new(), wake_count: AtomicU64::new(0) }
    }

    /// Gives the lock back, waits for a wake-up, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.give_up();
        guard.take_back(self.waiters.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// The same, for a while.
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

    /// Waits for a while as long as `condition` holds.
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
