//! The turtle policy: which tiers an incoming batch joins, which pivots are flushed, what is split and joined.
//!
//! All of it is pure arithmetic over byte counts. The paper (TurtleKV §3.1.2, §3.2.1) has tiers of 1, 2, 4, 8 …
//! leaf-sized segments and flushes the fullest pivot once it has a leaf of bytes. Here the sizes go on below one
//! leaf, so that a keyspace that gets a few kilobytes per checkpoint rewrites a few kilobytes, not a leaf. And they end at an
//! eighth of a node's buffer: a larger tier would spare reads little and cost a rewrite of half of the buffer at once.
//!
//! Drains should be about equally long (decision 0024), so a node lets out what comes in, and no more: under even load all of its
//! children are due at the same time, and would otherwise be flushed in one go.
//!
//! **Invariants**
//! - After planning a node its buffer holds at most `L · (ρ − 1)` bytes, unless one pivot alone holds more.

/// Settings of the TurtleTree. The defaults suit memory budgets from 64 MiB up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurtleOptions {
    /// Bytes of a full leaf, and of a buffered run (L in the paper). Default 2 MiB: large enough for sequential
    /// I/O, small enough that a leaf rewrite is a few milliseconds.
    pub leaf_bytes: u64,
    /// Most children of a node (ρ in the paper). Default 64, as in the paper.
    pub max_pivots: usize,
}

/// Most tiers of a node: whatever passes the node looks into all of them.
const MAX_TIERS: usize = 12;
/// Bytes of merging that one look of a scan is worth.
const CHARGE_BYTES: u64 = 32 << 10;
/// Fewer looks than this say nothing.
const MIN_CHARGES: u32 = 32;

impl Default for TurtleOptions {
    fn default() -> Self {
        Self { leaf_bytes: 2 << 20, max_pivots: 64 }
    }
}

impl TurtleOptions {
    /// Size of the smallest tier class.
    fn unit_bytes(&self) -> u64 {
        (self.leaf_bytes / 32).max(1)
    }

    /// The class of a tier: 0 up to one unit, then +1 with each doubling.
    pub(crate) fn tier_class(&self, bytes: u64) -> u32 {
        let units = bytes.div_ceil(self.unit_bytes()).max(1);
        units.next_power_of_two().trailing_zeros()
    }

    /// Most bytes of a tier that merging makes; what comes in at once may be larger.
    fn max_merged_bytes(&self) -> u64 {
        self.max_buffered_bytes() / 8
    }

    /// How many of the existing tiers (`tier_bytes`, newest first) a new one of `bytes` is merged with: as long as
    /// the next older one is not of a greater class than what the merge has become, and the merge is not too large.
    pub(crate) fn tiers_to_merge(&self, bytes: u64, tier_bytes: &[u64]) -> usize {
        let mut total = bytes;
        let mut count = 0;
        for &next in tier_bytes {
            let is_too_large = total + next > self.max_merged_bytes();
            if is_too_large || self.tier_class(next) > self.tier_class(total) {
                break;
            }
            total += next;
            count += 1;
        }
        count
    }

    /// If a node has too many tiers (`tier_bytes`, newest first): the one that is merged with the next older one, so that least is written. Where
    /// some pivots get much and others little, tiers end as remnants that wait for those others, between tiers that are full.
    pub(crate) fn pair_to_merge(&self, tier_bytes: &[u64]) -> Option<usize> {
        let pairs = 0..tier_bytes.len().checked_sub(1).filter(|_| tier_bytes.len() > MAX_TIERS)?;
        pairs.min_by_key(|&newer| tier_bytes[newer] + tier_bytes[newer + 1])
    }

    /// Bytes that must wait for a pivot before it is worth a flush: a leaf of bytes, less for a leaf that is small.
    pub(crate) fn flush_threshold(&self, leaf_child_bytes: Option<u64>) -> u64 {
        match leaf_child_bytes {
            Some(bytes) => bytes.clamp(self.unit_bytes(), self.leaf_bytes),
            None => self.leaf_bytes,
        }
    }

    /// Most bytes that a node may buffer.
    pub(crate) fn max_buffered_bytes(&self) -> u64 {
        self.leaf_bytes * (testudo_base::num::u64_of(self.max_pivots) - 1)
    }

    /// Chooses the pivots to flush: those that have reached their threshold, first those that are farthest beyond it, until about as
    /// much flows out as came in, but at least one; beyond that only what the bound on the buffer asks for, the fullest first.
    pub(crate) fn pivots_to_flush(&self, incoming: u64, pending: &[u64], thresholds: &[u64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..pending.len()).filter(|&pivot| pending[pivot] > 0).collect();
        let is_due = |pivot: usize| pending[pivot] >= thresholds[pivot];
        let times = |pivot: usize, other: usize| u128::from(pending[pivot]) * u128::from(thresholds[other]);
        order.sort_by(|&a, &b| match (is_due(a), is_due(b)) {
            (true, true) => times(b, a).cmp(&times(a, b)),
            (false, false) => pending[b].cmp(&pending[a]),
            (a, b) => b.cmp(&a),
        });
        let mut buffered: u64 = pending.iter().sum();
        let mut flushed = 0u64;
        let mut chosen = Vec::new();
        for pivot in order {
            let has_room = flushed == 0 || flushed + pending[pivot] / 2 <= incoming;
            if !(is_due(pivot) && has_room) && buffered <= self.max_buffered_bytes() {
                continue;
            }
            chosen.push(pivot);
            flushed += pending[pivot];
            buffered -= pending[pivot];
        }
        chosen
    }

    /// Whether flushing so many bytes costs no more than the looks of scans that it would have saved. A look is a page
    /// read and a source more to merge, about what merging 32 KiB costs.
    pub(crate) fn scans_are_worth_a_flush(&self, charges: u32, bytes: u64) -> bool {
        charges >= MIN_CHARGES && u64::from(charges) * CHARGE_BYTES >= bytes
    }

    /// Whether two neighbouring leaves are worth joining.
    pub(crate) fn leaves_should_join(&self, left: u64, right: u64) -> bool {
        left.min(right) < self.leaf_bytes / 4 && left + right <= self.leaf_bytes / 4 * 3
    }

    /// Whether two neighbouring nodes are worth joining, by their number of pivots.
    pub(crate) fn nodes_should_join(&self, left: usize, right: usize) -> bool {
        left.min(right) <= (self.max_pivots / 4).max(1) && left + right <= self.max_pivots * 3 / 4
    }

    /// Into how many nodes this many pivots go.
    pub(crate) fn node_pieces(&self, pivots: usize) -> usize {
        if pivots <= self.max_pivots { 1 } else { pivots.div_ceil(self.max_pivots * 3 / 4) }
    }
}

#[cfg(test)]
mod tests;
