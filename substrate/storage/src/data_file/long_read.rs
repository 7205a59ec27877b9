//! Values and blocks of many pages: cached pages are copied, the others are read in one batch. Pages that
//! were read are cached individually like single pages: on probation first, then by use.
//!
//! The pages of a block share one checksum, so a page inside a block cannot be verified alone. It is cached
//! only after its block was verified, and is read from the cache only as part of that block.
//!
//! **Invariants**
//! - [`DataFile::keep_long`] gets verified pages only.
//! - A value takes at most an eighth of the cache: a longer one would only evict others.

use std::ops::Range;

use testudo_base::{
    ExtentSpan, PAGE_SIZE, Result, RunId,
    num::{u64_of, usize_of},
    sync::atomic::Ordering::Relaxed,
};
use testudo_env::AlignedBuffer;

use super::{DataFile, PageAddress, PageRef, priority};

/// Up to this many cached pages between two missing ones are read again: another request costs more.
const GAP_PAGES: usize = 4;

/// Consecutive pages of a run, as read by [`DataFile::read_long`].
#[derive(Debug)]
pub struct LongRead {
    bytes: AlignedBuffer,
    /// Ranges of pages that were read from the device, ascending.
    read: Vec<Range<usize>>,
}

impl LongRead {
    /// All pages in order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Indexes of pages that were read from the device and are *unverified*. The others are verified.
    pub fn unverified_pages(&self) -> impl Iterator<Item = usize> + '_ {
        self.read.iter().cloned().flatten()
    }

    /// Whether any page was read from the device.
    pub fn has_unverified_pages(&self) -> bool {
        !self.read.is_empty()
    }

    /// Returns the bytes of the pages.
    pub fn into_bytes(self) -> AlignedBuffer {
        self.bytes
    }
}

impl DataFile {
    /// Lets the cache keep the pages of values and blocks of more than `bytes`: shorter ones are cached as
    /// records.
    pub fn set_record_bytes_max(&self, bytes: u64) {
        self.record_bytes_max.store(bytes, Relaxed);
    }

    /// Whether the cache keeps the pages of a value of this length, or of a block that holds one.
    pub fn keeps_long(&self, bytes: usize) -> bool {
        u64_of(bytes) > self.record_bytes_max.load(Relaxed)
    }

    /// Returns the pages of these spans, which are consecutive in a run of `generation`. Pages that are not
    /// cached are read in one batch; all are if `may_be_kept` is `false`.
    ///
    /// Errors: `Io`.
    pub fn read_long(&self, spans: &[ExtentSpan], generation: RunId, may_be_kept: bool) -> Result<LongRead> {
        let pages: usize = spans.iter().map(|span| usize_of(u64::from(span.page_count))).sum();
        let mut bytes = AlignedBuffer::unfilled(pages * PAGE_SIZE);
        let mut read: Vec<Range<usize>> = Vec::new();
        if may_be_kept {
            for (at, (page, target)) in pages_of(spans).zip(bytes.chunks_exact_mut(PAGE_SIZE)).enumerate() {
                match self.cache.get(page, generation) {
                    Some(found) => target.copy_from_slice(&found),
                    None => add_missing(&mut read, at),
                }
            }
        } else {
            read.push(0..pages);
        }
        self.read_missing(spans, &mut bytes, &read)?;
        Ok(LongRead { bytes, read })
    }

    /// Iterates over the pages if all of them are cached. A page that is evicted before the iterator reaches
    /// it yields `None`.
    pub fn cached_pages<'a>(
        &'a self,
        spans: &'a [ExtentSpan],
        generation: RunId,
    ) -> Option<impl Iterator<Item = Option<PageRef<'a>>> + 'a> {
        let has_all = pages_of(spans).all(|page| self.cache.has(page));
        has_all.then(|| pages_of(spans).map(move |page| self.cache.get(page, generation)))
    }

    /// Reads the missing pages of `spans` in one batch.
    fn read_missing(&self, spans: &[ExtentSpan], bytes: &mut [u8], missing: &[Range<usize>]) -> Result<()> {
        debug_assert!(missing.is_sorted_by(|a, b| a.end <= b.start), "ranges ascend");
        let mut reads = Vec::with_capacity(missing.len());
        let (mut rest, mut begin, mut missing) = (bytes, 0, missing.iter().cloned().peekable());
        for span in spans {
            let end = begin + usize_of(u64::from(span.page_count));
            let (mut of_span, behind) = rest.split_at_mut((end - begin) * PAGE_SIZE);
            let mut at = begin;
            while let Some(range) = missing.peek().cloned().filter(|range| range.start < end) {
                let (from, to) = (range.start.max(at), range.end.min(end));
                let (_, target) = std::mem::take(&mut of_span).split_at_mut((from - at) * PAGE_SIZE);
                let (target, left) = target.split_at_mut((to - from) * PAGE_SIZE);
                reads.push((span.first_page + u64_of(from - begin), target));
                (of_span, at) = (left, to);
                if range.end > end {
                    break;
                }
                missing.next();
            }
            (rest, begin) = (behind, end);
        }
        if reads.is_empty() {
            return Ok(());
        }
        self.read_many(&mut reads).into_iter().collect()
    }

    /// Caches the pages of `long` that were read. REQUIRES: they were verified, and the extents are held.
    pub fn keep_long(&self, spans: &[ExtentSpan], address: &PageAddress, long: &LongRead) {
        if !self.cache.has_room_for(long.bytes.len() / PAGE_SIZE) {
            return;
        }
        let mut read = long.unverified_pages().peekable();
        for (at, (page, bytes)) in pages_of(spans).zip(long.bytes.chunks_exact(PAGE_SIZE)).enumerate() {
            if read.next_if_eq(&at).is_some() {
                drop(self.cache.insert(page, address.generation, bytes, priority(address.kind)));
            }
        }
    }
}

fn pages_of(spans: &[ExtentSpan]) -> impl Iterator<Item = u64> + '_ {
    spans.iter().flat_map(|span| span.first_page..span.end_page())
}

/// Adds a page to the ranges to read.
fn add_missing(missing: &mut Vec<Range<usize>>, at: usize) {
    match missing.last_mut() {
        Some(last) if at - last.end <= GAP_PAGES => last.end = at + 1,
        _ => missing.push(at..at + 1),
    }
}

#[cfg(test)]
mod tests;
