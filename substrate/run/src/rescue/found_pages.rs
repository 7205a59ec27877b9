//! Reassembles a version of a run from replaced pages that were found individually.
//!
//! The newest write counts only if all of its pages were found. Otherwise it may never have been committed,
//! and the pages that it would have replaced still exist. A write that follows an uncommitted one includes
//! all of that one's changes.
//!
//! **Invariants**
//! - Of each page, the newest valid copy is used.

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

/// A replaced page that was found.
#[derive(Clone, Debug)]
pub struct FoundPage {
    /// Number of the page in the data file.
    pub physical: u64,
    /// Identity of the write, from the page's header.
    pub writing: Writing,
    /// Its own record.
    pub record: ReplacedPageRecord,
    /// Its first and last key.
    pub keys: (Vec<u8>, Vec<u8>),
}

impl RunRef {
    /// Returns the newest version of the run that can be assembled from `found`. Number and size of entries
    /// remain those of the originally written run.
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
            // A missing overflow page gets the footer's place, which fails verification as such a page.
            let place = match &second {
                Some(second) => self.place_for(second),
                None => PagePlace { at: self.footer_page, writing: first.writing },
            };
            if is_part {
                let mut border = second.map_or_else(|| first.keys.1.clone(), |second| second.keys.0);
                border.truncate(MAX_SEPARATOR_BYTES);
                overflow.push(OverflowPage { of: page, border: border.into(), place });
            }
        }
        if !pages.is_empty() {
            self.replaced = Some(Arc::new(ReplacedPages::new(pages, overflow)));
            self.newest_seqno = newest_seqno;
        }
        self
    }

    /// Returns the place of a found page; appends a span if it is in none of the run's.
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

/// Returns the newest generation if some of its pages are missing: it may never have been committed, and then
/// the pages that it would have replaced still exist.
fn incomplete_newest(found: &[FoundPage]) -> Option<RunId> {
    let newest = found.iter().map(|page| page.writing.generation).max()?;
    let pages = || found.iter().filter(|page| page.writing.generation == newest);
    let expected = pages().map(|page| page.record.writing_pages).max()?;
    (pages().count() != usize_of(u64::from(expected))).then_some(newest)
}

/// Removes the newest parts of a page: its first part and, if that is incomplete, the overflow part written
/// with it.
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

/// Widens the key ends to include the keys of a page.
fn widened(ends: &KeyEnds, (first, last): &(Vec<u8>, Vec<u8>)) -> KeyEnds {
    let is_inside = ends.may_hold(first) && ends.may_hold(last);
    if is_inside {
        return ends.clone();
    }
    let low = if ends.first_is_cut() { ends.first().to_vec() } else { ends.first().min(first).to_vec() };
    // A cut last key is not an upper bound: keys with that prefix may be greater.
    let high = match ends.last_is_cut() {
        true => [ends.last(), &[0xff; 16]].concat().max(last.clone()),
        false => ends.last().max(last).to_vec(),
    };
    KeyEnds::of(low.min(first.clone()).as_slice(), &high)
}
