//! How long pieces of work tell how far they are, and how they are stopped.
//!
//! **Invariants**
//! - An observer is called on the thread that does the work, with no lock of the store held.

use std::ops::ControlFlow;

use testudo_base::{Error, ErrorKind, Result};
use testudo_env::Process;

/// How far a long piece of work has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all, as far as is known.
    pub total_bytes: u64,
}

/// Is told now and then how far the work is; its `Break` ends the work with [`ErrorKind::Cancelled`].
pub type Observer<'a> = dyn FnMut(WorkDone) -> ControlFlow<()> + 'a;

/// An observer for work that nobody watches.
pub fn unobserved() -> impl FnMut(WorkDone) -> ControlFlow<()> {
    |_| ControlFlow::Continue(())
}

/// Counts bytes on behalf of an observer.
pub struct Meter<'a, 'o> {
    observer: &'a mut Observer<'o>,
    done: WorkDone,
    /// The one that does the work: an observer may fork.
    process: Process,
}

impl<'a, 'o> Meter<'a, 'o> {
    pub fn new(observer: &'a mut Observer<'o>, total_bytes: u64) -> Self {
        Self { observer, done: WorkDone { done_bytes: 0, total_bytes }, process: Process::current() }
    }

    /// There is this much more to do.
    pub fn expect_more(&mut self, bytes: u64) {
        self.done.total_bytes += bytes;
    }

    /// This much more is done.
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
