//! How a cursor over a run gets to where it should stand, page by page.
//!
//! **Invariants**
//! - It names one missing page at a time, and takes the bytes of that page only. Only who reads ahead from
//!   the first entry on (a merge, a long scan) gets a small run with its index in one blocking read, without
//!   naming anything.
//! - What it wishes for changes nothing about where it stands.

use testudo_base::{
    PAGE_SIZE, Result,
    codec::Damage,
    num::{u32_of, u64_of},
    planted,
};
use testudo_env::AlignedBuffer;
use testudo_storage::{PageKind, payload_of};

use super::{Awaited, Phase, ReadAhead, RunCursor, Sought};
use crate::{
    BatchedSeek, Missing,
    cursor::window::{Window, page_bytes},
    format::{
        block::{Block, Lead},
        find_block::IndexSlot,
        footer::BlockPosition,
    },
    spans::locate,
};

/// With so few entries left in its block, a source is likely to need the next one.
const NEAR_END_ENTRIES: usize = 5;

impl RunCursor {
    /// Finds the data block by the index. `None` if the page that is awaited from then on is not in memory.
    fn find(&mut self, sought: Sought) -> Result<Option<BlockPosition>> {
        let Some(footer) = self.run.footer_in_memory()? else {
            self.awaited = Some(Awaited::Footer);
            return Ok(None);
        };
        let number = match sought {
            Sought::First => 0,
            Sought::Last => footer.index.len() - 1,
            Sought::From | Sought::Before => self.run.index_block_for(&self.key)?,
        };
        let at = footer.index[number].1;
        let key = self.key.as_slice();
        let search = |payload: &[u8]| {
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
            let position = self.run.data_block_of(block.cell(slot)?.value)?;
            Ok((lead, IndexSlot { slot, count: block.count(), position }))
        };
        let found = match &self.index {
            Some((copied, payload, _)) if *copied == number => search(payload),
            _ => {
                let Some(found) = self.run.with_present_block(PageKind::Index, at, search)? else {
                    if sought == Sought::First && self.read_small_run(number, at)? {
                        return self.find(sought);
                    }
                    self.awaited = Some(Awaited::Index(number, at));
                    return Ok(None);
                };
                found
            }
        };
        let (lead, mut found) = found.map_err(|damage| self.run.damaged(at.page, damage))?;
        if let Lead::Group(group) = lead
            && let Some(last) = self.run.passed_in_group(key, &group)?.checked_sub(1)
        {
            (found.slot, found.position) = (group.from + last, group.positions[last]);
        }
        (self.index_block, self.index_slot, self.index_count) = (number, found.slot, found.count);
        Ok(Some(found.position))
    }

    /// Reads a small run whole, its index included, for who reads ahead from the first entry on; `false` if
    /// it is too large for that.
    fn read_small_run(&mut self, number: usize, index: BlockPosition) -> Result<bool> {
        let pages = index.page + index.pages;
        if !matches!(self.read_ahead, ReadAhead::Pages(piece) if pages <= piece) || self.ahead.is_some() {
            return Ok(false);
        }
        let Some(lease) = self.run.data().lease_stream(u64_of(page_bytes(pages))) else { return Ok(false) };
        let mut bytes = AlignedBuffer::unfilled(page_bytes(pages));
        self.run.read_pages(0, &mut bytes)?;
        let window = Window { first_page: 0, pages, bytes, _lease: Some(lease) };
        let block = window.block(index);
        self.run.data().verify(block, &self.run.address(PageKind::Index, index.page)?)?;
        self.copy_index(number, payload_of(block), index)?;
        self.window = Some(window);
        Ok(true)
    }

    /// What the cursor waits for.
    fn missing(&self) -> Result<Option<Missing>> {
        let Some(awaited) = self.awaited else { return Ok(None) };
        let (kind, page, ahead) = match awaited {
            Awaited::Footer => (PageKind::Footer, self.run.reference().footer_page, 1),
            Awaited::Index(_, at) => (PageKind::Index, at.page, 1),
            Awaited::Data(at) => (PageKind::Data, at.page, self.pages_at_once()),
        };
        self.missing_at(kind, page, ahead).map(Some)
    }

    fn missing_at(&self, kind: PageKind, page: u32, ahead: u32) -> Result<Missing> {
        let address = self.run.address(kind, page)?;
        let room = locate(self.run.spans(), page).map_or(1, |(_, room)| room);
        let left = self.run.reference().data_pages.saturating_sub(page).max(1);
        Ok(Missing { address, pages: ahead.min(room).min(left) })
    }

