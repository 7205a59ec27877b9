//! Where the runs of a destination are cut: pure arithmetic over bytes.
//!
//! Bytes of entries decide how large a run becomes, bytes of pages only when it is looked at: leaves that are
//! joined because they hold little must not be cut again for what fills up their pages.
//!
//! **Invariants**
//! - The runs of one destination are about equally large. A rest that is not worth a run of its own goes to
//!   the run before it, unless that one has become too large.
//! - Where a leaf is rewritten, the old entries behind a long stretch of new ones begin a run.

use testudo_base::PAGE_BYTES;

use crate::BeTreeOptions;

/// Decides, entry by entry, after which of them a run ends.
#[derive(Debug)]
pub(crate) struct RunCutter {
    options: BeTreeOptions,
    /// About how many bytes of entries flow in, shadowed ones included.
    incoming: u64,
    /// Bytes of entries in a run, at most about.
    run_bytes: u64,
    /// Bytes of pages after which a run is looked at.
    target: u64,
    /// Bytes of entries in all runs.
    written: u64,
    /// Those of them that lie before the open run.
    written_before: u64,
    /// Those at the end of the open run that the leaf did not hold before.
    new_bytes: u64,
}

impl RunCutter {
    /// For a destination into which about so many bytes flow, and whose runs have about `run_bytes` at most.
    pub(crate) fn new(incoming: u64, run_bytes: u64, options: &BeTreeOptions) -> Self {
        debug_assert!(run_bytes > 0, "a run holds something");
        let runs = incoming.div_ceil(run_bytes).max(1);
        let target = (incoming / runs).clamp(1, run_bytes);
        Self::with_target(incoming, run_bytes, target, options)
    }

    /// For a part of a leaf, which becomes runs as large as those of the whole, of so many bytes, would be.
    pub(crate) fn of_part(incoming: u64, whole: u64, options: &BeTreeOptions) -> Self {
        let of_whole = Self::new(whole, options.leaf_bytes, options);
        let runs = ((incoming + of_whole.target / 2) / of_whole.target).max(1);
        Self::with_target(incoming, of_whole.run_bytes, (incoming / runs).max(1), options)
    }

    fn with_target(incoming: u64, run_bytes: u64, target: u64, options: &BeTreeOptions) -> Self {
        Self { options: *options, incoming, run_bytes, target, written: 0, written_before: 0, new_bytes: 0 }
    }

    /// About how many bytes a run will have.
    pub(crate) fn target(&self) -> u64 {
        self.target
    }

    /// Whether the open run ends before the next entry, which the leaf that is rewritten held already. Behind
    /// a stretch of what has come in, which may go on in order, the old becomes a leaf of its own: what comes
    /// next then comes behind a leaf, and that can stay. `passed`: bytes of entries that were read so far.
    pub(crate) fn cuts_before_old(&mut self, passed: u64) -> bool {
        let is_cut = self.new_bytes >= self.options.leaf_bytes / 2
            && !self.options.fit_one_leaf(self.open_bytes() + self.left_bytes(passed));
        if is_cut {
            self.written_before = self.written;
        }
        is_cut
    }

    /// The next entry to be written begins a run, whatever was decided here.
    pub(crate) fn record_other_cut(&mut self) {
        self.written_before = self.written;
    }

    /// An entry was written to the open run. `is_old`: the leaf that is rewritten held it already.
    pub(crate) fn record_written(&mut self, entry_bytes: u64, is_old: bool) {
        self.written += entry_bytes;
        self.new_bytes = if is_old { 0 } else { self.new_bytes + entry_bytes };
    }

    /// Whether the open run ends after the entry that was written last. `data_bytes`: those of its pages.
    pub(crate) fn cuts_after(&mut self, data_bytes: u64, passed: u64) -> bool {
        // A page at least is full: the one that is being filled may hold a single entry yet.
        if data_bytes < PAGE_BYTES || data_bytes + PAGE_BYTES <= self.target {
            return false;
        }
        let is_rest_worth_a_run = self.incoming > self.run_bytes && self.left_bytes(passed) > self.target / 2;
        let is_cut = is_rest_worth_a_run || self.open_bytes() >= self.run_bytes * 3 / 2;
        if is_cut {
            (self.written_before, self.new_bytes) = (self.written, 0);
        }
        is_cut
    }

    /// Bytes of entries in the open run.
    fn open_bytes(&self) -> u64 {
        debug_assert!(self.written_before <= self.written, "what was written stays written");
        self.written - self.written_before
    }

    /// About how many bytes are yet to be written, if as much of them is shadowed as of what was passed.
    fn left_bytes(&self, passed: u64) -> u64 {
        let left = u128::from(self.incoming.saturating_sub(passed)) * u128::from(self.written);
        u64::try_from(left / u128::from(passed.max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
