//! A cursor over one run, in both directions.
//!
//! It walks the index and copies one data block at a time, so that it never holds a page of the cache. Queries start
//! with single pages through the cache; a cursor that has read a few neighbouring blocks is a long scan, and from
//! then on reads ahead in larger and larger pieces past the cache. Compactions start that way.
//!
//! **Invariants**
//! - `key` and `value` belong to `slot` of the current block whenever the cursor stands on an entry.
//! - Every block is verified before it is parsed, whichever way it was read.

use std::{ops::Range, sync::Arc};

use testudo_base::{
    Cursor, Entry, Kind, PAGE_SIZE, Result,
    codec::Damage,
    num::{u32_of, usize_of},
    planted,
};
use testudo_env::AlignedBuffer;
use testudo_storage::{Access, PageKind, payload_of};

use crate::{Run, block::Block, footer::BlockPosition, writer::locate};

/// How a cursor reads data blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// Single pages through the cache, until a few neighbours were read; then larger and larger pieces.
    Adaptive,
    /// Pieces of this many pages from the start, past the cache.
    Pages(u32),
}

/// Neighbouring blocks that make a scan a long one.
const LONG_SCAN_BLOCKS: u32 = 4;
/// The first and the largest piece of an adaptive scan.
const FIRST_PIECE_PAGES: u32 = 8;
const LAST_PIECE_PAGES: u32 = 64;

/// A cursor over one run.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    read_ahead: ReadAhead,
    index_payload: Vec<u8>,
    index_block: usize,
    index_slot: usize,
    index_count: usize,
    block: Vec<u8>,
    count: usize,
    slot: usize,
    on_entry: bool,
    key: Vec<u8>,
    kind: Kind,
    value: Range<usize>,
    window: Option<Window>,
    neighbours: u32,
    last_page: u32,
}

#[derive(Debug)]
struct Window {
    first_page: u32,
    pages: u32,
    bytes: AlignedBuffer,
}

impl RunCursor {
    /// A cursor that stands nowhere; reads nothing yet.
    pub fn new(run: Arc<Run>, read_ahead: ReadAhead) -> Self {
        Self {
            run,
            read_ahead,
            index_payload: Vec::new(),
            index_block: usize::MAX,
            index_slot: 0,
            index_count: 0,
            block: Vec::new(),
            count: 0,
            slot: 0,
            on_entry: false,
            key: Vec::new(),
            kind: Kind::Value,
            value: 0..0,
            window: None,
            neighbours: 0,
            last_page: u32::MAX,
        }
    }

    fn load_index(&mut self, block: usize) -> Result<()> {
        if self.index_block == block {
            return Ok(());
        }
        let position = self.run.footer()?.index[block].1;
        let payload = &mut self.index_payload;
        self.index_block = usize::MAX;
        let copy = |bytes: &[u8]| {
            payload.clear();
            payload.extend_from_slice(bytes);
            Block::parse(bytes).map(|block| block.count())
        };
        let count = self
            .run
            .with_block(PageKind::Index, position, Access::Blocking, copy)?
            .expect("a blocking read returns its block");
        self.index_count = count.map_err(|damage| self.run.damaged(position.page, damage))?;
        if self.index_count == 0 {
            return Err(self.run.damaged(position.page, Damage("an index block is empty")));
        }
        self.index_block = block;
        Ok(())
    }

    /// Loads the data block that `index_slot` of the loaded index block points at.
    fn load_data(&mut self) -> Result<()> {
        let position = Block::parse(&self.index_payload)
            .and_then(|block| block.cell(self.index_slot))
            .and_then(|cell| self.run.decode_position(cell.value))
            .map_err(|damage| self.run.damaged(0, damage))?;
        let follows = position.page == self.last_page.wrapping_add(1);
        self.neighbours = if follows { self.neighbours + 1 } else { 0 };
        self.last_page = position.page + position.pages - 1;
        self.read_data(position)?;
        let count = Block::parse(&self.block).map(|block| block.count());
        self.count = count.map_err(|damage| self.run.damaged(position.page, damage))?;
        if self.count == 0 {
            return Err(self.run.damaged(position.page, Damage("a data block is empty")));
        }
        Ok(())
    }

    fn read_data(&mut self, position: BlockPosition) -> Result<()> {
        let piece_pages = match self.read_ahead {
            ReadAhead::Pages(pages) => pages,
            ReadAhead::Adaptive if self.neighbours < LONG_SCAN_BLOCKS => 0,
            ReadAhead::Adaptive => {
                let grown = self.window.as_ref().map_or(FIRST_PIECE_PAGES, |window| window.pages * 2);
                grown.min(LAST_PIECE_PAGES)
            }
        };
        let block = &mut self.block;
        block.clear();
        if piece_pages == 0 {
            let copy = |payload: &[u8]| block.extend_from_slice(payload);
            self.run.with_block(PageKind::Data, position, Access::Blocking, copy)?;
            return Ok(());
        }
        if !self.window.as_ref().is_some_and(|window| window.holds(position)) {
            self.fill_window(position, piece_pages)?;
        }
        let address = self.run.address(PageKind::Data, position.page)?;
        let window = self.window.as_ref().expect("was just filled");
        let bytes = window.block(position);
        self.run.data().verify(bytes, &address)?;
        self.block.extend_from_slice(payload_of(bytes));
        Ok(())
    }

