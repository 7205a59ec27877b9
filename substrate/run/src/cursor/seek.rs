//! Seeks of a run cursor, page by page.
//!
//! `find the data block by the index -> load it (block_reader.rs) -> find the slot, or try the next block`
//!
//! If a page is not in memory, the cursor reports it, and resumes when it gets the bytes.
//!
//! **Invariants**
//! - It reports one missing page at a time, and uses the bytes of that page only. Exception: a reader that
//!   reads ahead from the first entry on (a merge, a long scan) reads a small run with its index in one
//!   blocking read.
//! - Prefetches do not change its position.

use std::sync::Arc;

use testudo_base::{PAGE_SIZE, Result, codec::Damage, planted};
use testudo_storage::{PageAddress, PageKind, StreamLease, payload_of};

use super::{RunCursor, Target, batched_seek::seek_together};
use crate::{
    BatchedSeek, Missing, Run,
    cursor::{
        block_reader::lease_stretch,
        index_position::IndexPlace,
        scan_forecast::FIRST_CHUNK_PAGES,
        window::{PagePlan, Stretch, Window},
    },
    format::{
        block::{Block, Lead},
        find_block::IndexSlot,
        footer::BlockPosition,
    },
    structure::Structure,
};

/// With at most this many entries left in its block, a source is likely to need the next one.
const NEAR_END_ENTRIES: usize = 5;

/// A [`Target`] whose key is in the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    First,
    Last,
    From,
    Before,
}

/// Phase of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Positioned, or unpositioned if no entry matches.
    Done,
    /// The data block must be found by the index.
    Finding(Sought),
    /// This data block must be loaded; the target is in it or next to it.
    Loading(BlockPosition, Sought),
    /// Moves to this slot of the loaded block once its value is complete.
    Completing(usize),
}

/// A page for which the cursor waits.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Footer,
    Index(usize, BlockPosition),
    Data(BlockPosition),
    /// The page in which a value continues.
    Continuation(BlockPosition),
}

impl Awaited {
    /// Its first page within the run.
    fn page_in(self, run: &Run) -> u32 {
        match self {
            Self::Footer => run.reference().footer_page,
            Self::Index(_, at) | Self::Data(at) | Self::Continuation(at) => at.page,
        }
    }
}

/// State of a seek.
#[derive(Debug)]
pub(super) struct SeekState {
    phase: Phase,
    awaited: Option<Awaited>,
    /// A block that is prefetched along with the missing pages of other cursors, if any.
    prefetching: Option<BlockPosition>,
    /// Layout of the pages that start with the awaited or prefetched block, if they are not contiguous.
    plan: Option<PagePlan>,
    /// Memory lease for many awaited pages.
    lease: Option<StreamLease>,
}

impl SeekState {
    /// No seek is active.
    pub(super) fn done() -> Self {
        Self { phase: Phase::Done, awaited: None, prefetching: None, plan: None, lease: None }
    }
}

/// Searches an index block for the target; `key` is the target's key, if it has one.
fn search_index(
    run: &Run,
    payload: &[u8],
    sought: Sought,
    key: &[u8],
) -> std::result::Result<(Lead, IndexSlot), Damage> {
    let block = Block::parse(payload)?;
    let last = block.count().checked_sub(1).ok_or(Damage("an index block is empty"))?;
    let lead = match sought {
        Sought::First => Lead::Slot(0),
        Sought::Last => Lead::Slot(last),
        Sought::From | Sought::Before => block.lead(key)?,
    };
    let slot = match &lead {
        Lead::Slot(slot) => *slot,
        Lead::Group(group) => group.from.saturating_sub(1),
    };
    let entry = run.index_entry_of(block.cell(slot)?.value)?;
    let pages_behind = match sought {
        Sought::First => entry.pages_behind(&[]),
        Sought::From => entry.pages_behind(key),
        Sought::Last | Sought::Before => 0,
    };
    Ok((lead, IndexSlot { slot, count: block.count(), position: entry.position, pages_behind }))
}

