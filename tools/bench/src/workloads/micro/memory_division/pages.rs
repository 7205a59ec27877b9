//! The page cache of the simulation: S3-FIFO with two real queues.
//!
//! A page comes on probation, to a tenth of the frames, and moves to the main set if it was used again. The
//! main set is a clock with up to three turns of credit. A page that returns before as many evictions as
//! there are frames belongs to the main set at once.
//!
//! **Invariants**
//! - A resident page is in exactly one of the queues, once.

use std::collections::VecDeque;

use testudo_base::{
    PAGE_BYTES,
    num::{u64_of, usize_of},
};

/// What a page takes: itself, and what the page cache keeps for each frame.
pub(super) const FRAME_BYTES: u64 = PAGE_BYTES + 41;
/// Of this many frames one is for pages on probation.
const PROBATION_SHARE: usize = 10;
/// Most turns that a page has to its credit.
const CREDIT_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    is_resident: bool,
    credit: u8,
    /// A bit for each record that was asked for while the page is resident.
    asked: u64,
    /// Evictions of pages until it went, itself included; 0 if it never did.
    evicted_at: u64,
}

/// A page that went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    pub(super) page: u64,
    pub(super) asked: u64,
}

/// The cache, over pages that are numbered from 0.
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

    /// Memory of all frames.
    pub(super) fn bytes(&self) -> u64 {
        u64_of(self.len()) * FRAME_BYTES
    }

    /// Records that were asked for while the page is resident, one bit for each.
    pub(super) fn asked(&self, page: u64) -> u64 {
        self.pages[usize_of(page)].asked
    }

    /// Whether the page is resident; that is a use of it, for the records `asked`.
    pub(super) fn touch(&mut self, page: u64, asked: u64) -> bool {
        let page = &mut self.pages[usize_of(page)];
        if page.is_resident {
            page.credit = (page.credit + 1).min(CREDIT_MAX);
            page.asked |= asked;
        }
        page.is_resident
    }

    /// How many bytes of pages went since this one did, itself included; `None` if it never went.
    pub(super) fn bytes_since_eviction(&self, page: u64) -> Option<u64> {
        let at = self.pages[usize_of(page)].evicted_at;
        (at > 0).then(|| (self.evictions + 1 - at) * FRAME_BYTES)
    }

    /// Puts a page in. REQUIRES: it is not resident.
    pub(super) fn insert(&mut self, page: u64, asked: u64) {
        let returns = self.bytes_since_eviction(page).is_some_and(|bytes| bytes <= self.bytes());
        let queue = if returns { &mut self.main } else { &mut self.probation };
        queue.push_back(page);
        let page = &mut self.pages[usize_of(page)];
        debug_assert!(!page.is_resident, "once");
        (page.is_resident, page.credit, page.asked) = (true, 0, asked);
    }

    /// Takes a page out. A page without credit gets another turn, once, if `stays` says so of what was asked
    /// of it; that is forgotten then. `None` if there is no page.
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
