//! A bidirectional cursor over one run.
//!
//! It walks the index and copies one data block at a time, so that it never pins a page of the cache. Queries
//! start with single pages through the cache, or with as many as a scan is predicted to need. A cursor that
//! has read a few adjacent blocks is a long scan, and reads increasingly large chunks from then on, bypassing
//! the cache. Compactions start in that mode.
//!
//! Seeks are in `cursor/seek.rs`, reads in `cursor/block_reader.rs` and `cursor/window.rs`.
//!
//! **Invariants**
//! - The current entry, if any, is that of `slot` in the loaded block. During a seek its `key` is the sought
//!   key.
//! - Every block is verified before it is parsed, whichever way it was read.

pub(crate) mod batched_seek;
pub(crate) mod block_reader;
pub(crate) mod bounded;
pub(crate) mod index_position;
pub(crate) mod merge;
pub(crate) mod page_walk;
pub(crate) mod scan_forecast;
pub(crate) mod small_runs;
pub(crate) mod window;

mod seek;

use std::{ops::Range, sync::Arc};

use testudo_base::{Cursor, Entry, Kind, PAGE_SIZE, Result, num::u32_of};

use crate::{
    Access, Run,
    cursor::{
        block_reader::{BlockReader, DataBlock},
        index_position::IndexPosition,
        scan_forecast::ScanForecast,
        seek::SeekState,
    },
};

/// Read-ahead policy for consecutive data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// Single pages through the cache until a few adjacent ones were read; then increasingly large chunks.
    Adaptive,
    /// Chunks of this many pages from the start, bypassing the cache.
    Pages(u32),
}

/// Target of a seek, by key or by the ends of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The first entry.
    First,
    /// The last entry.
    Last,
    /// The first entry whose key is ≥ this one.
    From(&'a [u8]),
    /// The last entry whose key is < this one.
    Before(&'a [u8]),
}

/// The current entry of a cursor.
#[derive(Debug)]
struct CurrentEntry {
    is_there: bool,
    slot: usize,
    key: Vec<u8>,
    kind: Kind,
    /// Range of the value in the block.
    value: Range<usize>,
}

/// A cursor over one run.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    index: IndexPosition,
    reader: BlockReader,
    block: DataBlock,
    entry: CurrentEntry,
    seek: SeekState,
}

impl RunCursor {
    /// Creates an unpositioned cursor; reads nothing yet.
    pub fn new(run: Arc<Run>, read_ahead: ReadAhead) -> Self {
        Self {
            run,
            index: IndexPosition::default(),
            reader: BlockReader::new(read_ahead),
            block: DataBlock::default(),
            entry: CurrentEntry { is_there: false, slot: 0, key: Vec::new(), kind: Kind::Value, value: 0..0 },
            seek: SeekState::done(),
        }
    }

    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Sets how many pages a seek reads at once, for the run that holds most entries of a scan.
    pub fn expect_pages(&mut self, pages: u32) {
        self.reader.first_pages = pages.max(1);
    }

    /// Limits reads to the predicted needs of a scan.
    pub fn set_forecast(&mut self, forecast: ScanForecast) {
        self.reader.set_forecast(forecast);
    }

    /// Number of consecutive pages passed, on this run and on previous ones.
    pub fn passed_pages(&self) -> u32 {
        self.reader.passed_pages
    }

    /// Continues a scan that has already passed `passed_pages` pages.
    pub fn go_on_after(&mut self, passed_pages: u32) {
        self.reader.passed_pages = passed_pages;
    }

    /// Prepares for a scan that will arrive after `passed_pages` pages: starts reading the first pages if the
    /// scan is long enough to make this likely.
    pub fn prepare_after(&mut self, passed_pages: u32) {
        self.go_on_after(passed_pages);
        self.reader.prepare(&self.run);
    }

    /// Resets the detection of a long scan.
    pub fn begin_anew(&mut self) {
        self.reader.begin_anew();
    }

    /// Whether a point query for the current key reaches exactly this block and slot, and no more pages than
    /// those in which its value continues.
    pub(crate) fn is_lookup_position(&self) -> Result<bool> {
        let Some((position, behind)) = self.run.pages_for(&self.entry.key, Access::Blocking)? else {
            return Ok(false);
        };
        let is_last = self.entry.slot + 1 == self.block.layout.count();
        if behind > 0 && !(is_last && behind == self.block.pages_behind()) {
            return Ok(false);
        }
        let found = self.block.view().lower_bound(&self.entry.key);
        let (slot, is_equal) = found.map_err(|damage| self.run.damaged(position.page, damage))?;
        Ok(is_equal && slot == self.entry.slot && Some(position) == self.block.position)
    }

    /// Makes `slot` of the loaded block the current entry.
    #[inline]
    fn set_slot(&mut self, slot: usize) -> Result<()> {
        self.entry.key.clear();
        self.entry.key.extend_from_slice(self.block.view().prefix());
        self.set_slot_shared_prefix(slot)
    }

    /// Like [`Self::set_slot`], if `key` already starts with the block's shared prefix.
    #[inline]
    fn set_slot_shared_prefix(&mut self, slot: usize) -> Result<()> {
        let block = self.block.view();
        let cell = match block.cell(slot) {
            Ok(cell) => cell,
            Err(damage) => {
                self.entry.is_there = false;
                return Err(self.run.damaged(self.block.page(), damage));
            }
        };
        if cell.continued_bytes > 0 {
            return self.set_incomplete_slot(slot);
        }
        self.entry.key.truncate(block.prefix().len());
        self.entry.key.extend_from_slice(cell.suffix);
        self.entry.kind = cell.kind;
        let end = cell.value.as_ptr_range().end as usize - self.block.bytes.as_ptr() as usize;
        self.entry.value = end - cell.value.len()..end;
        self.entry.slot = slot;
        self.entry.is_there = true;
        Ok(())
    }
}

impl Cursor for RunCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.place(Target::First)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.place(Target::Last)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place(Target::From(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.place(Target::Before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match self.entry.slot + 1 {
            _ if !self.entry.is_there => Ok(()),
            slot if slot < self.block.layout.count() => self.set_slot_shared_prefix(slot),
            _ => self.cross(true),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        match self.entry.slot.checked_sub(1) {
            _ if !self.entry.is_there => Ok(()),
            Some(slot) => self.set_slot_shared_prefix(slot),
            None => self.cross(false),
        }
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.entry.is_there.then(|| Entry {
            key: &self.entry.key,
            kind: self.entry.kind,
            value: &self.block.bytes[self.entry.value.clone()],
        })
    }

    #[inline]
    fn is_warm(&self) -> bool {
        self.block.is_warm
    }

    fn memory_bytes(&self) -> usize {
        self.block.bytes.capacity() + self.entry.key.capacity() + self.reader.memory_bytes()
    }
}

impl ReadAhead {
    /// For compactions: chunks of this many bytes.
    pub fn bytes(bytes: usize) -> Self {
        Self::Pages(u32_of(bytes.div_ceil(PAGE_SIZE).max(1)))
    }
}
