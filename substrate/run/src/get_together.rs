//! Batched lookups of several keys that are known in advance.
//!
//! **Invariants**
//! - Each block is read once, however many of the keys are in it. Adjacent blocks are one read, and all reads
//!   are in flight together. Pages with ends of values that are not among these blocks are read in a second
//!   batch.
//! - Every block is verified before it is parsed.

use std::ops::Range;

use testudo_base::{
    ExtentSpan, PAGE_SIZE, Result,
    num::{u32_of, u64_of, usize_of},
};
use testudo_env::AlignedBuffer;
use testudo_storage::{DataFile, Neighbours, PageAddress, PageKind, payload_of};

use crate::{
    Access, Lookup, Run,
    format::{
        block::{Block, CONTINUATION_BYTES, Spread},
        footer::BlockPosition,
    },
};

/// A key with the run that is known to hold it.
#[derive(Clone, Copy, Debug)]
pub struct KnownKey<'a> {
    /// The run.
    pub run: &'a Run,
    /// The key.
    pub key: &'a [u8],
}

/// A block to read, with the keys in it.
struct Wanted {
    position: BlockPosition,
    address: PageAddress,
    spans: Vec<ExtentSpan>,
    keys: Vec<usize>,
    /// Whether it is put into the page cache. Pages of long values would only evict others there.
    is_kept: bool,
}

impl Wanted {
    fn bytes(&self) -> usize {
        usize_of(u64::from(self.position.pages)) * PAGE_SIZE
    }
}

/// Results of a batched lookup.
#[derive(Debug, Default)]
pub struct FoundTogether {
    /// Result per key: [`Lookup::Absent`] if the run does not hold it.
    pub found: Vec<Lookup>,
    /// Number of device reads.
    pub reads: u64,
}

/// Looks up keys whose runs are all in `data`. Cached pages are not read. Single pages are put into the
/// cache; those of longer values are not: scans would evict pages that queries use.
///
/// Errors: `Io`, `Corruption`; then there is no result for any key.
pub fn get_known_together(data: &DataFile, keys: &[KnownKey<'_>]) -> Result<FoundTogether> {
    let (found, unfinished) = (vec![Lookup::Absent; keys.len()], Vec::new());
    let mut batch = Batch { data, keys, found, unfinished, reads: 0 };
    let wanted = batch.wanted_blocks()?;
    let buffer = batch.read_all(&wanted)?;
    let blocks: Vec<(&Wanted, &[u8])> = pages_of(&wanted, &buffer).collect();
    for (block, bytes) in &blocks {
        for &at in &block.keys {
            batch.look_up(at, block.position, bytes)?;
        }
    }
    if !batch.unfinished.is_empty() {
        batch.complete_values(&blocks)?;
    }
    Ok(FoundTogether { found: batch.found, reads: batch.reads })
}

/// State of a batched lookup.
struct Batch<'b> {
    data: &'b DataFile,
    keys: &'b [KnownKey<'b>],
    found: Vec<Lookup>,
    /// Parts of values in further pages, in order.
    unfinished: Vec<Part>,
    reads: u64,
}

/// A part of a key's value, in a page after its block.
struct Part {
    key: usize,
    position: BlockPosition,
    /// Bytes of the value from this part on.
    length: usize,
    bytes: Vec<u8>,
}

