//! Which data pages of a run were written anew since, and where they are now (decision 0049).
//!
//! A replaced page lies in a *place*: a page of the run's spans, counted from their start. Data pages that
//! were not replaced lie in the place that has their number. A page whose entries outgrew it has an *overflow
//! page*, which takes those from a border on; overflow pages are numbered from the end of the footer on.
//!
//! Encoded (little-endian; `varint` as in `codec.rs`, `str` = u32 length and bytes): count u32 of writings,
//! each: generation u64 · incarnation u32. Then count u32 of replaced pages, each: varint how many pages
//! there are between it and the one before · varint place · varint number of its writing. Then count u32 of
//! overflow pages, each: the same three of the page that it belongs to · border str.
//!
//! A replaced page says itself what it is, so that it can be found without a manifest. Behind its block
//! stand run u64 · number of the page that it replaces, or whose overflow page it is, u32 · u8 (0: all of
//! its entries, 1: those before the border, 2: those from there on) · newest seqno of the version u64 ·
//! pages of its writing u32.
//!
//! **Invariants**
//! - Pages ascend, and no place is that of two pages.
//! - Every page with an overflow page was replaced, and every writing is that of a page.

use std::collections::BTreeSet;

use testudo_base::{
    RunId, Seqno,
    codec::{self, Damage, Reader},
    num::{u32_of, u64_of, usize_of},
};

use super::long_separators::MAX_SEPARATOR_BYTES;

/// Pages that were written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writing {
    /// Which pages these are, as their headers say it.
    pub generation: RunId,
    /// The incarnation that wrote them, its lowest 32 bits.
    pub incarnation: u32,
}

/// Which entries of the page that it replaces a page has.
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

/// What a replaced page says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedPageRecord {
    /// The run that it belongs to.
    pub run: RunId,
    /// The page that it replaces, or whose overflow page it is.
    pub page: u32,
    /// Which of the entries it has.
    pub part: PagePart,
    /// How new the version is that it was written for.
    pub newest_seqno: Seqno,
    /// How many pages were written together.
    pub writing_pages: u32,
}

impl ReplacedPageRecord {
    /// Bytes behind the block.
    pub(crate) const BYTES: usize = 25;

    /// Appends the encoding.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_u64(out, self.run.0);
        codec::put_u32(out, self.page);
        codec::put_u8(out, self.part as u8);
        codec::put_u64(out, self.newest_seqno.0);
        codec::put_u32(out, self.writing_pages);
    }

    /// What the payload of a replaced page says of itself.
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
                _ => return Err(Damage("a replaced page has unknown entries")),
            },
            newest_seqno: Seqno(reader.u64()?),
            writing_pages: reader.u32()?,
        })
    }
}

/// Where a page of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// Number of its place, counted from the start of the run.
    pub at: u32,
    /// What its header says.
    pub writing: Writing,
}

/// A page that takes the entries of another one from a border on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverflowPage {
    /// The page that it belongs to.
    pub of: u32,
    /// Its keys are no less than this, and those of the page before it are.
    pub border: Vec<u8>,
    /// Where it is.
    pub place: PagePlace,
}

/// The replaced pages of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplacedPages {
    pages: Vec<(u32, PagePlace)>,
    overflow: Vec<OverflowPage>,
}

impl ReplacedPages {
    /// Of these, each in the order of pages.
    pub(crate) fn new(pages: Vec<(u32, PagePlace)>, overflow: Vec<OverflowPage>) -> Self {
        debug_assert!(pages.is_sorted_by(|a, b| a.0 < b.0), "pages ascend");
        debug_assert!(overflow.is_sorted_by(|a, b| a.of < b.of), "one overflow page for each at most");
        Self { pages, overflow }
    }

    /// The first page of a run that is known by this page alone.
    pub fn lone_page(writing: Writing) -> Self {
        Self::new(vec![(0, PagePlace { at: 0, writing })], Vec::new())
    }

    /// The replaced pages with their places.
    pub fn pages(&self) -> &[(u32, PagePlace)] {
        &self.pages
    }

    /// The overflow pages, in the order of the pages that they belong to.
    pub fn overflow(&self) -> &[OverflowPage] {
        &self.overflow
    }

    /// Where a page is, if it was replaced.
    #[inline]
    pub(crate) fn place_of(&self, page: u32) -> Option<PagePlace> {
        let at = self.pages.partition_point(|(other, _)| *other < page);
        self.pages.get(at).filter(|(other, _)| *other == page).map(|(_, place)| *place)
    }

    /// The first page from `page` on that was replaced.
    pub(crate) fn next_from(&self, page: u32) -> Option<u32> {
        let at = self.pages.partition_point(|(other, _)| *other < page);
        self.pages.get(at).map(|(page, _)| *page)
    }

    /// The number of the overflow page of `page` among them, and itself.
    #[inline]
    pub(crate) fn overflow_of(&self, page: u32) -> Option<(u32, &OverflowPage)> {
        let at = self.overflow.partition_point(|other| other.of < page);
        let found = self.overflow.get(at).filter(|other| other.of == page)?;
        Some((u32_of(at), found))
    }

    /// Every place that it names.
    pub fn places(&self) -> impl Iterator<Item = PagePlace> + '_ {
        let pages = self.pages.iter().map(|(_, place)| *place);
        pages.chain(self.overflow.iter().map(|page| page.place))
    }

    /// Every writing, each once, in order.
    pub fn writings(&self) -> Vec<Writing> {
        let writings: BTreeSet<Writing> = self.places().map(|place| place.writing).collect();
        writings.into_iter().collect()
    }

    /// About how much memory it takes.
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
        let number = |writing: &Writing| writings.binary_search(writing).unwrap_or_default();
        let put = |out: &mut Vec<u8>, page: u32, next: &mut u32, place: &PagePlace| {
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

    /// Reads the encoding back. `data_pages` and `footer_end` are those of the run, `places` is how many
    /// pages its spans have.
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
                return Err(Damage("the writings of replaced pages do not ascend"));
            }
            writings.push(writing);
        }
        let mut taken = BTreeSet::new();
        let mut used = vec![false; count];
        let mut next_of = |reader: &mut Reader<'_>, next: &mut u64| -> Result<(u32, PagePlace), Damage> {
            let page = next.checked_add(reader.varint()?).filter(|page| *page < u64::from(data_pages));
            let page = page.ok_or(Damage("a replaced page is none of the run"))?;
            *next = page + 1;
            let (at, number) = (reader.varint()?, usize_of(reader.varint()?));
            let is_place = at < u64::from(data_pages) || (u64::from(footer_end)..places).contains(&at);
            if !is_place || !taken.insert(at) {
                return Err(Damage("a replaced page is in an impossible place"));
            }
            let writing = *writings.get(number).ok_or(Damage("a replaced page has no such writing"))?;
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
        // A page that was not replaced lies in its own place.
        let is_free = |at: u32| at >= data_pages || replaced.place_of(at).is_some();
        if replaced.pages.is_empty()
            || used.contains(&false)
            || !are_of_replaced()
            || !replaced.places().all(|place| is_free(place.at))
        {
            return Err(Damage("the replaced pages of a run contradict each other"));
        }
        Ok(replaced)
    }
}

/// A count of things that take so many bytes each, at least.
fn count_of(reader: &mut Reader<'_>, least_bytes: usize) -> Result<usize, Damage> {
    let count = usize_of(u64::from(reader.u32()?));
    if count > reader.rest().len() / least_bytes {
        return Err(Damage("a run has an impossible number of replaced pages"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
