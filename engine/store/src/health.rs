//! Whether an open store can still be used: closed, failed for good, stalled for want of space, or inherited
//! over a fork.
//!
//! **Invariants**
//! - A store that was closed or has failed stays so; the first failure is kept.
//! - In a forked child every check fails with `Closed`, before it takes any lock: its holder may be a thread
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

/// The state of a store beside its contents.
#[derive(Debug)]
pub struct Health {
    /// The one that opened the store.
    process: Process,
    is_closing: AtomicBool,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Why flushing cannot go on for now.
    stall: Mutex<Option<Error>>,
}

impl Health {
    /// Of a store that was just opened by `process`.
    pub fn new(process: Process) -> Self {
        Self {
            process,
            is_closing: false.into(),
            has_failed: false.into(),
            failure: Mutex::default(),
            stall: Mutex::default(),
        }
    }

    /// Whether this is a child that was forked from the process that opened the store. It does nothing with
    /// it, and forgets what it would have to give up: locks, threads and files are those of the owner.
    #[inline]
    pub fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Fails in a forked child.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        self.process.check()
    }

    /// Neither reads nor writes begin from now on.
    pub fn begin_closing(&self) {
        self.is_closing.store(true, Release);
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Acquire)
    }

    /// Fails if the store was closed: its pages may belong to whoever opened it next.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.is_closing.load(Relaxed) && !planted!("closed-store-still-read") {
            return Err(closed());
        }
        self.check_process()
    }

    /// `Closed` if the store is, else `error`.
    #[cold]
    pub fn closed_or(&self, error: Error) -> Error {
        // The lock is released after the flag was set: who sees pages of the next writer sees the flag.
        if self.is_closing() {
            return closed();
        }
        self.check_process().err().unwrap_or(error)
    }

    /// Fails if the store must not be written to any more.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.check_process()?;
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
    pub fn fail(&self, error: &Error) {
        self.failure.lock().get_or_insert_with(|| error.clone());
        self.has_failed.store(true, Release);
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Acquire)
    }

    /// Flushing cannot go on for now, or goes on again.
    pub fn set_stall(&self, stall: Option<Error>) {
        *self.stall.lock() = stall;
    }

    /// Fails with the reason if flushing cannot go on for now.
    pub fn check_not_stalled(&self) -> Result<()> {
        self.stall.lock().clone().map_or(Ok(()), Err)
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
}
