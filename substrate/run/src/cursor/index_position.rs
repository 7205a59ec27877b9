//! Position of a cursor in the index of its run.
//!
//! **Invariants**
//! - The copied index block is verified and not empty.

use testudo_base::{PAGE_SIZE, Result, codec::Damage};

use crate::{
    Access, Run,
    format::{block::Layout, footer::BlockPosition},
    structure::Structure,
};

/// Position of an index entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexPlace {
    /// Number of its index block.
    pub(crate) block: usize,
    pub(crate) slot: usize,
    /// Number of entries of the index block.
    pub(crate) count: usize,
    /// Data page to which it leads.
    pub(crate) page: u32,
    /// Number of pages after the data page in which the value at the cursor's start continues.
    pub(crate) pages_behind: u32,
    /// Section of the data page at which the cursor is: 0 for the page itself, then its overflow pages.
    pub(crate) section: u32,
}

/// An index position, with a copy of one index block.
#[derive(Debug, Default)]
pub(crate) struct IndexPosition {
    pub(crate) place: IndexPlace,
    copy: Option<IndexCopy>,
}

#[derive(Debug)]
struct IndexCopy {
    block: usize,
    payload: Vec<u8>,
    layout: Layout,
}

impl IndexPosition {
    /// Returns the payload of index block `block`, if that is the copied one.
    pub(crate) fn payload_of(&self, block: usize) -> Option<&[u8]> {
        self.copy.as_ref().filter(|copy| copy.block == block).map(|copy| copy.payload.as_slice())
    }

    /// Copies an index block. REQUIRES: it was verified.
    pub(crate) fn keep_copy(
        &mut self,
        run: &Run,
        block: usize,
        bytes: &[u8],
        at: BlockPosition,
    ) -> Result<()> {
        let mut payload = self.copy.take().map(|copy| copy.payload).unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(bytes);
        let layout = Layout::of(&payload).map_err(|damage| run.damaged(at.page, damage))?;
        if layout.count() == 0 {
            return Err(run.damaged(at.page, Damage("an index block is empty")));
        }
        self.copy = Some(IndexCopy { block, payload, layout });
        Ok(())
    }

    /// Moves to an adjacent data block; `None` past either end of the run.
    pub(crate) fn step(&mut self, run: &Run, forward: bool) -> Result<Option<BlockPosition>> {
        let IndexPlace { block, slot, count, page, section, .. } = self.place;
        if forward && let Some(page) = run.reference().section_after(page, section) {
            self.place.section = section + 1;
            return Ok(Some(BlockPosition { page, pages: 1 }));
        }
        if !forward && section > 0 {
            self.place.section = section - 1;
            let before =
                section.checked_sub(2).and_then(|before| run.reference().section_after(page, before));
            return Ok(Some(BlockPosition { page: before.unwrap_or(page), pages: 1 }));
        }
        let blocks = run.footer()?.index.len();
        let (block, slot) = match forward {
            true if slot + 1 < count => (block, Some(slot + 1)),
            true if block + 1 < blocks => (block + 1, Some(0)),
            false if slot > 0 => (block, Some(slot - 1)),
            false if block > 0 => (block - 1, None),
            _ => return Ok(None),
        };
        let at = run.footer()?.index.position(block);
        if self.payload_of(block).is_none() {
            let mut payload = Vec::with_capacity(PAGE_SIZE);
            let copy = |bytes: &[u8]| payload.extend_from_slice(bytes);
            run.with_structure(Structure::Index, at, Access::Blocking, copy)?;
            self.keep_copy(run, block, &payload, at)?;
        }
        let Some(IndexCopy { payload, layout, .. }) = &self.copy else { return Ok(None) };
        let slot = slot.unwrap_or(layout.count() - 1);
        let cell = layout.view(payload).cell(slot);
        let entry = cell
            .and_then(|cell| run.index_entry_of(cell.value))
            .map_err(|damage| run.damaged(at.page, damage))?;
        let position = entry.position;
        // Of a value that is alone in its block.
        let pages_behind = if forward { entry.pages_behind(&[]) } else { 0 };
        let (count, page) = (layout.count(), position.page);
        self.place = IndexPlace { block, slot, count, page, pages_behind, section: 0 };
        Ok(Some(if forward { position } else { self.last_of(run, position) }))
    }

    /// Returns the last block of an index entry: the last overflow page of `position`, if it has any.
    /// REQUIRES: the cursor is at `position`.
    pub(crate) fn last_of(&mut self, run: &Run, position: BlockPosition) -> BlockPosition {
        let overflow = run.reference().overflow_of(position.page);
        self.place.section = overflow.end - overflow.start;
        match overflow.last() {
            Some(page) => BlockPosition { page, pages: 1 },
            None => position,
        }
    }

    /// Returns the next data block, without moving.
    pub(crate) fn peek_next(&mut self, run: &Run) -> Result<Option<BlockPosition>> {
        let place = self.place;
        let next = self.step(run, true)?;
        self.place = place;
        Ok(next)
    }
}
