//! A cursor over one run, in both directions.
//!
//! It walks the index and copies one data block at a time, so that it never holds a page of the cache.
//! Queries start with single pages through the cache; a cursor that has read a few neighbouring blocks is a
//! long scan, and from then on reads ahead in larger and larger pieces past the cache. Compactions start that
//! way.
//!
//! **Invariants**
//! - `key` and `value` belong to `slot` of the loaded block whenever the cursor stands on an entry. While it
//!   is being positioned, `key` is the key that it looks for.
//! - Every block is verified before it is parsed, whichever way it was read.

pub(crate) mod batched_seek;
pub(crate) mod bounded;
pub(crate) mod merge;
pub(crate) mod page_walk;
pub(crate) mod window;

mod positioning;

use std::{ops::Range, sync::Arc};

use testudo_base::{
    Cursor, Entry, Kind, PAGE_SIZE, Result,
    codec::Damage,
    num::{u32_of, u64_of},
};
use testudo_env::AlignedBuffer;
use testudo_storage::{PageKind, payload_of};

use crate::{
    Access, Run,
    cursor::{
        batched_seek::seek_together,
        window::{Ahead, Window, page_bytes},
    },
    format::{block::Layout, footer::BlockPosition},
    spans::locate,
};

/// How a cursor reads data blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// Single pages through the cache, until a few neighbours were read; then larger and larger pieces.
    Adaptive,
    /// Pieces of this many pages from the start, past the cache.
    Pages(u32),
}

/// Where a cursor is to stand, by its `key` or by the ends of the run.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    First,
    Last,
    From,
    Before,
}

/// How far a positioning has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It stands where it should, or nowhere.
    Settled,
    /// The data block is to be found by the index.
    Finding(Sought),
    /// This data block is to be loaded, and what is sought is in it or beside it.
    Loading(BlockPosition, Sought),
}

/// A page that the cursor waits for.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Footer,
    Index(usize, BlockPosition),
    Data(BlockPosition),
}

/// Neighbouring blocks that make a scan a long one.
const LONG_SCAN_BLOCKS: u32 = 6;
/// The first and the largest piece of a long scan.
const FIRST_PIECE_PAGES: u32 = 16;
const LAST_PIECE_PAGES: u32 = 64;

/// A cursor over one run.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    read_ahead: ReadAhead,
    /// Pages that the first read of a positioning takes.
    first_pages: u32,
    /// A copy of one index block, its number first.
    index: Option<(usize, Vec<u8>, Layout)>,
    index_block: usize,
    index_slot: usize,
    index_count: usize,
    /// The loaded data block.
    position: Option<BlockPosition>,
    block: Vec<u8>,
    layout: Layout,
    slot: usize,
    on_entry: bool,
    key: Vec<u8>,
    kind: Kind,
    value: Range<usize>,
    window: Option<Window>,
    ahead: Option<Ahead>,
    neighbours: u32,
    phase: Phase,
    awaited: Option<Awaited>,
    /// The block that was wished for in the present round.
    wished: Option<BlockPosition>,
}

impl RunCursor {
    /// A cursor that stands nowhere; reads nothing yet.
    pub fn new(run: Arc<Run>, read_ahead: ReadAhead) -> Self {
        Self {
            run,
            read_ahead,
            first_pages: 1,
            index: None,
            index_block: 0,
            index_slot: 0,
            index_count: 0,
            position: None,
            block: Vec::new(),
            layout: Layout::default(),
            slot: 0,
            on_entry: false,
            key: Vec::new(),
            kind: Kind::Value,
            value: 0..0,
            window: None,
            ahead: None,
            neighbours: 0,
            phase: Phase::Settled,
            awaited: None,
            wished: None,
        }
    }

    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Lets a positioning read this many pages at once: for the run that holds most of what a scan will pass.
    pub fn expect_pages(&mut self, pages: u32) {
        self.first_pages = pages.max(1);
    }

    /// Whether it has passed so many blocks that it reads ahead.
    pub fn is_long(&self) -> bool {
        self.read_ahead != ReadAhead::Adaptive || self.neighbours >= LONG_SCAN_BLOCKS
    }

    /// Starts to position the cursor; it stands nowhere until
    /// [`BatchedSeek::progress`](crate::BatchedSeek::progress) has ended.
    pub fn begin(&mut self, target: Target<'_>) {
        self.on_entry = false;
        self.awaited = None;
        self.key.clear();
        let sought = match target {
            Target::First => Sought::First,
            Target::Last => Sought::Last,
            Target::From(key) => {
                self.key.extend_from_slice(key);
                Sought::From
            }
            Target::Before(key) => {
                self.key.extend_from_slice(key);
                Sought::Before
            }
        };
        self.phase = Phase::Finding(sought);
    }

    /// Positions the cursor on its own.
    pub fn place(&mut self, target: Target<'_>) -> Result<()> {
        self.begin(target);
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        let data = Arc::clone(self.run.data());
        seek_together(std::slice::from_mut(self), &data)
    }

