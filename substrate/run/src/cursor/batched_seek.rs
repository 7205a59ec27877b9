//! Batched seeks: positions many cursors with few round trips to the device.
//!
//! Each source advances as far as cached pages allow, then reports the page that it misses. All missing pages
//! are read in one batch and passed to the sources directly, so that cache eviction cannot interfere. A scan
//! over a dozen runs then costs one batch of reads instead of a dozen.
//!
//! **Invariants**
//! - A failed read of a needed page fails the whole seek, once; sources never get bytes of failed reads.

use std::cell::RefCell;

use testudo_base::{PAGE_SIZE, Result, num::usize_of};
use testudo_env::AlignedBuffer;
use testudo_storage::{DataFile, PageAddress};

/// Pages for which a source waits.
#[derive(Clone, Debug)]
pub struct Missing {
    /// Address of the needed page.
    address: PageAddress,
    /// Total number of pages to read; the others are likely to be needed.
    pages: u32,
    /// Chunks of the data file to read, as first page and count; empty if they are contiguous from the needed
    /// page on.
    chunks: Vec<(u64, u32)>,
}

impl Missing {
    /// A page and the pages after it, `pages` in total.
    pub(crate) fn beside(address: PageAddress, pages: u32) -> Self {
        Self { address, pages, chunks: Vec::new() }
    }

    /// A page that is in these chunks.
    pub(crate) fn in_chunks(address: PageAddress, chunks: Vec<(u64, u32)>) -> Self {
        let pages = chunks.iter().map(|(_, pages)| pages).sum();
        Self { address, pages, chunks }
    }

    fn chunks(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let beside = self.chunks.is_empty().then_some((self.address.page, self.pages));
        beside.into_iter().chain(self.chunks.iter().copied())
    }

    fn bytes(&self) -> usize {
        usize_of(u64::from(self.pages)) * PAGE_SIZE
    }
}

/// A source that is being positioned.
pub trait BatchedSeek {
    /// Advances until the source is positioned (`None`) or misses a page.
    fn progress(&mut self) -> Result<Option<Missing>>;
    /// Accepts the bytes of the missing pages, not yet verified.
    fn on_page(&mut self, bytes: &[u8]) -> Result<()>;
    /// Returns a page that a positioned source will need soon; it is read only along with others.
    fn next_missing(&mut self) -> Result<Option<Missing>>;
    /// Accepts the bytes of pages from [`BatchedSeek::next_missing`], not yet verified.
    fn prefetched(&mut self, bytes: &[u8]);
}

testudo_base::sync::thread_local! {
    static ROUND: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::zeroed(PAGE_SIZE));
}

/// Maximum bytes that a thread keeps for its next batch.
const KEPT_BYTES: usize = 256 << 10;

/// Positions all sources.
pub fn seek_together<P: BatchedSeek>(sources: &mut [P], data: &DataFile) -> Result<()> {
    let mut missing: Vec<(usize, Missing)> = Vec::new();
    let mut done: Vec<usize> = Vec::new();
    loop {
        missing.clear();
        done.clear();
        for (number, source) in sources.iter_mut().enumerate() {
            match source.progress()? {
                Some(wanted) => missing.push((number, wanted)),
                None => done.push(number),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let needed = missing.len();
        for &number in &done {
            missing.extend(sources[number].next_missing()?.map(|wanted| (number, wanted)));
        }
        ROUND.with(|round| read_round(&mut round.borrow_mut(), sources, (&missing, needed), data))?;
    }
}

/// Reads missing pages; the first `needed` are required, the others are prefetches.
fn read_round<P: BatchedSeek>(
    buffer: &mut AlignedBuffer,
    sources: &mut [P],
    (missing, needed): (&[(usize, Missing)], usize),
    data: &DataFile,
) -> Result<()> {
    let total = missing.iter().map(|(_, wanted)| wanted.bytes()).sum();
    if buffer.len() < total || buffer.len() > total.max(KEPT_BYTES) {
        *buffer = AlignedBuffer::unfilled(total);
    }
    let mut rest: &mut [u8] = buffer;
    let mut reads = Vec::with_capacity(missing.len());
    for (page, pages) in missing.iter().flat_map(|(_, wanted)| wanted.chunks()) {
        let (chunk, behind) = rest.split_at_mut(usize_of(u64::from(pages)) * PAGE_SIZE);
        reads.push((page, chunk));
        rest = behind;
    }
    let mut results = data.read_many(&mut reads).into_iter();
    let mut rest: &mut [u8] = buffer;
    for (at, (number, wanted)) in missing.iter().enumerate() {
        // Consume one result per chunk, even after a failure.
        let result = wanted.chunks().filter_map(|_| results.next()).fold(Ok(()), Result::and);
        let (bytes, behind) = rest.split_at_mut(wanted.bytes());
        rest = behind;
        let source = &mut sources[*number];
        match result {
            Ok(()) if at < needed => source.on_page(bytes)?,
            Ok(()) => source.prefetched(bytes),
            // A failed prefetch must not fail a scan.
            Err(_) if at >= needed => {}
            Err(_) if bytes.len() > PAGE_SIZE => {
                let first = &mut bytes[..PAGE_SIZE];
                data.read_many(&mut [(wanted.address.page, &mut *first)])
                    .into_iter()
                    .collect::<Result<()>>()?;
                source.on_page(first)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
