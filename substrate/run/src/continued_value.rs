//! Values that continue in the next pages (decision 0051).
//!
//! A single-page block holds whole entries, except that it may hold only the first part of the last value.
//! The rest is stored before the cells of the next page, as its *continuation*, and fills whole pages before
//! that if it is longer. So records of a quarter of a page to 64 KiB leave no page half empty, every page has
//! its own checksum, and a point query reads at most one page more.
//!
//! **Invariants**
//! - The next page must belong to the same run by its header, or it is not read. Runs with continued values
//!   have no replaced pages.
//! - No value is returned without its end.

use std::ops::RangeInclusive;

use testudo_base::{PAGE_SIZE, Result, codec::Damage, num::u32_of, planted};
use testudo_storage::{Neighbours, PageKind, payload_of};

use crate::{
    Access, Lookup, Run,
    format::{
        block::{Block, CONTINUATION_BYTES, Spread},
        footer::BlockPosition,
    },
};

impl Run {
    /// Looks a key up in a block whose last value continues in `behind` more pages.
    pub(crate) fn search_pages(
        &self,
        (position, behind): (BlockPosition, u32),
        key: &[u8],
        access: Access<'_>,
    ) -> Result<Lookup> {
        match behind {
            0 => self.search_block(position, key, access),
            1 if self.awaits_pages(position, 0..=1, access)? => Ok(Lookup::Waiting),
            1 => self.search_block(position, key, access),
            _ => self.search_long(position, behind, key),
        }
    }

    /// Completes a result with the `length` bytes of its value in the pages after its block. `Waiting` if
    /// pages are not cached; all of them were collected.
    #[cold]
    pub(crate) fn completed(
        &self,
        position: BlockPosition,
        found: Lookup,
        length: usize,
        access: Access<'_>,
    ) -> Result<Lookup> {
        let Lookup::Found(kind, mut value, neighbours) = found else { return Ok(found) };
        let pages = u32_of(length.div_ceil(CONTINUATION_BYTES));
        if self.awaits_pages(position, 1..=pages, access)? {
            return Ok(Lookup::Waiting);
        }
        let end = value.len() + length;
        for part in 0..pages {
            let next = self.continuation_of(position, part)?;
            let add = |payload: &[u8]| {
                let rest = Block::parse(payload)?.continuation(end - value.len())?;
                value.extend_from_slice(if planted!("value-without-its-end") { &rest[..0] } else { rest });
                Ok(())
            };
            let added = self.with_block(PageKind::Data, next, access, add)?;
            if added.transpose().map_err(|damage| self.damaged(next.page, damage))?.is_none() {
                return Ok(Lookup::Waiting);
            }
        }
        Ok(Lookup::Found(kind, value, neighbours))
    }

    /// Looks up a key whose value, if present, continues in `behind` pages: those not cached are read in one
    /// batch. The cache keeps them if the value is too long for the record cache.
    #[cold]
    fn search_long(&self, position: BlockPosition, behind: u32, key: &[u8]) -> Result<Lookup> {
        let last = self.continuation_of(position, behind - 1)?;
        let pages = BlockPosition { page: position.page, pages: behind + 1 };
        if let Some(found) = self.search_cached(pages, Spread::Continued, key)? {
            return Ok(found);
        }
        let spans = self.block_spans(pages)?;
        let first = self.address(PageKind::Data, position.page)?;
        let numbers: Vec<u32> = (position.page..=last.page).collect();
        let may_be_kept = self.data().keeps_long(numbers.len() * PAGE_SIZE);
        let long = self.data().read_long(&spans, first.generation, may_be_kept)?;
        for at in long.unverified_pages() {
            let bytes = &long.bytes()[at * PAGE_SIZE..][..PAGE_SIZE];
            self.data().verify(bytes, &self.address(PageKind::Data, numbers[at])?)?;
        }
        let found = self.search_in(long.bytes(), position, key)?;
        if let Lookup::Found(_, value, _) = &found
            && long.has_unverified_pages()
            && self.data().keeps_long(key.len() + value.len())
        {
            self.data().keep_long(&spans, &first, &long);
        }
        Ok(found)
    }

    /// Looks up a key in these pages: its block, and those in which the block's last value continues.
    fn search_in(&self, bytes: &[u8], position: BlockPosition, key: &[u8]) -> Result<Lookup> {
        let mut pages = bytes.chunks_exact(PAGE_SIZE).map(payload_of);
        let mut search = || {
            let block = Block::parse(pages.next().unwrap_or_default())?;
            let (index, is_equal) = block.lower_bound(key)?;
            if !is_equal {
                return Ok(Lookup::Absent);
            }
            let cell = block.cell(index)?;
            let mut value = Vec::with_capacity(cell.value.len() + cell.continued_bytes);
            value.extend_from_slice(cell.value);
            let mut left = cell.continued_bytes;
            while left > 0 {
                let page = pages.next().ok_or(Damage("a value continues beyond the pages in the index"))?;
                let rest = Block::parse(page)?.continuation(left)?;
                value.extend_from_slice(rest);
                left -= rest.len();
            }
            Ok(Lookup::Found(cell.kind, value, Neighbours::default()))
        };
        search().map_err(|damage| self.damaged(position.page, damage))
    }

    /// Loads those of these pages that are not cached in one batch; page 0 is the block itself. Returns
    /// whether some were collected as missing instead.
    #[cold]
    fn awaits_pages(
        &self,
        position: BlockPosition,
        pages: RangeInclusive<u32>,
        access: Access<'_>,
    ) -> Result<bool> {
        let mut missing = Vec::new();
        for number in pages {
            let next = match number.checked_sub(1) {
                None => position,
                Some(part) => self.continuation_of(position, part)?,
            };
            let address = self.address(PageKind::Data, next.page)?;
            missing.extend((!self.data().has_page(address.page)).then_some(address));
        }
        match access {
            Access::Blocking | Access::Counting(_) => {
                if missing.len() > 1 {
                    self.data().load_pages(&missing)?;
                }
                Ok(false)
            }
            Access::Collecting(wanted, _) => {
                wanted.borrow_mut().extend(&missing);
                Ok(!missing.is_empty())
            }
        }
    }

    /// Position of the `part`-th page, from 0, in which the last value of a block continues.
    pub(crate) fn continuation_of(&self, position: BlockPosition, part: u32) -> Result<BlockPosition> {
        let next = BlockPosition { page: position.page.saturating_add(part).saturating_add(1), pages: 1 };
        let is_there = position.pages == 1 && next.page < self.reference().data_pages;
        if !is_there || self.reference().replaced.is_some() {
            return Err(self.damaged(position.page, Damage("a value continues on a missing page")));
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
