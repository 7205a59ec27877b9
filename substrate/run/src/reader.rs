//! An open run: point queries, positions of blocks, range estimates.
//!
//! **Invariants**
//! - While a `Run` exists, its extents are held and its pages do not change.
//! - The footer is read once, on first use; no other part of the run is kept outside the page cache.

use std::cell::{Cell, RefCell};

use testudo_base::{
    Error, ExtentSpan, PAGE_BYTES, Result,
    codec::Damage,
    num::{u64_of, usize_of},
    planted,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};
use testudo_env::AlignedBuffer;
use testudo_storage::{DATA_FILE, DataFile, Extent, PageAddress, PageKind, PageRef, PlaceSet, payload_of};

use crate::{
    Access, Lookup, LookupProgress, Reached, RunRecord, RunRef,
    format::{
        block::{Block, Spread},
        footer::{BlockPosition, Enclosed, Footer},
        long_separators::Separator,
    },
    map_read::read_maps,
    spans::{locate, locate_page, used_places},
};

/// An open run.
#[derive(Debug)]
pub struct Run {
    data: Arc<DataFile>,
    reference: RunRef,
    extents: Box<[Arc<Extent>]>,
    footer: OnceLock<Footer>,
    /// Number of lookups of [`Run::get_last`] that may still load a filter page.
    filter_loads: AtomicU8,
    /// See [`Run::note_damage`].
    is_damaged: AtomicBool,
    /// Places in use, if pages were replaced.
    places: Option<Arc<PlaceSet>>,
    /// See [`Run::scattered_reads`].
    pub(crate) scattered_reads: AtomicU64,
}

/// Approximate overhead of an allocation.
const ALLOCATION_BYTES: usize = 16;
/// Number of allocations of a run without its footer.
const ALLOCATIONS: usize = 5;
/// Bytes per extent: span, handle, and entries in the tables of data file and manifest.
const EXTENT_BYTES: usize = size_of::<ExtentSpan>() + size_of::<Arc<Extent>>() + 160;

impl Drop for Run {
    fn drop(&mut self) {
        if let (None, Some(first)) = (&self.places, self.extents.first()) {
            first.remove_plain_user();
        }
        self.data.subtract_run_memory(self.own_bytes() + self.footer_bytes());
    }
}

/// Registers the places of a run with replaced pages as used.
fn places_of(reference: &RunRef, extents: &[Arc<Extent>]) -> Option<Arc<PlaceSet>> {
    reference.replaced.as_ref()?;
    let places = Arc::new(used_places(reference));
    let (places, ()) = extents.first()?.use_places(|_, _| (places, ()));
    Some(places)
}

/// Number of lookups that may load a filter page after one whose read the filter would have saved.
const FILTER_LOADS_AFTER_ABSENCE: u8 = 16;

impl Run {
    pub(crate) fn written(
        data: Arc<DataFile>,
        reference: RunRef,
        extents: Vec<Arc<Extent>>,
        footer: Footer,
    ) -> Self {
        Self::counted(data, reference, extents, OnceLock::from(footer))
    }

    /// Creates a run whose memory is counted until it is dropped.
    fn counted(
        data: Arc<DataFile>,
        reference: RunRef,
        extents: Vec<Arc<Extent>>,
        footer: OnceLock<Footer>,
    ) -> Self {
        let places = places_of(&reference, &extents);
        Self::with_places(data, reference, extents, footer, places)
    }

    /// Like [`Run::counted`], with places that are registered already; `None` if no page was replaced.
    pub(crate) fn with_places(
        data: Arc<DataFile>,
        reference: RunRef,
        extents: Vec<Arc<Extent>>,
        footer: OnceLock<Footer>,
        places: Option<Arc<PlaceSet>>,
    ) -> Self {
        debug_assert_eq!(
            places.is_some(),
            reference.replaced.is_some(),
            "a run with replaced pages must list its places"
        );
        if let (None, Some(first)) = (&places, extents.first()) {
            first.add_plain_user();
        }
        let run = Self {
            data,
            reference,
            extents: extents.into(),
            footer,
            filter_loads: AtomicU8::new(0),
            is_damaged: false.into(),
            places,
            scattered_reads: AtomicU64::new(0),
        };
        run.data.add_run_memory(run.own_bytes() + run.footer_bytes());
        run
    }

    /// Approximate memory without the footer, including table entries of its extents.
    fn own_bytes(&self) -> u64 {
        let ends = self.reference.keys.first().len() + self.reference.keys.last().len();
        let replaced = self.reference.replaced.as_ref().map_or(0, |replaced| replaced.memory_bytes());
        let own = size_of::<Self>() + ends + replaced + ALLOCATIONS * ALLOCATION_BYTES;
        u64_of(own + self.extents.len() * EXTENT_BYTES)
    }

