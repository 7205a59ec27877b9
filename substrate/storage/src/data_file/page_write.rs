//! A write of pages to the data file that goes on while its owner fills the next ones.
//!
//! **Invariants**
//! - The write has ended when it was waited for or dropped; until then its pages belong to it.
//! - It counts for a sync of the data file only after it was waited for.

use testudo_base::{Error, PAGE_BYTES, Result, planted, sync::Arc};
use testudo_env::{AlignedBuffer, PendingWrite};

use crate::{DATA_FILE, DataFile};

/// A write of pages under way.
#[derive(Debug)]
pub struct PageWrite {
    pub(crate) data: Arc<DataFile>,
    pub(crate) first_page: u64,
    pub(crate) length: usize,
    pub(crate) pending: Box<dyn PendingWrite>,
}

impl PageWrite {
    /// Waits for its end and gives the buffer back.
    pub fn wait(self) -> Result<AlignedBuffer> {
        let (buffer, result) = self.pending.wait();
        let result = match result {
            // A file system that refuses direct I/O only when it comes to writing: the ordinary call knows
            // what to do.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                self.data.file().write_at(self.first_page * PAGE_BYTES, &buffer[..self.length])
            }
            result => result,
        };
        outcome(result).map(|()| buffer)
    }
}

/// What a write of pages came to, for those above.
pub(crate) fn outcome(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull && planted!("full-disk-swallowed") => {
            Ok(())
        }
        result => result.map_err(|e| Error::io(DATA_FILE, e)),
    }
}
