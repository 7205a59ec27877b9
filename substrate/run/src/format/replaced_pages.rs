//! Replaced data pages of a run and their current places (decision 0049).
//!
//! A replaced page is in a *place*: a page of the run's spans, counted from their start. Data pages that were
//! not replaced are in the place with their number. A page whose entries outgrew it has an *overflow page*,
//! which holds the entries from a border on; overflow pages are numbered from the end of the footer on.
//!
//! Encoded (little-endian; `varint` as in `codec.rs`, `str` = u32 length and bytes): count u32 of writings,
//! each: generation u64 · incarnation u32. Then count u32 of replaced pages, each: number of pages between
//! it and the previous one varint · place varint · number of its writing varint. Then count u32 of overflow
//! pages, each: the same three fields for the page that it belongs to · border str.
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
    num::{u32_of, u64_of, usize_of},
};

use super::long_separators::MAX_SEPARATOR_BYTES;

/// A batch of pages that were written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writing {
    /// Generation in the headers of the pages.
    pub generation: RunId,
    /// Lowest 32 bits of the incarnation that wrote them.
    pub incarnation: u32,
}

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
    pub border: Vec<u8>,
    /// Its place.
    pub place: PagePlace,
}

/// The replaced pages of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplacedPages {
    pages: Vec<(u32, PagePlace)>,
    overflow: Vec<OverflowPage>,
}

impl ReplacedPages {
    /// Creates it from both lists, each sorted by page.
    pub(crate) fn new(pages: Vec<(u32, PagePlace)>, overflow: Vec<OverflowPage>) -> Self {
        debug_assert!(pages.is_sorted_by(|a, b| a.0 < b.0), "pages must be ascending");
        debug_assert!(overflow.is_sorted_by(|a, b| a.of < b.of), "each page has at most one overflow page");
        Self { pages, overflow }
    }

    /// Creates the list for a run of which only this page, its first, is known.
    pub fn lone_page(writing: Writing) -> Self {
        Self::new(vec![(0, PagePlace { at: 0, writing })], Vec::new())
    }

    /// Returns the replaced pages with their places.
    pub fn pages(&self) -> &[(u32, PagePlace)] {
        &self.pages
    }

    /// Returns the overflow pages, in the order of the pages that they belong to.
    pub fn overflow(&self) -> &[OverflowPage] {
        &self.overflow
    }

    /// Returns the place of a page, if it was replaced.
    #[inline]
    pub(crate) fn place_of(&self, page: u32) -> Option<PagePlace> {
        let at = self.pages.partition_point(|(other, _)| *other < page);
        self.pages.get(at).filter(|(other, _)| *other == page).map(|(_, place)| *place)
    }

    /// Returns the first replaced page at or after `page`.
    pub(crate) fn next_from(&self, page: u32) -> Option<u32> {
        let at = self.pages.partition_point(|(other, _)| *other < page);
        self.pages.get(at).map(|(page, _)| *page)
    }

    /// Returns the overflow page of `page` with its index.
    #[inline]
    pub(crate) fn overflow_of(&self, page: u32) -> Option<(u32, &OverflowPage)> {
        let at = self.overflow.partition_point(|other| other.of < page);
        let found = self.overflow.get(at).filter(|other| other.of == page)?;
        Some((u32_of(at), found))
    }

    /// Iterates over all places.
    pub fn places(&self) -> impl Iterator<Item = PagePlace> + '_ {
        let pages = self.pages.iter().map(|(_, place)| *place);
        pages.chain(self.overflow.iter().map(|page| page.place))
    }

    /// Returns all writings, sorted and deduplicated.
    pub fn writings(&self) -> Vec<Writing> {
        let writings: BTreeSet<Writing> = self.places().map(|place| place.writing).collect();
        writings.into_iter().collect()
    }

    /// Approximate bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let borders: usize = self.overflow.iter().map(|page| page.border.len()).sum();
        self.pages.capacity() * size_of::<(u32, PagePlace)>()
            + self.overflow.capacity() * size_of::<OverflowPage>()
            + borders
    }

    /// Appends the encoding.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let writings = self.writings();
        codec::put_u32(out, u32_of(writings.len()));
        for writing in &writings {
            codec::put_u64(out, writing.generation.0);
            codec::put_u32(out, writing.incarnation);
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
        self.pages.iter().for_each(|(page, place)| put(out, *page, &mut next, place));
        codec::put_u32(out, u32_of(self.overflow.len()));
        let mut next = 0;
        for OverflowPage { of, border, place } in &self.overflow {
            put(out, *of, &mut next, place);
            codec::put_bytes(out, border);
        }
    }

    /// Decodes the encoding. `data_pages` and `footer_end` are those of the run, `places` is the number of
    /// pages of its spans.
    pub(crate) fn decode(
        reader: &mut Reader<'_>,
        data_pages: u32,
        footer_end: u32,
        places: u64,
    ) -> Result<Self, Damage> {
        let count = count_of(reader, 12)?;
        let mut writings = Vec::with_capacity(count);
        for _ in 0..count {
            let writing = Writing { generation: RunId(reader.u64()?), incarnation: reader.u32()? };
            if writings.last().is_some_and(|last| *last >= writing) {
                return Err(Damage("the writings of replaced pages are not ascending"));
            }
            writings.push(writing);
        }
        let mut taken = BTreeSet::new();
        let mut used = vec![false; count];
        let mut next_of = |reader: &mut Reader<'_>, next: &mut u64| -> Result<(u32, PagePlace), Damage> {
            let page = next.checked_add(reader.varint()?).filter(|page| *page < u64::from(data_pages));
            let page = page.ok_or(Damage("a replaced page is outside its run"))?;
            *next = page + 1;
            let (at, number) = (reader.varint()?, usize_of(reader.varint()?));
            let is_place = at < u64::from(data_pages) || (u64::from(footer_end)..places).contains(&at);
            if !is_place || !taken.insert(at) {
                return Err(Damage("a replaced page is in an invalid place"));
            }
            let writing = *writings.get(number).ok_or(Damage("a replaced page has an unknown writing"))?;
            used[number] = true;
            Ok((testudo_base::num::low32(page), PagePlace { at: testudo_base::num::low32(at), writing }))
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
            let border = reader.bytes(MAX_SEPARATOR_BYTES)?.to_vec();
            overflow.push(OverflowPage { of, border, place });
        }
        let replaced = Self { pages, overflow };
        let are_of_replaced = || replaced.overflow.iter().all(|page| replaced.place_of(page.of).is_some());
        // The place of a page that was not replaced is in use.
        let is_free = |at: u32| at >= data_pages || replaced.place_of(at).is_some();
        if replaced.pages.is_empty()
            || used.contains(&false)
            || !are_of_replaced()
            || !replaced.places().all(|place| is_free(place.at))
        {
            return Err(Damage("the replaced pages of a run are inconsistent"));
        }
        Ok(replaced)
    }
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
