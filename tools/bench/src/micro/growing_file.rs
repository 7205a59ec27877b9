//! A file in memory that can be written, so that building and merging runs cost what the store does and nothing else.
//!
//! **Invariants**
//! - What was never written reads as zeros.

use std::io;

use parking_lot::RwLock;
use testudo_base::num::{u64_of, usize_of};
use testudo_env::{File, ReadRequest};

/// The bytes.
#[derive(Debug, Default)]
pub(crate) struct GrowingFile(RwLock<Vec<u8>>);

impl File for GrowingFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.read();
        let start = usize_of(offset);
        let piece = bytes.get(start..start + buffer.len());
        buffer.copy_from_slice(piece.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.offset, request.buffer);
        }
    }

    fn write_at(&self, offset: u64, written: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.write();
        let start = usize_of(offset);
        if bytes.len() < start + written.len() {
            bytes.resize(start + written.len(), 0);
        }
        bytes[start..start + written.len()].copy_from_slice(written);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(u64_of(self.0.read().len()))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.write().resize(usize_of(length), 0);
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = usize_of(offset + length);
        let mut bytes = self.0.write();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        Ok(())
    }

    fn punch_hole(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}
