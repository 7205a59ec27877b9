//! Where a cursor stands in the index of its run.
//!
//! **Invariants**
//! - The copy is of an index block that was verified, and is not empty.

use testudo_base::{PAGE_SIZE, Result, codec::Damage};

use crate::{
    Access, Run,
    format::{block::Layout, footer::BlockPosition},
    structure::Structure,
};

/// An entry of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexPlace {
    /// The number of its block.
    pub(crate) block: usize,
    pub(crate) slot: usize,
    /// How many entries the block has.
    pub(crate) count: usize,
    /// The data page that it leads to.
    pub(crate) page: u32,
    /// In how many pages behind that the value goes on with which the cursor begins there.
    pub(crate) pages_behind: u32,
    /// The cursor is in the overflow page of that.
    pub(crate) in_overflow: bool,
}

/// A place, and a copy of one index block.
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
    /// The payload of index block `block`, if that is the one of which there is a copy.
    pub(crate) fn payload_of(&self, block: usize) -> Option<&[u8]> {
        self.copy.as_ref().filter(|copy| copy.block == block).map(|copy| copy.payload.as_slice())
    }

    /// Keeps a copy of an index block. REQUIRES: it was verified.
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

    /// Moves to a neighbouring data block; `None` past either end of the run.
    pub(crate) fn step(&mut self, run: &Run, forward: bool) -> Result<Option<BlockPosition>> {
        let IndexPlace { block, slot, count, page, in_overflow, .. } = self.place;
        if forward
            && !in_overflow
            && let Some((page, _)) = run.reference().overflow_of(page)
        {
            self.place.in_overflow = true;
            return Ok(Some(BlockPosition { page, pages: 1 }));
        }
        if !forward && in_overflow {
            self.place.in_overflow = false;
            return Ok(Some(BlockPosition { page, pages: 1 }));
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
        // Of a value that is the only one of its block.
        let pages_behind = if forward { entry.pages_behind(&[]) } else { 0 };
        self.place = IndexPlace {
            block,
            slot,
            count: layout.count(),
            page: position.page,
            pages_behind,
            in_overflow: false,
        };
        Ok(Some(if forward { position } else { self.last_of(run, position) }))
    }

    /// The block behind which that of the next index entry comes: the overflow page of `position`, if it has
    /// one. REQUIRES: that is where it stands.
    pub(crate) fn last_of(&mut self, run: &Run, position: BlockPosition) -> BlockPosition {
        match run.reference().overflow_of(position.page) {
            Some((page, _)) => {
                self.place.in_overflow = true;
                BlockPosition { page, pages: 1 }
            }
            None => position,
        }
    }

    /// The following data block, without moving there.
    pub(crate) fn peek_next(&mut self, run: &Run) -> Result<Option<BlockPosition>> {
        let place = self.place;
        let next = self.step(run, true)?;
        self.place = place;
        Ok(next)
    }
}