    fn fill_window(&mut self, position: BlockPosition, piece_pages: u32) -> Result<()> {
        let left = self.run.reference().data_pages - position.page;
        let pages = piece_pages.min(left).max(position.pages);
        let needed = usize_of(u64::from(pages)) * PAGE_SIZE;
        let mut bytes = match self.window.take() {
            Some(window) if window.bytes.len() >= needed && window.bytes.len() <= needed.max(1 << 19) => {
                window.bytes
            }
            _ => AlignedBuffer::zeroed(needed),
        };
        let mut at = 0u32;
        while at < pages {
            let (physical, room) = locate(self.run.spans(), position.page + at)
                .ok_or_else(|| self.run.damaged(position.page, Damage("a block is outside its run")))?;
            let count = room.min(pages - at);
            let from = usize_of(u64::from(at)) * PAGE_SIZE;
            let to = from + usize_of(u64::from(count)) * PAGE_SIZE;
            self.run.data().read_stream(physical, &mut bytes[from..to])?;
            at += count;
        }
        self.window = Some(Window { first_page: position.page, pages, bytes });
        Ok(())
    }

    /// Whether a query for the current key comes to this very block and slot.
    pub(crate) fn is_where_a_query_looks(&self) -> Result<bool> {
        let Some(position) = self.run.block_for(&self.key, Access::Blocking)? else { return Ok(false) };
        let found = Block::parse(&self.block).and_then(|block| block.lower_bound(&self.key));
        let (slot, is_equal) = found.map_err(|damage| self.run.damaged(position.page, damage))?;
        Ok(is_equal && slot == self.slot && position.page + (position.pages - 1) == self.last_page)
    }

    /// Makes `slot` of the loaded block the current entry.
    fn stand_on(&mut self, slot: usize) -> Result<()> {
        let parsed =
            Block::parse(&self.block).and_then(|block| block.cell(slot).map(|cell| (block.prefix(), cell)));
        let (prefix, cell) = match parsed {
            Ok(parsed) => parsed,
            Err(damage) => return Err(self.run.damaged(self.last_page, damage)),
        };
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.key.extend_from_slice(cell.suffix);
        self.kind = cell.kind;
        let end = cell.value.as_ptr_range().end as usize - self.block.as_ptr() as usize;
        self.value = end - cell.value.len()..end;
        self.slot = slot;
        self.on_entry = true;
        Ok(())
    }

    /// Moves to the first entry of the following data block, or past the end.
    fn next_block(&mut self) -> Result<()> {
        self.on_entry = false;
        if self.index_slot + 1 < self.index_count {
            self.index_slot += 1;
        } else if self.index_block + 1 < self.run.footer()?.index.len() {
            self.load_index(self.index_block + 1)?;
            self.index_slot = 0;
        } else {
            return Ok(());
        }
        self.load_data()?;
        self.stand_on(usize::from(planted!("first-of-block-lost") && self.count > 1))
    }

    /// Moves to the last entry of the preceding data block, or past the start.
    fn previous_block(&mut self) -> Result<()> {
        self.on_entry = false;
        if self.index_slot > 0 {
            self.index_slot -= 1;
        } else if self.index_block > 0 {
            self.load_index(self.index_block - 1)?;
            self.index_slot = self.index_count - 1;
        } else {
            return Ok(());
        }
        self.load_data()?;
        self.stand_on(self.count - 1)
    }

    /// Loads the data block that would hold `key` and returns the first slot with a key ≥ it.
    fn find(&mut self, key: &[u8]) -> Result<usize> {
        self.on_entry = false;
        let block = self.run.footer()?.index_block_for(key);
        self.load_index(block)?;
        let found = Block::parse(&self.index_payload).and_then(|block| block.lower_bound(key));
        let (slot, equal) = found.map_err(|damage| self.run.damaged(0, damage))?;
        self.index_slot = if equal { slot } else { slot.saturating_sub(1) };
        self.load_data()?;
        let found = Block::parse(&self.block).and_then(|block| block.lower_bound(key));
        found.map(|(slot, _)| slot).map_err(|damage| self.run.damaged(self.last_page, damage))
    }
}

impl Window {
    fn holds(&self, position: BlockPosition) -> bool {
        position.page >= self.first_page && position.page + position.pages <= self.first_page + self.pages
    }

    fn block(&self, position: BlockPosition) -> &[u8] {
        let start = usize_of(u64::from(position.page - self.first_page)) * PAGE_SIZE;
        &self.bytes[start..start + usize_of(u64::from(position.pages)) * PAGE_SIZE]
    }
}

impl Cursor for RunCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.on_entry = false;
        self.load_index(0)?;
        self.index_slot = 0;
        self.load_data()?;
        self.stand_on(0)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.on_entry = false;
        let last = self.run.footer()?.index.len() - 1;
        self.load_index(last)?;
        self.index_slot = self.index_count - 1;
        self.load_data()?;
        self.stand_on(self.count - 1)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let slot = self.find(key)?;
        if slot < self.count { self.stand_on(slot) } else { self.next_block() }
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let slot = self.find(key)?;
        if slot > 0 { self.stand_on(slot - 1) } else { self.previous_block() }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.slot + 1 < self.count { self.stand_on(self.slot + 1) } else { self.next_block() }
    }

    fn prev(&mut self) -> Result<()> {
        if self.slot > 0 { self.stand_on(self.slot - 1) } else { self.previous_block() }
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.on_entry.then(|| Entry {
            key: &self.key,
            kind: self.kind,
            value: &self.block[self.value.clone()],
        })
    }
}

impl ReadAhead {
    /// For compactions: pieces of this many bytes.
    pub fn bytes(bytes: usize) -> Self {
        Self::Pages(u32_of(bytes.div_ceil(PAGE_SIZE).max(1)))
    }
}