impl RunCursor {
    /// Starts a seek; the cursor is unpositioned until
    /// [`BatchedSeek::progress`](crate::BatchedSeek::progress) returns `None`.
    pub fn begin(&mut self, target: Target<'_>) {
        self.entry.is_there = false;
        self.seek.awaited = None;
        (self.seek.plan, self.seek.lease) = (None, None);
        self.entry.key.clear();
        let sought = match target {
            Target::First => Sought::First,
            Target::Last => Sought::Last,
            Target::From(key) => {
                self.entry.key.extend_from_slice(key);
                Sought::From
            }
            Target::Before(key) => {
                self.entry.key.extend_from_slice(key);
                Sought::Before
            }
        };
        self.seek.phase = Phase::Finding(sought);
    }

    /// Positions the cursor with blocking reads.
    pub fn place(&mut self, target: Target<'_>) -> Result<()> {
        self.begin(target);
        self.complete_seek()
    }

    /// Completes the seek with blocking reads.
    fn complete_seek(&mut self) -> Result<()> {
        let data = Arc::clone(self.run.data());
        seek_together(std::slice::from_mut(self), &data)
    }

    /// Finds the data block by the index. `None` if a page is not in memory, which is then awaited.
    fn find(&mut self, sought: Sought) -> Result<Option<BlockPosition>> {
        let Some(footer) = self.run.footer_in_memory()? else {
            self.seek.awaited = Some(Awaited::Footer);
            return Ok(None);
        };
        let key = self.entry.key.as_slice();
        let number = match sought {
            Sought::First => 0,
            Sought::Last => footer.index.len() - 1,
            Sought::From | Sought::Before => self.run.index_block_for(key)?,
        };
        let at = footer.index.position(number);
        let search = |payload: &[u8]| search_index(&self.run, payload, sought, key);
        let found = match self.index.payload_of(number) {
            Some(payload) => Some(search(payload)),
            None => self.run.with_present_structure(Structure::Index, at, search)?,
        };
        let Some(found) = found else { return self.find_without_index(sought, number, at) };
        let (lead, mut found) = found.map_err(|damage| self.run.damaged(at.page, damage))?;
        if let Lead::Group(group) = lead
            && let Some(last) = self.run.passed_in_group(key, &group)?.checked_sub(1)
        {
            (found.slot, found.position) = (group.from + last, group.positions[last]);
            found.pages_behind = 0;
        }
        let IndexSlot { slot, count, position, pages_behind } = found;
        let block = match sought {
            Sought::First | Sought::Last => position,
            Sought::From | Sought::Before => self.run.block_or_overflow(key, position),
        };
        let page = position.page;
        let section = match block.page {
            first if first == page => 0,
            overflow => overflow - self.run.reference().overflow_of(page).start + 1,
        };
        self.index.place = IndexPlace { block: number, slot, count, page, pages_behind, section };
        Ok(Some(if sought == Sought::Last { self.index.last_of(&self.run, position) } else { block }))
    }

    /// Like [`Self::find`], if index block `number` is not in memory.
    fn find_without_index(
        &mut self,
        sought: Sought,
        number: usize,
        at: BlockPosition,
    ) -> Result<Option<BlockPosition>> {
        if sought == Sought::First
            && let Some(window) = self.reader.read_small_run(&self.run, at)?
        {
            let block = window.block(at);
            self.run.data().verify(block, &self.run.structure_address(Structure::Index, at.page)?)?;
            let index = self.run.structure_in(Structure::Index, payload_of(block))?;
            self.index.keep_copy(&self.run, number, index, at)?;
            self.reader.keep_window(window);
            return self.find(sought);
        }
        self.seek.awaited = Some(Awaited::Index(number, at));
        Ok(None)
    }

    /// Returns the pages for which the cursor waits.
    fn missing(&mut self) -> Result<Option<Missing>> {
        let Some(awaited) = self.seek.awaited else { return Ok(None) };
        let ahead = match awaited {
            Awaited::Footer | Awaited::Index(..) => 1,
            Awaited::Data(_) | Awaited::Continuation(_) => self.pages_at_once(),
        };
        self.missing_at(self.address_of(awaited)?, awaited.page_in(&self.run), ahead).map(Some)
    }

    /// Returns the address of the first awaited page.
    fn address_of(&self, awaited: Awaited) -> Result<PageAddress> {
        let page = awaited.page_in(&self.run);
        match awaited {
            Awaited::Footer => self.run.address(PageKind::Footer, page),
            Awaited::Index(..) => self.run.structure_address(Structure::Index, page),
            Awaited::Data(_) | Awaited::Continuation(_) => self.run.address(PageKind::Data, page),
        }
    }

