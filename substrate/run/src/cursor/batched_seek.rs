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
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    /// The page that it needs.
    pub address: PageAddress,
    /// How many pages are to be read from there on; those behind the first are likely to be needed.
    pub pages: u32,
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
    let bytes_of = |wanted: &Missing| usize_of(u64::from(wanted.pages)) * PAGE_SIZE;
    let total = missing.iter().map(|(_, wanted)| bytes_of(wanted)).sum();
    if buffer.len() < total || buffer.len() > total.max(KEPT_BYTES) {
        *buffer = AlignedBuffer::unfilled(total);
    }
    let mut rest: &mut [u8] = buffer;
    let mut reads = Vec::with_capacity(missing.len());
    for (_, wanted) in missing {
        let (piece, behind) = rest.split_at_mut(bytes_of(wanted));
        reads.push((wanted.address.page, piece));
        rest = behind;
    }
    let results = data.read_many(&mut reads);
    for (at, (result, (page, bytes))) in results.into_iter().zip(reads).enumerate() {
        let source = &mut sources[missing[at].0];
        match result {
            Ok(()) if at < needed => source.on_page(bytes)?,
            Ok(()) => source.prefetched(bytes),
            // What only may be needed must not be what makes a scan fail.
            Err(_) if at >= needed => {}
            Err(_) if bytes.len() > PAGE_SIZE => {
                let first = &mut bytes[..PAGE_SIZE];
                data.read_many(&mut [(page, &mut *first)]).into_iter().collect::<Result<()>>()?;
                source.on_page(first)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
