//! Index and filter of a run, wherever they are: in pages of their own, or in that of the footer.
//!
//! **Invariants**
//! - Where the footer encloses them, the page that is asked for is the footer's, so that one page in the
//!   cache answers for all three. None is asked for where the run keeps them.

use std::sync::atomic::Ordering::Relaxed;

use testudo_base::{PAGE_BYTES, Result, codec::Damage, planted};
use testudo_storage::{PageAddress, PageKind, PageRef, payload_of};

use crate::{
    Access, Run,
    format::footer::{BlockPosition, Enclosed},
};

/// What leads to the data of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structure {
    Index,
    Filter,
}

impl Structure {
    /// The kind of its pages, where it has some.
    #[inline]
    fn page_kind(self) -> PageKind {
        match self {
            Self::Index => PageKind::Index,
            Self::Filter => PageKind::Filter,
        }
    }

    /// The part of it that is at the end of what a footer encloses.
    #[inline]
    fn part_in<'p>(self, enclosed: &Enclosed, payload: &'p [u8]) -> &'p [u8] {
        match self {
            Self::Index => enclosed.index_in(payload),
            Self::Filter => enclosed.filter_in(payload),
        }
    }
}

impl Run {
    /// Who the page of a block of `structure` is.
    #[inline]
    pub(crate) fn structure_address(&self, structure: Structure, page: u32) -> Result<PageAddress> {
        let is_enclosed = self.footer()?.enclosed().is_some();
        self.address(if is_enclosed { PageKind::Footer } else { structure.page_kind() }, page)
    }

    /// The block of `structure` that is in the payload of such a page.
    #[inline]
    pub(crate) fn structure_in<'p>(&self, structure: Structure, payload: &'p [u8]) -> Result<&'p [u8]> {
        let enclosed = self.footer()?.enclosed();
        Ok(enclosed.map_or(payload, |enclosed| structure.part_in(enclosed, payload)))
    }

    /// As [`Run::with_block`], for a block of `structure`.
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

    /// As [`Run::with_present_block`], for a block of `structure`.
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

    /// Whether the filter lets `hash` pass; `None` if its page was missing and has been noted.
    #[inline]
    pub(crate) fn passes_filter(&self, hash: u64, access: Access<'_>) -> Result<Option<bool>> {
        let Some(position) = self.filter_position(hash)? else { return Ok(Some(true)) };
        let probe = |filter: &[u8]| testudo_filter::may_contain(filter, hash);
        // Large runs are asked most, and so are not kept up by what small ones need.
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

    /// The same, reading nothing; `None` if its page is not in memory.
    pub(crate) fn passes_filter_in_memory(&self, hash: u64) -> Result<Option<bool>> {
        let Some(position) = self.filter_position(hash)? else { return Ok(Some(true)) };
        let probe = |filter: &[u8]| testudo_filter::may_contain(filter, hash);
        self.with_present_structure(Structure::Filter, position, probe)
    }

    /// Whether the filter knows every key: those that replaced pages have got, it does not.
    #[inline]
    pub(crate) fn filter_counts(&self) -> bool {
        self.reference().replaced.is_none() || planted!("filter-of-replaced-pages-asked")
    }

    /// Where the filter says something about `hash`; `None` if there is no filter.
    #[inline]
    pub(crate) fn filter_position(&self, hash: u64) -> Result<Option<BlockPosition>> {
        let footer = self.footer()?;
        let page = footer.filter_page + testudo_filter::partition_of(hash, footer.filter_pages);
        Ok((footer.filter_pages > 0 && self.filter_counts()).then_some(BlockPosition { page, pages: 1 }))
    }

    /// As [`Run::passes_filter`], but true if that would have to be read and it is not worth it.
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
        // Only for a key that it denies it was of use. Where all keys are there it shall not stay in memory.
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
        // Two threads may count as one.
        self.filter_loads().store(left.saturating_sub(1), Relaxed);
        self.with_block(PageKind::Filter, position, access, probe)
    }

    /// Whether data blocks are likely to have more than one page: they are not cached.
    fn has_large_blocks(&self) -> bool {
        self.reference().user_bytes / self.reference().entries.max(1) > PAGE_BYTES / 2
    }

    /// Fails if the filter denies a key that the run holds.
    pub fn check_filter(&self, key: &[u8]) -> Result<()> {
        match self.passes_filter(testudo_base::checksum::hash_key(key), Access::Blocking)? {
            Some(false) => Err(self
                .damaged(self.footer()?.filter_page, Damage("the filter denies a key that the run holds"))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
