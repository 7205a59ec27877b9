//! A read that proceeds in the background.
//!
//! **Invariants**
//! - The buffer belongs to the read until [`PendingRead::wait`] returns it.
//! - A read may be dropped at any time; its memory is not reused while anything may still write into it.

use std::{fmt, io};

use crate::AlignedBuffer;

/// A read in flight.
pub trait PendingRead: Send + fmt::Debug {
    /// Waits for the read to end and returns the buffer, completely filled if the result is `Ok`.
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
