//! A write that proceeds in the background.
//!
//! **Invariants**
//! - The buffer belongs to the write until [`PendingWrite::wait`] returns it.
//! - A dropped write has ended when the drop returns: afterwards only its owner changes that range of the
//!   file. A write that never ends is given up; the file then refuses all further writes and syncs.

use std::{fmt, io};

use crate::AlignedBuffer;

/// A write in flight.
pub trait PendingWrite: Send + fmt::Debug {
    /// Waits for the write to end and returns the unchanged buffer. `Ok` has the same meaning as for
    /// [`crate::File::write_at`].
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>);
}

/// A write that had ended before it was waited for.
#[derive(Debug)]
pub(crate) struct FinishedWrite {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) result: io::Result<()>,
}

impl PendingWrite for FinishedWrite {
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>) {
        (self.buffer, self.result)
    }
}
