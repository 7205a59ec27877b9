//! How a cursor gets data blocks.
//!
//! Single pages come through the cache; those of a long scan in larger and larger pieces past it, and while
//! one is used, the next one is on its way.
//!
//! **Invariants**
//! - The bytes of a window are as they came from the device: a block is verified when it is taken out.
//! - A block that is loaded was verified, parsed, and is not empty.

use testudo_base::{
    PAGE_SIZE, Result,
    codec::Damage,
    num::{u32_of, u64_of, usize_of},
};
use testudo_env::AlignedBuffer;
use testudo_storage::{PageKind, StreamLease, StreamRead, payload_of};

use super::ReadAhead;
use crate::{
    Run,
    format::{
        block::{Block, Layout},
        footer::BlockPosition,
    },
    spans::locate,
};

/// Neighbouring blocks that make a scan a long one.
const LONG_SCAN_BLOCKS: u32 = 6;
/// The first and the largest piece of a long scan.
const FIRST_PIECE_PAGES: u32 = 16;
const LAST_PIECE_PAGES: u32 = 64;

/// The data block on which a cursor stands: a copy, so that no page of the cache is held.
#[derive(Debug, Default)]
pub(crate) struct DataBlock {
    /// Which one it is; `None` while there is none.
    pub(crate) position: Option<BlockPosition>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) layout: Layout,
}

impl DataBlock {
    #[inline]
    pub(crate) fn view(&self) -> Block<'_> {
        self.layout.view(&self.bytes)
    }

    /// Its first page, for messages.
    pub(crate) fn page(&self) -> u32 {
        self.position.map_or(0, |position| position.page)
    }

    fn unload(&mut self) {
        self.position = None;
        self.layout = Layout::default();
    }

    /// Makes `payload` the loaded block. REQUIRES: it was verified.
    pub(crate) fn take(&mut self, run: &Run, position: BlockPosition, payload: &[u8]) -> Result<()> {
        self.bytes.clear();
        self.bytes.extend_from_slice(payload);
        self.parse(run, position)
    }

    /// Loads a block out of the page cache; `false` if it is not there.
    fn take_present(&mut self, run: &Run, position: BlockPosition) -> Result<bool> {
        let bytes = &mut self.bytes;
        bytes.clear();
        let copy = |payload: &[u8]| bytes.extend_from_slice(payload);
        if run.with_present_block(PageKind::Data, position, copy)?.is_none() {
            return Ok(false);
        }
        self.parse(run, position)?;
        Ok(true)
    }

    fn parse(&mut self, run: &Run, position: BlockPosition) -> Result<()> {
        self.layout = Layout::of(&self.bytes).map_err(|damage| run.damaged(position.page, damage))?;
        if self.layout.count() == 0 {
            return Err(run.damaged(position.page, Damage("a data block is empty")));
        }
        self.position = Some(position);
        Ok(())
    }
}

/// What a cursor reads, and has read, of data blocks.
#[derive(Debug)]
pub(crate) struct BlockReader {
    read_ahead: ReadAhead,
    /// Pages that the first read of a seek takes.
    pub(crate) first_pages: u32,
    /// How many blocks in a row each followed the one before.
    pub(crate) neighbours: u32,
    /// Pages that were read before they were needed.
    window: Option<Window>,
    /// Pages behind them that are on their way.
    ahead: Option<Ahead>,
}

impl BlockReader {
    pub(crate) fn new(read_ahead: ReadAhead) -> Self {
        Self { read_ahead, first_pages: 1, neighbours: 0, window: None, ahead: None }
    }

    pub(crate) fn is_long(&self) -> bool {
        self.read_ahead != ReadAhead::Adaptive || self.neighbours >= LONG_SCAN_BLOCKS
    }