impl Batch<'_> {
    /// Returns the blocks that are not cached, deduplicated and sorted by page. Looks up keys in cached
    /// blocks.
    fn wanted_blocks(&mut self) -> Result<Vec<Wanted>> {
        let mut wanted: Vec<Wanted> = Vec::new();
        for (at, KnownKey { run, key }) in self.keys.iter().enumerate() {
            if !run.reference().keys.may_hold(key) {
                continue;
            }
            let pages = run.pages_for(key, Access::Blocking)?;
            let (position, pages_behind) = pages.expect("a blocking read must return its block");
            let address = run.address(PageKind::Data, position.page)?;
            let is_kept = position.pages == 1 && pages_behind <= 1;
            for part in 0..pages_behind {
                wanted.extend(self.continuation(run, run.continuation_of(position, part)?, is_kept)?);
            }
            // Keys often arrive in run order.
            if let Some(last) = wanted.last_mut().filter(|last| last.address == address) {
                last.keys.push(at);
            } else if position.pages == 1
                && let Some(page) = self.data.cached_page(&address)
            {
                self.look_up(at, position, &page)?;
            } else {
                let is_long = position.pages > 1;
                let cached = if is_long { run.search_cached(position, Spread::Block, key)? } else { None };
                match cached {
                    Some(found) => self.found[at] = found,
                    None => {
                        let spans = run.block_spans(position)?;
                        wanted.push(Wanted { position, address, spans, keys: vec![at], is_kept });
                    }
                }
            }
        }
        Ok(each_once(wanted))
    }

    /// Returns the page in which a value continues, if it is not cached.
    fn continuation(&self, run: &Run, next: BlockPosition, is_kept: bool) -> Result<Option<Wanted>> {
        let address = run.address(PageKind::Data, next.page)?;
        if self.data.has_page(address.page) {
            return Ok(None);
        }
        let spans = run.block_spans(next)?;
        Ok(Some(Wanted { position: next, address, spans, keys: Vec::new(), is_kept }))
    }

    /// Looks up a key in its block.
    fn look_up(&mut self, at: usize, position: BlockPosition, bytes: &[u8]) -> Result<()> {
        let KnownKey { run, key } = self.keys[at];
        let damaged = |damage| run.damaged(position.page, damage);
        let block = Block::parse(payload_of(bytes)).map_err(damaged)?;
        let (index, is_equal) = block.lower_bound(key).map_err(damaged)?;
        if !is_equal {
            return Ok(());
        }
        let cell = block.cell(index).map_err(damaged)?;
        let parts = cell.continued_bytes.div_ceil(CONTINUATION_BYTES);
        for part in 0..parts {
            let next = run.continuation_of(position, u32_of(part))?;
            let length = cell.continued_bytes - part * CONTINUATION_BYTES;
            self.unfinished.push(Part { key: at, position: next, length, bytes: Vec::new() });
        }
        self.found[at] = Lookup::Found(cell.kind, cell.value.to_vec(), Neighbours::default());
        Ok(())
    }

    /// Appends the parts in further pages to their values. `read`: the blocks already read, sorted by page.
    fn complete_values(&mut self, read: &[(&Wanted, &[u8])]) -> Result<()> {
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut unfinished = std::mem::take(&mut self.unfinished);
        for (number, part) in unfinished.iter_mut().enumerate() {
            let run = self.keys[part.key].run;
            let address = run.address(PageKind::Data, part.position.page)?;
            let was_read = read.binary_search_by_key(&address.page, |(block, _)| block.address.page);
            if let Ok(place) = was_read {
                part.take(run, read[place].1)?;
            } else if let Some(page) = self.data.cached_page(&address) {
                part.take(run, &page)?;
            } else {
                let (position, spans) = (part.position, run.block_spans(part.position)?);
                wanted.push(Wanted { position, address, spans, keys: vec![number], is_kept: true });
            }
        }
        let wanted = each_once(wanted);
        let buffer = self.read_all(&wanted)?;
        for (block, bytes) in pages_of(&wanted, &buffer) {
            for &number in &block.keys {
                let part = &mut unfinished[number];
                part.take(self.keys[part.key].run, bytes)?;
            }
        }
        for part in unfinished {
            if let Lookup::Found(_, value, _) = &mut self.found[part.key] {
                value.extend_from_slice(&part.bytes);
            }
        }
        Ok(())
    }
}

impl Batch<'_> {
    /// Reads blocks into one buffer, verifies them, and caches those to keep.
    fn read_all(&mut self, wanted: &[Wanted]) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::unfilled(wanted.iter().map(Wanted::bytes).sum());
        self.reads += read_into(self.data, wanted, &mut buffer)?;
        for (block, bytes) in pages_of(wanted, &buffer) {
            self.data.verify(bytes, &block.address)?;
            if block.is_kept {
                self.data.admit(&block.address, bytes);
            }
        }
        Ok(buffer)
    }
}

impl Part {
    /// Copies the part out of its page.
    fn take(&mut self, run: &Run, page: &[u8]) -> Result<()> {
        let rest = Block::parse(payload_of(page)).and_then(|block| block.continuation(self.length));
        self.bytes.extend_from_slice(rest.map_err(|damage| run.damaged(self.position.page, damage))?);
        Ok(())
    }
}

/// Sorts blocks by page and merges duplicates with their keys.
fn each_once(mut wanted: Vec<Wanted>) -> Vec<Wanted> {
    wanted.sort_by_key(|block| block.address.page);
    wanted.dedup_by(|block, before| {
        let is_same = block.address == before.address;
        if is_same {
            before.keys.append(&mut block.keys);
            before.is_kept |= block.is_kept;
        }
        is_same
    });
    wanted
}

/// Pairs blocks with their bytes in a buffer that holds them in sequence.
fn pages_of<'p>(wanted: &'p [Wanted], buffer: &'p [u8]) -> impl Iterator<Item = (&'p Wanted, &'p [u8])> {
    let mut rest = buffer;
    wanted.iter().map(move |block| {
        let (bytes, behind) = rest.split_at(block.bytes());
        rest = behind;
        (block, bytes)
    })
}

/// Reads blocks; returns the number of device reads.
fn read_into(data: &DataFile, wanted: &[Wanted], buffer: &mut [u8]) -> Result<u64> {
    // First page of each read in the file, and its range in the buffer.
    let mut reads: Vec<(u64, Range<usize>)> = Vec::new();
    let mut end = 0;
    for span in wanted.iter().flat_map(|block| &block.spans) {
        let bytes = usize_of(span.bytes());
        match reads.last_mut() {
            Some((page, range)) if *page + u64_of(range.len() / PAGE_SIZE) == span.first_page => {
                range.end += bytes;
            }
            _ => reads.push((span.first_page, end..end + bytes)),
        }
        end += bytes;
    }
    let mut rest = buffer;
    let mut requests = Vec::with_capacity(reads.len());
    for (page, range) in reads {
        let (bytes, behind) = rest.split_at_mut(range.len());
        requests.push((page, bytes));
        rest = behind;
    }
    if requests.is_empty() {
        return Ok(0);
    }
    let places = u64_of(requests.len());
    data.read_many(&mut requests).into_iter().collect::<Result<()>>()?;
    Ok(places)
}
