//! The turtle policy: tiers are merged as in a binary counter, and a pivot is flushed once a leaf of bytes is
//! buffered for it.
//!
//! The paper (TurtleKV §3.1.2, §3.2.1) has tiers of 1, 2, 4, 8 … leaf-sized segments. Here the sizes
//! continue below one leaf, so that a keyspace that gets a few kilobytes per checkpoint rewrites a few
//! kilobytes, not a leaf; below a thirty-second of a leaf, four tiers are merged at once. And they end at an
//! eighth of a node's buffer: a larger tier would save reads little and cost a rewrite of half of the buffer
//! at once.
//!
//! Where incoming entries overwrite those of leaves, one of the two is garbage until they meet. So only three
//! eighths of the paper's amount is buffered there, and is merged less in return (decision 0029). The rest is
//! flushed once the tree is idle.
//!
//! **Invariants**
//! - The bound on a node's buffer is `L · (ρ − 1)` bytes, or less under overwrites, or with separated
//!   values.

use std::ops::RangeInclusive;

use testudo_base::num::u64_of;

use super::{BeTreeOptions, NodeLoad, NodeWork};
use testudo_sequence::Overwrites;

/// Denominator of fractions of a leaf.
const SIXTEENTHS: u64 = 16;
/// Sixteenths of a leaf buffered for it before it is rewritten, if all are overwrites.
const WAITING_IF_OVERWRITING: u64 = 6;
/// Inverse of the minimum fraction of a leaf that is buffered for it, however small the tree's own share is:
/// at half of that, workload A with records of 2,100 bytes is a twelfth slower.
const WAITING_PARTS_MAX: u64 = 8;
/// Inverse of the fraction of a node's buffer up to which tiers are merged, if all entries are new.
const TIERS_IF_NEW: u64 = 8;
/// The same if all are overwrites: less is buffered then, and merging it less pays for rewriting leaves more
/// often.
const TIERS_IF_OVERWRITING: u64 = 32;
/// Inverse of the mean fill of pivots, as a fraction of their thresholds, in a sweep: half.
const FILLED_PARTS: u64 = 2;
/// Leaves of bytes written by one idle job.
const IDLE_LEAVES: u64 = 4;
/// Number of tiers below one unit that are merged together. Each flush of one of thousands of small
/// keyspaces would otherwise read and rewrite the whole keyspace. With twice as many, a process of 4,096
/// keyspaces takes a sixth more memory for its runs.
const SMALL_TIERS: usize = 4;
/// Maximum number of tiers per node: every read through the node searches all of them.
pub(super) const MAX_TIERS: u64 = 12;

/// A carry merges all tiers that it fills at once, as in a binary counter, so a record is rewritten for about
/// every second doubling.
pub(super) const REWRITES_PER_DOUBLING: f64 = 0.5;

/// Class of a tier: 0 up to one unit, then +1 with each doubling.
fn tier_class(options: &BeTreeOptions, bytes: u64) -> u32 {
    let units = bytes.div_ceil(options.unit_bytes()).max(1);
    units.next_power_of_two().trailing_zeros()
}

/// Maximum buffer size of a node if all entries are new.
pub(super) fn max_buffered_bytes(options: &BeTreeOptions) -> u64 {
    debug_assert!(options.max_pivots > 1, "a node has more than one child");
    options.leaf_bytes * (u64_of(options.max_pivots) - 1)
}

