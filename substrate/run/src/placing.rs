//! Positioning many cursors with few round trips to the device.
//!
//! Each source goes as far as it can with pages that are in memory and then names the one that it misses. What all of
//! them miss is read together, and given to them directly, so that nothing depends on how long a page stays in the cache.
//! A scan over a dozen runs so costs one round of reads where it would cost a dozen.
//!
//! **Invariants**
//! - A failed read fails the whole positioning, once; no source is given bytes that were not read.

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
pub trait Placing {
    /// Goes on until it stands where it should (`None`) or misses a page.
    fn progress(&mut self) -> Result<Option<Missing>>;
    /// Takes the bytes of what it missed, not yet verified.
    fn supply(&mut self, bytes: &[u8]) -> Result<()>;
}

testudo_base::sync::thread_local! {
    static ROUND: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::zeroed(PAGE_SIZE));
}

/// Bytes that a thread keeps for its next round.
const KEPT_BYTES: usize = 256 << 10;

/// Brings every source to where it should stand.
pub fn place_together<P: Placing>(sources: &mut [P], data: &DataFile) -> Result<()> {
    let mut missing: Vec<(usize, Missing)> = Vec::new();
    loop {
        missing.clear();
        for (number, source) in sources.iter_mut().enumerate() {
            if let Some(wanted) = source.progress()? {
                missing.push((number, wanted));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        ROUND.with(|round| read_round(&mut round.borrow_mut(), sources, &missing, data))?;
    }
}

fn read_round<P: Placing>(
    buffer: &mut AlignedBuffer,
    sources: &mut [P],
    missing: &[(usize, Missing)],
    data: &DataFile,
) -> Result<()> {
    let bytes_of = |wanted: &Missing| usize_of(u64::from(wanted.pages)) * PAGE_SIZE;
    let total = missing.iter().map(|(_, wanted)| bytes_of(wanted)).sum();
    if buffer.len() < total || buffer.len() > total.max(KEPT_BYTES) {
        *buffer = AlignedBuffer::zeroed(total);
    }
    let mut rest: &mut [u8] = buffer;
    let mut reads = Vec::with_capacity(missing.len());
    for (_, wanted) in missing {
        let (piece, behind) = rest.split_at_mut(bytes_of(wanted));
        reads.push((wanted.address.page, piece));
        rest = behind;
    }
    data.read_many(&mut reads)?;
    for ((number, _), (_, bytes)) in missing.iter().zip(&reads) {
        sources[*number].supply(bytes)?;
    }
    Ok(())
}
