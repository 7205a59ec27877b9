//! A transient condition that keeps the log from being written.
//!
//! **Invariants**
//! - A stall ends once all waiting buffers are written.

use std::time::Duration;

use testudo_base::{
    Error, Result,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

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
