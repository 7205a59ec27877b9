//! The free pages of the data file, as a pure data structure: ranges by position and by length, and *holes*,
//! pages without device space.
//!
//! **Invariants**
//! - Ranges are disjoint, not adjacent, and end at or before `end_page`. The same holds for holes; ranges and
//!   holes are disjoint, too.
//! - Both maps contain the same ranges.
//! - A hole gets device space before it becomes a range, so that allocated pages can be written. (Holes are
//!   not persisted: after a restart all free pages are ranges, until [`FreeSpace::suspect`] lets the caller
//!   check them.)

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{ExtentSpan, num::low32};

/// Minimum size of a span of a large request, in pages (64 KiB).
const MIN_SPAN_PAGES: u64 = 16;
/// Maximum spans of a request.
const MAX_SPANS: usize = 32;
/// Maximum spans where space is short: work that reclaims space must be able to use fragments, down to
/// single pages.
const MAX_FRAGMENTS: usize = 1024;
/// Maximum pages released in one span (16 MiB).
const SPAN_PAGES_MAX: u64 = 4096;

/// Selects which free ranges are released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    /// Minimum pages per span, at least 1.
    pub(crate) least_pages: u64,
    /// Maximum number of spans.
    pub(crate) most: usize,
}

impl Spans {
    /// Smaller ranges (256 KiB) are not worth a hole, unless space is short.
    const LEAST_PAGES: u64 = 64;

    /// At most `most` spans, each large enough to be worth a hole.
    pub(crate) fn large(most: usize) -> Self {
        Self { least_pages: Self::LEAST_PAGES, most }
    }

    /// All spans, down to single pages.
    pub(crate) const ALL: Self = Self { least_pages: 1, most: usize::MAX };
}

/// Free ranges of pages below `end_page`.
#[derive(Debug, Default)]
pub(crate) struct FreeSpace {
    by_start: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    free_pages: u64,
    /// Length by first page.
    holes: BTreeMap<u64, u64>,
    hole_pages: u64,
    end_page: u64,
}

impl FreeSpace {
    /// Frees the gaps between the `live` spans from `first_page` to `end_page`. REQUIRES: `live` is sorted.
    pub(crate) fn from_live(first_page: u64, end_page: u64, live: impl Iterator<Item = ExtentSpan>) -> Self {
        let mut space = Self { end_page: end_page.max(first_page), ..Self::default() };
        let mut at = first_page;
        for span in live {
            if span.first_page > at {
                space.add(at, span.first_page - at);
            }
            at = span.end_page();
        }
        if space.end_page > at {
            space.add(at, space.end_page - at);
        }
        space
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.free_pages
    }

    /// Removes all ranges, which may have no device space, in spans of at most `pages`. The caller allocates
    /// device space for each and releases it, or puts it back as a hole.
    pub(crate) fn suspect(&mut self, pages: u64) -> Vec<(u64, u64)> {
        let ranges: Vec<(u64, u64)> = self.by_start.iter().map(|(&start, &length)| (start, length)).collect();
        let mut spans = Vec::new();
        for (start, length) in ranges {
            self.remove(start, length);
            let starts = (start..start + length).step_by(testudo_base::num::usize_of(pages));
            spans.extend(starts.map(|at| (at, pages.min(start + length - at))));
        }
        spans
    }

    pub(crate) fn end_page(&self) -> u64 {
        self.end_page
    }

    /// Adds `pages` free pages at the end of the file.
    pub(crate) fn grow(&mut self, pages: u64) {
        let start = self.end_page;
        self.end_page += pages;
        self.release(start, pages);
    }

    /// Allocates `pages` pages, in one span if possible, else in few large spans; `None` if the file must
    /// grow.
    pub(crate) fn take(&mut self, pages: u32) -> Option<Vec<ExtentSpan>> {
        debug_assert!(pages > 0, "an extent needs at least one page");
        let wanted = u64::from(pages);
        if let Some(&(length, start)) = self.by_length.range((wanted, 0)..).next() {
            self.remove(start, length);
            if length > wanted {
                self.add(start + wanted, length - wanted);
            }
            return Some(vec![ExtentSpan { first_page: start, page_count: pages }]);
        }
        self.take_spans(wanted, MIN_SPAN_PAGES, MAX_SPANS)
    }

