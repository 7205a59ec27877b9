//! Counts of the work of a merge: of keys that came into a sequence, and of pages of the bottom.
//!
//! **Invariants**
//! - Counts are those of installed work: a job that was overtaken is not counted.

use crate::levels::repeats::Inflow;

/// Work on pages of the bottom since the tree was opened, in memory only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageCounts {
    /// Pages that were replaced.
    pub(crate) replaced: u64,
    /// Pages that were split: some of their entries went to overflow pages.
    pub(crate) overflowed: u64,
    /// Pages that were joined with others.
    pub(crate) joined: u64,
    /// New keys that came into pages.
    pub(crate) inserts: u64,
    /// Those of them on pages that needed no overflow page.
    pub(crate) hits: u64,
    /// Runs that were rewritten although their incoming entries were few: these were on too many pages, or
    /// the run has become too long or too sparse.
    pub(crate) rewritten_runs: u64,
    /// Slot groups of runs that were rewritten because their pages were scattered.
    pub(crate) moved_groups: u64,
    /// Flushes that went past the levels.
    pub(crate) direct_flushes: u64,
}

impl PageCounts {
    pub(crate) fn add(&mut self, more: Self) {
        self.replaced += more.replaced;
        self.overflowed += more.overflowed;
        debug_assert!(more.hits <= more.inserts, "hits are inserts");
        self.joined += more.joined;
        self.inserts += more.inserts;
        self.hits += more.hits;
        self.rewritten_runs += more.rewritten_runs;
        self.moved_groups += more.moved_groups;
        self.direct_flushes += more.direct_flushes;
    }
}

/// Counts of a merge, set after writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenCounts {
    /// Incoming and repeated keys; counted only if compaction buffers are kept.
    pub(crate) keys: Inflow,
    pub(crate) pages: PageCounts,
}

impl WrittenCounts {
    pub(crate) fn add(&mut self, more: Self) {
        self.keys.add(more.keys);
        self.pages.add(more.pages);
    }
}