/// Joins older tiers as long as the next one is not of a greater class than the merge so far, and the merge
/// is not too large; incoming data alone may exceed that.
pub(super) fn tiers_to_join(
    options: &BeTreeOptions,
    bytes: u64,
    older: &[u64],
    overwrites: Overwrites,
) -> usize {
    let buffered = max_buffered_bytes(options);
    let bytes_max = overwrites.surely().between(buffered / TIERS_IF_NEW, buffered / TIERS_IF_OVERWRITING);
    let is_small = |bytes: u64| tier_class(options, bytes) == 0;
    let small = older.iter().take_while(|bytes| is_small(**bytes)).count();
    if is_small(bytes) && small + 1 < SMALL_TIERS {
        return 0;
    }
    let mut total = bytes;
    let mut count = 0;
    for &next in older {
        let is_too_large = total + next > bytes_max;
        if is_too_large || tier_class(options, next) > tier_class(options, total) {
            break;
        }
        total += next;
        count += 1;
    }
    debug_assert!(count == 0 || total <= bytes_max, "a merge with older tiers is bounded");
    count
}

/// Returns the two adjacent tiers with the fewest bytes. Under skew, remnants of tiers wait for the cold
/// pivots, between tiers that are full.
pub(super) fn tiers_to_merge(tier_bytes: &[u64]) -> Option<RangeInclusive<usize>> {
    let pairs = 0..tier_bytes.len().checked_sub(1).filter(|_| u64_of(tier_bytes.len()) > MAX_TIERS)?;
    pairs.min_by_key(|&newer| tier_bytes[newer] + tier_bytes[newer + 1]).map(|newer| newer..=newer + 1)
}

/// Returns the buffered bytes at which each pivot is worth a flush (a leaf of bytes, less for a small leaf),
/// and the bound.
pub(super) fn thresholds(options: &BeTreeOptions, load: &NodeLoad<'_>) -> (Vec<u64>, u64) {
    let threshold = |leaf_bytes: &Option<u64>| match leaf_bytes {
        Some(bytes) => {
            let bytes = (*bytes).clamp(options.unit_bytes(), options.leaf_bytes);
            waiting_bytes(options, load.overwrites, bytes)
        }
        None => options.leaf_bytes,
    };
    let thresholds: Vec<u64> = load.leaf_bytes.iter().map(threshold).collect();
    let if_overwriting = thresholds.iter().sum::<u64>() / FILLED_PARTS;
    let bound = max_buffered_bytes(options);
    let bound = match options.tree_share.is_minor() {
        true => bound.min(if_overwriting),
        false => load.overwrites.surely().between(bound, bound.min(if_overwriting)),
    };
    debug_assert!(thresholds.iter().all(|threshold| *threshold > 0), "an empty pivot is not due");
    debug_assert!(bound <= max_buffered_bytes(options), "the bound is at most L (ρ − 1), TurtleKV §3.2");
    (thresholds, bound)
}

/// Bytes that may be buffered for a leaf of `bytes`, given its overwrites.
fn waiting_bytes(options: &BeTreeOptions, overwrites: Overwrites, bytes: u64) -> u64 {
    let if_new = options.tree_share.waiting_if_new(bytes);
    let if_overwriting = options.tree_share.waiting(bytes * WAITING_IF_OVERWRITING / SIXTEENTHS);
    overwrites.surely().between(if_new, if_overwriting).max(bytes / WAITING_PARTS_MAX).max(1)
}

/// Flushes pivots of an idle node whose buffered entries overwrite those of leaves.
pub(super) fn idle_work(options: &BeTreeOptions, load: &NodeLoad<'_>) -> Option<NodeWork> {
    if !load.overwrites.surely().is_half() {
        return None;
    }
    let is_due = |pivot: &usize| {
        let leaf_bytes = load.leaf_bytes[*pivot];
        leaf_bytes.is_some_and(|bytes| load.pending[*pivot] > (bytes / SIXTEENTHS).max(options.unit_bytes()))
    };
    let mut written = 0;
    let has_room = |pivot: &usize| {
        let has_room = written < options.leaf_bytes * IDLE_LEAVES;
        written += load.pending[*pivot] + load.leaf_bytes[*pivot].unwrap_or_default();
        has_room
    };
    let due: Vec<usize> = (0..load.pending.len()).filter(is_due).take_while(has_room).collect();
    (!due.is_empty()).then_some(NodeWork::Flush(due))
}

#[cfg(test)]
mod tests;
