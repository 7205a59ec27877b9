//! An in-memory data file, so that only the store's own cost of a miss is measured.
//!
//! **Invariants**
//! - Every page is sealed with the identity of its position; the file is read-only.

use std::io;

use testudo_base::{KeyspaceId, PAGE_BYTES, PAGE_SIZE, RunId, StoreId, num::usize_of};
use testudo_env::{File, ReadRequest};
use testudo_storage::{PAGE_HEADER_BYTES, PageIdentity, PageKind, seal_pages};

/// The store that the pages belong to.
pub(crate) const STORE: StoreId = StoreId(7);

/// Sealed pages.
#[derive(Debug)]
pub(crate) struct MemoryFile(Vec<[u8; PAGE_SIZE]>);

impl MemoryFile {
    /// Creates a file of `pages` full data pages.
    pub(crate) fn new(pages: u64) -> Self {
        let sealed = |page: u64| {
            let mut bytes = [0; PAGE_SIZE];
            let (generation, keyspace) = (RunId(1), KeyspaceId(1));
            let (kind, incarnation) = (PageKind::Data, 1);
            let identity = PageIdentity { store: STORE, kind, page, generation, keyspace, incarnation };
            bytes[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + 8].copy_from_slice(&page.to_le_bytes());
            seal_pages(&mut bytes, &identity, PAGE_SIZE - PAGE_HEADER_BYTES);
            bytes
        };
        Self((0..pages).map(sealed).collect())
    }
}

fn refused() -> io::Error {
    io::Error::from(io::ErrorKind::ReadOnlyFilesystem)
}

impl File for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let first = usize_of(offset / PAGE_BYTES);
        for (page, target) in self.0[first..].iter().zip(buffer.chunks_exact_mut(PAGE_SIZE)) {
            target.copy_from_slice(page);
        }
        Ok(())
    }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.offset, request.buffer);
        }
    }
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(refused())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(testudo_base::num::u64_of(self.0.len()) * PAGE_BYTES)
    }
    fn set_len(&self, _length: u64) -> io::Result<()> {
        Err(refused())
    }
    fn allocate(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(refused())
    }
    fn punch_hole(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(refused())
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}
