//! The page cache of the simulation: S3-FIFO with two real queues.
//!
//! A new page is on probation, which is a tenth of the frames, and moves to the main set if it is used again.
//! The main set is a clock with up to three turns of credit. A page that returns within as many evictions as
//! there are frames enters the main set directly.
//!
//! **Invariants**
//! - A resident page is in exactly one of the queues, once.

use std::collections::VecDeque;

use testudo_base::{
    PAGE_BYTES,
    num::{u64_of, usize_of},
};

/// Bytes of a page in the cache: the page, and the metadata of its frame.
pub(super) const FRAME_BYTES: u64 = PAGE_BYTES + 41;
/// One in this many frames is for pages on probation.
const PROBATION_SHARE: usize = 10;
/// Maximum credit of a page, in turns.
const CREDIT_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    is_resident: bool,
    credit: u8,
    /// One bit for each record requested while the page is resident.
    asked: u64,
    /// Number of evictions up to that of this page, inclusive; 0 if it was never evicted.
    evicted_at: u64,
}

/// An evicted page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    pub(super) page: u64,
    pub(super) asked: u64,
}

/// The cache, over pages numbered from 0.
#[derive(Debug)]
pub(super) struct Pages {
    pages: Vec<Page>,
    probation: VecDeque<u64>,
    main: VecDeque<u64>,
    evictions: u64,
}

impl Pages {
    pub(super) fn new(count: u64) -> Self {
        let pages = vec![Page::default(); usize_of(count)];
        Self { pages, probation: VecDeque::new(), main: VecDeque::new(), evictions: 0 }
    }

    fn len(&self) -> usize {
        self.probation.len() + self.main.len()
    }

    /// Returns the memory of all frames.
    pub(super) fn bytes(&self) -> u64 {
        u64_of(self.len()) * FRAME_BYTES
    }

    /// Returns the records requested while the page is resident, one bit each.
    pub(super) fn asked(&self, page: u64) -> u64 {
        self.pages[usize_of(page)].asked
    }

    /// Returns whether the page is resident, and marks it as used for the records `asked`.
    pub(super) fn touch(&mut self, page: u64, asked: u64) -> bool {
        let page = &mut self.pages[usize_of(page)];
        if page.is_resident {
            page.credit = (page.credit + 1).min(CREDIT_MAX);
            page.asked |= asked;
        }
        page.is_resident
    }

    /// Returns the bytes of pages evicted since this one, inclusive; `None` if it was never evicted.
    pub(super) fn bytes_since_eviction(&self, page: u64) -> Option<u64> {
        let at = self.pages[usize_of(page)].evicted_at;
        (at > 0).then(|| (self.evictions + 1 - at) * FRAME_BYTES)
    }

    /// Inserts a page. REQUIRES: it is not resident.
    pub(super) fn insert(&mut self, page: u64, asked: u64) {
        let returns = self.bytes_since_eviction(page).is_some_and(|bytes| bytes <= self.bytes());
        let queue = if returns { &mut self.main } else { &mut self.probation };
        queue.push_back(page);
        let page = &mut self.pages[usize_of(page)];
        debug_assert!(!page.is_resident, "once");
        (page.is_resident, page.credit, page.asked) = (true, 0, asked);
    }

    /// Evicts a page. A page without credit gets one more turn if `stays` returns true for its requested
    /// records, which are then cleared. Returns `None` if there is no page.
    pub(super) fn evict(&mut self, stays: impl Fn(u64) -> bool) -> Option<Evicted> {
        loop {
            let is_probation = self.main.is_empty() || self.probation.len() > self.len() / PROBATION_SHARE;
            let queue = if is_probation { &mut self.probation } else { &mut self.main };
            let number = queue.pop_front()?;
            let page = &mut self.pages[usize_of(number)];
            if page.credit > 0 {
                page.credit = if is_probation { 0 } else { page.credit - 1 };
            } else if stays(page.asked) {
                page.asked = 0;
            } else {
                self.evictions += 1;
                (page.is_resident, page.evicted_at) = (false, self.evictions);
                return Some(Evicted { page: number, asked: page.asked });
            }
            self.main.push_back(number);
        }
    }
}

#[cfg(test)]
mod tests;
