//! Waits of commits for the log, and a transient condition that keeps it from being written.
//!
//! **Invariants**
//! - A stall ends once all waiting buffers are written.

use std::{fmt, time::Duration};

use testudo_base::{
    Error, Result,
    num::low64,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use testudo_env::Env;

/// Waits of commits for an empty buffer of the log.
pub(crate) struct Waits {
    env: Arc<dyn Env>,
    micros: AtomicU64,
    longest_micros: AtomicU64,
}

impl Waits {
    pub(crate) fn new(env: Arc<dyn Env>) -> Self {
        Self { env, micros: 0.into(), longest_micros: 0.into() }
    }

    /// Records the duration of `wait`.
    pub(crate) fn measure<R>(&self, wait: impl FnOnce() -> R) -> R {
        let began = self.env.monotonic();
        let outcome = wait();
        let micros = low64(self.env.monotonic().saturating_sub(began).as_micros());
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.longest_micros.fetch_max(micros, Ordering::Relaxed);
        outcome
    }

    /// Microseconds of all waits, and of the longest.
    pub(crate) fn micros(&self) -> (u64, u64) {
        (self.micros.load(Ordering::Relaxed), self.longest_micros.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waits").field(&self.micros()).finish()
    }
}

/// Whether the last attempt to write was postponed.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    is_on: AtomicBool,
    by: Mutex<Option<Error>>,
}

impl Stall {
    /// How long a commit without a buffer waits for the end of a stall before it is refused.
    pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Records the error that postponed a write.
    pub(crate) fn begin(&self, error: &Error) {
        *self.by.lock() = Some(error.clone());
        self.is_on.store(true, Ordering::Release);
    }

    /// Records that a write succeeded: the cause of the stall is gone, but other buffers may still wait.
    #[inline]
    pub(crate) fn note_progress(&self) {
        if self.is_on() {
            *self.by.lock() = None;
        }
    }

    /// Fails with the error that postponed the last attempt, if none has succeeded since.
    pub(crate) fn refuse(&self) -> Result<()> {
        self.by.lock().clone().map_or(Ok(()), Err)
    }

    pub(crate) fn end(&self) {
        self.is_on.store(false, Ordering::Release);
    }
}
