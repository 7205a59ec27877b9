//! Memory of open iterators: page copies, and values and entries read ahead.
//!
//! Each iterator measures itself periodically and reports the change. While all of them exceed their part of
//! the budget, each iterator that is moved releases its sources, and keeps a few entries and the key at which
//! it continues (`engine/db/src/db/scan_front.rs`). So it becomes small at any position, and further
//! steps cost one seek per few entries. Older iterators that are not moved keep their memory.
//!
//! **Invariants**
//! - Caches shrink by the bytes counted here.

use testudo_base::{
    planted,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The fraction of a budget that iterators may use …
const PART: u64 = 8;
/// … and the minimum for a small budget.
const LEAST_BYTES: u64 = 1 << 20;
/// The caches follow in steps of this fraction of that bound.
const STEPS: u64 = 8;

/// Bytes of all open iterators.
#[derive(Debug, Default)]
pub struct IteratorMemory {
    bytes: AtomicU64,
    /// Bytes for which the caches have been reduced.
    noted: AtomicU64,
}

impl IteratorMemory {
    fn bound(budget: u64) -> u64 {
        (budget / PART).max(LEAST_BYTES)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Whether iterators that are moved should release their sources.
    #[inline]
    pub fn is_over_bound(&self, budget: u64) -> bool {
        self.bytes() > Self::bound(budget) && !planted!("iterators-keep-sources")
    }

    /// Records a changed size of an iterator; returns whether the caches should follow.
    pub fn change(&self, before: u64, after: u64, budget: u64) -> bool {
        debug_assert!(self.bytes() >= before, "the iterator's memory was counted");
        let bytes = if after >= before {
            self.bytes.fetch_add(after - before, Relaxed) + (after - before)
        } else {
            self.bytes.fetch_sub(before - after, Relaxed) - (before - after)
        };
        let noted = self.noted.load(Relaxed);
        let is_other = bytes.abs_diff(noted) >= Self::bound(budget) / STEPS;
        // If several threads detect it, one does it.
        is_other && self.noted.compare_exchange(noted, bytes, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests;