    /// Keeps a copy of an index block.
    fn copy_index(&mut self, number: usize, payload: &[u8], at: BlockPosition) -> Result<()> {
        let mut copy = self.index.take().map(|(_, copy, _)| copy).unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(payload);
        let layout = Layout::of(&copy).map_err(|damage| self.run.damaged(at.page, damage))?;
        if layout.count() == 0 {
            return Err(self.run.damaged(at.page, Damage("an index block is empty")));
        }
        self.index = Some((number, copy, layout));
        Ok(())
    }

    /// Moves to a neighbouring data block in the index; `None` past either end of the run.
    fn neighbour(&mut self, forward: bool) -> Result<Option<BlockPosition>> {
        let blocks = self.run.footer()?.index.len();
        let (number, slot) = match forward {
            true if self.index_slot + 1 < self.index_count => (self.index_block, Some(self.index_slot + 1)),
            true if self.index_block + 1 < blocks => (self.index_block + 1, Some(0)),
            false if self.index_slot > 0 => (self.index_block, Some(self.index_slot - 1)),
            false if self.index_block > 0 => (self.index_block - 1, None),
            _ => return Ok(None),
        };
        let at = self.run.footer()?.index[number].1;
        if self.index.as_ref().is_none_or(|(copied, ..)| *copied != number) {
            let mut payload = Vec::with_capacity(PAGE_SIZE);
            let copy = |bytes: &[u8]| payload.extend_from_slice(bytes);
            self.run.with_block(PageKind::Index, at, Access::Blocking, copy)?;
            self.copy_index(number, &payload, at)?;
        }
        let Some((_, payload, layout)) = &self.index else { return Ok(None) };
        let slot = slot.unwrap_or(layout.count() - 1);
        let cell = layout.view(payload).cell(slot);
        let position = cell
            .and_then(|cell| self.run.data_block_of(cell.value))
            .map_err(|damage| self.run.damaged(at.page, damage))?;
        (self.index_block, self.index_slot, self.index_count) = (number, slot, layout.count());
        Ok(Some(position))
    }

    /// Makes a block the loaded one; `false` if it is not in memory and is awaited from then on.
    fn load(&mut self, position: BlockPosition) -> Result<bool> {
        if self.position == Some(position) {
            return Ok(true);
        }
        let follows = self.position.is_some_and(|last| last.page + last.pages == position.page);
        self.neighbours = if follows { self.neighbours + 1 } else { 0 };
        self.position = None;
        self.layout = Layout::default();
        if !self.window.as_ref().is_some_and(|window| window.holds(position)) {
            let piece = match self.read_ahead {
                ReadAhead::Pages(pages) => pages,
                ReadAhead::Adaptive if self.neighbours < LONG_SCAN_BLOCKS => 0,
                ReadAhead::Adaptive => {
                    let grown = self.window.as_ref().map_or(FIRST_PIECE_PAGES, |window| window.pages * 2);
                    grown.clamp(FIRST_PIECE_PAGES, LAST_PIECE_PAGES)
                }
            };
            let is_coming = self.ahead.as_ref().is_some_and(|ahead| ahead.holds(position));
            if piece == 0 && !is_coming {
                self.ahead = None;
                return self.load_cached(position);
            }
            self.fill_window(position, piece.max(1))?;
        }
        self.take_from_window(position)?;
        Ok(true)
    }

    /// As [`RunCursor::load`], out of the page cache.
    fn load_cached(&mut self, position: BlockPosition) -> Result<bool> {
        let block = &mut self.block;
        block.clear();
        let copy = |payload: &[u8]| block.extend_from_slice(payload);
        if self.run.with_present_block(PageKind::Data, position, copy)?.is_none() {
            self.awaited = Some(Awaited::Data(position));
            return Ok(false);
        }
        self.block_loaded(position)?;
        Ok(true)
    }

    fn take_from_window(&mut self, position: BlockPosition) -> Result<()> {
        let Some(window) = &self.window else { return Ok(()) };
        let address = self.run.address(PageKind::Data, position.page)?;
        let bytes = window.block(position);
        self.run.data().verify(bytes, &address)?;
        if position.pages == 1 && !self.is_long() {
            self.run.data().admit(&address, bytes);
        }
        self.block.clear();
        self.block.extend_from_slice(payload_of(bytes));
        self.block_loaded(position)
    }

    fn block_loaded(&mut self, position: BlockPosition) -> Result<()> {
        self.layout = Layout::of(&self.block).map_err(|damage| self.run.damaged(position.page, damage))?;
        if self.layout.count() == 0 {
            return Err(self.run.damaged(position.page, Damage("a data block is empty")));
        }
        self.position = Some(position);
        Ok(())
    }

