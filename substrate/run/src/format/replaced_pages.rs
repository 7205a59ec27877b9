//! Replaced data pages of a run and their current places (decision 0049), and their sections (decision 0069).
//!
//! A replaced page is in a *place*: a page of the run's spans, counted from their start. Data pages that were
//! not replaced are in the place with their number. A page whose entries outgrew it is split: it keeps the
//! first *section* of its range of keys, and each further one is in an *overflow page*, which holds the
//! entries from its border up to the next one. Overflow pages are numbered from the end of the map on.
//!
//! The list is in a map page, see `map_page.rs`; in stores of earlier builds it is in the reference to the
//! run.
//!
//! Encoded (little-endian; `varint` as in `codec.rs`, `str` = u32 length and bytes): count u32 of writings,
//! each: generation u64 · incarnation u32, in a map page instead the differences from the writing before,
//! varint each; before the first are the run's id and incarnation 0. Then count u32 of replaced pages, each:
//! number of pages between it and the previous one varint · place varint · number of its writing varint.
//! Then count u32 of overflow pages, in key order, each: the page that it belongs to, as a varint difference
//! from that of the previous one · place varint · number of its writing varint · border str. In lists of
//! earlier builds, which have at most one overflow page for each page, and that of a replaced one, the
//! difference is smaller by one after the first.
//!
//! A replaced page describes itself, so that it can be found without a manifest. Its block is followed by:
//! run u64 · number of the page that it replaces, or whose overflow page it is, u32 · u8 part · newest
//! seqno of the version u64 · pages of its writing u32. Parts: 0, all entries of that page; 3, a section of
//! its range: the borders are between block and run, low border · high border · length of each u16, 2^16 -
//! 1 for an open end. Of earlier builds: 1, the entries before the border; 2, those from the border on.
//!
//! **Invariants**
//! - Pages and overflow pages are in key order, and no two pages share a place.
//! - Every writing has at least one page.

use std::collections::BTreeSet;

use testudo_base::{
    RunId, Seqno,
    codec::{self, Damage, Reader},
    num::{low32, u16_of, u32_of, u64_of, usize_of},
    planted,
};

use super::{
    long_separators::MAX_SEPARATOR_BYTES,
    map_ref::MapRef,
    writing::{Writing, WritingCodes},
};

/// Part of the entries of a data page that a page holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// All of them.
    All,
    /// Those before the border, as earlier builds wrote them.
    BeforeBorder,
    /// Those from the border on, as earlier builds wrote them.
    Overflow,
    /// Those of a section.
    Section {
        /// Lower bound of its keys; `None` for the first section.
        low: Option<Box<[u8]>>,
        /// Exclusive upper bound of its keys; `None` for the last section.
        high: Option<Box<[u8]>>,
    },
}

impl PagePart {
    /// The part of the keys from `low` up to `high`.
    pub(crate) fn between(low: Option<&[u8]>, high: Option<&[u8]>) -> Self {
        match (low, high) {
            (None, None) => Self::All,
            _ => Self::Section { low: low.map(Into::into), high: high.map(Into::into) },
        }
    }
}

/// Length of the borders of an open end.
const OPEN_END: u16 = u16::MAX;

/// Self-description of a replaced page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedPageRecord {
    /// The run that it belongs to.
    pub run: RunId,
    /// The page that it replaces, or whose overflow page it is.
    pub page: u32,
    /// Which of the entries it holds.
    pub part: PagePart,
    /// Age of the version for which it was written.
    pub newest_seqno: Seqno,
    /// Number of pages that were written together.
    pub writing_pages: u32,
}

impl ReplacedPageRecord {
    /// Bytes after the block, without borders.
    pub(crate) const BYTES: usize = 25;

    /// Bytes after the block of a page with these borders.
    pub(crate) fn bytes_between(low: Option<&[u8]>, high: Option<&[u8]>) -> usize {
        let borders = match (low, high) {
            (None, None) => 0,
            _ => 4 + low.map_or(0, <[u8]>::len) + high.map_or(0, <[u8]>::len),
        };
        Self::BYTES + borders
    }