    pub(crate) fn is_reading_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        self.window.as_ref().is_some_and(|window| window.holds(position))
    }

    /// Loads a block; `false` if it is not in memory and a single page of it should be read.
    pub(crate) fn load(&mut self, run: &Run, block: &mut DataBlock, position: BlockPosition) -> Result<bool> {
        if block.position == Some(position) {
            return Ok(true);
        }
        let follows = block.position.is_some_and(|last| last.page + last.pages == position.page);
        self.neighbours = if follows { self.neighbours + 1 } else { 0 };
        block.unload();
        if !self.holds(position) {
            let piece = self.piece_pages();
            let is_coming = self.ahead.as_ref().is_some_and(|ahead| ahead.holds(position));
            if piece == 0 && !is_coming {
                self.ahead = None;
                return block.take_present(run, position);
            }
            self.fill_window(run, position, piece.max(1))?;
        }
        self.take_from_window(run, block, position)?;
        Ok(true)
    }

    /// How many pages to read at once past the cache; 0 for single pages through it.
    fn piece_pages(&self) -> u32 {
        match self.read_ahead {
            ReadAhead::Pages(pages) => pages,
            ReadAhead::Adaptive if self.neighbours < LONG_SCAN_BLOCKS => 0,
            ReadAhead::Adaptive => {
                let grown = self.window.as_ref().map_or(FIRST_PIECE_PAGES, |window| window.pages * 2);
                grown.clamp(FIRST_PIECE_PAGES, LAST_PIECE_PAGES)
            }
        }
    }

    fn take_from_window(&self, run: &Run, block: &mut DataBlock, position: BlockPosition) -> Result<()> {
        let Some(window) = &self.window else { return Ok(()) };
        let address = run.address(PageKind::Data, position.page)?;
        let bytes = window.block(position);
        run.data().verify(bytes, &address)?;
        if position.pages == 1 && !self.is_long() {
            run.data().admit(&address, bytes);
        }
        block.take(run, position, payload_of(bytes))
    }

    fn fill_window(&mut self, run: &Run, position: BlockPosition, piece_pages: u32) -> Result<()> {
        let earlier = self.window.take();
        let (window, spare) = match self.ahead.take().filter(|ahead| ahead.holds(position)) {
            Some(ahead) => (ahead.arrive()?, earlier.map(|window| window.bytes)),
            None => (read_window(run, position, piece_pages, earlier)?, None),
        };
        let next_page = window.first_page + window.pages;
        self.window = Some(window);
        self.start_ahead(run, next_page, piece_pages, spare);
        Ok(())
    }

    /// Lets pages come that a long scan will need, if there is memory for them.
    fn start_ahead(&mut self, run: &Run, page: u32, pages: u32, buffer: Option<AlignedBuffer>) {
        let left = run.reference().data_pages.saturating_sub(page);
        let Some((physical, room)) = locate(run.spans(), page) else { return };
        let pages = pages.min(left).min(room);
        let bytes = page_bytes(pages);
        if pages == 0 {
            return;
        }
        let Some(lease) = run.data().lease_stream(u64_of(bytes)) else { return };
        let mut buffer = buffer.unwrap_or_else(|| AlignedBuffer::unfilled(bytes));
        buffer.resize_unfilled(bytes);
        let read = run.data().start_stream(physical, buffer);
        self.ahead = Some(Ahead { first_page: page, pages, read, lease });
    }

    /// A long scan goes on here: reads ahead from the first block on.
    pub(crate) fn go_on_long(&mut self) {
        self.read_ahead = ReadAhead::Pages(LAST_PIECE_PAGES);
    }

    /// A long scan will come here: lets the first pages come already.
    pub(crate) fn prepare_long(&mut self, run: &Run) {
        self.go_on_long();
        self.start_ahead(run, 0, FIRST_PIECE_PAGES, None);
    }

    /// What comes is not known to be a long scan any more.
    pub(crate) fn begin_anew(&mut self) {
        self.read_ahead = ReadAhead::Adaptive;
        self.ahead = None;
        self.neighbours = 0;
    }

    /// Reads a small run whole, up to the end of `index`, its index block, for who reads ahead from the first
    /// entry on; `None` if it is too large for that.
    pub(crate) fn read_small_run(&self, run: &Run, index: BlockPosition) -> Result<Option<Window>> {
        let pages = index.page + index.pages;
        if !matches!(self.read_ahead, ReadAhead::Pages(piece) if pages <= piece) || self.ahead.is_some() {
            return Ok(None);
        }
        let Some(lease) = run.data().lease_stream(u64_of(page_bytes(pages))) else { return Ok(None) };
        let mut bytes = AlignedBuffer::unfilled(page_bytes(pages));
        run.read_pages(0, &mut bytes)?;
        Ok(Some(Window { first_page: 0, pages, bytes, _lease: Some(lease) }))
    }

    /// Takes over pages that were read for it.
    pub(crate) fn keep_window(&mut self, window: Window) {
        self.window = Some(window);
    }
}

/// Reads pages and waits for them; without a lease only a few.
fn read_window(
    run: &Run,
    position: BlockPosition,
    piece_pages: u32,
    earlier: Option<Window>,
) -> Result<Window> {
    let mut bytes = earlier.map_or_else(|| AlignedBuffer::zeroed(0), |window| window.bytes);
    let lease = run.data().lease_stream(u64_of(page_bytes(piece_pages)));
    let piece = if lease.is_some() { piece_pages } else { piece_pages.min(FIRST_PIECE_PAGES) };
    let left = run.reference().data_pages - position.page;
    let pages = piece.min(left).max(position.pages);
    bytes.resize_unfilled(page_bytes(pages));
    run.read_pages(position.page, &mut bytes)?;
    Ok(Window { first_page: position.page, pages, bytes, _lease: lease })
}

/// Consecutive pages of a run.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) first_page: u32,
    pub(crate) pages: u32,
    pub(crate) bytes: AlignedBuffer,
    /// For bytes that were read ahead of use.
    pub(crate) _lease: Option<StreamLease>,
}

/// Pages that follow a window and are on their way.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) first_page: u32,
    pub(crate) pages: u32,
    pub(crate) read: StreamRead,
    pub(crate) lease: StreamLease,
}

impl Ahead {
    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        holds(self.first_page, self.pages, position)
    }

    /// Waits for the pages.
    pub(crate) fn arrive(self) -> Result<Window> {
        let bytes = self.read.wait()?;
        Ok(Window { first_page: self.first_page, pages: self.pages, bytes, _lease: Some(self.lease) })
    }
}

fn holds(first_page: u32, pages: u32, position: BlockPosition) -> bool {
    position.page >= first_page && position.page + position.pages <= first_page + pages
}

/// Bytes of this many pages.
pub(crate) fn page_bytes(pages: u32) -> usize {
    usize_of(u64::from(pages)) * PAGE_SIZE
}

impl Window {
    /// A copy of whole pages that were read from `first_page` on.
    pub(crate) fn copy_of(first_page: u32, read: &[u8]) -> Self {
        let mut bytes = AlignedBuffer::zeroed(read.len());
        bytes.copy_from_slice(read);
        Self { first_page, pages: u32_of(read.len() / PAGE_SIZE), bytes, _lease: None }
    }

    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        holds(self.first_page, self.pages, position)
    }

    /// The bytes of a block. REQUIRES: the window holds it.
    pub(crate) fn block(&self, position: BlockPosition) -> &[u8] {
        debug_assert!(self.holds(position), "the window holds the block");
        let start = page_bytes(position.page - self.first_page);
        &self.bytes[start..start + page_bytes(position.pages)]
    }
}