    /// Like [`FreeSpace::take`], but falls back to many small spans.
    pub(crate) fn take_fragments(&mut self, pages: u32) -> Option<Vec<ExtentSpan>> {
        self.take(pages).or_else(|| self.take_spans(pages.into(), 1, MAX_FRAGMENTS))
    }

    fn take_spans(&mut self, wanted: u64, least: u64, most: usize) -> Option<Vec<ExtentSpan>> {
        let mut ranges = Vec::new();
        let mut left = wanted;
        for &(length, start) in self.by_length.iter().rev().take(most) {
            if length < least {
                break;
            }
            let taken = length.min(left);
            ranges.push((start, length, taken));
            left -= taken;
            if left == 0 {
                break;
            }
        }
        if left > 0 {
            return None;
        }
        let mut spans = Vec::with_capacity(ranges.len());
        for (start, length, taken) in ranges {
            self.remove(start, length);
            if length > taken {
                self.add(start + taken, length - taken);
            }
            spans.push(ExtentSpan { first_page: start, page_count: low32(taken) });
        }
        spans.sort_unstable();
        debug_assert!(spans.len() <= most, "too many spans");
        debug_assert!(
            spans.iter().map(|span| u64::from(span.page_count)).sum::<u64>() == wanted,
            "the spans must add up to the request"
        );
        Some(spans)
    }

    /// Frees a range and merges it with its neighbors.
    pub(crate) fn release(&mut self, start: u64, pages: u64) {
        debug_assert!(start + pages <= self.end_page, "freed pages are within the file");
        let (mut first, mut length) = (start, pages);
        if let Some((&before, &before_length)) = self.by_start.range(..start).next_back() {
            assert!(before + before_length <= start, "pages {start}+{pages} freed twice");
            if before + before_length == start {
                self.remove(before, before_length);
                first = before;
                length += before_length;
            }
        }
        if let Some((&after, &after_length)) = self.by_start.range(start..).next() {
            assert!(start + pages <= after, "pages {start}+{pages} freed twice");
            if start + pages == after {
                self.remove(after, after_length);
                length += after_length;
            }
        }
        let hole_before = self.holes.range(..start + pages).next_back();
        assert!(
            hole_before.is_none_or(|(hole, length)| hole + length <= start),
            "pages {start}+{pages} freed twice"
        );
        self.add(first, length);
    }

    /// Releases free pages until `kept_pages` are left: the tail of the file, then `spans` of the largest
    /// ranges, which become holes. Returns the holes as (first page, pages).
    pub(crate) fn give_up(&mut self, kept_pages: u64, spans: Spans) -> Vec<(u64, u64)> {
        let Spans { least_pages, most } = spans;
        debug_assert!((1..=SPAN_PAGES_MAX).contains(&least_pages), "a span must have pages");
        self.cut_tail(kept_pages);
        let mut given_up = Vec::new();
        while self.free_pages > kept_pages && given_up.len() < most {
            let largest = self.by_length.last().filter(|(length, _)| *length >= least_pages);
            let Some(&(length, start)) = largest else { break };
            let surplus = self.free_pages - kept_pages;
            let taken = surplus.clamp(least_pages, SPAN_PAGES_MAX).min(length);
            self.remove(start, length);
            if length > taken {
                self.add(start, length - taken);
            }
            let hole = (start + length - taken, taken);
            self.put_hole(hole);
            given_up.push(hole);
        }
        given_up
    }

