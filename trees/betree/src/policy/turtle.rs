//! The turtle policy: a new tier is merged as in a binary counter, and a pivot is flushed once it has a leaf
//! of bytes.
//!
//! The paper (TurtleKV §3.1.2, §3.2.1) has tiers of 1, 2, 4, 8 … leaf-sized segments. Here the sizes go
//! on below one leaf, so that a keyspace that gets a few kilobytes per checkpoint rewrites a few kilobytes,
//! not a leaf. And they end at an eighth of a node's buffer: a larger tier would spare reads little and cost
//! a rewrite of half of the buffer at once.
//!
//! Where what comes in replaces what leaves hold, either the old or the new is dead weight until they meet.
//! So three eighths as much wait there as in the paper, and are merged less in return (decision 0029). What
//! still waits goes down once the tree is idle.
//!
//! **Invariants**
//! - The bound on a node's buffer is `L · (ρ − 1)` bytes, or less where it overwrites, or where values
//!   lie outside the tree.

use std::ops::RangeInclusive;

use testudo_base::num::u64_of;

use super::{BeTreeOptions, NodeLoad, NodeWork};
use testudo_sequence::Overwrites;

/// Shares of a leaf are counted in these.
const SIXTEENTHS: u64 = 16;
/// Of a leaf, what waits for it before it is rewritten, if all of that replaces something.
const WAITING_IF_OVERWRITING: u64 = 6;
/// No less than this part of a leaf waits for it, however little of its pairs the tree has: at half of it
/// workload A of records of 2,100 bytes is a twelfth slower.
const WAITING_PARTS_MAX: u64 = 8;
/// Parts of a node's buffer that a tier is merged up to, if everything is new.
const TIERS_IF_NEW: u64 = 8;
/// The same if everything replaces something: less waits then, and merging it less pays for rewriting leaves
/// more often.
const TIERS_IF_OVERWRITING: u64 = 32;
/// Leaves of bytes that one piece of idle work writes.
const IDLE_LEAVES: u64 = 4;
/// Most tiers of a node: whatever passes the node looks into all of them.
const MAX_TIERS: usize = 12;

/// A carry goes through all tiers that it fills at once, as in a binary counter, so a record is rewritten
/// for about every second doubling.
pub(super) const REWRITES_PER_DOUBLING: f64 = 0.5;

/// The class of a tier: 0 up to one unit, then +1 with each doubling.
fn tier_class(options: &BeTreeOptions, bytes: u64) -> u32 {
    let units = bytes.div_ceil(options.unit_bytes()).max(1);
    units.next_power_of_two().trailing_zeros()
}

/// Most bytes that a node may buffer if all of it is new.
pub(super) fn max_buffered_bytes(options: &BeTreeOptions) -> u64 {
    debug_assert!(options.max_pivots > 1, "a node has more than one child");
    options.leaf_bytes * (u64_of(options.max_pivots) - 1)
}

/// Those that follow as long as the next older one is not of a greater class than what the merge has become,
/// and the merge is not too large; what comes in at once may be larger.
pub(super) fn tiers_to_join(
    options: &BeTreeOptions,
    bytes: u64,
    older: &[u64],
    overwrites: Overwrites,
) -> usize {
    let buffered = max_buffered_bytes(options);
    let bytes_max = overwrites.surely().between(buffered / TIERS_IF_NEW, buffered / TIERS_IF_OVERWRITING);
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
    count
}

/// The two neighbours that hold least. Where some pivots get much and others little, tiers end as remnants
/// that wait for those others, between tiers that are full.
pub(super) fn tiers_to_merge(tier_bytes: &[u64]) -> Option<RangeInclusive<usize>> {
    let pairs = 0..tier_bytes.len().checked_sub(1).filter(|_| tier_bytes.len() > MAX_TIERS)?;
    pairs.min_by_key(|&newer| tier_bytes[newer] + tier_bytes[newer + 1]).map(|newer| newer..=newer + 1)
}

/// From how many bytes on each pivot is worth a flush: a leaf of bytes, less for a leaf that is small; and
/// the bound.
pub(super) fn thresholds(options: &BeTreeOptions, load: &NodeLoad<'_>) -> (Vec<u64>, u64) {
    let threshold = |leaf_bytes: &Option<u64>| match leaf_bytes {
        Some(bytes) => {
            let bytes = (*bytes).clamp(options.unit_bytes(), options.leaf_bytes);
            waiting_bytes(options, load.overwrites, bytes)
        }
        None => options.leaf_bytes,
    };
    let thresholds: Vec<u64> = load.leaf_bytes.iter().map(threshold).collect();
    let if_overwriting = thresholds.iter().sum::<u64>() / 2;
    let bound = max_buffered_bytes(options);
    let bound = match options.tree_share.is_minor() {
        true => bound.min(if_overwriting),
        false => load.overwrites.surely().between(bound, bound.min(if_overwriting)),
    };
    (thresholds, bound)
}

/// What of a leaf of so many bytes may wait for it where so much overwrites.
fn waiting_bytes(options: &BeTreeOptions, overwrites: Overwrites, bytes: u64) -> u64 {
    let if_new = options.tree_share.waiting_if_new(bytes);
    let if_overwriting = options.tree_share.waiting(bytes * WAITING_IF_OVERWRITING / SIXTEENTHS);
    overwrites.surely().between(if_new, if_overwriting).max(bytes / WAITING_PARTS_MAX).max(1)
}

/// What is flushed of an idle node: what waits for leaves in which it replaces something.
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