    /// Appends the encoding.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let part = match &self.part {
            PagePart::All => 0,
            PagePart::BeforeBorder => 1,
            PagePart::Overflow => 2,
            PagePart::Section { low, high } => {
                let borders = [low.as_deref(), high.as_deref()];
                borders.iter().for_each(|border| out.extend_from_slice(border.unwrap_or_default()));
                let length = |border: &[u8]| u16_of(border.len());
                borders.iter().for_each(|border| codec::put_u16(out, border.map_or(OPEN_END, length)));
                3
            }
        };
        let end = out.len() + Self::BYTES;
        codec::put_u64(out, self.run.0);
        codec::put_u32(out, self.page);
        codec::put_u8(out, part);
        codec::put_u64(out, self.newest_seqno.0);
        codec::put_u32(out, self.writing_pages);
        debug_assert_eq!(out.len(), end, "the promised length");
    }

    /// Decodes the self-description in the payload of a replaced page.
    pub fn read(payload: &[u8]) -> Result<Self, Damage> {
        let start = payload.len().checked_sub(Self::BYTES).ok_or(Damage("a replaced page is too short"))?;
        let (before, record) = payload.split_at(start);
        let mut reader = Reader::new(record);
        Ok(Self {
            run: RunId(reader.u64()?),
            page: reader.u32()?,
            part: match reader.u8()? {
                0 => PagePart::All,
                1 => PagePart::BeforeBorder,
                2 => PagePart::Overflow,
                3 => section_at_end_of(before)?,
                _ => return Err(Damage("unknown part of a replaced page")),
            },
            newest_seqno: Seqno(reader.u64()?),
            writing_pages: reader.u32()?,
        })
    }
}

/// Decodes the borders at the end of `payload`.
fn section_at_end_of(payload: &[u8]) -> Result<PagePart, Damage> {
    let too_short = || Damage("a replaced page is too short");
    let (before, lengths) = payload.split_last_chunk::<4>().ok_or_else(too_short)?;
    let mut reader = Reader::new(lengths);
    let (low, high) = (reader.u16()?, reader.u16()?);
    let bytes_of = |length: u16| if length == OPEN_END { 0 } else { usize::from(length) };
    if bytes_of(low).max(bytes_of(high)) > MAX_SEPARATOR_BYTES {
        return Err(Damage("a border of a replaced page is too long"));
    }
    let start = before.len().checked_sub(bytes_of(low) + bytes_of(high)).ok_or_else(too_short)?;
    let (low_bytes, high_bytes) = before[start..].split_at(bytes_of(low));
    let border = |length: u16, bytes: &[u8]| (length != OPEN_END).then(|| Box::from(bytes));
    let (low, high) = (border(low, low_bytes), border(high, high_bytes));
    if low.is_some() && high.is_some() && low >= high {
        return Err(Damage("the borders of a replaced page do not ascend"));
    }
    Ok(PagePart::Section { low, high })
}

/// Place of a page of a run, with its expected header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// Number of the place, counted from the start of the run.
    pub at: u32,
    /// Generation and incarnation in its header.
    pub writing: Writing,
}

/// A page that holds a further section of the keys of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverflowPage {
    /// The page that it belongs to.
    pub of: u32,
    /// Lower bound of its keys, and exclusive upper bound of those of the section before it.
    pub border: Box<[u8]>,
    /// Its place.
    pub place: PagePlace,
}

/// The replaced pages of a run.
///
/// A replaced page takes twelve bytes: its number, its place, and the code of its writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedPages {
    pages: Box<[u32]>,
    places: Box<[u32]>,
    codes: Box<[u32]>,
    writings: WritingCodes,
    overflow: Box<[OverflowPage]>,
    /// Pages of the data file that hold this list; stores of earlier builds have none.
    map: Option<MapRef>,
    /// Whether the list is known. If not, no data page of the run can be read.
    is_known: bool,
}

