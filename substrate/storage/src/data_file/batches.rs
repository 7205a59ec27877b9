//! Batches of reads and writes of pages that bypass the cache.
//!
//! **Invariants**
//! - The bytes read are unverified.

use testudo_base::{PAGE_BYTES, Result, num::u64_of, sync::atomic::Ordering::Relaxed};
use testudo_env::{File as _, ReadRequest, WriteRequest};

use super::{DataFile, page_write::outcome};

impl DataFile {
    /// Fills each buffer from its first page on, all in one batch, bypassing the cache and *unverified*.
    /// Returns one result per buffer.
    pub fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        if let [(page, buffer)] = reads {
            return vec![self.read_counted(*page, buffer)];
        }
        let bytes: usize = reads.iter().map(|(_, buffer)| buffer.len()).sum();
        self.io.read_rounds.fetch_add(1, Relaxed);
        self.io.page_reads.fetch_add(u64_of(reads.len()), Relaxed);
        self.io.page_read_bytes.fetch_add(u64_of(bytes), Relaxed);
        self.read_batch(reads)
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let mut requests: Vec<ReadRequest<'_>> =
            reads.iter_mut().map(|(page, buffer)| ReadRequest::new(*page * PAGE_BYTES, buffer)).collect();
        self.file.read_batch(&mut requests);
        let result = |request: ReadRequest<'_>| {
            request.result.map_err(|e| self.read_error(request.offset / PAGE_BYTES, e))
        };
        requests.into_iter().map(result).collect()
    }

    /// Several [`DataFile::read_stream`] in one batch. Returns one result per buffer.
    pub fn read_streams(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let bytes: usize = reads.iter().map(|(_, buffer)| buffer.len()).sum();
        self.count_stream_reads(u64_of(reads.len()), u64_of(bytes));
        self.read_batch(reads)
    }

    /// Writes pages, many at once: each request has the first page and the contents of adjacent ones. Like
    /// [`DataFile::write_pages`], except for the order.
    pub fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        let mut requests: Vec<WriteRequest<'_>> =
            writes.iter().map(|(page, bytes)| WriteRequest::new(*page * PAGE_BYTES, bytes)).collect();
        let bytes: usize = writes.iter().map(|(_, bytes)| bytes.len()).sum();
        self.io.written_bytes.fetch_add(u64_of(bytes), Relaxed);
        self.file.write_batch(&mut requests);
        requests.into_iter().try_for_each(|request| outcome(request.result))
    }
}