    /// Cuts free pages and holes off the end of the file while more than `kept_pages` free pages are left.
    fn cut_tail(&mut self, kept_pages: u64) {
        loop {
            if let Some((&start, &length)) =
                self.holes.last_key_value().filter(|(start, length)| *start + *length == self.end_page)
            {
                self.holes.remove(&start);
                self.hole_pages -= length;
                self.end_page -= length;
                continue;
            }
            let surplus = self.free_pages.saturating_sub(kept_pages);
            let tail =
                self.by_start.last_key_value().filter(|(start, length)| *start + *length == self.end_page);
            let Some((&start, &length)) = tail.filter(|_| surplus > 0) else { return };
            self.remove(start, length);
            if length > surplus {
                self.add(start, length - surplus);
            }
            debug_assert!(self.end_page >= length.min(surplus), "the file has the pages");
            self.end_page -= length.min(surplus);
            if length > surplus {
                return;
            }
        }
    }

    /// Removes at most `pages` pages of a hole, as (first page, pages). The caller allocates device space for
    /// them and releases them, or puts them back.
    pub(crate) fn take_hole(&mut self, pages: u64) -> Option<(u64, u64)> {
        let large_enough = self.holes.iter().find(|(_, length)| **length >= pages);
        let (&start, &length) =
            large_enough.or_else(|| self.holes.iter().max_by_key(|(_, length)| **length))?;
        debug_assert!(pages > 0, "pages must be requested");
        self.holes.remove(&start);
        let taken = length.min(pages);
        debug_assert!(self.hole_pages >= taken, "pages of holes are counted");
        self.hole_pages -= taken;
        if length > taken {
            self.holes.insert(start + taken, length - taken);
        }
        Some((start, taken))
    }

    /// Makes a hole of pages that are neither in a range nor in use.
    pub(crate) fn put_hole(&mut self, (mut start, mut length): (u64, u64)) {
        debug_assert!(length > 0 && start + length <= self.end_page, "a hole must be within the file");
        debug_assert!(
            self.holes.range(start..).next().is_none_or(|(&after, _)| start + length <= after),
            "holes must be disjoint"
        );
        self.hole_pages += length;
        if let Some((&before, &before_length)) = self.holes.range(..start).next_back()
            && before + before_length == start
        {
            self.holes.remove(&before);
            (start, length) = (before, before_length + length);
        }
        if let Some(after_length) = self.holes.remove(&(start + length)) {
            length += after_length;
        }
        self.holes.insert(start, length);
    }

    /// Turns pages of a hole that was not punched after all into free pages.
    pub(crate) fn restore(&mut self, hole: (u64, u64)) {
        let at = self.holes.range(..=hole.0).next_back().map(|(&start, &length)| (start, length));
        let Some((start, length)) = at.filter(|(start, length)| hole.0 + hole.1 <= start + length) else {
            return;
        };
        self.holes.remove(&start);
        self.hole_pages -= length;
        let (end, hole_end) = (start + length, hole.0 + hole.1);
        for (rest, rest_length) in [(start, hole.0 - start), (hole_end, end - hole_end)] {
            if rest_length > 0 {
                self.holes.insert(rest, rest_length);
                self.hole_pages += rest_length;
            }
        }
        self.release(hole.0, hole.1);
    }

    pub(crate) fn hole_pages(&self) -> u64 {
        self.hole_pages
    }

    #[cfg(test)]
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.by_start.iter().map(|(&start, &length)| (start, length)).collect()
    }

    fn add(&mut self, start: u64, length: u64) {
        debug_assert!(length > 0 && start + length <= self.end_page, "free pages must be within the file");
        let before = self.by_start.insert(start, length);
        debug_assert!(before.is_none(), "ranges must be disjoint");
        self.by_length.insert((length, start));
        self.free_pages += length;
        debug_assert_eq!(self.by_start.len(), self.by_length.len(), "both maps must hold the same ranges");
    }

    fn remove(&mut self, start: u64, length: u64) {
        let known = self.by_start.remove(&start);
        debug_assert_eq!(known, Some(length), "the range must exist");
        let has_length = self.by_length.remove(&(length, start));
        debug_assert!(has_length, "both maps must hold the same ranges");
        self.free_pages -= length;
    }
}

#[cfg(test)]
mod tests;