impl ReplacedPages {
    /// Creates it from both lists, each in key order.
    pub(crate) fn new(pages: Vec<(u32, PagePlace)>, overflow: Vec<OverflowPage>) -> Self {
        debug_assert!(pages.is_sorted_by(|a, b| a.0 < b.0), "pages must be ascending");
        let ascends = |a: &OverflowPage, b: &OverflowPage| (a.of, &a.border) < (b.of, &b.border);
        debug_assert!(overflow.is_sorted_by(ascends), "overflow pages must be in key order");
        let (writings, codes) = WritingCodes::of(pages.iter().map(|(_, place)| place.writing));
        Self {
            places: pages.iter().map(|(_, place)| place.at).collect(),
            pages: pages.into_iter().map(|(page, _)| page).collect(),
            codes: codes.into(),
            writings,
            overflow: overflow.into(),
            map: None,
            is_known: true,
        }
    }

    /// Creates a list that is in `map`, which was not read.
    pub(crate) fn unread(map: MapRef) -> Self {
        Self { map: Some(map), is_known: false, ..Self::new(Vec::new(), Vec::new()) }
    }

    /// Returns the list with the pages that hold it.
    pub(crate) fn in_map(self, map: Option<MapRef>) -> Self {
        Self { map, ..self }
    }

    /// Creates the list for a run of which only this page, its first, is known.
    pub fn lone_page(writing: Writing) -> Self {
        Self::new(vec![(0, PagePlace { at: 0, writing })], Vec::new())
    }

    /// Whether the list is known: if not, its map was not read, or is damaged.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns the pages that hold the list.
    pub fn map(&self) -> Option<&MapRef> {
        self.map.as_ref()
    }

