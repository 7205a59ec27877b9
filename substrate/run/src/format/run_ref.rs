//! References to runs, kept by trees: enough to read a run, and to plan without reading it.
//!
//! Encoded inside the tree's objects and in the run's own footer (little-endian; `str` = u32 length and
//! bytes): run id u64 · keyspace u32 · incarnation u32 · newest seqno u64 · span count u32, + 2^31 if a
//! list of replaced pages follows, + 2^30 if values continue in next pages, + 2^29 if a map has that list, +
//! 2^28 if the list that follows has sections (decision 0069), + 2^27 if there are spare pages (decision
//! 0071) · spans (first page u64, pages u32)… · data pages u32 · footer page u32 · footer pages u32 ·
//! end of the spare pages u32, if there are any · entries u64 · tombstones u64 · user bytes u64 · ends of
//! its keys, see `key_ends.rs` · place of the map, if there is one, see `map_ref.rs` · the list, see
//! `replaced_pages.rs`, in backups, and without a map in stores of earlier builds.
//!
//! Pages of a run have numbers: the written ones, then those of its map, then its overflow pages in key
//! order. *Spare* pages, the last two of each 16 before a given end, have numbers and places like the others,
//! but no contents. Replaced pages may be in their places.
//!
//! **Invariants**
//! - The reference in a run's own footer is that of the originally written run, without replaced pages.
//! - While the list is unknown, no data page has a location.

use std::ops::Range;

use testudo_base::{
    ExtentSpan, KeyspaceId, PAGE_BYTES, RunId, Seqno,
    codec::{self, Damage, Reader},
    num::{low32, u32_of, usize_of},
    sync::Arc,
};

use crate::{
    KeyEnds,
    format::slot_group::{GROUP_PAGES, GROUP_SPARES},
    format::{
        map_ref::MapRef,
        replaced_pages::{ListEncoding, PagePlace, ReplacedPages},
        writing::Writing,
    },
};

/// A reference to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRef {
    /// Id of the run; also the generation of its pages.
    pub id: RunId,
    /// The keyspace that wrote it, as in its page headers.
    pub keyspace: KeyspaceId,
    /// Lowest 32 bits of the incarnation that wrote it, as in its page headers.
    pub incarnation: u32,
    /// Age of the run: of two runs that hold a key, the one with the greater newest seqno (then id) has the
    /// newer entry.
    pub newest_seqno: Seqno,
    /// Spans of its pages, in order.
    pub spans: Vec<ExtentSpan>,
    /// Number of pages of data blocks, which come first, and of the spare pages between them.
    pub data_pages: u32,
    /// Exclusive end of the slot groups with spare pages; 0 without any.
    pub spare_end: u32,
    /// Page of the footer, counted from the start of the run.
    pub footer_page: u32,
    /// Length of the footer in pages.
    pub footer_pages: u32,
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Bytes of keys and values.
    pub user_bytes: u64,
    /// Ends of its key range.
    pub keys: KeyEnds,
    /// Whether any value continues in the next page (decision 0051), so that no page can be replaced alone.
    pub has_continued_values: bool,
    /// Pages replaced since the run was written; the counts above include them.
    pub replaced: Option<Arc<ReplacedPages>>,
}

/// Flag in the number of spans: a list of replaced pages follows.
const HAS_REPLACED_PAGES: u32 = 1 << 31;
/// Flag in the number of spans: a map has the list of replaced pages.
const HAS_MAP: u32 = 1 << 29;
/// Flag in the number of spans: some values continue in the next page.
const HAS_CONTINUED_VALUES: u32 = 1 << 30;
/// Flag in the number of spans: the list of replaced pages that follows has sections.
const HAS_SECTIONS: u32 = 1 << 28;
/// Flag in the number of spans: there are spare pages.
const HAS_SPARES: u32 = 1 << 27;
/// All flags in the number of spans.
const FLAGS: u32 = HAS_REPLACED_PAGES | HAS_MAP | HAS_CONTINUED_VALUES | HAS_SECTIONS | HAS_SPARES;
/// Maximum number of spans.
const MAX_SPANS: u32 = 1 << 20;
/// Maximum page number in a file, so that sums of pages and bytes do not overflow.
const MAX_PAGE: u64 = 1 << 48;
/// Maximum user bytes of a run.
const MAX_USER_BYTES: u64 = 1 << 48;

