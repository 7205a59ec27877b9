//! Estimates of steps that rewrite a run of the bottom together with entries buffered above it, to reclaim
//! space on a full device (decision 0032).
//!
//! **Invariants**
//! - A step for part of the buffered entries has the same part of their space and gain.
//! - A step is at most half of any failed attempt: repeating it terminates.

use testudo_base::{PAGE_BYTES, num::low64};
use testudo_contract::ReclaimLimits;
use testudo_run::RunRef;

use crate::{LEAST_RUN_BYTES, Overwrites, RUN_OVERHEAD_BYTES};

/// Minimum bytes of a step.
const PART_BYTES_MIN: u64 = 4 << 10;
/// Maximum space left by a step that grows the bottom: enough to rewrite runs that then contain garbage.
pub const REST_BYTES_MAX: u64 = 256 << 10;
/// Approximate size of a tombstone itself.
const TOMBSTONE_BYTES: u64 = 24;

/// Approximate totals of the entries buffered above a run of the bottom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingEntries {
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Size in pages.
    pub page_bytes: u64,
    /// Bytes of their runs other than data pages, if the step frees those.
    pub overhead_bytes: u64,
    /// Number of tombstones.
    pub tombstones: u64,
}

impl WaitingEntries {
    /// Adds a fraction `1 / parts` of `other`.
    #[must_use]
    pub fn and(self, other: Self, parts: u64) -> Self {
        debug_assert!(parts > 0, "a fraction");
        Self {
            bytes: self.bytes + other.bytes.div_ceil(parts),
            page_bytes: self.page_bytes + other.page_bytes.div_ceil(parts),
            overhead_bytes: self.overhead_bytes + other.overhead_bytes.div_ceil(parts),
            tombstones: self.tombstones + other.tombstones.div_ceil(parts),
        }
    }

    /// Scales `whole` to at most `bytes_max` of the bytes.
    fn part_of(&self, whole: u64, bytes_max: u64) -> u64 {
        scaled(bytes_max, whole, self.bytes)
    }
}

/// Bytes of a run's entries in pages; plain bytes if all are tombstones, which the bottom drops.
pub fn lasting_page_bytes(run: &RunRef) -> u64 {
    let is_lasting = run.tombstones < run.entries;
    if is_lasting { u64::from(run.data_pages) * PAGE_BYTES } else { run.user_bytes }
}

/// Inverse of the size of index and filter, as a fraction of a run's data: 12 bits for an entry, and a
/// separator for a page.
const INDEX_PARTS: u64 = 16;
/// Inverse of the error of estimates, as a fraction of them.
const ERROR_PARTS: u64 = 8;

/// Approximate space of a new run with `data_bytes` of entries in pages, index, filter and footer included.
pub fn run_space_bytes(data_bytes: u64) -> u64 {
    with_index_bytes(data_bytes) + LEAST_RUN_BYTES
}

/// The same without the size of a run with a single entry.
pub fn with_index_bytes(data_bytes: u64) -> u64 {
    data_bytes / INDEX_PARTS * (INDEX_PARTS + 1)
}

/// Upper bound on the space of a step that writes about `written_bytes`.
pub fn step_space_max(written_bytes: u64) -> u64 {
    written_bytes / ERROR_PARTS * (ERROR_PARTS + 1) + RUN_OVERHEAD_BYTES
}

/// Scales `whole` by `part / of`, at most 1.
pub fn scaled(part: u64, whole: u64, of: u64) -> u64 {
    let scaled = low64(u128::from(part.min(of)) * u128::from(whole) / u128::from(of.max(1)));
    debug_assert!(scaled <= whole, "a part is no more than the whole");
    scaled
}

/// A run of the bottom, or an empty range of it, that could be rewritten.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimEstimate {
    /// Stored bytes of the run.
    pub stored_bytes: u64,
    /// Mean bytes of its entries.
    entry_bytes: u64,
    /// Entries buffered above it.
    pub waiting: WaitingEntries,
    /// Bytes of overwrites among them.
    replacing_bytes: u64,
    /// Bytes to rewrite of upper runs that begin before its keys.
    pub head_bytes: u64,
}

/// Space and gain of a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimatedStep {
    /// Approximate bytes of buffered entries to flush, the first in key order.
    pub waiting_max: u64,
    /// Approximate space that the step takes before it releases any.
    pub space_bytes: u64,
    /// Approximate net space that the step reclaims.
    pub gain_bytes: u64,
}

impl ReclaimEstimate {
    /// Creates the estimate for a run; `None`: for a range of keys without one.
    pub fn new(
        run: Option<&RunRef>,
        waiting: WaitingEntries,
        overwrites: Overwrites,
        head_bytes: u64,
    ) -> Self {
        let stored_bytes = run.map_or(0, RunRef::stored_bytes);
        let entry_bytes = run.map_or(0, |run| run.stored_bytes() / run.entries.max(1));
        let replacing_bytes = overwrites.between(0, waiting.bytes).min(stored_bytes);
        Self { stored_bytes, entry_bytes, waiting, replacing_bytes, head_bytes }
    }

    /// Whether any entries are buffered above it.
    pub fn waits(&self) -> bool {
        self.waiting.bytes > 0
    }

    /// Bytes written, without any gain, when about `waiting_max` of the buffered bytes are flushed.
    pub fn written_bytes(&self, waiting_max: u64) -> u64 {
        self.stored_bytes + self.waiting.part_of(self.waiting.page_bytes, waiting_max)
    }

    /// Returns the step in which about `waiting_max` of the buffered bytes are flushed.
    pub fn step(&self, waiting_max: u64) -> EstimatedStep {
        let removed_bytes = self.waiting.tombstones * (self.entry_bytes + TOMBSTONE_BYTES);
        let gain_bytes = self.waiting.part_of(removed_bytes + self.replacing_bytes, waiting_max);
        let written_bytes = self.written_bytes(waiting_max);
        let gain_bytes = gain_bytes.min(written_bytes);
        let space_bytes = run_space_bytes(written_bytes - gain_bytes) + self.head_bytes;
        let overhead_bytes = self.waiting.part_of(self.waiting.overhead_bytes, waiting_max);
        let gain_bytes = (gain_bytes + overhead_bytes).saturating_sub(self.head_bytes);
        EstimatedStep { waiting_max, space_bytes, gain_bytes }
    }

    /// Returns the step for all buffered entries, without upper runs to rewrite.
    pub fn whole_step(&self) -> EstimatedStep {
        Self { head_bytes: 0, ..*self }.step(u64::MAX)
    }

    /// Returns the largest step that fits, and that is at most half of any failed attempt. `tried`: the
    /// `waiting_max` of each of those. A step after which the run is larger than before leaves `rest_bytes`:
    /// its gain in upper runs is realized only when those are garbage or rewritten.
    pub fn largest_step(
        &self,
        limits: &ReclaimLimits<'_>,
        tried: impl Iterator<Item = u64>,
        rest_bytes: u64,
    ) -> Option<EstimatedStep> {
        // Half, so that repeated attempts end after a few.
        let half_of = |waiting_max: u64| waiting_max.min(self.waiting.bytes) / 2;
        let mut waiting_max = tried.map(half_of).min().unwrap_or(u64::MAX);
        while waiting_max >= PART_BYTES_MIN {
            let step = self.step(waiting_max);
            let rest_bytes = if step.space_bytes > self.stored_bytes { rest_bytes } else { 0 };
            if step.space_bytes + rest_bytes <= limits.space_bytes {
                return Some(step);
            }
            waiting_max = half_of(waiting_max);
        }
        None
    }
}

#[cfg(test)]
mod tests;
