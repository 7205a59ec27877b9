//! A read that goes on while its owner does something else.
//!
//! **Invariants**
//! - The buffer belongs to the read until [`PendingRead::wait`] gives it back.
//! - A read may be dropped at any time; its memory is not reused before nobody writes into it any more.

use std::{fmt, io};

use crate::AlignedBuffer;

/// A read under way.
pub trait PendingRead: Send + fmt::Debug {
    /// Waits for its end and gives the buffer back, filled completely if the result is `Ok`.
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>);
}

/// A read that had ended before it was waited for.
#[derive(Debug)]
pub(crate) struct FinishedRead {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) result: io::Result<()>,
}

impl PendingRead for FinishedRead {
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>) {
        (self.buffer, self.result)
    }
}
