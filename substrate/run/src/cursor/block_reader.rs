//! Reads of data blocks for a cursor.
//!
//! Single pages are read through the cache, those of a long scan in increasingly large chunks that bypass it.
//! While a chunk is used, the next one is read ahead if the scan is known, or long enough to be likely, to
//! reach it.
//!
//! **Invariants**
//! - A block is verified when it is taken from a window.
//! - A loaded block is verified, parsed and not empty.

use testudo_base::{
    Result,
    codec::Damage,
    num::{u32_of, u64_of},
};
use testudo_env::AlignedBuffer;
use testudo_storage::{PageKind, StreamLease, payload_of};

use super::{
    ReadAhead,
    scan_forecast::{FIRST_CHUNK_PAGES, LAST_CHUNK_PAGES, LEAST_CHUNK_PAGES, ScanForecast, chunk_after},
    window::{Ahead, Stretch, Window, page_bytes},
};
use crate::{
    Run,
    format::{
        block::{Block, CONTINUATION_BYTES, Layout},
        footer::BlockPosition,
    },
};

/// Number of consecutive pages that make a scan a long one.
const LONG_SCAN_PAGES: u32 = 6;
/// A scan that has passed this many pages starts reading the next chunk in the second half of the current
/// one.
const LATE_AHEAD_PAGES: u32 = 128;
/// A scan that has passed this many pages starts reading the next chunk at the start of the current one.
const SURE_AHEAD_PAGES: u32 = 512;

/// The current data block of a cursor: a copy, so that no page of the cache is pinned.
#[derive(Debug, Default)]
pub(crate) struct DataBlock {
    /// Its position; `None` if none is loaded.
    pub(crate) position: Option<BlockPosition>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) layout: Layout,
    /// Number of continuation pages whose parts of the last value were added.
    parts: u32,
    /// Whether it is read by a merge, and queries use it repeatedly.
    pub(crate) is_warm: bool,
}

impl DataBlock {
    #[inline]
    pub(crate) fn view(&self) -> Block<'_> {
        self.layout.view(&self.bytes)
    }

    /// Its first page, for error messages.
    pub(crate) fn page(&self) -> u32 {
        self.position.map_or(0, |position| position.page)
    }

    /// Bytes of the last value in continuation pages that were not added yet.
    fn continued_bytes(&self) -> usize {
        if !self.layout.is_continued() {
            return 0;
        }
        // A block that cannot be parsed is an error once the cursor is at that entry.
        self.view().continued_bytes().unwrap_or(0)
    }

    /// Whether the value of an entry must be completed first ([`BlockReader::complete`]).
    #[inline]
    pub(crate) fn is_incomplete_at(&self, slot: usize) -> bool {
        self.layout.is_continued() && slot + 1 == self.layout.count() && self.continued_bytes() > 0
    }

    /// Number of continuation pages of the last value.
    pub(crate) fn pages_behind(&self) -> u32 {
        self.parts + self.pages_missing()
    }

    /// Number of continuation pages that were not added yet.
    pub(crate) fn pages_missing(&self) -> u32 {
        u32_of(self.continued_bytes().div_ceil(CONTINUATION_BYTES))
    }

    /// Position of the next continuation page; `None` if the last value is complete.
    pub(crate) fn next_part(&self, run: &Run) -> Result<Option<BlockPosition>> {
        let position = self.position.filter(|_| self.continued_bytes() > 0);
        position.map(|position| run.continuation_of(position, self.parts)).transpose()
    }

    /// Adds the part of the last value in a continuation page. REQUIRES: the page was verified.
    pub(crate) fn add_continuation(&mut self, run: &Run, next: BlockPosition, payload: &[u8]) -> Result<()> {
        let rest = Block::parse(payload).and_then(|block| block.continuation(self.continued_bytes()));
        self.bytes.extend_from_slice(rest.map_err(|damage| run.damaged(next.page, damage))?);
        self.parts += 1;
        Ok(())
    }

    fn unload(&mut self) {
        self.position = None;
        self.layout = Layout::default();
    }

    /// Loads `payload` as the current block. REQUIRES: it was verified.
    pub(crate) fn take(&mut self, run: &Run, position: BlockPosition, payload: &[u8]) -> Result<()> {
        self.bytes.clear();
        self.bytes.extend_from_slice(payload);
        self.parse(run, position)
    }

    /// Loads a block from the page cache; `false` if it is not cached.
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
        self.parts = 0;
        self.layout = Layout::of(&self.bytes).map_err(|damage| run.damaged(position.page, damage))?;
        if self.layout.count() == 0 {
            return Err(run.damaged(position.page, Damage("a data block is empty")));
        }
        self.position = Some(position);
        Ok(())
    }
}

