//! Replaced data pages of a run and their current places (decision 0049).
//!
//! A replaced page is in a *place*: a page of the run's spans, counted from their start. Data pages that were
//! not replaced are in the place with their number. A page whose entries outgrew it has an *overflow page*,
//! which holds the entries from a border on; overflow pages are numbered from the end of the footer on.
//!
//! The list is in a map page, see `map_page.rs`; in stores of earlier builds it is in the reference to the
//! run.
//!
//! Encoded (little-endian; `varint` as in `codec.rs`, `str` = u32 length and bytes): count u32 of writings,
//! each: generation u64 · incarnation u32, in a map page instead the differences from the writing before,
//! varint each; before the first are the run's id and incarnation 0. Then count u32 of replaced pages, each:
//! number of pages between it and the previous one varint · place varint · number of its writing varint.
//! Then count u32 of overflow pages, each: the same three fields for the page that it belongs to · border
//! str.
//!
//! A replaced page describes itself, so that it can be found without a manifest. Its block is followed by:
//! run u64 · number of the page that it replaces, or whose overflow page it is, u32 · u8 (0: all of its
//! entries, 1: those before the border, 2: those from the border on) · newest seqno of the version u64 ·
//! pages of its writing u32.
//!
//! **Invariants**
//! - Pages are ascending, and no two pages share a place.
//! - Every page with an overflow page was replaced, and every writing has at least one page.

use std::collections::BTreeSet;

use testudo_base::{
    RunId, Seqno,
    codec::{self, Damage, Reader},
    num::{low32, u32_of, u64_of, usize_of},
};

use super::{
    long_separators::MAX_SEPARATOR_BYTES,
    map_ref::MapRef,
    run_ref::RunRef,
    writing::{Writing, WritingCodes},
};

/// Part of the entries of the replaced page that a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PagePart {
    /// All of them.
    All = 0,
    /// Those before the border.
    BeforeBorder = 1,
    /// Those from the border on.
    Overflow = 2,
}

/// Self-description of a replaced page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Bytes after the block.
    pub(crate) const BYTES: usize = 25;

    /// Appends the encoding.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + Self::BYTES;
        codec::put_u64(out, self.run.0);
        codec::put_u32(out, self.page);
        codec::put_u8(out, self.part as u8);
        codec::put_u64(out, self.newest_seqno.0);
        codec::put_u32(out, self.writing_pages);
        debug_assert_eq!(out.len(), end, "the promised length");
    }

    /// Decodes the self-description in the payload of a replaced page.
    pub fn read(payload: &[u8]) -> Result<Self, Damage> {
        let start = payload.len().checked_sub(Self::BYTES).ok_or(Damage("a replaced page is too short"))?;
        let mut reader = Reader::new(&payload[start..]);
        Ok(Self {
            run: RunId(reader.u64()?),
            page: reader.u32()?,
            part: match reader.u8()? {
                0 => PagePart::All,
                1 => PagePart::BeforeBorder,
                2 => PagePart::Overflow,
                _ => return Err(Damage("unknown part of a replaced page")),
            },
            newest_seqno: Seqno(reader.u64()?),
            writing_pages: reader.u32()?,
        })
    }
}

/// Place of a page of a run, with its expected header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// Number of the place, counted from the start of the run.
    pub at: u32,
    /// Generation and incarnation in its header.
    pub writing: Writing,
}