    fn fill_window(&mut self, position: BlockPosition, piece_pages: u32) -> Result<()> {
        let earlier = self.window.take();
        let (window, spare) = match self.ahead.take().filter(|ahead| ahead.holds(position)) {
            Some(ahead) => (ahead.arrive()?, earlier.map(|window| window.bytes)),
            None => (self.read_window(position, piece_pages, earlier)?, None),
        };
        let next_page = window.first_page + window.pages;
        self.window = Some(window);
        self.start_ahead(next_page, piece_pages, spare);
        Ok(())
    }

    /// Reads pages and waits for them; without a lease only a few.
    fn read_window(
        &self,
        position: BlockPosition,
        piece_pages: u32,
        earlier: Option<Window>,
    ) -> Result<Window> {
        let mut bytes = earlier.map_or_else(|| AlignedBuffer::zeroed(0), |window| window.bytes);
        let lease = self.run.data().lease_stream(u64_of(page_bytes(piece_pages)));
        let piece = if lease.is_some() { piece_pages } else { piece_pages.min(FIRST_PIECE_PAGES) };
        let left = self.run.reference().data_pages - position.page;
        let pages = piece.min(left).max(position.pages);
        bytes.resize_unfilled(page_bytes(pages));
        self.run.read_pages(position.page, &mut bytes)?;
        Ok(Window { first_page: position.page, pages, bytes, _lease: lease })
    }

    /// Lets pages come that a long scan will need, if there is memory for them.
    fn start_ahead(&mut self, page: u32, pages: u32, buffer: Option<AlignedBuffer>) {
        let left = self.run.reference().data_pages.saturating_sub(page);
        let Some((physical, room)) = locate(self.run.spans(), page) else { return };
        let pages = pages.min(left).min(room);
        let bytes = page_bytes(pages);
        if pages == 0 {
            return;
        }
        let Some(lease) = self.run.data().lease_stream(u64_of(bytes)) else { return };
        let mut buffer = buffer.unwrap_or_else(|| AlignedBuffer::unfilled(bytes));
        buffer.resize_unfilled(bytes);
        let read = self.run.data().start_stream(physical, buffer);
        self.ahead = Some(Ahead { first_page: page, pages, read, lease });
    }

    /// A long scan goes on here: reads ahead from the first block on.
    pub fn go_on_long(&mut self) {
        self.read_ahead = ReadAhead::Pages(LAST_PIECE_PAGES);
    }

    /// A long scan will come here: lets the first pages come already.
    pub fn prepare_long(&mut self) {
        self.go_on_long();
        self.start_ahead(0, FIRST_PIECE_PAGES, None);
    }

    /// What comes is not known to be a long scan any more.
    pub fn begin_anew(&mut self) {
        self.read_ahead = ReadAhead::Adaptive;
        self.ahead = None;
        self.neighbours = 0;
    }

    /// Whether a query for the current key comes to this very block and slot.
    pub(crate) fn is_where_a_query_looks(&self) -> Result<bool> {
        let Some(position) = self.run.block_for(&self.key, Access::Blocking)? else { return Ok(false) };
        let found = self.layout.view(&self.block).lower_bound(&self.key);
        let (slot, is_equal) = found.map_err(|damage| self.run.damaged(position.page, damage))?;
        Ok(is_equal && slot == self.slot && Some(position) == self.position)
    }

    /// Makes `slot` of the loaded block the current entry.
    #[inline]
    fn stand_on(&mut self, slot: usize) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(self.layout.view(&self.block).prefix());
        self.stand_beside(slot)
    }

    /// The same, when `key` starts with what the keys of the block share.
    #[inline]
    fn stand_beside(&mut self, slot: usize) -> Result<()> {
        let block = self.layout.view(&self.block);
        let cell = match block.cell(slot) {
            Ok(cell) => cell,
            Err(damage) => {
                self.on_entry = false;
                let page = self.position.map_or(0, |position| position.page);
                return Err(self.run.damaged(page, damage));
            }
        };
        self.key.truncate(block.prefix().len());
        self.key.extend_from_slice(cell.suffix);
        self.kind = cell.kind;
        let end = cell.value.as_ptr_range().end as usize - self.block.as_ptr() as usize;
        self.value = end - cell.value.len()..end;
        self.slot = slot;
        self.on_entry = true;
        Ok(())
    }

    /// Moves to the neighbouring block, or past the end.
    fn cross(&mut self, forward: bool) -> Result<()> {
        self.on_entry = false;
        if let Some(position) = self.neighbour(forward)? {
            let sought = if forward { Sought::First } else { Sought::Last };
            self.phase = Phase::Loading(position, sought);
            self.settle()?;
        }
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
        match self.slot + 1 {
            _ if !self.on_entry => Ok(()),
            slot if slot < self.layout.count() => self.stand_beside(slot),
            _ => self.cross(true),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        match self.slot.checked_sub(1) {
            _ if !self.on_entry => Ok(()),
            Some(slot) => self.stand_beside(slot),
            None => self.cross(false),
        }
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
