//! Finds the data block of a key: by the index, and by the blocks themselves where separators were cut.
//!
//! **Invariants**
//! - A key that the run holds is in the block found. Damage causes an error, or at worst a wrong block.

use std::{
    cell::{Cell, RefCell},
    cmp::Ordering,
};

use testudo_base::{Cursor, PAGE_SIZE, Result, codec::Damage, num::usize_of, planted, sync::Arc};
use testudo_storage::PageKind;

use crate::{
    Access, ReadAhead, Run, RunCursor,
    format::{
        block::{Block, Group, IndexEntry, Lead},
        footer::{BlockPosition, Footer},
        long_separators::{Fork, Separator, compare_first, count_at_or_before},
    },
    structure::Structure,
};

/// Position in an index block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexSlot {
    pub(crate) slot: usize,
    /// Number of entries of the index block.
    pub(crate) count: usize,
    /// Position of the data block.
    pub(crate) position: BlockPosition,
    /// Number of pages in which the value of the sought key continues.
    pub(crate) pages_behind: u32,
}

/// An index entry in owned form.
#[derive(Clone, Debug)]
pub(crate) struct IndexedBlock {
    /// Lower bound of the block's keys.
    pub(crate) separator: Vec<u8>,
    pub(crate) position: BlockPosition,
    /// The fork, if the separator was cut.
    pub(crate) fork: Option<Fork>,
}

impl Run {
    /// Returns the overflow page of a data block if `key` belongs there, else the block itself.
    #[inline]
    pub(crate) fn block_or_overflow(&self, key: &[u8], position: BlockPosition) -> BlockPosition {
        match self.reference().section_with(position.page, key) {
            page if page != position.page && !planted!("overflow-page-not-asked") => {
                BlockPosition { page, pages: 1 }
            }
            _ => position,
        }
    }

    /// Returns the data block for `key`, and the number of pages after it in which the key's value continues
    /// according to the index. `None` if the index page was not cached and was collected. Data blocks needed
    /// to resolve cut separators are read at once.
    #[inline]
    pub(crate) fn pages_for(&self, key: &[u8], access: Access<'_>) -> Result<Option<(BlockPosition, u32)>> {
        let found = self.found_in_index(key, access)?;
        Ok(found.map(|(position, pages_behind)| (self.block_or_overflow(key, position), pages_behind)))
    }

    /// Returns the data block for `key` in the index; this block represents its overflow pages, too.
    pub(crate) fn indexed_block_for(&self, key: &[u8], access: Access<'_>) -> Result<Option<BlockPosition>> {
        Ok(self.found_in_index(key, access)?.map(|(position, _)| position))
    }

    /// Bytes of the pages that are read for `key`.
    pub fn block_bytes_for(&self, key: &[u8]) -> Result<usize> {
        let pages = self.pages_for(key, Access::Blocking)?;
        let (position, behind) = pages.expect("a blocking read must return its block");
        Ok(usize_of(u64::from(position.pages) + u64::from(behind)) * PAGE_SIZE)
    }

    #[inline]
    fn found_in_index(&self, key: &[u8], access: Access<'_>) -> Result<Option<(BlockPosition, u32)>> {
        let footer = self.footer()?;
        let at = footer.index.position(self.index_block_in(footer, key)?);
        let search = |payload: &[u8]| {
            let block = Block::parse(payload)?;
            Ok(match block.lead(key)? {
                Lead::Slot(slot) => (None, self.pages_of(block.cell(slot)?.value, key)?),
                Lead::Group(group) => {
                    let before = self.data_block_of(block.cell(group.from.saturating_sub(1))?.value)?;
                    (Some(group), (before, 0))
                }
            })
        };
        let Some(found) = self.with_structure(Structure::Index, at, access, search)? else { return Ok(None) };
        let (group, before) = found.map_err(|damage| self.damaged(at.page, damage))?;
        let Some(group) = group else { return Ok(Some(before)) };
        let passed = self.passed_in_group(key, &group)?;
        Ok(Some(passed.checked_sub(1).map_or(before, |last| (group.positions[last], 0))))
    }

    /// Returns a data block at or after the one for `key`, without reads; `None` if it is unknown. REQUIRES:
    /// the footer was read.
    pub(crate) fn block_not_before(&self, key: &[u8]) -> Result<Option<BlockPosition>> {
        let footer = self.footer()?;
        let at = footer.index.position(*footer.index_blocks_for(key).end());
        if at.pages > 1 {
            return Ok(None);
        }
        let search = |payload: &[u8]| {
            let block = Block::parse(payload)?;
            match block.lead(key)? {
                Lead::Slot(slot) => self.data_block_of(block.cell(slot)?.value).map(Some),
                Lead::Group(group) => Ok(group.positions.last().copied()),
            }
        };
        let found = self.with_present_structure(Structure::Index, at, search)?;
        found.transpose().map(Option::flatten).map_err(|damage: Damage| self.damaged(at.page, damage))
    }

    /// Returns the number of the index block that covers `key`.
    #[inline]
    pub(crate) fn index_block_for(&self, key: &[u8]) -> Result<usize> {
        self.index_block_in(self.footer()?, key)
    }

    #[inline]
    fn index_block_in(&self, footer: &Footer, key: &[u8]) -> Result<usize> {
        let candidates = footer.index_blocks_for(key);
        if candidates.start() == candidates.end() {
            return Ok(*candidates.start());
        }
        self.choose_index_block(key, *candidates.start(), *candidates.end())
    }

