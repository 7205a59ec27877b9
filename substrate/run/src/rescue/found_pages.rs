//! Replaced pages that were found one by one, put together to the version of a run that they belong to.
//!
//! A writing that no later one followed counts only if all of it was found: otherwise it may never have
//! been committed, and what it was to replace is still there. A writing that came after one that was not
//! committed has all that this one had.
//!
//! **Invariants**
//! - Of each page the newest that counts is taken.

use std::collections::BTreeMap;

use testudo_base::{
    ExtentSpan, RunId, Seqno,
    num::{low32, usize_of},
    sync::Arc,
};

use crate::{
    KeyEnds, OverflowPage, PagePart, PagePlace, ReplacedPageRecord, ReplacedPages, RunRef, Writing,
    format::long_separators::MAX_SEPARATOR_BYTES,
};

/// A replaced page, wherever it was found.
#[derive(Clone, Debug)]
pub struct FoundPage {
    /// Number of the page in the data file.
    pub physical: u64,
    /// What its header says.
    pub writing: Writing,
    /// What it says of itself.
    pub record: ReplacedPageRecord,
    /// Its first and its last key.
    pub keys: (Vec<u8>, Vec<u8>),
}

impl RunRef {
    /// The newest version of the run that `found`, replaced pages of it, make up. What it says of the number
    /// and size of its entries is that of the run as it was written.
    #[must_use]
    pub fn with_found_pages(mut self, mut found: Vec<FoundPage>) -> Self {
        found.retain(|page| page.record.run == self.id && page.record.page < self.data_pages);
        while let Some(newest) = incomplete_newest(&found) {
            found.retain(|page| page.writing.generation != newest);
        }
        let mut parts: BTreeMap<(u32, PagePart), FoundPage> = BTreeMap::new();
        found.sort_by_key(|page| page.writing.generation);
        for page in found {
            parts.insert((page.record.page, page.record.part), page);
        }
        let mut pages: Vec<(u32, PagePlace)> = Vec::new();
        let mut overflow: Vec<OverflowPage> = Vec::new();
        let mut newest_seqno: Seqno = self.newest_seqno;
        let numbers: Vec<u32> = parts.keys().map(|(page, _)| *page).collect();
        for page in numbers {
            let Some((first, second)) = newest_parts(&mut parts, page) else { continue };
            for found in std::iter::once(&first).chain(&second) {
                newest_seqno = newest_seqno.max(found.record.newest_seqno);
                self.keys = widened(&self.keys, &found.keys);
            }
            pages.push((page, self.place_for(&first)));
            let is_part = first.record.part == PagePart::BeforeBorder;
            // One that was not found is one that cannot be read: there is no such page where the footer is.
            let place = match &second {
                Some(second) => self.place_for(second),
                None => PagePlace { at: self.footer_page, writing: first.writing },
            };
            if is_part {
                let mut border = second.map_or_else(|| first.keys.1.clone(), |second| second.keys.0);
                border.truncate(MAX_SEPARATOR_BYTES);
                overflow.push(OverflowPage { of: page, border, place });
            }
        }
        if !pages.is_empty() {
            self.replaced = Some(Arc::new(ReplacedPages::new(pages, overflow)));
            self.newest_seqno = newest_seqno;
        }
        self
    }

    /// The place of a page, wherever it lies: a span of its own if it is in none of the run's.
    fn place_for(&mut self, found: &FoundPage) -> PagePlace {
        let mut places = 0;
        for span in &self.spans {
            if (span.first_page..span.end_page()).contains(&found.physical) {
                let at = places + low32(found.physical - span.first_page);
                return PagePlace { at, writing: found.writing };
            }
            places += span.page_count;
        }
        self.spans.push(ExtentSpan { first_page: found.physical, page_count: 1 });
        PagePlace { at: places, writing: found.writing }
    }
}

/// The newest generation, if some of its pages are missing: it may never have been committed, and then what
/// it was to replace is still there.
fn incomplete_newest(found: &[FoundPage]) -> Option<RunId> {
    let newest = found.iter().map(|page| page.writing.generation).max()?;
    let pages = || found.iter().filter(|page| page.writing.generation == newest);
    let expected = pages().map(|page| page.record.writing_pages).max()?;
    (pages().count() != usize_of(u64::from(expected))).then_some(newest)
}

/// Takes what there is of a page: the newest of its first part and, if that has only a part of the entries,
/// the rest that was written with it.
fn newest_parts(
    parts: &mut BTreeMap<(u32, PagePart), FoundPage>,
    page: u32,
) -> Option<(FoundPage, Option<FoundPage>)> {
    let all = parts.remove(&(page, PagePart::All));
    let before = parts.remove(&(page, PagePart::BeforeBorder));
    let behind = parts.remove(&(page, PagePart::Overflow));
    let generation = |found: &Option<FoundPage>| found.as_ref().map(|found| found.writing.generation);
    if generation(&all) > generation(&before) {
        return all.map(|all| (all, None));
    }
    let behind = behind.filter(|behind| Some(behind.writing.generation) == generation(&before));
    before.map(|before| (before, behind))
}

/// Ends that have the keys of a page, too.
fn widened(ends: &KeyEnds, (first, last): &(Vec<u8>, Vec<u8>)) -> KeyEnds {
    let is_inside = ends.may_hold(first) && ends.may_hold(last);
    if is_inside {
        return ends.clone();
    }
    let low = if ends.first_is_cut() { ends.first().to_vec() } else { ends.first().min(first).to_vec() };
    // A last key that was cut is no bound: the greatest one that begins so is.
    let high = match ends.last_is_cut() {
        true => [ends.last(), &[0xff; 16]].concat().max(last.clone()),
        false => ends.last().max(last).to_vec(),
    };
    KeyEnds::of(low.min(first.clone()).as_slice(), &high)
}
