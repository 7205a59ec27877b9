//! The free pages of the data file, as a pure data structure: ranges by position and by length.
//!
//! **Invariants**
//! - Ranges are disjoint, never touch each other and end at or before `end_page`.
//! - Both maps hold the same ranges.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{ExtentSpan, num::low32};

/// Smallest piece that a large request is split into, in pages (64 KiB).
const MIN_PIECE_PAGES: u64 = 16;
/// A request is never spread over more pieces than this.
const MAX_PIECES: usize = 32;

/// Free ranges of pages below `end_page`.
#[derive(Debug, Default)]
pub(crate) struct FreeSpace {
    by_start: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    free_pages: u64,
    end_page: u64,
}

impl FreeSpace {
    /// All pages from `first_page` to `end_page` are taken except the gaps between `live`, which is sorted.
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

    pub(crate) fn end_page(&self) -> u64 {
        self.end_page
    }

    /// Makes `pages` more available at the end of the file.
    pub(crate) fn grow(&mut self, pages: u64) {
        let start = self.end_page;
        self.end_page += pages;
        self.release(start, pages);
    }

    /// Takes `pages` pages, in one piece if there is one, else in few large pieces; `None` if there is no
    /// room without growing.
    pub(crate) fn take(&mut self, pages: u32) -> Option<Vec<ExtentSpan>> {
        let wanted = u64::from(pages);
        if let Some(&(length, start)) = self.by_length.range((wanted, 0)..).next() {
            self.remove(start, length);
            if length > wanted {
                self.add(start + wanted, length - wanted);
            }
            return Some(vec![ExtentSpan { first_page: start, page_count: pages }]);
        }
        self.take_pieces(wanted)
    }

    fn take_pieces(&mut self, wanted: u64) -> Option<Vec<ExtentSpan>> {
        let mut pieces = Vec::new();
        let mut left = wanted;
        for &(length, start) in self.by_length.iter().rev().take(MAX_PIECES) {
            if length < MIN_PIECE_PAGES {
                break;
            }
            let taken = length.min(left);
            pieces.push((start, length, taken));
            left -= taken;
            if left == 0 {
                break;
            }
        }
        if left > 0 {
            return None;
        }
        let mut spans = Vec::with_capacity(pieces.len());
        for (start, length, taken) in pieces {
            self.remove(start, length);
            if length > taken {
                self.add(start + taken, length - taken);
            }
            spans.push(ExtentSpan { first_page: start, page_count: low32(taken) });
        }
        spans.sort_unstable();
        Some(spans)
    }

    /// Gives a range back, joining it with its neighbours.
    pub(crate) fn release(&mut self, start: u64, pages: u64) {
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
        self.add(first, length);
    }

    /// Forgets the free range at the end of the file, if there is one, and returns the new end.
    pub(crate) fn cut_tail(&mut self) -> Option<u64> {
        let (&start, &length) = self.by_start.last_key_value()?;
        if start + length != self.end_page {
            return None;
        }
        self.remove(start, length);
        self.end_page = start;
        Some(start)
    }

    /// The free ranges of at least `min_pages` as (first page, pages).
    pub(crate) fn ranges(&self, min_pages: u64) -> Vec<(u64, u64)> {
        self.by_start.iter().filter(|&(_, &length)| length >= min_pages).map(|(&s, &l)| (s, l)).collect()
    }

    fn add(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        self.free_pages += length;
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.free_pages -= length;
    }
}

#[cfg(test)]
mod tests;
