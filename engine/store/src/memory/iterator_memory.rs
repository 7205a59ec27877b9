//! What open iterators take of the memory of a store: copies of pages, pieces that they have read ahead,
//! entries that they have taken ahead.
//!
//! Each iterator weighs itself now and then, and says by how much it has changed. While all of them take more
//! than their part of the budget, each that is moved gives up what it reads with, and keeps a few entries
//! and the key at which it goes on (`handles/scan_front.rs`). So it is small again, wherever it stands, and
//! its next steps cost a seek for every few entries. Those that were there first, and are not moved, keep
//! what they have.
//!
//! **Invariants**
//! - Caches make room for what is counted here.

use testudo_base::{
    planted,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The part of a budget that iterators may have …
const PART: u64 = 8;
/// … and what they may have of a small one.
const LEAST_BYTES: u64 = 1 << 20;
/// The caches follow in steps of this part of that.
const STEPS: u64 = 8;

/// Bytes that all open iterators take.
#[derive(Debug, Default)]
pub struct IteratorMemory {
    bytes: AtomicU64,
    /// The caches have made room for so many.
    noted: AtomicU64,
}

impl IteratorMemory {
    fn bound(budget: u64) -> u64 {
        (budget / PART).max(LEAST_BYTES)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Whether iterators that are moved should be small.
    #[inline]
    pub fn is_over_bound(&self, budget: u64) -> bool {
        self.bytes() > Self::bound(budget) && !planted!("iterators-keep-sources")
    }

    /// An iterator has changed its weight; whether the caches should follow.
    pub fn change(&self, before: u64, after: u64, budget: u64) -> bool {
        let bytes = if after >= before {
            self.bytes.fetch_add(after - before, Relaxed) + (after - before)
        } else {
            self.bytes.fetch_sub(before - after, Relaxed) - (before - after)
        };
        let noted = self.noted.load(Relaxed);
        let is_other = bytes.abs_diff(noted) >= Self::bound(budget) / STEPS;
        // Of several who see it one does it.
        is_other && self.noted.compare_exchange(noted, bytes, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests;
