//! Access to index and filter of a run, in separate pages or in the page of the footer.
//!
//! **Invariants**
//! - If the footer encloses them, the footer's page is requested, so that one cached page serves all three.
//!   No page is requested if the run keeps them in memory.

use std::sync::atomic::Ordering::Relaxed;

use testudo_base::{PAGE_BYTES, Result, codec::Damage, planted};
use testudo_storage::{PageAddress, PageKind, PageRef, payload_of};

use crate::{
    Access, Run,
    format::footer::{BlockPosition, Enclosed},
};

/// Parts of a run that lead to its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structure {
    Index,
    Filter,
}

impl Structure {
    /// Kind of its separate pages.
    #[inline]
    fn page_kind(self) -> PageKind {
        match self {
            Self::Index => PageKind::Index,
            Self::Filter => PageKind::Filter,
        }
    }

    /// Returns its part of a payload that a footer encloses.
    #[inline]
    fn part_in<'p>(self, enclosed: &Enclosed, payload: &'p [u8]) -> &'p [u8] {
        match self {
            Self::Index => enclosed.index_in(payload),
            Self::Filter => enclosed.filter_in(payload),
        }
    }
}

impl Run {
    /// Returns the address of the page with a block of `structure`.
    #[inline]
    pub(crate) fn structure_address(&self, structure: Structure, page: u32) -> Result<PageAddress> {
        let is_enclosed = self.footer()?.enclosed().is_some();
        self.address(if is_enclosed { PageKind::Footer } else { structure.page_kind() }, page)
    }

    /// Returns the block of `structure` in the payload of such a page.
    #[inline]
    pub(crate) fn structure_in<'p>(&self, structure: Structure, payload: &'p [u8]) -> Result<&'p [u8]> {
        let enclosed = self.footer()?.enclosed();
        Ok(enclosed.map_or(payload, |enclosed| structure.part_in(enclosed, payload)))
    }

    /// Like [`Run::with_block`], for a block of `structure`.
    #[inline]
    pub(crate) fn with_structure<R>(
        &self,
        structure: Structure,
        position: BlockPosition,
        access: Access<'_>,
        act: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let footer = self.footer()?;
        let Some(enclosed) = footer.enclosed() else {
            return self.with_block(structure.page_kind(), position, access, act);
        };
        if let Some(kept) = enclosed.kept() {
            return Ok(Some(act(structure.part_in(enclosed, kept))));
        }
        let act = |payload: &[u8]| act(structure.part_in(enclosed, payload));
        self.with_block(PageKind::Footer, position, access, act)
    }

    /// Like [`Run::with_present_block`], for a block of `structure`.
    #[inline]
    pub(crate) fn with_present_structure<R>(
        &self,
        structure: Structure,
        position: BlockPosition,
        act: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let footer = self.footer()?;
        let Some(enclosed) = footer.enclosed() else {
            return self.with_present_block(structure.page_kind(), position, act);
        };
        if let Some(kept) = enclosed.kept() {
            return Ok(Some(act(structure.part_in(enclosed, kept))));
        }
        let act = |payload: &[u8]| act(structure.part_in(enclosed, payload));
        self.with_present_block(PageKind::Footer, position, act)
    }

    /// Whether the filter may contain `hash`; `None` if its page was not cached and was collected.
    #[inline]
    pub(crate) fn passes_filter(&self, hash: u64, access: Access<'_>) -> Result<Option<bool>> {
        let Some(position) = self.filter_position(hash)? else { return Ok(Some(true)) };
        let probe = |filter: &[u8]| testudo_filter::may_contain(filter, hash);
        // Large runs are probed most often, and skip the extra work for small ones.
        if self.footer()?.enclosed().is_none() {
            return self.with_block(PageKind::Filter, position, access, probe);
        }
        self.passes_enclosed_filter(position, hash, access)
    }

    #[inline(never)]
    fn passes_enclosed_filter(
        &self,
        position: BlockPosition,
        hash: u64,
        access: Access<'_>,
    ) -> Result<Option<bool>> {
        let probe = |filter: &[u8]| testudo_filter::may_contain(filter, hash);
        self.with_structure(Structure::Filter, position, access, probe)
    }

    /// Like [`Run::passes_filter`], without reads; `None` if the page is not in memory.
    pub(crate) fn passes_filter_in_memory(&self, hash: u64) -> Result<Option<bool>> {
        let Some(position) = self.filter_position(hash)? else { return Ok(Some(true)) };
        let probe = |filter: &[u8]| testudo_filter::may_contain(filter, hash);
        self.with_present_structure(Structure::Filter, position, probe)
    }

    /// Whether the filter covers every key: it lacks those added by replaced pages.
    #[inline]
    pub(crate) fn filter_counts(&self) -> bool {
        self.reference().replaced.is_none() || planted!("filter-of-replaced-pages-asked")
    }

    /// Position of the filter partition for `hash`; `None` if there is no usable filter.
    #[inline]
    pub(crate) fn filter_position(&self, hash: u64) -> Result<Option<BlockPosition>> {
        let footer = self.footer()?;
        let page = footer.filter_page + testudo_filter::partition_of(hash, footer.filter_pages);
        Ok((footer.filter_pages > 0 && self.filter_counts()).then_some(BlockPosition { page, pages: 1 }))
    }

    /// Like [`Run::passes_filter`], but `true` if that would need a read that is not worth it.
    pub(crate) fn passes_filter_if_worth(&self, hash: u64, access: Access<'_>) -> Result<Option<bool>> {
        let Some(position) = self.filter_position(hash)? else { return Ok(Some(true)) };
        let footer = self.footer()?;
        if footer.enclosed().is_some() {
            // The page is needed in any case.
            return self.passes_filter(hash, access);
        }
        let probe = |filter: &[u8]| testudo_filter::may_contain(filter, hash);
        let address = self.address(PageKind::Filter, position.page)?;
        let mut passes = true;
        // It was useful only for a key that it excludes. If all keys are present, it should not stay in the
        // cache.
        let is_use = |page: &PageRef<'_>| {
            passes = probe(payload_of(page));
            !passes
        };
        if self.data().cached_page_if(&address, is_use).is_some() {
            return Ok(Some(passes));
        }
        let left = self.filter_loads().load(Relaxed);
        if left == 0 && !self.has_large_blocks() {
            return Ok(Some(true));
        }
        // Two concurrent lookups may count as one.
        self.filter_loads().store(left.saturating_sub(1), Relaxed);
        self.with_block(PageKind::Filter, position, access, probe)
    }

    /// Whether data blocks are likely to span several pages.
    fn has_large_blocks(&self) -> bool {
        self.reference().user_bytes / self.reference().entries.max(1) > PAGE_BYTES / 2
    }

    /// Fails if the filter excludes a key that the run holds.
    pub fn check_filter(&self, key: &[u8]) -> Result<()> {
        match self.passes_filter(testudo_base::checksum::hash_key(key), Access::Blocking)? {
            Some(false) => Err(self
                .damaged(self.footer()?.filter_page, Damage("the filter excludes a key that the run holds"))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
