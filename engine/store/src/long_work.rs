//! Progress reports and cancellation of long operations.
//!
//! **Invariants**
//! - An observer is called on the thread that does the work, with no lock of the store held.

use std::ops::ControlFlow;

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

/// An observer that ignores progress.
pub fn unobserved() -> impl FnMut(WorkDone) -> ControlFlow<()> {
    |_| ControlFlow::Continue(())
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
