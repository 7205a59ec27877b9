//! A write that goes on while its owner does something else.
//!
//! **Invariants**
//! - The buffer belongs to the write until [`PendingWrite::wait`] gives it back.
//! - A write that is dropped has ended when the drop returns: what becomes of its place in the file is up to
//!   its owner alone.

use std::{fmt, io};

use crate::AlignedBuffer;

/// So many writes under way at once are worth starting: each has an io_uring of its own while it lasts, and
/// of these 16 are kept, for reads, too. More would be made and dropped again, and that takes longer.
pub const WRITES_AT_ONCE: usize = 12;

/// A write under way.
pub trait PendingWrite: Send + fmt::Debug {
    /// Waits for its end and gives the buffer back, unchanged. `Ok` means what it means for
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