    /// Memory of the footer, if it is loaded.
    fn footer_bytes(&self) -> u64 {
        let Some(footer) = self.footer.get() else { return 0 };
        let block = |(separator, _): &(Separator, BlockPosition)| {
            size_of::<(Separator, BlockPosition)>() + separator.bytes.len() + ALLOCATION_BYTES
        };
        let kept = footer.enclosed().and_then(Enclosed::kept);
        let kept = kept.map_or(0, |kept| kept.len() + ALLOCATION_BYTES);
        u64_of(footer.index.several().unwrap_or_default().iter().map(block).sum::<usize>() + kept)
    }

    /// Opens a run of the durable state; reads nothing but its map.
    ///
    /// Errors: `Corruption` if a span is not live.
    pub fn open(data: Arc<DataFile>, reference: RunRef) -> Result<Arc<Self>> {
        let runs = Self::open_all(&data, vec![reference])?;
        Ok(runs.into_iter().next().expect("a run for each reference"))
    }

    /// Opens several runs, whose maps are read in one batch.
    ///
    /// Errors: as [`Run::open`].
    pub fn open_all(data: &Arc<DataFile>, mut references: Vec<RunRef>) -> Result<Vec<Arc<Self>>> {
        let hold = |span: &ExtentSpan| {
            data.extents().hold(*span).ok_or_else(|| {
                let offset = span.first_page.saturating_mul(PAGE_BYTES);
                Error::corruption(DATA_FILE, offset, "a run refers to pages that are not live")
            })
        };
        let hold_all = |reference: &RunRef| reference.spans.iter().map(hold).collect::<Result<Vec<_>>>();
        let extents = references.iter().map(hold_all).collect::<Result<Vec<_>>>()?;
        read_maps(data, &mut references)?;
        let open = |(reference, extents)| {
            Arc::new(Self::counted(Arc::clone(data), reference, extents, OnceLock::new()))
        };
        Ok(references.into_iter().zip(extents).map(open).collect())
    }

    /// Reference to persist.
    pub fn reference(&self) -> &RunRef {
        &self.reference
    }

    /// Marks the run as damaged, so that optional readers avoid it. Ordinary reads ignore this.
    pub fn note_damage(&self) {
        self.is_damaged.store(true, Relaxed);
    }

    /// Whether the run was marked as damaged since it was opened.
    pub fn is_known_damaged(&self) -> bool {
        self.is_damaged.load(Relaxed)
    }

    /// The data file that it is in.
    pub fn data(&self) -> &Arc<DataFile> {
        &self.data
    }

    pub(crate) fn extents(&self) -> &[Arc<Extent>] {
        &self.extents
    }

