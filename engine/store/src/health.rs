//! Whether an open store can still be used: closed, failed permanently, stalled for lack of space, or
//! inherited through a fork.
//!
//! **Invariants**
//! - A store that was closed or has failed stays so; the first failure is kept.
//! - In a forked child every check fails with `Closed` before it takes any lock: the holder may be a thread
//!   that the child does not have.

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
use testudo_env::Process;

/// The state of a store apart from its contents.
#[derive(Debug)]
pub struct Health {
    /// The process that opened the store.
    process: Process,
    is_closing: AtomicBool,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// The reason why flushing is stalled.
    stall: Mutex<Option<Error>>,
}

impl Health {
    /// The health of a store that was just opened by `process`.
    pub fn new(process: Process) -> Self {
        Self {
            process,
            is_closing: false.into(),
            has_failed: false.into(),
            failure: Mutex::default(),
            stall: Mutex::default(),
        }
    }

    /// Whether this process is a child forked from the one that opened the store. A child does not use the
    /// store, and leaks instead of releasing: locks, threads and files belong to the owner.
    #[inline]
    pub fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Fails in a forked child.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        self.process.check()
    }

    /// Rejects reads and writes from now on.
    pub fn begin_closing(&self) {
        self.is_closing.store(true, Release);
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Acquire)
    }

    /// Fails if the store was closed: its pages may belong to the next opening.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.is_closing.load(Relaxed) && !planted!("closed-store-still-read") {
            return Err(closed());
        }
        self.check_process()
    }

    /// Returns `Closed` if the store is closed, else `error`.
    #[cold]
    pub fn closed_or(&self, error: Error) -> Error {
        // The lock is released after the flag is set: a reader that sees pages of the next writer sees the
        // flag.
        if self.is_closing() {
            return closed();
        }
        self.check_process().err().unwrap_or(error)
    }

    /// Fails if the store no longer accepts writes.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.check_process()?;
        if self.has_failed.load(Relaxed) || self.is_closing.load(Relaxed) {
            return Err(self.why_not_writable());
        }
        Ok(())
    }

    fn why_not_writable(&self) -> Error {
        debug_assert!(self.has_failed() || self.is_closing(), "there is a reason");
        if let Some(failure) = &*self.failure.lock() {
            let message = format!("writes stopped after a failure in the background: {failure}");
            return Error::new(ErrorKind::Poisoned, message);
        }
        closed()
    }

    /// Stops all further writes.
    pub fn fail(&self, error: &Error) {
        debug_assert!(!error.is_transient(), "a transient error has no effect and is retried");
        self.failure.lock().get_or_insert_with(|| error.clone());
        self.has_failed.store(true, Release);
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Acquire)
    }

    /// Sets the reason why flushing is stalled, or clears it.
    pub fn set_stall(&self, stall: Option<Error>) {
        *self.stall.lock() = stall;
    }

    /// Fails with the reason if flushing is stalled.
    pub fn check_not_stalled(&self) -> Result<()> {
        self.stall.lock().clone().map_or(Ok(()), Err)
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
}