    fn missing_at(&mut self, address: PageAddress, page: u32, ahead: u32) -> Result<Missing> {
        (self.seek.plan, self.seek.lease) = (None, None);
        if ahead <= 1 {
            return Ok(Missing::beside(address, 1));
        }
        let room = self.run.locate(page).map_or(1, |(_, room)| room);
        let left = self.reader.pages_from(&self.run, page)?.max(1);
        let is_beside = self.run.reference().replaced.is_none();
        let pages = if is_beside { ahead.min(left).min(room) } else { ahead.min(left) };
        let stretch = if pages > FIRST_CHUNK_PAGES {
            let (stretch, lease) = lease_stretch(&self.run, page, pages, 1);
            self.seek.lease = lease;
            stretch
        } else {
            Stretch::of(&self.run, page, pages)
        };
        if let Some(plan) = stretch.plan.filter(|plan| plan.total() > 1) {
            self.reader.note_further_reads(&self.run, plan.further_reads());
            let missing = Missing::in_chunks(address, plan.chunks().to_vec());
            self.seek.plan = Some(plan);
            return Ok(missing);
        }
        Ok(Missing::beside(address, stretch.pages.min(room)))
    }

    /// Number of pages per request: as many as will be needed; if that is unknown, more and more as the scan
    /// proceeds.
    fn pages_at_once(&self) -> u32 {
        match self.seek.phase {
            Phase::Loading(_, Sought::Last | Sought::Before) => 1,
            Phase::Loading(..) => self.reader.chunk_pages().max(1 + self.index.place.pages_behind),
            Phase::Completing(_) => self.reader.chunk_pages().max(self.block.pages_missing()),
            _ => self.reader.chunk_pages(),
        }
    }

    /// Moves to the target in the loaded block; `false` if it is in an adjacent one.
    fn stand_within(&mut self, sought: Sought) -> Result<bool> {
        let last = self.block.layout.count() - 1;
        let slot = match sought {
            Sought::First if self.reader.passed_pages > 0 && planted!("first-of-block-lost") => {
                Some(1.min(last))
            }
            Sought::First => Some(0),
            Sought::Last => Some(last),
            Sought::From | Sought::Before => {
                let found = self.block.view().lower_bound(&self.entry.key);
                let (slot, _) = found.map_err(|damage| self.run.damaged(self.block.page(), damage))?;
                if sought == Sought::From {
                    Some(slot).filter(|slot| *slot <= last)
                } else {
                    slot.checked_sub(1)
                }
            }
        };
        let Some(slot) = slot else { return Ok(false) };
        if self.block.is_incomplete_at(slot) {
            self.seek.phase = Phase::Completing(slot);
        } else {
            self.set_slot(slot)?;
        }
        Ok(true)
    }

    /// Moves to an entry of the loaded block whose value continues in the next page.
    #[cold]
    pub(super) fn set_incomplete_slot(&mut self, slot: usize) -> Result<()> {
        self.entry.is_there = false;
        self.seek.phase = Phase::Completing(slot);
        self.complete_seek()
    }

    /// Moves to the adjacent block, or past the end.
    pub(super) fn cross(&mut self, forward: bool) -> Result<()> {
        self.entry.is_there = false;
        if let Some(position) = self.index.step(&self.run, forward)? {
            let sought = if forward { Sought::First } else { Sought::Last };
            self.seek.phase = Phase::Loading(position, sought);
            self.complete_seek()?;
        }
        Ok(())
    }

    /// Returns the next data block, if the cursor will reach it soon and it is not in memory.
    fn next_missing_block(&mut self) -> Result<Option<BlockPosition>> {
        let left = self.block.layout.count() - self.entry.slot;
        // The fullest source of a scan certainly continues.
        let is_near = left <= NEAR_END_ENTRIES || self.reader.first_pages > 1;
        let is_long = self.reader.is_long() || self.reader.is_reading_ahead();
        if !self.entry.is_there || !is_near || is_long {
            return Ok(None);
        }
        let next = self.index.peek_next(&self.run)?;
        let Some(next) = next.filter(|next| next.pages == 1) else { return Ok(None) };
        let is_here =
            self.reader.holds(next) || self.run.with_present_block(PageKind::Data, next, |_| ())?.is_some();
        Ok(Some(next).filter(|_| !is_here))
    }
}