    /// Number of replaced pages.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Iterates over the replaced pages with their places.
    pub fn pages(&self) -> impl Iterator<Item = (u32, PagePlace)> + '_ {
        (0..self.pages.len()).map(|at| (self.pages[at], self.place_at(at)))
    }

    /// Returns the overflow pages, in the order of the pages that they belong to.
    pub fn overflow(&self) -> &[OverflowPage] {
        &self.overflow
    }

    #[inline]
    fn place_at(&self, at: usize) -> PagePlace {
        PagePlace { at: self.places[at], writing: self.writings.get(self.codes[at]) }
    }

    /// Returns the place of a page, if it was replaced.
    #[inline]
    pub(crate) fn place_of(&self, page: u32) -> Option<PagePlace> {
        let at = self.pages.partition_point(|other| *other < page);
        self.pages.get(at).filter(|other| **other == page).map(|_| self.place_at(at))
    }

    /// Returns the first replaced page at or after `page`.
    pub(crate) fn next_from(&self, page: u32) -> Option<u32> {
        let at = self.pages.partition_point(|other| *other < page);
        self.pages.get(at).copied()
    }

    /// Index of the first overflow page of `page` or a later one.
    #[inline]
    pub(crate) fn overflow_from(&self, page: u32) -> usize {
        self.overflow.partition_point(|other| other.of < page)
    }

    /// Returns the index of the overflow page of `page` that holds `key`; `None` if it is in the first
    /// section.
    #[inline]
    pub(crate) fn section_with(&self, page: u32, key: &[u8]) -> Option<usize> {
        let is_before = |other: &OverflowPage| {
            other.of < page
                || (other.of == page
                    && (*other.border < *key || (*other.border == *key && !planted!("section-border-off"))))
        };
        let last = self.overflow.partition_point(is_before).checked_sub(1)?;
        (self.overflow[last].of == page).then_some(last)
    }

    /// Whether the list has sections that earlier builds do not support.
    pub(crate) fn has_sections(&self) -> bool {
        let is_second = |pages: &[OverflowPage]| pages[0].of == pages[1].of;
        self.overflow.windows(2).any(is_second)
            || self.overflow.iter().any(|page| self.place_of(page.of).is_none())
    }

    /// Iterates over the places of all replaced and overflow pages.
    pub fn places(&self) -> impl Iterator<Item = PagePlace> + '_ {
        let pages = self.pages().map(|(_, place)| place);
        pages.chain(self.overflow.iter().map(|page| page.place))
    }

    /// Returns all writings, sorted and deduplicated.
    pub fn writings(&self) -> Vec<Writing> {
        let writings: BTreeSet<Writing> = self.places().map(|place| place.writing).collect();
        writings.into_iter().collect()
    }

    /// Returns the newest writing.
    pub fn newest_writing(&self) -> Option<Writing> {
        let of_map = self.map.as_ref().map(|map| map.writing);
        self.places().map(|place| place.writing).chain(of_map).max()
    }

    /// Approximate bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let borders: usize = self.overflow.iter().map(|page| page.border.len()).sum();
        let map = self.map.as_ref().map_or(0, |map| map.places.len() * size_of::<u32>());
        size_of::<Self>()
            + self.pages.len() * 3 * size_of::<u32>()
            + self.writings.memory_bytes()
            + self.overflow.len() * size_of::<OverflowPage>()
            + borders
            + map
    }

    /// Appends the encoding of the list, for `run`.
    pub(crate) fn encode(&self, encoding: ListEncoding, run: RunId, out: &mut Vec<u8>) {
        let writings = self.writings();
        match encoding {
            ListEncoding::Reference | ListEncoding::ReferenceWithSections => {
                codec::put_u32(out, u32_of(writings.len()));
                for writing in &writings {
                    codec::put_u64(out, writing.generation.0);
                    codec::put_u32(out, writing.incarnation);
                }
            }
            ListEncoding::FirstMaps | ListEncoding::Map => encode_writings(&writings, run, out),
        }
        debug_assert!(writings.is_sorted_by(|a, b| a < b), "writings are found by bisection");
        let number = |writing: &Writing| writings.binary_search(writing).unwrap_or_default();
        let put = |out: &mut Vec<u8>, page: u32, least: u32, place: &PagePlace| {
            debug_assert!(page >= least, "pages ascend");
            codec::put_varint(out, u64::from(page - least));
            codec::put_varint(out, u64::from(place.at));
            codec::put_varint(out, u64_of(number(&place.writing)));
        };
        codec::put_u32(out, u32_of(self.pages.len()));
        let mut least = 0;
        for (page, place) in self.pages() {
            put(out, page, least, &place);
            least = page + 1;
        }
        codec::put_u32(out, u32_of(self.overflow.len()));
        debug_assert!(encoding.has_sections() || !self.has_sections(), "the encoding has no sections");
        let mut least = 0;
        for OverflowPage { of, border, place } in &self.overflow {
            put(out, *of, least, place);
            codec::put_bytes(out, border);
            least = *of + u32::from(!encoding.has_sections());
        }
    }

    /// Decodes the encoding of the list of `run`. [`ReplacedPages::check`] compares it with the run.
    pub(crate) fn decode(
        encoding: ListEncoding,
        run: RunId,
        reader: &mut Reader<'_>,
    ) -> Result<Self, Damage> {
        let writings = match encoding {
            ListEncoding::Reference | ListEncoding::ReferenceWithSections => decode_fixed_writings(reader)?,
            ListEncoding::FirstMaps | ListEncoding::Map => decode_writings(run, reader)?,
        };
        if !writings.is_sorted_by(|a, b| a < b) {
            return Err(Damage("the writings of replaced pages are not ascending"));
        }
        let mut used = vec![false; writings.len()];
        let mut next_of = |reader: &mut Reader<'_>, least: u32| -> Result<(u32, PagePlace), Damage> {
            let page = u64::from(least).checked_add(reader.varint()?);
            let page = page.filter(|page| *page < u64::from(u32::MAX));
            let page = page.ok_or(Damage("a replaced page is outside its run"))?;
            let (at, number) = (reader.varint()?, usize_of(reader.varint()?));
            if at >= u64::from(u32::MAX) {
                return Err(Damage("a replaced page is in an invalid place"));
            }
            let writing = *writings.get(number).ok_or(Damage("a replaced page has an unknown writing"))?;
            used[number] = true;
            Ok((low32(page), PagePlace { at: low32(at), writing }))
        };
        let count = count_of(reader, 3)?;
        let (mut pages, mut least) = (Vec::with_capacity(count), 0);
        for _ in 0..count {
            pages.push(next_of(reader, least)?);
            least = pages.last().map_or(0, |(page, _)| *page + 1);
        }
        let count = count_of(reader, 7)?;
        let mut overflow: Vec<OverflowPage> = Vec::with_capacity(count);
        let mut least = 0;
        for _ in 0..count {
            let (of, place) = next_of(reader, least)?;
            let border: Box<[u8]> = reader.bytes(MAX_SEPARATOR_BYTES)?.into();
            if overflow.last().is_some_and(|last| last.of == of && last.border >= border) {
                return Err(Damage("the sections of a page are not ascending"));
            }
            overflow.push(OverflowPage { of, border, place });
            least = of + u32::from(!encoding.has_sections());
        }
        if (pages.is_empty() && overflow.is_empty()) || used.contains(&false) {
            return Err(Damage("the replaced pages of a run are inconsistent"));
        }
        let list = Self::new(pages, overflow);
        if list.has_sections() && !encoding.has_sections() {
            return Err(Damage("the replaced pages of a run are inconsistent"));
        }
        Ok(list)
    }

    /// Checks that the list fits a run with `data_pages` data pages, whose footer ends at `footer_end`, and
    /// which has `places` pages in its spans.
    pub(crate) fn check(
        &self,
        (data_pages, footer_end, places): (u32, u32, u64),
        is_spare: impl Fn(u32) -> bool,
    ) -> Result<(), Damage> {
        let of_map = self.map.iter().flat_map(|map| map.places.iter().copied());
        let mut taken = BTreeSet::new();
        for at in self.places().map(|place| place.at).chain(of_map) {
            let is_place = at < data_pages || (u64::from(footer_end)..places).contains(&u64::from(at));
            // The place of a page that was not replaced is in use.
            let is_unused = is_spare(at) || self.place_of(at).is_some();
            let is_free = at >= data_pages || is_unused || !self.is_known;
            if !is_place || !is_free || !taken.insert(at) {
                return Err(Damage("a replaced page is in an invalid place"));
            }
        }
        let has_contents = |page: u32| page < data_pages && !is_spare(page);
        let of_overflow = self.overflow.iter().map(|overflow| overflow.of);
        if !self.pages.iter().copied().chain(of_overflow).all(has_contents) {
            return Err(Damage("the replaced pages of a run are inconsistent"));
        }
        Ok(())
    }
}

