//! A file that records read failures of the device, for callers that read around damage: unreadable data may
//! be intact.
//!
//! **Invariants**
//! - Reading beyond the end of a file is not a device failure.

use std::{io, sync::Arc};

use parking_lot::Mutex;

use crate::File;

/// A read-only file.
#[derive(Debug)]
pub struct WatchedReads {
    inner: Arc<dyn File>,
    failure: Mutex<Option<io::Error>>,
}

impl WatchedReads {
    /// A file without failures so far.
    pub fn new(inner: Arc<dyn File>) -> Self {
        Self { inner, failure: Mutex::default() }
    }

    /// Returns the first failure since the last call.
    pub fn take_failure(&self) -> Option<io::Error> {
        self.failure.lock().take()
    }
}

impl File for WatchedReads {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let read = self.inner.read_at(offset, buffer);
        if let Err(error) = &read
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            self.failure.lock().get_or_insert_with(|| io::Error::new(error.kind(), error.to_string()));
        }
        read
    }

    crate::forward!(inner: read_batch, start_read, sync, len, punch_hole, next_data, allocated_bytes);

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.inner.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.allocate(offset, length)
    }
}