/// A page that holds the entries of another one from a border on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverflowPage {
    /// The page that it belongs to.
    pub of: u32,
    /// Lower bound of its keys, and exclusive upper bound of those of the page before it.
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
    /// Creates it from both lists, each sorted by page.
    pub(crate) fn new(pages: Vec<(u32, PagePlace)>, overflow: Vec<OverflowPage>) -> Self {
        debug_assert!(pages.is_sorted_by(|a, b| a.0 < b.0), "pages must be ascending");
        debug_assert!(overflow.is_sorted_by(|a, b| a.of < b.of), "each page has at most one overflow page");
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

    /// Returns the overflow page of `page` with its index.
    #[inline]
    pub(crate) fn overflow_of(&self, page: u32) -> Option<(u32, &OverflowPage)> {
        let at = self.overflow.partition_point(|other| other.of < page);
        let found = self.overflow.get(at).filter(|other| other.of == page)?;
        Some((u32_of(at), found))
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
            ListEncoding::InReference => {
                codec::put_u32(out, u32_of(writings.len()));
                for writing in &writings {
                    codec::put_u64(out, writing.generation.0);
                    codec::put_u32(out, writing.incarnation);
                }
            }
            ListEncoding::InMap => encode_writings(&writings, run, out),
        }
        debug_assert!(writings.is_sorted_by(|a, b| a < b), "writings are found by bisection");
        let number = |writing: &Writing| writings.binary_search(writing).unwrap_or_default();
        let put = |out: &mut Vec<u8>, page: u32, next: &mut u32, place: &PagePlace| {
            debug_assert!(page >= *next, "pages ascend");
            codec::put_varint(out, u64::from(page - *next));
            codec::put_varint(out, u64::from(place.at));
            codec::put_varint(out, u64_of(number(&place.writing)));
            *next = page + 1;
        };
        codec::put_u32(out, u32_of(self.pages.len()));
        let mut next = 0;
        self.pages().for_each(|(page, place)| put(out, page, &mut next, &place));
        codec::put_u32(out, u32_of(self.overflow.len()));
        let mut next = 0;
        for OverflowPage { of, border, place } in &self.overflow {
            put(out, *of, &mut next, place);
            codec::put_bytes(out, border);
        }
    }

    /// Decodes the encoding of the list of `run`. [`ReplacedPages::check`] compares it with the run.
    pub(crate) fn decode(
        encoding: ListEncoding,
        run: RunId,
        reader: &mut Reader<'_>,
    ) -> Result<Self, Damage> {
        let writings = match encoding {
            ListEncoding::InReference => decode_fixed_writings(reader)?,
            ListEncoding::InMap => decode_writings(run, reader)?,
        };
        if !writings.is_sorted_by(|a, b| a < b) {
            return Err(Damage("the writings of replaced pages are not ascending"));
        }
        let mut used = vec![false; writings.len()];
        let mut next_of = |reader: &mut Reader<'_>, next: &mut u64| -> Result<(u32, PagePlace), Damage> {
            let page = next.checked_add(reader.varint()?).filter(|page| *page < u64::from(u32::MAX));
            let page = page.ok_or(Damage("a replaced page is outside its run"))?;
            *next = page + 1;
            let (at, number) = (reader.varint()?, usize_of(reader.varint()?));
            if at >= u64::from(u32::MAX) {
                return Err(Damage("a replaced page is in an invalid place"));
            }
            let writing = *writings.get(number).ok_or(Damage("a replaced page has an unknown writing"))?;
            used[number] = true;
            Ok((low32(page), PagePlace { at: low32(at), writing }))
        };
        let count = count_of(reader, 3)?;
        let (mut pages, mut next) = (Vec::with_capacity(count), 0);
        for _ in 0..count {
            pages.push(next_of(reader, &mut next)?);
        }
        let count = count_of(reader, 7)?;
        let (mut overflow, mut next) = (Vec::with_capacity(count), 0);
        for _ in 0..count {
            let (of, place) = next_of(reader, &mut next)?;
            let border = reader.bytes(MAX_SEPARATOR_BYTES)?.into();
            overflow.push(OverflowPage { of, border, place });
        }
        if pages.is_empty() || used.contains(&false) {
            return Err(Damage("the replaced pages of a run are inconsistent"));
        }
        Ok(Self::new(pages, overflow))
    }

    /// Checks that the list fits `run`, which has `places` pages in its spans.
    pub(crate) fn check(&self, run: &RunRef, places: u64) -> Result<(), Damage> {
        let (data_pages, footer_end) = (run.data_pages, run.footer_end());
        let of_map = self.map.iter().flat_map(|map| map.places.iter().copied());
        let mut taken = BTreeSet::new();
        for at in self.places().map(|place| place.at).chain(of_map) {
            let is_place = at < data_pages || (u64::from(footer_end)..places).contains(&u64::from(at));
            // The place of a page that was not replaced is in use.
            let is_unused = run.is_spare(at) || self.place_of(at).is_some();
            let is_free = at >= data_pages || is_unused || !self.is_known;
            if !is_place || !is_free || !taken.insert(at) {
                return Err(Damage("a replaced page is in an invalid place"));
            }
        }
        let is_replaced = |page: &OverflowPage| self.place_of(page.of).is_some();
        let has_contents = |page: &u32| *page < data_pages && !run.is_spare(*page);
        if !self.pages.iter().all(has_contents) || !self.overflow.iter().all(is_replaced) {
            return Err(Damage("the replaced pages of a run are inconsistent"));
        }
        Ok(())
    }
}

/// Encoding of the writings of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEncoding {
    /// In the reference to the run, as earlier builds wrote it.
    InReference,
    /// In a map page.
    InMap,
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