/// Encoding of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEncoding {
    /// In the reference to the run, without sections: as earlier builds wrote it.
    Reference,
    /// In the reference to the run, in a backup.
    ReferenceWithSections,
    /// In a map page of an earlier build, without sections.
    FirstMaps,
    /// In a map page.
    Map,
}

impl ListEncoding {
    fn has_sections(self) -> bool {
        matches!(self, Self::ReferenceWithSections | Self::Map)
    }
}

fn decode_fixed_writings(reader: &mut Reader<'_>) -> Result<Vec<Writing>, Damage> {
    let count = count_of(reader, 12)?;
    let mut writings = Vec::with_capacity(count);
    for _ in 0..count {
        writings.push(Writing { generation: RunId(reader.u64()?), incarnation: reader.u32()? });
    }
    Ok(writings)
}

fn encode_writings(writings: &[Writing], run: RunId, out: &mut Vec<u8>) {
    codec::put_u32(out, u32_of(writings.len()));
    let mut before = Writing { generation: run, incarnation: 0 };
    for writing in writings {
        codec::put_varint(out, writing.generation.0.wrapping_sub(before.generation.0));
        codec::put_varint(out, u64::from(writing.incarnation.wrapping_sub(before.incarnation)));
        before = *writing;
    }
}

fn decode_writings(run: RunId, reader: &mut Reader<'_>) -> Result<Vec<Writing>, Damage> {
    let count = count_of(reader, 2)?;
    let mut writings = Vec::with_capacity(count);
    let mut before = Writing { generation: run, incarnation: 0 };
    for _ in 0..count {
        let generation = RunId(before.generation.0.wrapping_add(reader.varint()?));
        let more = u32::try_from(reader.varint()?).map_err(|_| Damage("an invalid incarnation"))?;
        before = Writing { generation, incarnation: before.incarnation.wrapping_add(more) };
        writings.push(before);
    }
    Ok(writings)
}

/// Decodes a count of items of at least `least_bytes` each.
fn count_of(reader: &mut Reader<'_>, least_bytes: usize) -> Result<usize, Damage> {
    let count = usize_of(u64::from(reader.u32()?));
    if count > reader.rest().len() / least_bytes {
        return Err(Damage("a run has an invalid number of replaced pages"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
