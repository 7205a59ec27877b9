//! A writable in-memory file, so that only the store's own cost of building and merging runs is measured.
//!
//! **Invariants**
//! - Unwritten ranges read as zeros.

use std::{io, sync::Arc};

use parking_lot::RwLock;
use testudo::Result;
use testudo_base::{
    Incarnation, StoreId,
    num::{u64_of, usize_of},
};
use testudo_env::{File, ReadRequest};
use testudo_storage::DataFile;

/// Contents of the file.
#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// Length of the file; beyond `bytes` it is zeros.
    length: usize,
}

/// The file.
#[derive(Debug, Default)]
pub(crate) struct GrowingFile(RwLock<Content>);

/// Creates an empty in-memory data file with `cache_bytes` of cache, for writing runs.
pub(crate) fn growing_data_file(cache_bytes: u64) -> Result<Arc<DataFile>> {
    let file = Arc::new(GrowingFile::default());
    DataFile::new(file, StoreId(1), cache_bytes, std::iter::empty(), Some(Incarnation(1)))
}

impl File for GrowingFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let content = self.0.read();
        let start = usize_of(offset);
        if start + buffer.len() > content.length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let written = content.bytes.get(start..).unwrap_or_default();
        let (present, beyond) = buffer.split_at_mut(written.len().min(buffer.len()));
        present.copy_from_slice(&written[..present.len()]);
        beyond.fill(0);
        Ok(())
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.offset, request.buffer);
        }
    }

    fn write_at(&self, offset: u64, written: &[u8]) -> io::Result<()> {
        let content = &mut *self.0.write();
        let (start, bytes) = (usize_of(offset), &mut content.bytes);
        if bytes.len() < start {
            bytes.resize(start, 0);
        }
        // Bytes beyond the end are appended without zeroing first, as on a device.
        let (present, beyond) = written.split_at(written.len().min(bytes.len() - start));
        bytes[start..start + present.len()].copy_from_slice(present);
        bytes.extend_from_slice(beyond);
        content.length = content.length.max(bytes.len());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(u64_of(self.0.read().length))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let content = &mut *self.0.write();
        content.length = usize_of(length);
        content.bytes.truncate(content.length);
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let content = &mut *self.0.write();
        content.length = content.length.max(usize_of(offset + length));
        Ok(())
    }

    fn punch_hole(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}
