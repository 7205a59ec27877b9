//! Positioning many cursors with few round trips to the device.
//!
//! Each source goes as far as it can with pages that are in memory and then names the one that it misses.
//! What all of them miss is read together, and given to them directly, so that nothing depends on how long a
//! page stays in the cache. A scan over a dozen runs so costs one round of reads where it would cost a dozen.
//!
//! **Invariants**
//! - A read that fails, of a page that is needed, fails the whole positioning, once; no source is given bytes
//!   that were not read.

use std::cell::RefCell;

use testudo_base::{PAGE_SIZE, Result, num::usize_of};
use testudo_env::AlignedBuffer;
use testudo_storage::{DataFile, PageAddress};

/// Pages that a source waits for.
#[derive(Clone, Debug)]
pub struct Missing {
    /// The page that it needs.
    address: PageAddress,
    /// How many pages are to be read in all; the others are likely to be needed.
    pages: u32,
    /// Pieces of the data file that these are, first page and how many; none if they lie one behind the other
    /// from that page on.
    pieces: Vec<(u64, u32)>,
}

impl Missing {
    /// A page, and those behind it, so many in all.
    pub(crate) fn beside(address: PageAddress, pages: u32) -> Self {
        Self { address, pages, pieces: Vec::new() }
    }

    /// A page that is in these pieces.
    pub(crate) fn in_pieces(address: PageAddress, pieces: Vec<(u64, u32)>) -> Self {
        let pages = pieces.iter().map(|(_, pages)| pages).sum();
        Self { address, pages, pieces }
    }

    fn pieces(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let beside = self.pieces.is_empty().then_some((self.address.page, self.pages));
        beside.into_iter().chain(self.pieces.iter().copied())
    }

    fn bytes(&self) -> usize {
        usize_of(u64::from(self.pages)) * PAGE_SIZE
    }
}

/// A source that is being positioned.
pub trait BatchedSeek {
    /// Goes on until it stands where it should (`None`) or misses a page.
    fn progress(&mut self) -> Result<Option<Missing>>;
    /// Takes the bytes of what it missed, not yet verified.
    fn on_page(&mut self, bytes: &[u8]) -> Result<()>;
    /// Of a source that stands where it should: a page that it will need soon, to be read only if others are
    /// read anyway.
    fn next_missing(&mut self) -> Result<Option<Missing>>;
    /// Takes the bytes of what it wished for, not yet verified.
    fn prefetched(&mut self, bytes: &[u8]);
}

testudo_base::sync::thread_local! {
    static ROUND: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::zeroed(PAGE_SIZE));
}

/// Bytes that a thread keeps for its next round.
const KEPT_BYTES: usize = 256 << 10;

/// Brings every source to where it should stand.
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

/// Reads what is missing, of which the first `needed` are needed and the others wished for.
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
    for (page, pages) in missing.iter().flat_map(|(_, wanted)| wanted.pieces()) {
        let (piece, behind) = rest.split_at_mut(usize_of(u64::from(pages)) * PAGE_SIZE);
        reads.push((page, piece));
        rest = behind;
    }
    let mut results = data.read_many(&mut reads).into_iter();
    let mut rest: &mut [u8] = buffer;
    for (at, (number, wanted)) in missing.iter().enumerate() {
        // Each has a result, whichever failed before.
        let result = wanted.pieces().filter_map(|_| results.next()).fold(Ok(()), Result::and);
        let (bytes, behind) = rest.split_at_mut(wanted.bytes());
        rest = behind;
        let source = &mut sources[*number];
        match result {
            Ok(()) if at < needed => source.on_page(bytes)?,
            Ok(()) => source.prefetched(bytes),
            // What only may be needed must not be what makes a scan fail.
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