    /// Chooses among the index blocks from `before` to `last`; the separators of all but the first were cut.
    #[cold]
    fn choose_index_block(&self, key: &[u8], before: usize, last: usize) -> Result<usize> {
        let unsure = &self.footer()?.index.several().unwrap_or_default()[before + 1..=last];
        let fork_of = |separator: &Separator| separator.fork.unwrap_or(Fork { shared: 0, byte: 0 });
        let forks: Vec<Fork> = unsure.iter().map(|(separator, _)| fork_of(separator)).collect();
        let passed = count_at_or_before(key, &forks, |number| {
            let first = |payload: &[u8]| self.data_block_of(Block::parse(payload)?.cell(0)?.value);
            let first = self.with_index_for_search(unsure[number].1, first)?;
            self.compare_with_block(key, first)
        })?;
        Ok(before + passed)
    }

    /// Number of blocks of a group that start at or before `key`.
    #[cold]
    pub(crate) fn passed_in_group(&self, key: &[u8], group: &Group) -> Result<usize> {
        count_at_or_before(key, &group.forks, |at| self.compare_with_block(key, group.positions[at]))
    }

    /// Compares a key with the first key of a data block.
    fn compare_with_block(&self, key: &[u8], position: BlockPosition) -> Result<(usize, Ordering)> {
        Ok(compare_first(key, &self.first_key_of(position)?))
    }

    /// Reads the first key of a data block.
    pub(crate) fn first_key_of(&self, position: BlockPosition) -> Result<Vec<u8>> {
        let first = |payload: &[u8]| {
            let block = Block::parse(payload)?;
            Ok([block.prefix(), block.cell(0)?.suffix].concat())
        };
        let seen = self.with_block(PageKind::Data, position, Access::Blocking, first)?;
        self.found_in(position, seen)
    }

    /// Reads all index pages of runs of the same data file that are not cached, in one batch.
    pub fn load_indexes(runs: &[Arc<Self>]) -> Result<()> {
        let (wanted, progress) = (RefCell::default(), Cell::default());
        let access = Access::Collecting(&wanted, &progress);
        for run in runs {
            for position in run.footer()?.index.positions() {
                run.with_structure(Structure::Index, position, access, |_| ())?;
            }
        }
        let wanted = wanted.into_inner();
        runs.first().filter(|_| !wanted.is_empty()).map_or(Ok(()), |run| run.data().load_pages(&wanted))
    }

    /// Reads separators and entries of an index block.
    pub(crate) fn index_entries(&self, position: BlockPosition) -> Result<Vec<IndexedBlock>> {
        self.with_index_for_search(position, |payload| {
            let block = Block::parse(payload)?;
            let entry = |slot: usize| {
                let cell = block.cell(slot)?;
                let IndexEntry { position, fork, .. } = self.index_entry_of(cell.value)?;
                Ok(IndexedBlock { separator: [block.prefix(), cell.suffix].concat(), position, fork })
            };
            (0..block.count()).map(entry).collect()
        })
    }

    /// Reads an index block and calls `search` with it.
    fn with_index_for_search<R>(
        &self,
        position: BlockPosition,
        search: impl FnOnce(&[u8]) -> std::result::Result<R, Damage>,
    ) -> Result<R> {
        let seen = self.with_structure(Structure::Index, position, Access::Blocking, search)?;
        self.found_in(position, seen)
    }

    /// Unwraps the result for a block that was read.
    fn found_in<R>(
        &self,
        position: BlockPosition,
        seen: Option<std::result::Result<R, Damage>>,
    ) -> Result<R> {
        seen.expect("a blocking read must return its block")
            .map_err(|damage| self.damaged(position.page, damage))
    }

    /// Decodes the data block of an index entry.
    #[inline]
    pub(crate) fn data_block_of(&self, value: &[u8]) -> std::result::Result<BlockPosition, Damage> {
        self.index_entry_of(value).map(|entry| entry.position)
    }

    /// Decodes the data block of an index entry, and the number of pages after it in which the value of `key`
    /// continues.
    #[inline]
    fn pages_of(&self, value: &[u8], key: &[u8]) -> std::result::Result<(BlockPosition, u32), Damage> {
        let entry = self.index_entry_of(value)?;
        Ok((entry.position, entry.pages_behind(key)))
    }

    /// Decodes an index entry and checks that its data block is within the run.
    #[inline]
    pub(crate) fn index_entry_of<'a>(&self, value: &'a [u8]) -> std::result::Result<IndexEntry<'a>, Damage> {
        let entry = IndexEntry::decode(value)?;
        let position = entry.position;
        let end = position.page.checked_add(position.pages).ok_or(Damage("a block is outside its run"))?;
        if position.pages == 0 || end > self.reference().data_pages {
            return Err(Damage("a block is outside its run"));
        }
        Ok(entry)
    }

    /// Returns the first and the last key, which are read if the reference has only cut ones.
    pub fn exact_ends(self: &Arc<Self>) -> Result<(Vec<u8>, Vec<u8>)> {
        let keys = &self.reference().keys;
        let (mut first, mut last) = (keys.first().to_vec(), keys.last().to_vec());
        if keys.first_is_cut() || keys.last_is_cut() {
            let mut cursor = RunCursor::new(Arc::clone(self), ReadAhead::Adaptive);
            cursor.seek_first()?;
            first = cursor.entry().map_or(first, |entry| entry.key.to_vec());
            cursor.seek_last()?;
            last = cursor.entry().map_or(last, |entry| entry.key.to_vec());
        }
        Ok((first, last))
    }
}

#[cfg(test)]
mod tests;
