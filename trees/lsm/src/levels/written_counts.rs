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
    /// Runs that were rewritten although their incoming entries were few: these were on too many pages, or
    /// the run has become too long or too sparse.
    pub(crate) rewritten_runs: u64,
    /// Flushes that went past the levels.
    pub(crate) direct_flushes: u64,
}

impl PageCounts {
    pub(crate) fn add(&mut self, more: Self) {
        self.replaced += more.replaced;
        self.overflowed += more.overflowed;
        self.joined += more.joined;
        self.rewritten_runs += more.rewritten_runs;
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
