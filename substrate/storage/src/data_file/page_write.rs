//! An asynchronous write of pages to the data file.
//!
//! **Invariants**
//! - The write ends when it is waited for or dropped; until then it owns its pages.
//! - A sync of the data file covers the write only after it was waited for.

use testudo_base::{Error, PAGE_BYTES, Result, planted, sync::Arc};
use testudo_env::{AlignedBuffer, PendingWrite};

use crate::{DATA_FILE, DataFile};

/// A write of pages in flight.
#[derive(Debug)]
pub struct PageWrite {
    pub(crate) data: Arc<DataFile>,
    pub(crate) first_page: u64,
    pub(crate) length: usize,
    pub(crate) pending: Box<dyn PendingWrite>,
}

impl PageWrite {
    /// Waits for the write and returns the buffer.
    pub fn wait(self) -> Result<AlignedBuffer> {
        let (buffer, result) = self.pending.wait();
        let result = match result {
            // Some file systems refuse direct I/O only at the write itself; `write_at` handles that.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                self.data.file().write_at(self.first_page * PAGE_BYTES, &buffer[..self.length])
            }
            result => result,
        };
        outcome(result).map(|()| buffer)
    }
}

/// Converts the result of a page write.
pub(crate) fn outcome(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull && planted!("full-disk-swallowed") => {
            Ok(())
        }
        result => result.map_err(|e| Error::io(DATA_FILE, e)),
    }
}