/// Read state of a cursor's data blocks.
#[derive(Debug)]
pub(crate) struct BlockReader {
    read_ahead: ReadAhead,
    /// Number of pages of a seek's first read.
    pub(crate) first_pages: u32,
    /// Number of pages passed in sequence, without a gap.
    pub(crate) passed_pages: u32,
    /// Predicted needs of the scan, if known.
    forecast: Option<ScanForecast>,
    /// Exclusive end of the pages that it may need, once looked up.
    end_page: Option<u32>,
    /// Pages read in advance.
    window: Option<Window>,
    /// Pages after the window that are being read.
    ahead: Option<Ahead>,
    /// Buffer for the next read-ahead.
    spare: Option<AlignedBuffer>,
}

impl BlockReader {
    pub(crate) fn new(read_ahead: ReadAhead) -> Self {
        Self {
            read_ahead,
            first_pages: 1,
            passed_pages: 0,
            forecast: None,
            end_page: None,
            window: None,
            ahead: None,
            spare: None,
        }
    }

    /// Bytes of memory, excluding the reader itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let Self { window, ahead, spare, .. } = self;
        window.as_ref().map_or(0, Window::memory_bytes)
            + ahead.as_ref().map_or(0, Ahead::memory_bytes)
            + spare.as_ref().map_or(0, |spare| spare.len())
    }

    pub(crate) fn set_forecast(&mut self, mut forecast: ScanForecast) {
        forecast.begin_after(self.passed_pages);
        self.forecast = Some(forecast);
        self.end_page = None;
    }

    pub(crate) fn is_long(&self) -> bool {
        self.read_ahead != ReadAhead::Adaptive || self.passed_pages >= LONG_SCAN_PAGES
    }

    pub(crate) fn is_reading_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        self.window.as_ref().is_some_and(|window| window.holds(position))
    }

    /// Loads a block; `false` if it is not in memory, and pages from it on should be read.
    pub(crate) fn load(&mut self, run: &Run, block: &mut DataBlock, position: BlockPosition) -> Result<bool> {
        if block.position == Some(position) {
            return Ok(true);
        }
        let is_overflow = run.reference().owner_of(position.page).is_some();
        if let Some(last) = block.position {
            let behind = block.pages_behind();
            let passed = last.pages.max(behind);
            let follows = follows(run, (last, behind), position);
            self.passed_pages = if follows { self.passed_pages.saturating_add(passed) } else { 0 };
        }
        block.unload();
        if is_overflow && !self.holds(position) {
            return block.take_present(run, position);
        }
        if !self.holds(position) {
            let is_coming = self.ahead.as_ref().is_some_and(|ahead| ahead.holds(position));
            if !self.is_long() && !is_coming {
                self.ahead = None;
                return block.take_present(run, position);
            }
            self.fill_window(run, position)?;
        }
        self.take_from_window(run, block, position)?;
        if self.is_long() && !is_overflow && self.ahead.is_none() {
            self.read_ahead_if_due(run, position)?;
        }
        Ok(true)
    }

    /// Completes the last value of a block; `false` if a continuation page is not in memory.
    pub(crate) fn complete(&mut self, run: &Run, block: &mut DataBlock) -> Result<bool> {
        while let Some(next) = block.next_part(run)? {
            if !self.holds(next) {
                let is_coming = self.ahead.as_ref().is_some_and(|ahead| ahead.holds(next));
                if !self.is_long() && !is_coming {
                    let add = |payload: &[u8]| block.add_continuation(run, next, payload);
                    let added = run.with_present_block(PageKind::Data, next, add)?.transpose()?;
                    if added.is_none() {
                        return Ok(false);
                    }
                    continue;
                }
                self.fill_window(run, next)?;
            }
            let Some(window) = &self.window else { return Ok(false) };
            let bytes = window.block(next);
            run.data().verify(bytes, &run.address(PageKind::Data, next.page)?)?;
            block.add_continuation(run, next, payload_of(bytes))?;
        }
        Ok(true)
    }

    /// Number of pages to read at once.
    pub(crate) fn chunk_pages(&self) -> u32 {
        if let ReadAhead::Pages(pages) = self.read_ahead {
            return pages;
        }
        match self.pages_left() {
            Some(left) => left.min(LAST_CHUNK_PAGES),
            None if self.pages_alike() == 0 => self.first_pages,
            None => chunk_after(self.pages_alike()),
        }
    }

    /// Number of pages of the run that the scan has passed, or would have passed at the same density.
    fn pages_alike(&self) -> u32 {
        self.passed_pages.max(self.forecast.as_ref().map_or(0, ScanForecast::pages_alike))
    }

    /// Predicted number of pages that the scan needs from the current one on, if known.
    pub(crate) fn pages_left(&self) -> Option<u32> {
        self.forecast.as_ref().and_then(|forecast| forecast.pages_left(self.passed_pages))
    }

    /// Number of data and overflow pages from `page` on that the scan may need.
    pub(crate) fn pages_from(&mut self, run: &Run, page: u32) -> Result<u32> {
        let reference = run.reference();
        let data_pages = reference.data_pages;
        if self.end_page.is_none() {
            let end = self.forecast.as_ref().and_then(ScanForecast::end);
            let end = end.filter(|end| !run.reference().keys.end_before(end));
            let last = end.map(|end| run.block_not_before(end)).transpose()?.flatten();
            self.end_page = Some(last.map_or(data_pages, |last| (last.page + last.pages).min(data_pages)));
        }
        let end = self.end_page.unwrap_or(data_pages);
        Ok(match reference.owner_of(page) {
            None => reference.sections_between(page, end),
            Some(owner) => {
                let rest = reference.overflow_of(owner).end.saturating_sub(page);
                rest.saturating_add(reference.sections_between(owner + 1, end))
            }
        })
    }

    fn take_from_window(&self, run: &Run, block: &mut DataBlock, position: BlockPosition) -> Result<()> {
        let Some(window) = &self.window else { return Ok(()) };
        let address = run.address(PageKind::Data, position.page)?;
        let bytes = window.block(position);
        run.data().verify(bytes, &address)?;
        if position.pages == 1 && !self.is_long() {
            run.data().admit(&address, bytes);
        }
        let is_merge = self.read_ahead != ReadAhead::Adaptive;
        block.is_warm = is_merge && position.pages == 1 && run.data().is_warm(&address);
        block.take(run, position, payload_of(bytes))
    }

    fn fill_window(&mut self, run: &Run, position: BlockPosition) -> Result<()> {
        if let Some(joined) = self.join_parts(run, position)? {
            self.window = Some(joined);
            return Ok(());
        }
        let earlier = self.window.take().map(Window::into_bytes);
        self.window = Some(match self.ahead.take().filter(|ahead| ahead.holds(position)) {
            Some(ahead) => {
                self.spare = earlier;
                ahead.arrive(run)?
            }
            None => {
                let pages = self.chunk_pages().min(self.pages_from(run, position.page)?).max(1);
                read_window(run, position, pages, earlier.or_else(|| self.spare.take()))?
            }
        });
        let further_reads = self.window.as_ref().map_or(0, Window::further_reads);
        self.note_further_reads(run, further_reads);
        Ok(())
    }

    /// Counts reads that a query needed because pages of the run are not near each other.
    pub(crate) fn note_further_reads(&self, run: &Run, reads: usize) {
        if self.read_ahead == ReadAhead::Adaptive {
            run.note_scattered_reads(reads);
        }
    }

    /// Joins a block of several pages whose first pages are in the current window or being read; these are
    /// not read again. `None` if there are none, or the read-ahead holds the whole block.
    fn join_parts(&mut self, run: &Run, position: BlockPosition) -> Result<Option<Window>> {
        if position.pages == 1 || self.ahead.as_ref().is_some_and(|ahead| ahead.holds(position)) {
            return Ok(None);
        }
        let begun = self.window.take_if(|window| window.begins(position));
        let next = begun.as_ref().map_or(position.page, Window::end_page);
        let ahead = self.ahead.take_if(|ahead| ahead.has_in_line(next));
        let ahead = ahead.map(|ahead| ahead.arrive(run)).transpose()?;
        let parts: Vec<Window> = begun.into_iter().chain(ahead).collect();
        if parts.is_empty() { Ok(None) } else { Window::joined(run, position, parts).map(Some) }
    }

    /// Page of a window from which on the next one should be read ahead; `None` if it is read only on demand,
    /// because the scan may end before.
    fn ahead_from(&self, window: &Window) -> Option<u32> {
        let is_sure = self.read_ahead != ReadAhead::Adaptive || self.pages_left().is_some();
        match self.pages_alike() {
            _ if is_sure => Some(window.first_page),
            passed if passed >= SURE_AHEAD_PAGES => Some(window.first_page),
            passed if passed >= LATE_AHEAD_PAGES => Some(window.first_page + window.pages / 2),
            _ => None,
        }
    }

    /// Starts reading the pages after the window, if it is time to.
    fn read_ahead_if_due(&mut self, run: &Run, position: BlockPosition) -> Result<()> {
        let Some(window) = self.window.as_ref().filter(|window| !window.is_cut()) else { return Ok(()) };
        if self.ahead_from(window).is_none_or(|from| position.page < from) {
            return Ok(());
        }
        let next_page = run.reference().not_spare(window.first_page + window.pages);
        let held = run.reference().sections_between(position.page, next_page);
        let wanted = match self.pages_left() {
            // A few pages are better read once they are certainly needed.
            Some(left) if self.read_ahead == ReadAhead::Adaptive && left < held + LEAST_CHUNK_PAGES => 0,
            Some(left) if self.read_ahead == ReadAhead::Adaptive => left - held,
            _ => self.chunk_pages(),
        };
        let pages = wanted.min(LAST_CHUNK_PAGES).min(self.pages_from(run, next_page)?);
        self.start_ahead(run, next_page, pages);
        Ok(())
    }

    /// Starts reading pages that a long scan will need, if there is memory for them.
    fn start_ahead(&mut self, run: &Run, page: u32, pages: u32) {
        if let Some(ahead) = Ahead::start(run, page, pages, &mut self.spare) {
            self.ahead = Some(ahead);
        }
    }

    /// Starts reading the first pages for a scan that will arrive here, if it is long enough.
    pub(crate) fn prepare(&mut self, run: &Run) {
        if self.passed_pages >= SURE_AHEAD_PAGES {
            self.start_ahead(run, 0, FIRST_CHUNK_PAGES);
        }
    }

    /// Resets the detection of a long scan.
    pub(crate) fn begin_anew(&mut self) {
        self.read_ahead = ReadAhead::Adaptive;
        self.ahead = None;
        self.passed_pages = 0;
    }

    /// Reads a small run completely, up to the end of `index`, its index block, for a reader that reads ahead
    /// from the first entry on; `None` if it is too large.
    pub(crate) fn read_small_run(&self, run: &Run, index: BlockPosition) -> Result<Option<Window>> {
        let pages = index.page + index.pages;
        if !self.is_long() || pages > self.chunk_pages() || self.ahead.is_some() {
            return Ok(None);
        }
        let Some(lease) = run.data().lease_stream(u64_of(page_bytes(pages))) else { return Ok(None) };
        let mut bytes = AlignedBuffer::unfilled(page_bytes(pages));
        run.read_pages(0, &mut bytes)?;
        Ok(Some(Window::beside(0, bytes, Some(lease))))
    }

    /// Takes over pages that were read for this cursor.
    pub(crate) fn keep_window(&mut self, window: Window) {
        self.window = Some(window);
    }
}