    fn keep_window(&mut self, first_page: u32, read: &[u8]) {
        let mut bytes = AlignedBuffer::zeroed(read.len());
        bytes.copy_from_slice(read);
        let pages = u32_of(read.len() / PAGE_SIZE);
        self.window = Some(Window { first_page, pages, bytes, _lease: None });
    }

    /// How many pages are worth one request: more and more, the longer a scan goes on.
    fn pages_at_once(&self) -> u32 {
        match self.phase {
            Phase::Loading(_, Sought::Last | Sought::Before) => 1,
            _ if self.neighbours > 0 => self.neighbours * 2,
            _ => self.first_pages,
        }
    }

    /// Stands on what is sought in the loaded block; `false` if that is beside it.
    fn stand_within(&mut self, sought: Sought) -> Result<bool> {
        let last = self.layout.count() - 1;
        let slot = match sought {
            Sought::First if self.neighbours > 0 && planted!("first-of-block-lost") => Some(1.min(last)),
            Sought::First => Some(0),
            Sought::Last => Some(last),
            Sought::From | Sought::Before => {
                let found = self.layout.view(&self.block).lower_bound(&self.key);
                let page = self.position.map_or(0, |position| position.page);
                let (slot, _) = found.map_err(|damage| self.run.damaged(page, damage))?;
                if sought == Sought::From {
                    Some(slot).filter(|slot| *slot <= last)
                } else {
                    slot.checked_sub(1)
                }
            }
        };
        let Some(slot) = slot else { return Ok(false) };
        self.stand_on(slot)?;
        Ok(true)
    }

    /// The following data block, if the cursor is about to get there and it is not in memory.
    fn next_missing_block(&mut self) -> Result<Option<BlockPosition>> {
        let left = self.layout.count() - self.slot;
        // The fullest source of a scan is sure to go on.
        let is_near = left <= NEAR_END_ENTRIES || self.first_pages > 1;
        if !self.on_entry || !is_near || self.is_long() || self.ahead.is_some() {
            return Ok(None);
        }
        let (number, slot, count) = (self.index_block, self.index_slot, self.index_count);
        let next = self.neighbour(true)?;
        (self.index_block, self.index_slot, self.index_count) = (number, slot, count);
        let Some(next) = next.filter(|next| next.pages == 1) else { return Ok(None) };
        let is_here = self.window.as_ref().is_some_and(|window| window.holds(next))
            || self.run.with_present_block(PageKind::Data, next, |_| ())?.is_some();
        Ok(Some(next).filter(|_| !is_here))
    }
}

impl BatchedSeek for RunCursor {
    fn progress(&mut self) -> Result<Option<Missing>> {
        loop {
            match self.phase {
                Phase::Settled => return Ok(None),
                Phase::Finding(sought) => {
                    let Some(position) = self.find(sought)? else { return self.missing() };
                    self.phase = Phase::Loading(position, sought);
                }
                Phase::Loading(position, sought) => {
                    if !self.load(position)? {
                        return self.missing();
                    }
                    self.phase = Phase::Settled;
                    if self.stand_within(sought)? {
                        continue;
                    }
                    let (forward, sought) = match sought {
                        Sought::From => (true, Sought::First),
                        _ => (false, Sought::Last),
                    };
                    if let Some(position) = self.neighbour(forward)? {
                        self.phase = Phase::Loading(position, sought);
                    }
                }
            }
        }
    }

    fn next_missing(&mut self) -> Result<Option<Missing>> {
        let Some(next) = self.next_missing_block()? else { return Ok(None) };
        self.wished = Some(next);
        self.missing_at(PageKind::Data, next.page, self.first_pages).map(Some)
    }

    fn prefetched(&mut self, bytes: &[u8]) {
        if let Some(next) = self.wished.take() {
            self.keep_window(next.page, bytes);
        }
    }

    fn on_page(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(awaited) = self.awaited.take() else { return Ok(()) };
        let (page, rest) = bytes.split_at(PAGE_SIZE);
        let (kind, at) = match awaited {
            Awaited::Footer => (PageKind::Footer, self.run.reference().footer_page),
            Awaited::Index(_, at) => (PageKind::Index, at.page),
            Awaited::Data(at) => (PageKind::Data, at.page),
        };
        let address = self.run.address(kind, at)?;
        self.run.data().verify(page, &address)?;
        self.run.data().admit(&address, page);
        match awaited {
            Awaited::Footer => self.run.take_footer(payload_of(page)),
            Awaited::Index(number, at) => self.copy_index(number, payload_of(page), at),
            Awaited::Data(at) => {
                if !rest.is_empty() {
                    self.keep_window(at.page + 1, rest);
                }
                self.block.clear();
                self.block.extend_from_slice(payload_of(page));
                self.block_loaded(at)
            }
        }
    }
}
