//! Whether an open store can still be used: closed, failed for good, or stalled for want of space.
//!
//! **Invariants**
//! - A store that was closed or has failed stays so; the first failure is kept.

use testudo_base::{
    Error, ErrorKind, Result, planted,
    sync::{
        Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

/// The state of a store beside its contents.
#[derive(Debug, Default)]
pub(crate) struct Health {
    is_closing: AtomicBool,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Why flushing cannot go on for now.
    stall: Mutex<Option<Error>>,
}

impl Health {
    /// Neither reads nor writes begin from now on.
    pub(crate) fn begin_closing(&self) {
        self.is_closing.store(true, Release);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Acquire)
    }

    /// Fails if the store was closed: its pages may belong to whoever opened it next.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closing.load(Relaxed) && !planted!("closed-store-still-read") {
            return Err(closed());
        }
        Ok(())
    }

    /// `Closed` if the store is, else `error`.
    #[cold]
    pub(crate) fn closed_or(&self, error: Error) -> Error {
        // The lock is released after the flag was set: who sees pages of the next writer sees the flag.
        if self.is_closing() { closed() } else { error }
    }

    /// Fails if the store must not be written to any more.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.has_failed.load(Relaxed) || self.is_closing.load(Relaxed) {
            return Err(self.why_not_writable());
        }
        Ok(())
    }

    fn why_not_writable(&self) -> Error {
        if let Some(failure) = &*self.failure.lock() {
            let message = format!("writes stopped after a failure in the background: {failure}");
            return Error::new(ErrorKind::Poisoned, message);
        }
        closed()
    }

    /// Stops all further writes.
    pub(crate) fn fail(&self, error: &Error) {
        self.failure.lock().get_or_insert_with(|| error.clone());
        self.has_failed.store(true, Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Acquire)
    }

    /// Flushing cannot go on for now, or goes on again.
    pub(crate) fn set_stall(&self, stall: Option<Error>) {
        *self.stall.lock() = stall;
    }

    /// Fails with the reason if flushing cannot go on for now.
    pub(crate) fn check_not_stalled(&self) -> Result<()> {
        self.stall.lock().clone().map_or(Ok(()), Err)
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
}