/// Reads pages and waits for them; without a lease only a few.
fn read_window(
    run: &Run,
    position: BlockPosition,
    chunk_pages: u32,
    buffer: Option<AlignedBuffer>,
) -> Result<Window> {
    let pages = chunk_pages.max(position.pages);
    let (mut stretch, lease) = lease_stretch(run, position.page, pages, position.pages);
    if stretch.divides(position) {
        stretch = Stretch::block(position);
    }
    Window::read(run, stretch, buffer, lease)
}

/// Leases memory for as many of these pages as possible; without a lease, a few pages, but at least `least`.
pub(crate) fn lease_stretch(run: &Run, first: u32, pages: u32, least: u32) -> (Stretch, Option<StreamLease>) {
    let mut pages = pages;
    loop {
        let stretch = Stretch::of(run, first, pages);
        let lease = run.data().lease_stream(u64_of(page_bytes(stretch.total())));
        if lease.is_some() || pages <= FIRST_CHUNK_PAGES.max(least) {
            return (stretch, lease);
        }
        pages = (pages / 2).max(FIRST_CHUNK_PAGES).max(least);
    }
}

/// Whether `next` directly follows block `last`, whose last value continues in `behind` pages. Overflow pages
/// are elsewhere.
fn follows(run: &Run, (last, behind): (BlockPosition, u32), next: BlockPosition) -> bool {
    let owner = |position: BlockPosition| run.reference().owner_of(position.page);
    match (owner(last), owner(next)) {
        // The page in which a value ends may or may not have entries.
        (None, None) => {
            let end = last.page + last.pages;
            (last.page + last.pages.max(behind)..=end + behind).contains(&next.page)
                || run.reference().not_spare(end) == next.page
        }
        (None, Some(owner)) => owner == last.page && run.reference().overflow_of(owner).start == next.page,
        (Some(_), Some(_)) => last.page + 1 == next.page,
        (Some(owner), None) => run.reference().not_spare(owner + 1) == next.page,
    }
}
