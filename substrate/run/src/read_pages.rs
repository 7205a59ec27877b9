//! Page-level access to a run: reads that bypass the cache, verification, residency.
//!
//! **Invariants**
//! - Places of replaced pages may be read along with others, but their bytes are never used.

use std::cell::{Cell, RefCell};

use testudo_base::{
    PAGE_SIZE, Result,
    codec::Damage,
    num::{u32_of, u64_of, usize_of},
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_storage::{PageKind, payload_of};

use crate::{
    Access, LookupProgress, ReplacedPages, Run, format::footer::BlockPosition, map_read::read_maps,
    spans::locate, structure::Structure,
};

impl Run {
    /// Fills `buffer` from page `page` of the run on, bypassing the cache and *unverified*. REQUIRES: the end
    /// of the run is not exceeded.
    pub fn read_pages(&self, page: u32, buffer: &mut [u8]) -> Result<()> {
        let outside = |page: u32| self.damaged(page, Damage("a page is outside its run"));
        let count = u32_of(buffer.len() / PAGE_SIZE);
        // Adjacent places are read together, whatever they hold; then replaced pages are read one by one.
        let written = self.reference().footer_end().saturating_sub(page).min(count);
        let (mut place, mut rest) = (page, &mut buffer[..usize_of(u64::from(written)) * PAGE_SIZE]);
        while !rest.is_empty() {
            let (physical, room) = locate(self.spans(), place).ok_or_else(|| outside(page))?;
            let length = rest.len().min(usize_of(u64::from(room)) * PAGE_SIZE);
            let (chunk, after) = rest.split_at_mut(length);
            self.data().read_stream(physical, chunk)?;
            place += u32_of(length / PAGE_SIZE);
            rest = after;
        }
        self.read_replaced(page, buffer)
    }

    /// Reads the replaced pages among those in `buffer`, which starts at `page`.
    fn read_replaced(&self, page: u32, buffer: &mut [u8]) -> Result<()> {
        if self.reference().replaced.is_none() {
            return Ok(());
        }
        let mut reads = Vec::new();
        for (number, bytes) in (page..).zip(buffer.chunks_exact_mut(PAGE_SIZE)) {
            let place = self.reference().place_of(number);
            if place.at == number && place.writing.generation == self.reference().id {
                continue;
            }
            let (physical, _) = self
                .locate(number)
                .ok_or_else(|| self.damaged(number, Damage("a page is outside its run")))?;
            reads.push((physical, bytes));
        }
        if reads.is_empty() {
            return Ok(());
        }
        self.data().read_many(&mut reads).into_iter().collect()
    }

    /// Verifies that the map of the run on the device has the list in memory.
    fn check_map(&self) -> Result<()> {
        self.require_places()?;
        let Some(replaced) = self.reference().replaced.as_ref() else { return Ok(()) };
        let Some(map) = replaced.map() else { return Ok(()) };
        let mut stored = self.reference().clone();
        stored.replaced = Some(Arc::new(ReplacedPages::unread(map.clone())));
        let mut stored = [stored];
        read_maps(self.data(), &mut stored)?;
        if stored[0].replaced.as_deref() != Some(replaced) {
            return Err(self.damaged(self.reference().footer_end(), Damage("the map is not the stored one")));
        }
        Ok(())
    }

    /// Verifies every map, index, filter and footer page of the run on the device, bypassing the cache.
    pub fn check_pages(&self) -> Result<()> {
        self.check_map()?;
        let footer = self.footer()?;
        for position in footer.index.positions() {
            let address = self.structure_address(Structure::Index, position.page)?;
            self.data().read_block(&self.block_spans(position)?, &address)?;
        }
        for page in footer.filter_page..footer.filter_page + footer.filter_pages {
            let address = self.structure_address(Structure::Filter, page)?;
            let block =
                self.data().read_block(&self.block_spans(BlockPosition { page, pages: 1 })?, &address)?;
            let filter = self.structure_in(Structure::Filter, payload_of(&block))?;
            testudo_filter::check(filter).map_err(|damage| self.damaged(page, damage))?;
        }
        let position =
            BlockPosition { page: self.reference().footer_page, pages: self.reference().footer_pages };
        let address = self.address(PageKind::Footer, position.page)?;
        self.data().read_block(&self.block_spans(position)?, &address)?;
        Ok(())
    }

    /// Number of reads that scans needed only because replaced pages are not near each other, in this version
    /// of the run and those before it since it was opened.
    pub fn scattered_reads(&self) -> u64 {
        self.scattered_reads.load(Relaxed)
    }

    pub(crate) fn note_scattered_reads(&self, reads: usize) {
        self.scattered_reads.fetch_add(u64_of(reads), Relaxed);
    }

    /// Returns how many of the data pages that may hold keys of `[low, high)` are cached, and their total.
    /// Reads nothing: if index pages are not cached, the range counts as not cached.
    pub fn resident_pages(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<(u64, u64)> {
        let (wanted, progress) = (RefCell::new(Vec::new()), Cell::new(LookupProgress::default()));
        let access = Access::Collecting(&wanted, &progress);
        let reference = self.reference();
        let (mut from, mut to) = (0, reference.data_pages);
        if !self.has_footer_in_memory()? {
            return Ok((0, u64::from(to)));
        }
        if let Some(low) = low.filter(|low| !reference.keys.begin_at_or_after(low)) {
            let Some(position) = self.indexed_block_for(low, access)? else { return Ok((0, u64::from(to))) };
            from = position.page;
        }
        if let Some(high) = high.filter(|high| !reference.keys.end_before(high)) {
            if reference.keys.begin_at_or_after(high) {
                return Ok((0, 0));
            }
            let Some(position) = self.indexed_block_for(high, access)? else { return Ok((0, u64::from(to))) };
            to = position.page + position.pages;
        }
        let mut resident = 0;
        let pages = || (from..to).filter(|page| !reference.is_spare(*page));
        for page in pages() {
            let (physical, _) =
                self.locate(page).ok_or_else(|| self.damaged(0, Damage("a page is outside its run")))?;
            resident += u64::from(self.data().has_page(physical));
        }
        Ok((resident, pages().map(|_| 1).sum()))
    }

    /// Whether most of the filter is cached.
    pub fn has_filter_in_memory(&self) -> Result<bool> {
        let Some(footer) = self.footer_in_memory()?.filter(|_| self.filter_counts()) else {
            return Ok(false);
        };
        if footer.keeps_structure() {
            return Ok(footer.filter_pages > 0);
        }
        let pages = footer.filter_page..footer.filter_page + footer.filter_pages;
        let has =
            |page| Ok(u32::from(self.data().has_page(self.structure_address(Structure::Filter, page)?.page)));
        let present = pages.map(has).sum::<Result<u32>>()?;
        Ok(present * 2 > footer.filter_pages)
    }

    /// Whether the data page for `key` is cached. Reads nothing: if index pages are not cached, it counts as
    /// not cached.
    pub fn has_page_for(&self, key: &[u8]) -> Result<bool> {
        if !self.has_footer_in_memory()? {
            return Ok(false);
        }
        let (wanted, progress) = (RefCell::new(Vec::new()), Cell::new(LookupProgress::default()));
        let found = self.indexed_block_for(key, Access::Collecting(&wanted, &progress))?;
        let found = found.map(|position| self.block_or_overflow(key, position));
        let Some((physical, _)) = found.and_then(|position| self.locate(position.page)) else {
            return Ok(false);
        };
        Ok(self.data().has_page(physical))
    }
}