    pub(crate) fn spans(&self) -> impl Iterator<Item = ExtentSpan> + '_ {
        self.reference.spans.iter().copied()
    }

    #[inline]
    pub(crate) fn address(&self, kind: PageKind, page: u32) -> Result<PageAddress> {
        // Only data pages are replaced.
        if kind == PageKind::Data && self.reference.replaced.is_some() {
            return self.address_among_replaced(kind, page);
        }
        let (physical, _) =
            locate(self.spans(), page).ok_or_else(|| self.damaged(0, Damage("a page is outside its run")))?;
        Ok(PageAddress {
            page: physical,
            generation: self.reference.id,
            keyspace: self.reference.keyspace,
            incarnation: self.reference.incarnation,
            kind,
        })
    }

    /// Like [`Run::address`], for runs with replaced pages.
    #[inline(never)]
    fn address_among_replaced(&self, kind: PageKind, page: u32) -> Result<PageAddress> {
        let (physical, _) = self.locate(page).ok_or_else(|| self.not_located(page))?;
        let writing = self.reference.place_of(page).writing;
        let kind = if self.reference.is_replaced(page) { PageKind::Replaced } else { kind };
        Ok(PageAddress {
            page: physical,
            generation: writing.generation,
            keyspace: self.reference.keyspace,
            incarnation: writing.incarnation,
            kind,
        })
    }

    /// Returns the physical page of a page of the run, and how many pages of the run are contiguous from
    /// there, itself included.
    #[inline]
    pub(crate) fn locate(&self, page: u32) -> Option<(u64, u32)> {
        locate_page(&self.reference, || self.spans(), page)
    }

    /// Creates the error for a page without a location.
    #[cold]
    fn not_located(&self, page: u32) -> Error {
        if self.reference.has_known_places() || page >= self.reference.data_pages {
            return self.damaged(0, Damage("a page is outside its run"));
        }
        self.map_damaged()
    }

    /// Creates the error for a run whose replaced pages are unknown.
    fn map_damaged(&self) -> Error {
        let why = Damage("the map of its replaced pages cannot be read");
        self.damaged(self.reference.footer_end(), why)
    }

    /// Returns `Corruption` if the places of its data pages are unknown.
    pub(crate) fn require_places(&self) -> Result<()> {
        if self.reference.has_known_places() { Ok(()) } else { Err(self.map_damaged()) }
    }

    /// Creates a `Corruption` error at a page of this run.
    pub(crate) fn damaged(&self, page: u32, damage: Damage) -> Error {
        let offset = self.locate(page).map_or(0, |(physical, _)| physical * PAGE_BYTES);
        Error::corruption(DATA_FILE, offset, format!("run {}: {}", self.reference.id, damage.0))
    }

    /// Calls `act` with the payload of a block. `None` if a page was not cached and was collected.
    pub(crate) fn with_block<R>(
        &self,
        kind: PageKind,
        position: BlockPosition,
        access: Access<'_>,
        act: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.with_block_in_cache(kind, position, access, |payload, _| act(payload))
    }

    /// Like [`Run::with_block`]; `act` also gets the cached page, if the block is a single one.
    fn with_block_in_cache<R>(
        &self,
        kind: PageKind,
        position: BlockPosition,
        access: Access<'_>,
        act: impl FnOnce(&[u8], Option<&PageRef<'_>>) -> R,
    ) -> Result<Option<R>> {
        let address = self.address(kind, position.page)?;
        if position.pages == 1 {
            if let Some(page) = self.data.cached_page(&address) {
                return Ok(Some(act(payload_of(&page), Some(&page))));
            }
            access.note_read();
            return match access {
                Access::Blocking | Access::Counting(_) => {
                    self.data.load_page(&address, |bytes, page| act(payload_of(bytes), page)).map(Some)
                }
                Access::Collecting(wanted, _) => {
                    wanted.borrow_mut().push(address);
                    Ok(None)
                }
            };
        }
        let block = self.long_block(position, &address)?;
        Ok(Some(act(payload_of(&block), None)))
    }

    /// Reads a block of several pages, which the cache keeps by their use.
    #[cold]
    fn long_block(&self, position: BlockPosition, address: &PageAddress) -> Result<AlignedBuffer> {
        let spans = self.block_spans(position)?;
        // Short blocks are cached as records.
        let is_kept = |bytes| address.kind != PageKind::Data || self.data.keeps_long(bytes);
        let may_be_kept = is_kept(usize_of(u64::from(position.pages) * PAGE_BYTES));
        let long = self.data.read_long(&spans, address.generation, may_be_kept)?;
        if long.has_unverified_pages() {
            let verified = self.data.verify(long.bytes(), address);
            let may_be_shown = verified.is_ok() || planted!("long-block-kept-unverified");
            if may_be_shown && is_kept(payload_of(long.bytes()).len()) {
                self.data.keep_long(&spans, address, &long);
            }
            verified?;
        }
        Ok(long.into_bytes())
    }

    /// Like [`Run::with_block`], but `None` if its page is not cached. Blocks of several pages are read.
    pub(crate) fn with_present_block<R>(
        &self,
        kind: PageKind,
        position: BlockPosition,
        act: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        if position.pages > 1 {
            return self.with_block(kind, position, Access::Blocking, act);
        }
        let address = self.address(kind, position.page)?;
        Ok(self.data.cached_page(&address).map(|page| act(payload_of(&page))))
    }

    /// Returns the physical spans of a block of several pages.
    pub(crate) fn block_spans(&self, position: BlockPosition) -> Result<Vec<ExtentSpan>> {
        let (mut page, mut left) = (position.page, position.pages);
        let mut spans = Vec::new();
        while left > 0 {
            let (first_page, room) = self
                .locate(page)
                .ok_or_else(|| self.damaged(position.page, Damage("a block is outside its run")))?;
            let page_count = room.min(left);
            spans.push(ExtentSpan { first_page, page_count });
            page += page_count;
            left -= page_count;
        }
        Ok(spans)
    }

    fn footer_position(&self) -> BlockPosition {
        BlockPosition { page: self.reference.footer_page, pages: self.reference.footer_pages }
    }

    pub(crate) fn filter_loads(&self) -> &AtomicU8 {
        &self.filter_loads
    }

    #[inline]
    pub(crate) fn footer(&self) -> Result<&Footer> {
        if let Some(footer) = self.footer.get() { Ok(footer) } else { self.read_footer() }
    }

    /// Whether its index is in memory.
    pub(crate) fn has_index_in_memory(&self) -> bool {
        self.footer.get().is_some_and(Footer::keeps_structure)
    }

    #[cold]
    fn read_footer(&self) -> Result<&Footer> {
        let take = |payload: &[u8]| self.take_footer(payload);
        self.with_block(PageKind::Footer, self.footer_position(), Access::Blocking, take)?
            .expect("a blocking read must return its block")?;
        Ok(self.footer.get().expect("the footer was just decoded"))
    }

    /// Returns the footer; `None` if its page would have to be read.
    pub(crate) fn footer_in_memory(&self) -> Result<Option<&Footer>> {
        if self.footer.get().is_none() {
            let take = |payload: &[u8]| self.take_footer(payload);
            let taken = self.with_present_block(PageKind::Footer, self.footer_position(), take)?;
            taken.transpose()?;
        }
        Ok(self.footer.get())
    }

    /// Decodes and keeps the footer from a verified payload, if it belongs to this run.
    pub(crate) fn take_footer(&self, payload: &[u8]) -> Result<()> {
        let decode = || {
            let (record, footer) = Footer::decode(payload)?;
            let is_same = match self.reference.replaced {
                None => record.reference == self.reference,
                Some(_) => {
                    record.reference.replaced.is_none() && self.reference.is_version_of(&record.reference)
                }
            };
            let is_ours = is_same && record.store == self.data.store();
            is_ours.then_some(footer).ok_or(Damage("the footer belongs to another run"))
        };
        let footer = decode().map_err(|damage| self.damaged(self.reference.footer_page, damage))?;
        if self.footer.set(footer).is_ok() {
            self.data.add_run_memory(self.footer_bytes());
        }
        Ok(())
    }

    /// Returns the run's description from its footer.
    pub fn record(&self) -> Result<RunRecord> {
        let position = self.footer_position();
        let decode = |payload: &[u8]| Footer::decode(payload).map(|(record, _)| record);
        self.with_block(PageKind::Footer, position, Access::Blocking, decode)?
            .expect("a blocking read must return its block")
            .map_err(|damage| self.damaged(position.page, damage))
    }

    /// Looks `key` up; `hash` is its [`testudo_base::checksum::hash_key`]. Resumes from the progress in
    /// `access`.
    pub fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup> {
        self.get_unless_known(key, hash, access, || None)
    }

    /// Like [`Run::get`]; if the filter does not exclude the key, `known` may provide the result.
    pub fn get_unless_known(
        &self,
        key: &[u8],
        hash: u64,
        access: Access<'_>,
        known: impl FnOnce() -> Option<Lookup>,
    ) -> Result<Lookup> {
        if !self.may_hold(key) {
            return Ok(Lookup::Absent);
        }
        self.get_filtered(key, hash, access, Run::passes_filter, known)
    }

    /// Like [`Run::get`], for the last source of a query. A present key then costs one read less without the
    /// filter, and an absent one costs no more if the index is in memory. A filter page that is not cached is
    /// therefore read only after a lookup of an absent key, or where values are so large that a failed lookup
    /// would read many pages.
    pub fn get_last(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup> {
        self.get_last_unless_known(key, hash, access, || None)
    }

    /// Like [`Run::get_last`]; if the filter does not exclude the key or was not probed, `known` may provide
    /// the result.
    pub fn get_last_unless_known(
        &self,
        key: &[u8],
        hash: u64,
        access: Access<'_>,
        known: impl FnOnce() -> Option<Lookup>,
    ) -> Result<Lookup> {
        if !self.may_hold(key) {
            return Ok(Lookup::Absent);
        }
        let found = self.get_filtered(key, hash, access, Run::passes_filter_if_worth, known)?;
        if found == Lookup::Absent && self.filter_loads.load(Relaxed) == 0 {
            self.filter_loads.store(FILTER_LOADS_AFTER_ABSENCE, Relaxed);
        }
        Ok(found)
    }

    /// Like [`Run::get`], for a key that the run is known to hold: the filter is skipped.
    pub fn get_known(&self, key: &[u8], access: Access<'_>) -> Result<Lookup> {
        if !self.may_hold(key) {
            return Ok(Lookup::Absent);
        }
        self.get_filtered(key, 0, access, |_, _, _| Ok(Some(true)), || None)
    }

    fn may_hold(&self, key: &[u8]) -> bool {
        self.reference.keys.may_hold(key)
    }

    /// Looks up a key within the bounds of the run.
    fn get_filtered(
        &self,
        key: &[u8],
        hash: u64,
        access: Access<'_>,
        passes_filter: impl FnOnce(&Self, u64, Access<'_>) -> Result<Option<bool>>,
        known: impl FnOnce() -> Option<Lookup>,
    ) -> Result<Lookup> {
        let reached = access.progress().reached;
        if reached == Reached::Start {
            match passes_filter(self, hash, access)? {
                None => return Ok(Lookup::Waiting),
                Some(false) => return Ok(Lookup::Absent),
                Some(true) => access.set_reached(Reached::Index),
            }
        }
        if !matches!(reached, Reached::Block(..))
            && let Some(found) = known()
        {
            return Ok(found);
        }
        if let Reached::Block(page, pages) = reached {
            return self.search_block(BlockPosition { page, pages }, key, access);
        }
        let Some((position, behind)) = self.pages_for(key, access)? else { return Ok(Lookup::Waiting) };
        access.set_reached(Reached::Block(position.page, position.pages));
        self.search_pages((position, behind), key, access)
    }

    /// Looks up a key in the data block that would hold it.
    pub(crate) fn search_block(
        &self,
        position: BlockPosition,
        key: &[u8],
        access: Access<'_>,
    ) -> Result<Lookup> {
        if position.pages > 1
            && let Some(found) = self.search_cached(position, Spread::Block, key)?
        {
            return Ok(found);
        }
        let mut continued_bytes = 0;
        let search = |payload: &[u8], page: Option<&PageRef<'_>>| {
            let block = Block::parse(payload)?;
            let (index, equal) = block.lower_bound(key)?;
            if !equal {
                return Ok(Lookup::Absent);
            }
            let cell = block.cell(index)?;
            continued_bytes = cell.continued_bytes;
            let neighbours = page.map(|page| page.ask(index)).unwrap_or_default();
            Ok(Lookup::Found(cell.kind, cell.value.to_vec(), neighbours))
        };
        let found = match self.with_block_in_cache(PageKind::Data, position, access, search)? {
            None => Ok(Lookup::Waiting),
            Some(found) => found.map_err(|damage| self.damaged(position.page, damage)),
        };
        if continued_bytes == 0 { found } else { self.completed(position, found?, continued_bytes, access) }
    }

    /// Like [`Run::get`], but reads only data pages. `None` if an index page is not cached, or a filter page,
    /// unless this is the `last` source. Does not change the progress of `access`.
    pub fn get_present(
        &self,
        key: &[u8],
        hash: u64,
        access: Access<'_>,
        last: bool,
    ) -> Result<Option<Lookup>> {
        if !self.may_hold(key) {
            return Ok(Some(Lookup::Absent));
        }
        if !self.has_footer_in_memory()? {
            return Ok(None);
        }
        match self.passes_filter_in_memory(hash)? {
            None if !last => return Ok(None),
            Some(false) => return Ok(Some(Lookup::Absent)),
            None | Some(true) => {}
        }
        let (missing, progress) = (RefCell::new(Vec::new()), Cell::new(LookupProgress::default()));
        match self.pages_for(key, Access::Collecting(&missing, &progress))? {
            None => Ok(None),
            Some(pages) => self.search_pages(pages, key, access).map(Some),
        }
    }

    /// Whether the footer is available without a read.
    pub fn has_footer_in_memory(&self) -> Result<bool> {
        Ok(self.footer_in_memory()?.is_some())
    }

    /// Estimates the user bytes of the run in `[low, high)`; `None` bounds are open. Reads index pages only.
    pub fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64> {
        let reference = &self.reference;
        let page_at = |key: Option<&[u8]>, open: u32| -> Result<u32> {
            let Some(key) = key else { return Ok(open) };
            if reference.keys.begin_at_or_after(key) {
                return Ok(0);
            }
            if reference.keys.end_before(key) {
                return Ok(reference.data_pages);
            }
            Ok(self.indexed_block_for(key, Access::Blocking)?.map_or(0, |position| position.page))
        };
        let (from, to) = (page_at(low, 0)?, page_at(high, reference.data_pages)?);
        let pages = u64::from(reference.sections_between(from, to));
        Ok(scale(reference.user_bytes, pages, u64::from(reference.section_count())))
    }
}

/// `total × part / whole` without overflow.
fn scale(total: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    testudo_base::num::low64(u128::from(total) * u128::from(part) / u128::from(whole))
}
