//! Reassembles a version of a run from replaced pages that were found individually.
//!
//! The newest write counts only if all of its pages were found. Otherwise it may never have been committed,
//! and the pages that it would have replaced still exist. A write that follows an uncommitted one includes
//! all of that one's changes.
//!
//! **Invariants**
//! - Each key is in the newest valid page whose section contains it: older pages fill only the gaps that lost
//!   pages leave, and are used for these keys alone.

use std::collections::BTreeMap;

use testudo_base::{
    ExtentSpan, RunId,
    num::{low32, usize_of},
    sync::Arc,
};

use crate::{KeyEnds, OverflowPage, PagePart, PagePlace, ReplacedPageRecord, ReplacedPages, RunRef, Writing};

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
        let mut of_blocks: BTreeMap<u32, Vec<FoundPage>> = BTreeMap::new();
        found.sort_by_key(|page| std::cmp::Reverse(page.writing.generation));
        for page in found {
            of_blocks.entry(page.record.page).or_default().push(page);
        }
        let mut pages: Vec<(u32, PagePlace)> = Vec::new();
        let mut overflow: Vec<OverflowPage> = Vec::new();
        let written = Writing { generation: self.id, incarnation: self.incarnation };
        for (of, found) in of_blocks {
            for (low, number) in sections_of(&found) {
                let used = number.and_then(|number| found.get(number));
                // The original page may still be there.
                let mut place = PagePlace { at: of, writing: written };
                if let Some(used) = used {
                    self.newest_seqno = self.newest_seqno.max(used.record.newest_seqno);
                    self.keys = widened(&self.keys, &used.keys);
                    place = self.place_for(used);
                }
                match low {
                    Some(border) => overflow.push(OverflowPage { of, border: border.into(), place }),
                    None if used.is_some() => pages.push((of, place)),
                    None => {}
                }
            }
        }
        if !pages.is_empty() || !overflow.is_empty() {
            self.replaced = Some(Arc::new(ReplacedPages::new(pages, overflow)));
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

/// Range of keys; open where there is no bound, the upper one is exclusive.
type Section = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Returns the lower bound of each section of a block, ascending, with the index of the newest page that has
/// it; `None` if none of the pages, which are ordered from the newest, has it.
fn sections_of(found: &[FoundPage]) -> Vec<(Option<Vec<u8>>, Option<usize>)> {
    let mut gaps: Vec<Section> = vec![(None, None)];
    let mut sections: Vec<(Option<Vec<u8>>, Option<usize>)> = Vec::new();
    for (number, page) in found.iter().enumerate() {
        let (low, high) = section_of(page, found);
        let mut left = Vec::new();
        for (from, to) in gaps {
            let start = from.clone().max(low.clone());
            let end = match (&to, &high) {
                (Some(to), Some(high)) => Some(to.min(high).clone()),
                (to, high) => to.clone().or_else(|| high.clone()),
            };
            if !is_before(&start, &end) {
                left.push((from, to));
                continue;
            }
            if from != start {
                left.push((from, start.clone()));
            }
            if end != to {
                left.push((end, to));
            }
            sections.push((start, Some(number)));
        }
        gaps = left;
    }
    sections.extend(gaps.into_iter().map(|(low, _)| (low, None)));
    sections.sort_by(|a, b| a.0.cmp(&b.0));
    debug_assert!(sections.is_sorted_by(|a, b| a.0 < b.0), "sections are disjoint");
    sections
}

/// Whether some key can be from `low` on and before `high`.
fn is_before(low: &Option<Vec<u8>>, high: &Option<Vec<u8>>) -> bool {
    high.as_ref().is_none_or(|high| low.as_ref().is_none_or(|low| low < high))
}

/// Returns the section of a page. In pages of earlier builds the border is not stored: it is the first key of
/// the second part that was written with the first one.
fn section_of(page: &FoundPage, found: &[FoundPage]) -> Section {
    let first_key = |page: &FoundPage| page.keys.0.clone();
    match &page.record.part {
        PagePart::All => (None, None),
        PagePart::Section { low, high } => (low.as_deref().map(Into::into), high.as_deref().map(Into::into)),
        PagePart::Overflow => (Some(first_key(page)), None),
        PagePart::BeforeBorder => {
            let is_second = |other: &&FoundPage| {
                other.record.part == PagePart::Overflow && other.writing.generation == page.writing.generation
            };
            let border = found.iter().find(is_second).map(first_key);
            (None, Some(border.unwrap_or_else(|| [&page.keys.1[..], &[0]].concat())))
        }
    }
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