impl BatchedSeek for RunCursor {
    fn progress(&mut self) -> Result<Option<Missing>> {
        loop {
            match self.seek.phase {
                Phase::Done => return Ok(None),
                Phase::Finding(sought) => {
                    let Some(position) = self.find(sought)? else { return self.missing() };
                    self.seek.phase = Phase::Loading(position, sought);
                }
                Phase::Loading(position, sought) => {
                    if !self.reader.load(&self.run, &mut self.block, position)? {
                        self.seek.awaited = Some(Awaited::Data(position));
                        return self.missing();
                    }
                    self.seek.phase = Phase::Done;
                    if self.stand_within(sought)? {
                        continue;
                    }
                    let (forward, sought) = match sought {
                        Sought::From => (true, Sought::First),
                        _ => (false, Sought::Last),
                    };
                    if let Some(position) = self.index.step(&self.run, forward)? {
                        self.seek.phase = Phase::Loading(position, sought);
                    }
                }
                Phase::Completing(slot) => {
                    if !self.reader.complete(&self.run, &mut self.block)? {
                        self.seek.awaited = self.block.next_part(&self.run)?.map(Awaited::Continuation);
                        return self.missing();
                    }
                    self.seek.phase = Phase::Done;
                    self.set_slot(slot)?;
                }
            }
        }
    }

    fn next_missing(&mut self) -> Result<Option<Missing>> {
        let Some(next) = self.next_missing_block()? else { return Ok(None) };
        // It is at the first of the pages that it is expected to need.
        let pages = match self.reader.pages_left() {
            Some(left) if left <= 1 => return Ok(None),
            Some(left) => left - 1,
            None => self.reader.first_pages,
        };
        self.seek.prefetching = Some(next);
        self.missing_at(self.run.address(PageKind::Data, next.page)?, next.page, pages).map(Some)
    }

    fn prefetched(&mut self, bytes: &[u8]) {
        let (plan, lease) = (self.seek.plan.take(), self.seek.lease.take());
        if let Some(next) = self.seek.prefetching.take() {
            self.reader.keep_window(match plan {
                Some(plan) => Window::copy_by_plan(plan, &self.run, bytes, lease),
                None => Window::copy_of(next.page, bytes, lease),
            });
        }
    }

    fn on_page(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(awaited) = self.seek.awaited.take() else { return Ok(()) };
        let at = awaited.page_in(&self.run);
        let (plan, mut lease) = (self.seek.plan.take(), self.seek.lease.take());
        // After a failed larger read, only the needed page was read.
        let plan = plan.filter(|_| bytes.len() > PAGE_SIZE);
        let window = plan.map(|plan| Window::copy_by_plan(plan, &self.run, bytes, lease.take()));
        let (page, rest) = match &window {
            Some(window) => (window.block(BlockPosition { page: at, pages: 1 }), &[][..]),
            None => bytes.split_at(PAGE_SIZE),
        };
        let address = self.address_of(awaited)?;
        self.run.data().verify(page, &address)?;
        self.run.data().admit(&address, page);
        match awaited {
            Awaited::Footer => {
                self.run.take_footer(payload_of(page))?;
                let footer = self.run.footer()?;
                if footer.enclosed().is_some() && !footer.keeps_structure() {
                    let index = self.run.structure_in(Structure::Index, payload_of(page))?;
                    self.index.keep_copy(&self.run, 0, index, footer.index.position(0))?;
                }
                Ok(())
            }
            Awaited::Index(number, at) => {
                let index = self.run.structure_in(Structure::Index, payload_of(page))?;
                self.index.keep_copy(&self.run, number, index, at)
            }
            Awaited::Data(at) | Awaited::Continuation(at) => {
                if matches!(awaited, Awaited::Data(_)) {
                    self.block.take(&self.run, at, payload_of(page))?;
                } else {
                    self.block.add_continuation(&self.run, at, payload_of(page))?;
                }
                if let Some(window) = window {
                    self.reader.keep_window(window);
                } else if !rest.is_empty() {
                    self.reader.keep_window(Window::copy_of(at.page + 1, rest, lease));
                }
                Ok(())
            }
        }
    }
}
