//! Batched loads of single pages into the cache.
//!
//! Adjacent pages are one read. Its bytes are copied into their frames, which is far cheaper than another
//! request.
//!
//! **Invariants**
//! - Loads of other threads are awaited only after this thread's own loads have ended: those threads may be
//!   waiting for these.
//! - A page that cannot be read does not fail the others.

use std::{io, ops::Range};

use testudo_base::{PAGE_BYTES, PAGE_SIZE, Result, num::u64_of, sync::atomic::Ordering::Relaxed};
use testudo_env::{AlignedBuffer, File as _, ReadRequest};

use super::{DataFile, PageAddress};
use crate::cache::{Arrival, Awaited, Loading};

/// Maximum pages per read.
const PAGES_BESIDE_MAX: usize = 16;

/// A page that this thread loads, with its frame.
type Load<'l> = (&'l PageAddress, Loading<'l>);

impl DataFile {
    /// Reads many single pages into the cache in one batch, and waits for those that other threads are
    /// loading. Returns the first error. Pages without a frame in the cache are left to their next reader.
    pub fn load_pages(&self, addresses: &[PageAddress]) -> Result<()> {
        let (mut loads, mut awaited) = (Vec::with_capacity(addresses.len()), Vec::new());
        for address in addresses {
            match self.begin_load(address) {
                Arrival::Load(loading) => loads.push((address, loading)),
                Arrival::Elsewhere(load) => awaited.push(load),
                Arrival::Present(_) | Arrival::Refused => {}
            }
        }
        let results = self.read_loads(&mut loads);
        let mut outcome = Ok(());
        for ((address, mut loading), result) in loads.into_iter().zip(results) {
            let verified = result
                .map_err(|error| self.read_error(address.page, error))
                .and_then(|()| self.check(loading.bytes(), address));
            match verified {
                Ok(()) => drop(loading.finish()),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        // Only now: the threads that load those may be waiting for ours.
        awaited.into_iter().for_each(Awaited::wait);
        outcome
    }

    /// Reads the pages and sorts them by page number; returns one result per page.
    fn read_loads(&self, loads: &mut [Load<'_>]) -> Vec<io::Result<()>> {
        loads.sort_by_key(|(address, _)| address.page);
        let chunks = chunks_of(loads);
        let beside: usize = chunks.iter().filter(|chunk| chunk.len() > 1).map(Range::len).sum();
        let mut buffer = AlignedBuffer::unfilled(beside * PAGE_SIZE);
        let mut requests = Vec::with_capacity(chunks.len());
        let (mut left, mut room): (&mut [Load<'_>], &mut [u8]) = (loads, &mut buffer);
        for chunk in &chunks {
            let (these, others) = left.split_at_mut(chunk.len());
            left = others;
            let offset = these[0].0.page * PAGE_BYTES;
            if let [(_, loading)] = these {
                requests.push(ReadRequest::new(offset, loading.bytes()));
            } else {
                let (target, behind) = room.split_at_mut(chunk.len() * PAGE_SIZE);
                room = behind;
                requests.push(ReadRequest::new(offset, target));
            }
        }
        debug_assert_eq!(requests.len(), chunks.len(), "a request per chunk");
        self.file.read_batch(&mut requests);
        let results: Vec<io::Result<()>> = requests.into_iter().map(|request| request.result).collect();
        self.io.read_rounds.fetch_add(1, Relaxed);
        self.io.page_reads.fetch_add(u64_of(loads.len()), Relaxed);
        self.io.page_read_bytes.fetch_add(u64_of(loads.len()) * PAGE_BYTES, Relaxed);
        let mut pages = buffer.chunks_exact(PAGE_SIZE);
        let mut outcomes = Vec::with_capacity(loads.len());
        for (chunk, result) in chunks.into_iter().zip(results) {
            if chunk.len() == 1 {
                outcomes.push(result);
                continue;
            }
            for (address, loading) in &mut loads[chunk] {
                let read = pages.next().unwrap_or_default();
                outcomes.push(if result.is_ok() {
                    loading.bytes().copy_from_slice(read);
                    Ok(())
                } else {
                    self.file.read_at(address.page * PAGE_BYTES, loading.bytes())
                });
            }
        }
        outcomes
    }
}

/// Groups the pages that are read together. REQUIRES: sorted by page number.
fn chunks_of(loads: &[Load<'_>]) -> Vec<Range<usize>> {
    debug_assert!(loads.is_sorted_by_key(|(address, _)| address.page), "sorted by page number");
    let mut chunks: Vec<Range<usize>> = Vec::with_capacity(loads.len());
    for (at, (address, _)) in loads.iter().enumerate() {
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < PAGES_BESIDE_MAX && loads[at - 1].0.page + 1 == address.page => {
                chunk.end = at + 1;
            }
            _ => chunks.push(at..at + 1),
        }
    }
    chunks
}