impl RunRef {
    /// Number of entries that are not tombstones.
    pub fn values(&self) -> u64 {
        self.entries - self.tombstones
    }

    /// Bytes that it occupies in the data file.
    pub fn stored_bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.bytes()).sum()
    }

    /// Exclusive end of the footer; pages of the map are numbered from here on.
    pub fn footer_end(&self) -> u32 {
        self.footer_page.saturating_add(self.footer_pages)
    }

    /// Whether a page has no contents: its place is for replaced pages.
    #[inline]
    pub fn is_spare(&self, page: u32) -> bool {
        page < self.spare_end && page % GROUP_PAGES >= GROUP_PAGES - GROUP_SPARES
    }

    /// Returns `page`, or the first page after it that is not spare.
    pub(crate) fn not_spare(&self, page: u32) -> u32 {
        if self.is_spare(page) { page.next_multiple_of(GROUP_PAGES) } else { page }
    }

    /// Number of spare pages before `page`.
    fn spares_before(&self, page: u32) -> u32 {
        let page = page.min(self.spare_end);
        let of_group = (page % GROUP_PAGES).saturating_sub(GROUP_PAGES - GROUP_SPARES);
        page / GROUP_PAGES * GROUP_SPARES + of_group
    }

    /// Number of spare pages.
    pub fn spare_pages(&self) -> u32 {
        self.spares_before(self.spare_end)
    }

    /// Number of pages from `first` on that hold `pages` of them that are not spare.
    pub(crate) fn stretch_with(&self, first: u32, pages: u32) -> u32 {
        let kept = GROUP_PAGES - GROUP_SPARES;
        let groups = self.spare_end.saturating_sub(first).div_ceil(GROUP_PAGES);
        let passed = (first % GROUP_PAGES).saturating_add(pages).saturating_sub(1) / kept;
        pages.saturating_add(passed.min(groups) * GROUP_SPARES)
    }

    /// Number of slot groups, full or not, that its data pages take.
    pub fn group_count(&self) -> u32 {
        self.data_pages.div_ceil(GROUP_PAGES)
    }

    /// Whether a slot group begins at `page`, or there are none from there on.
    pub(crate) fn begins_group(&self, page: u32) -> bool {
        page >= self.spare_end || page.is_multiple_of(GROUP_PAGES)
    }

    /// Number of pages from `page` on up to the next spare one, at most `pages`.
    pub(crate) fn pages_before_spare(&self, page: u32, pages: u32) -> u32 {
        if page >= self.spare_end {
            return pages;
        }
        let next = page - page % GROUP_PAGES + GROUP_PAGES - GROUP_SPARES;
        if next < self.spare_end { pages.min(next.saturating_sub(page)) } else { pages }
    }

    /// Returns the pages that hold the list of replaced pages.
    pub fn map(&self) -> Option<&MapRef> {
        self.replaced.as_ref()?.map()
    }

    /// Exclusive end of the map; overflow pages are numbered from here on.
    pub(crate) fn map_end(&self) -> u32 {
        self.footer_end().saturating_add(self.map().map_or(0, MapRef::page_count))
    }

    /// Whether the places of its data pages are known. If not, its map was not read or is damaged.
    pub fn has_known_places(&self) -> bool {
        self.replaced.as_ref().is_none_or(|replaced| replaced.is_known())
    }

    /// Whether its list of replaced pages has sections (decision 0069), or it has spare pages (0071): earlier
    /// builds do not support these.
    pub fn has_sections_or_spares(&self) -> bool {
        self.spare_end > 0 || self.replaced.as_ref().is_some_and(|replaced| replaced.has_sections())
    }

    /// Version of the run: the newest generation of its pages.
    pub fn version(&self) -> RunId {
        let newest = self.replaced.as_ref().and_then(|replaced| replaced.newest_writing());
        newest.map_or(self.id, |newest| newest.generation.max(self.id))
    }

    /// Whether both are versions of the same run.
    pub fn is_version_of(&self, other: &Self) -> bool {
        let identity = |run: &Self| {
            let RunRef { id, keyspace, incarnation, data_pages, spare_end, .. } = run;
            let footer = (run.footer_page, run.footer_pages);
            (*id, *keyspace, *incarnation, *data_pages, *spare_end, footer)
        };
        let has_all = |some: &Self, others: &Self| some.spans.starts_with(&others.spans);
        identity(self) == identity(other) && (has_all(self, other) || has_all(other, self))
    }

    /// Returns the place of a page, with its expected header. Pages that were never replaced are in their
    /// original place.
    #[inline]
    pub(crate) fn place_of(&self, page: u32) -> PagePlace {
        let written = Writing { generation: self.id, incarnation: self.incarnation };
        let Some(replaced) = &self.replaced else { return PagePlace { at: page, writing: written } };
        let place = if page < self.footer_end() {
            replaced.place_of(page)
        } else {
            self.place_behind_footer(replaced, page)
        };
        place.unwrap_or(PagePlace { at: page, writing: written })
    }

    /// Returns the place of a page of the map, or of an overflow page.
    fn place_behind_footer(&self, replaced: &ReplacedPages, page: u32) -> Option<PagePlace> {
        if let Some(number) = page.checked_sub(self.map_end()) {
            return replaced.overflow().get(usize_of(u64::from(number))).map(|overflow| overflow.place);
        }
        let (map, number) = (replaced.map()?, page.checked_sub(self.footer_end())?);
        let at = *map.places.get(usize_of(u64::from(number)))?;
        Some(PagePlace { at, writing: map.writing })
    }

    /// Whether a page was replaced, or is an overflow page. Salvage may use an original page as an overflow
    /// page.
    #[inline]
    pub(crate) fn is_replaced(&self, page: u32) -> bool {
        self.replaced.as_ref().is_some_and(|replaced| {
            if page >= self.map_end() {
                self.place_of(page).writing.generation != self.id
            } else {
                replaced.place_of(page).is_some()
            }
        })
    }

    /// Returns the writing of the run's page at a physical page, if such a page exists and has `generation`
    /// in its header.
    pub fn writing_at(&self, physical: u64, generation: RunId) -> Option<Writing> {
        let mut before = 0;
        let at = self.spans.iter().find_map(|span| {
            let first = before;
            before += span.page_count;
            let is_there = (span.first_page..span.end_page()).contains(&physical);
            is_there.then(|| first + low32(physical - span.first_page))
        })?;
        let written = Writing { generation: self.id, incarnation: self.incarnation };
        let Some(replaced) = &self.replaced else { return Some(written) };
        if generation == self.id {
            return (at < self.footer_end() && replaced.place_of(at).is_none()).then_some(written);
        }
        let place = replaced.places().find(|place| place.at == at)?;
        (place.writing.generation == generation).then_some(place.writing)
    }

    /// Returns the overflow pages of a data page, in key order.
    #[inline]
    pub(crate) fn overflow_of(&self, page: u32) -> Range<u32> {
        let Some(replaced) = &self.replaced else { return 0..0 };
        let of = |page: u32| self.map_end().saturating_add(u32_of(replaced.overflow_from(page)));
        of(page)..of(page.saturating_add(1))
    }

    /// Returns the page of the section of data page `page` that holds `key`.
    #[inline]
    pub(crate) fn section_with(&self, page: u32, key: &[u8]) -> u32 {
        let number = self.replaced.as_ref().and_then(|replaced| replaced.section_with(page, key));
        number.map_or(page, |number| self.map_end() + u32_of(number))
    }

    /// Returns the overflow page after section `number` of data page `page`.
    #[inline]
    pub(crate) fn section_after(&self, page: u32, number: u32) -> Option<u32> {
        let replaced = self.replaced.as_ref()?;
        let at = replaced.overflow_from(page) + usize_of(u64::from(number));
        replaced.overflow().get(at).filter(|next| next.of == page).map(|_| self.map_end() + u32_of(at))
    }

    /// Returns the lower bound of an overflow page.
    pub(crate) fn border_of(&self, page: u32) -> Option<&[u8]> {
        let number = page.checked_sub(self.map_end())?;
        let overflow = self.replaced.as_ref()?.overflow().get(usize_of(u64::from(number)))?;
        Some(&overflow.border)
    }

    /// Number of pages of entries: data pages and their overflow pages.
    pub fn section_count(&self) -> u32 {
        self.sections_between(0, self.data_pages)
    }

    /// Number of data pages from `from` up to `to`, with their overflow pages.
    pub(crate) fn sections_between(&self, from: u32, to: u32) -> u32 {
        let overflow = self.replaced.as_ref().map_or(0, |replaced| {
            u32_of(replaced.overflow_from(to).saturating_sub(replaced.overflow_from(from)))
        });
        let spares = self.spares_before(to).saturating_sub(self.spares_before(from));
        to.saturating_sub(from).saturating_sub(spares).saturating_add(overflow)
    }

    /// Returns the data page to which the overflow page `page` belongs, if it is one.
    pub(crate) fn owner_of(&self, page: u32) -> Option<u32> {
        let replaced = self.replaced.as_ref()?;
        let number = page.checked_sub(self.map_end())?;
        let overflow = replaced.overflow().get(usize_of(u64::from(number)))?;
        Some(overflow.of)
    }

    /// Appends the encoding. The list of replaced pages is not in it, if it is in a map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_with(self.map().is_none(), out);
    }

    /// Appends the encoding with the list of replaced pages, for a copy of the run that is read without its
    /// data file.
    pub fn encode_whole(&self, out: &mut Vec<u8>) {
        self.encode_with(self.has_known_places(), out);
    }

    fn encode_with(&self, has_list: bool, out: &mut Vec<u8>) {
        codec::put_u64(out, self.id.0);
        codec::put_u32(out, self.keyspace.0);
        codec::put_u32(out, self.incarnation);
        codec::put_u64(out, self.newest_seqno.0);
        let list = self.replaced.as_ref().filter(|_| has_list);
        let replaced = if list.is_some() { HAS_REPLACED_PAGES } else { 0 };
        let mapped = if self.map().is_some() { HAS_MAP } else { 0 };
        let continued = if self.has_continued_values { HAS_CONTINUED_VALUES } else { 0 };
        let has_sections = list.is_some_and(|list| list.has_sections());
        let sections = if has_sections { HAS_SECTIONS } else { 0 };
        let spares = if self.spare_end > 0 { HAS_SPARES } else { 0 };
        codec::put_u32(out, u32_of(self.spans.len()) | replaced | continued | mapped | sections | spares);
        for span in &self.spans {
            codec::put_u64(out, span.first_page);
            codec::put_u32(out, span.page_count);
        }
        codec::put_u32(out, self.data_pages);
        codec::put_u32(out, self.footer_page);
        codec::put_u32(out, self.footer_pages);
        if self.spare_end > 0 {
            codec::put_u32(out, self.spare_end);
        }
        codec::put_u64(out, self.entries);
        codec::put_u64(out, self.tombstones);
        codec::put_u64(out, self.user_bytes);
        self.keys.encode(out);
        if let Some(map) = self.map() {
            map.encode(out);
        }
        if let Some(list) = list {
            list.encode(encoding_with(has_sections), self.id, out);
        }
    }

    /// Decodes the encoding and checks that its fields are consistent.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let id = RunId(reader.u64()?);
        let keyspace = KeyspaceId(reader.u32()?);
        let incarnation = reader.u32()?;
        let newest_seqno = Seqno(reader.u64()?);
        let head = reader.u32()?;
        let count = head & !FLAGS;
        let has = |flag: u32| head & flag != 0;
        if has(HAS_CONTINUED_VALUES) && (has(HAS_REPLACED_PAGES) || has(HAS_MAP) || has(HAS_SPARES)) {
            return Err(Damage("a run has both pages to be replaced and continued values"));
        }
        if has(HAS_SECTIONS) && !has(HAS_REPLACED_PAGES) {
            return Err(Damage("a run has sections and no replaced pages"));
        }
        if count == 0 || count > MAX_SPANS || usize_of(u64::from(count)) * 12 > reader.rest().len() {
            return Err(Damage("a run has an invalid number of spans"));
        }
        let mut spans = Vec::with_capacity(usize_of(u64::from(count)));
        let mut pages = 0u64;
        for _ in 0..count {
            let span = ExtentSpan { first_page: reader.u64()?, page_count: reader.u32()? };
            if span.page_count == 0 || span.first_page > MAX_PAGE {
                return Err(Damage("a run has an invalid span"));
            }
            pages += u64::from(span.page_count);
            spans.push(span);
        }
        if pages > u64::from(u32::MAX) {
            return Err(Damage("a run has an invalid number of pages"));
        }
        let mut run = Self {
            id,
            keyspace,
            incarnation,
            newest_seqno,
            spans,
            data_pages: reader.u32()?,
            footer_page: reader.u32()?,
            footer_pages: reader.u32()?,
            spare_end: if has(HAS_SPARES) { reader.u32()? } else { 0 },
            entries: reader.u64()?,
            tombstones: reader.u64()?,
            user_bytes: reader.u64()?,
            keys: KeyEnds::decode(reader)?,
            has_continued_values: has(HAS_CONTINUED_VALUES),
            replaced: None,
        };
        let footer_end = u64::from(run.footer_page) + u64::from(run.footer_pages);
        if run.footer_pages == 0
            || run.data_pages > run.footer_page
            || run.spare_end > run.data_pages
            || has(HAS_SPARES) && run.spare_end == 0
            || !run.spare_end.is_multiple_of(GROUP_PAGES)
            || footer_end > pages
            || run.tombstones > run.entries
            || run.entries > u64::from(run.data_pages) * PAGE_BYTES
            || run.user_bytes > MAX_USER_BYTES
        {
            return Err(Damage("a run reference is inconsistent"));
        }
        let map = if has(HAS_MAP) { Some(MapRef::decode(reader)?) } else { None };
        let list = if has(HAS_REPLACED_PAGES) {
            let list = ReplacedPages::decode(encoding_with(has(HAS_SECTIONS)), run.id, reader)?;
            if list.has_sections() != has(HAS_SECTIONS) {
                return Err(Damage("the sections of a run are inconsistent"));
            }
            Some(list.in_map(map.clone()))
        } else {
            map.map(ReplacedPages::unread)
        };
        if let Some(list) = list {
            run.set_replaced(list)?;
        }
        Ok(run)
    }

    /// Sets the list of replaced pages, if it fits the run.
    pub(crate) fn set_replaced(&mut self, list: ReplacedPages) -> Result<(), Damage> {
        let places = self.spans.iter().map(|span| u64::from(span.page_count)).sum();
        list.check((self.data_pages, self.footer_end(), places), |page| self.is_spare(page))?;
        self.replaced = Some(Arc::new(list));
        Ok(())
    }
}

/// Encoding of a list that follows a reference.
fn encoding_with(has_sections: bool) -> ListEncoding {
    if has_sections { ListEncoding::ReferenceWithSections } else { ListEncoding::Reference }
}
