//! Where the runs of a destination are cut: pure arithmetic over bytes.
//!
//! Bytes of entries decide the size of a run, bytes of pages only when to check it. Leaves joined because
//! they hold little must not be cut again because of how full their pages are.
//!
//! **Invariants**
//! - The runs of one destination are about equally large. A remainder too small for its own run goes to the
//!   run before it, unless that one has become too large.
//! - When a leaf is rewritten, the old entries after a long stretch of new ones begin a run.

use testudo_base::PAGE_BYTES;

use crate::BeTreeOptions;

/// Inverse of the fraction of a run that is worth a run of its own.
const WORTH_A_RUN_PARTS: u64 = 2;
/// Halves of a full run at which the open one is cut, however little is left: the largest run that is about
/// as large as the others.
const LARGEST_RUN_HALVES: u64 = 3;

/// Decides, entry by entry, where runs end.
#[derive(Debug)]
pub(crate) struct RunCutter {
    options: BeTreeOptions,
    /// Approximate bytes of incoming entries, shadowed ones included.
    incoming: u64,
    /// Approximate maximum bytes of entries in a run.
    run_bytes: u64,
    /// Bytes of pages after which a run is checked.
    target: u64,
    /// Bytes of entries in all runs.
    written: u64,
    /// Those before the open run.
    written_before: u64,
    /// Trailing bytes of the open run that were not in the leaf before.
    new_bytes: u64,
}

impl RunCutter {
    /// Creates a cutter for about `incoming` bytes, in runs of at most about `run_bytes`.
    pub(crate) fn new(incoming: u64, run_bytes: u64, options: &BeTreeOptions) -> Self {
        debug_assert!(run_bytes > 0, "a run holds something");
        let runs = incoming.div_ceil(run_bytes).max(1);
        let target = (incoming / runs).clamp(1, run_bytes);
        Self::with_target(incoming, run_bytes, target, options)
    }

    /// Creates a cutter for a part of a leaf, with runs as large as those of the whole, of `whole` bytes.
    pub(crate) fn of_part(incoming: u64, whole: u64, options: &BeTreeOptions) -> Self {
        let of_whole = Self::new(whole, options.leaf_bytes, options);
        let runs = ((incoming + of_whole.target / 2) / of_whole.target).max(1);
        Self::with_target(incoming, of_whole.run_bytes, (incoming / runs).max(1), options)
    }

    fn with_target(incoming: u64, run_bytes: u64, target: u64, options: &BeTreeOptions) -> Self {
        debug_assert!(target > 0, "a run holds something");
        Self { options: *options, incoming, run_bytes, target, written: 0, written_before: 0, new_bytes: 0 }
    }

    /// Approximate size of a run.
    pub(crate) fn target(&self) -> u64 {
        self.target
    }

    /// Whether the open run ends before the next entry, which was already in the rewritten leaf. After a
    /// stretch of new entries, which may continue in order, the old ones become a separate leaf. Subsequent
    /// entries then come after a leaf, and that can stay. `passed`: bytes of entries read so far.
    pub(crate) fn cuts_before_old(&mut self, passed: u64) -> bool {
        let is_cut = self.new_bytes >= self.options.leaf_bytes / WORTH_A_RUN_PARTS
            && !self.options.fit_one_leaf(self.open_bytes() + self.left_bytes(passed));
        if is_cut {
            self.written_before = self.written;
        }
        is_cut
    }

    /// Records that the next entry begins a run for another reason.
    pub(crate) fn record_other_cut(&mut self) {
        self.written_before = self.written;
    }

    /// Records an entry written to the open run. `is_old`: it was already in the rewritten leaf.
    pub(crate) fn record_written(&mut self, entry_bytes: u64, is_old: bool) {
        self.written += entry_bytes;
        self.new_bytes = if is_old { 0 } else { self.new_bytes + entry_bytes };
        debug_assert!(self.new_bytes <= self.written, "new entries are among those written");
    }

    /// Whether the open run ends after the last entry written. `data_bytes`: those of its pages.
    pub(crate) fn cuts_after(&mut self, data_bytes: u64, passed: u64) -> bool {
        // Requires one full page: the current one may hold only a single entry.
        if data_bytes < PAGE_BYTES || data_bytes + PAGE_BYTES <= self.target {
            return false;
        }
        let is_rest_worth_a_run =
            self.incoming > self.run_bytes && self.left_bytes(passed) > self.target / WORTH_A_RUN_PARTS;
        let is_cut = is_rest_worth_a_run || self.open_bytes() >= self.run_bytes * LARGEST_RUN_HALVES / 2;
        if is_cut {
            (self.written_before, self.new_bytes) = (self.written, 0);
        }
        is_cut
    }

    /// Bytes of entries in the open run.
    fn open_bytes(&self) -> u64 {
        debug_assert!(self.written_before <= self.written, "written bytes only grow");
        self.written - self.written_before
    }

    /// Estimates the bytes still to be written, assuming the same fraction of shadowed entries as so far.
    fn left_bytes(&self, passed: u64) -> u64 {
        let left = u128::from(self.incoming.saturating_sub(passed)) * u128::from(self.written);
        u64::try_from(left / u128::from(passed.max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
