//! Progress reports and cancellation of long operations.
//!
//! **Invariants**
//! - An observer is called on the thread that does the work, with no lock of the store held.

use std::{fmt, ops::ControlFlow};

use testudo_base::{Error, ErrorKind, Result};
use testudo_env::Process;

/// Progress of a long operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Bytes done.
    pub done_bytes: u64,
    /// Total bytes, as far as known.
    pub total_bytes: u64,
}

/// Called periodically with the progress; its `Break` ends the work with [`ErrorKind::Cancelled`].
pub type Observer<'a> = dyn FnMut(WorkDone) -> ControlFlow<()> + 'a;

/// The observer in the options of a long operation; by default one that ignores progress.
pub struct Observed<'a, P = WorkDone>(Box<dyn FnMut(P) -> ControlFlow<()> + 'a>);

impl<'a, P> Observed<'a, P> {
    pub fn by(observer: impl FnMut(P) -> ControlFlow<()> + 'a) -> Self {
        Self(Box::new(observer))
    }

    pub fn get(&mut self) -> &mut (dyn FnMut(P) -> ControlFlow<()> + 'a) {
        &mut *self.0
    }
}

impl<P> Default for Observed<'_, P> {
    fn default() -> Self {
        Self::by(|_| ControlFlow::Continue(()))
    }
}

impl<P> fmt::Debug for Observed<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}

/// Counts bytes for an observer.
pub struct Meter<'a, 'o> {
    observer: &'a mut Observer<'o>,
    done: WorkDone,
    /// The process that does the work: an observer may fork.
    process: Process,
}

impl<'a, 'o> Meter<'a, 'o> {
    pub fn new(observer: &'a mut Observer<'o>, total_bytes: u64) -> Self {
        Self { observer, done: WorkDone { done_bytes: 0, total_bytes }, process: Process::current() }
    }

    /// Adds `bytes` to the total.
    pub fn expect_more(&mut self, bytes: u64) {
        self.done.total_bytes += bytes;
    }

    /// Adds `bytes` to those done and calls the observer.
    pub fn advance(&mut self, bytes: u64) -> Result<()> {
        self.done.done_bytes += bytes;
        let told = (self.observer)(self.done);
        self.process.check()?;
        match told {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::new(ErrorKind::Cancelled, "stopped on request")),
        }
    }
}
