//! What keeps a log from being written for a while.
//!
//! **Invariants**
//! - It is over once everything that had waited is written.

use std::time::Duration;

use testudo_base::{
    Error, Result,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// Whether the last try to write was put off.
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

    /// A try to write was put off by this.
    pub(crate) fn begin(&self, error: &Error) {
        *self.by.lock() = Some(error.clone());
        self.is_on.store(true, Ordering::Release);
    }

    /// Something was written, so what put a try off is over; others may still wait.
    #[inline]
    pub(crate) fn note_progress(&self) {
        if self.is_on() {
            *self.by.lock() = None;
        }
    }

    /// Fails with what the last try was put off by, if none has succeeded since.
    pub(crate) fn refuse(&self) -> Result<()> {
        self.by.lock().clone().map_or(Ok(()), Err)
    }

    pub(crate) fn end(&self) {
        self.is_on.store(false, Ordering::Release);
    }
}
