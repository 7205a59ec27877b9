//! The splinter policy: size-tiered and lazy (SplinterDB §2.3, §3).
//!
//! An incoming flow becomes a tier of its own. Tiers are merged only when a node has too many, and then up to
//! eight at once. So a byte is rewritten about once for each eightfold growth of its tier. The merged tiers
//! are the adjacent ones whose largest is smallest per tier saved: as a rule tiers of similar size. Using
//! total bytes instead of the largest tier writes up to twice as much. The limit differs between nodes and
//! trees, because nodes with equal flows would otherwise merge in the same round (decision 0024).
//!
//! A leaf is rewritten as often as its space limit requires. Its buffered entries may be several times its
//! size if they are new. If they overwrite the leaf's entries, those are garbage until the flush, so the
//! limit is lower.
//!
//! Updates only add tiers, unless that would be wasted work. Jobs do the work this makes due, starting with
//! the node under most pressure (SplinterDB §3.2: flush-then-compact).
//!
//! **Invariants**
//! - The bound on a node's buffer is between three sixteenths and all of the bytes in its leaves, or less
//!   with separated values.

use std::{cmp::Reverse, ops::RangeInclusive};

use testudo_base::{
    ObjectId,
    num::{low64, u64_of},
};

use super::{BeTreeOptions, DueWork, NodeLoad, NodeWork, turtle};
use testudo_sequence::Overwrites;

/// Number of tiers merged at once (F in the paper).
const FAN_IN: usize = 8;
/// A record is rewritten about once for each eightfold growth of its tier.
pub(super) const REWRITES_PER_DOUBLING: f64 = 1.0 / 3.0;
/// Minimum limit on the number of tiers of a node.
const MAX_TIERS: u64 = 12;
/// Maximum bytes flushed at once; up to that, about as much as came in last.
const DUE_BYTES_MAX: u64 = 16 << 20;
/// Denominator of fractions of a leaf.
const SIXTEENTHS: u64 = 16;
/// A node buffers the average size of its leaves if all entries are new, and this many sixteenths of it if
/// all are overwrites …
const BUFFERED_IF_OVERWRITING: u64 = 3;
/// … but at least one in this many bytes of it, however small the tree's own share is.
const BUFFERED_PARTS_MAX: u64 = 32;

/// A pivot is due at these halves of what is allowed on average. Twice that would be it if each pivot were
/// flushed when it is due; a sweep also takes some that are not yet.
const DUE_HALVES: u64 = 5;
/// Inverse of the maximum fraction of a leaf that an idle tree keeps buffered for it under overwrites; a
/// whole leaf if entries are new.
const IDLE_PARTS_IF_OVERWRITING: u64 = 4;
/// Approximate maximum of bytes written by one idle job, unless a single leaf is larger.
const IDLE_BYTES_MAX: u64 = 16 << 20;
/// Leaves of bytes written by one idle job.
const IDLE_LEAVES: u64 = 4;

/// Maximum number of tiers that a node should have.
pub(super) fn most_tiers(stagger: u64) -> u64 {
    MAX_TIERS + stagger % u64_of(FAN_IN)
}

/// Returns the adjacent tiers whose largest is smallest per tier saved, up to `bytes_max` unless two tiers
/// are more. `stagger`: the node's own offset.
pub(super) fn tiers_to_merge(
    stagger: u64,
    tier_bytes: &[u64],
    bytes_max: u64,
) -> Option<RangeInclusive<usize>> {
    let count = tier_bytes.len();
    if u64_of(count) <= most_tiers(stagger) {
        return None;
    }
    let saved = |window: &RangeInclusive<usize>| u64_of(window.end() - window.start());
    let largest =
        |window: &RangeInclusive<usize>| tier_bytes[window.clone()].iter().max().copied().unwrap_or(0);
    let windows_from =
        |newest: usize| (newest + 1..count.min(newest + FAN_IN)).map(move |oldest| newest..=oldest);
    let bytes = |window: &RangeInclusive<usize>| tier_bytes[window.clone()].iter().sum::<u64>();
    let windows = (0..count).flat_map(windows_from).filter(|window| bytes(window) <= bytes_max);
    debug_assert!(count > 1, "the limit is more than one tier");
    let best = windows.min_by_key(|window| (largest(window) / saved(window), Reverse(saved(window))));
    best.or_else(|| (1..count).map(|older| older - 1..=older).min_by_key(bytes))
}

/// A leaf is due when two and a half times the average over all leaves is buffered for it; other children are
/// due at a leaf of bytes.
pub(super) fn thresholds(options: &BeTreeOptions, load: &NodeLoad<'_>) -> (Vec<u64>, u64) {
    let overwrites = load.overwrites.or_more(options.inflow);
    let waiting_bytes = |leaf_bytes: u64| {
        let if_new = options.tree_share.waiting_if_new(leaf_bytes);
        let if_overwriting = options.tree_share.waiting(leaf_bytes * BUFFERED_IF_OVERWRITING / SIXTEENTHS);
        overwrites.between(if_new, if_overwriting).max(leaf_bytes / BUFFERED_PARTS_MAX)
    };
    let mut bound = 0;
    let mut threshold = |leaf_bytes: &Option<u64>| {
        let Some(bytes) = leaf_bytes else {
            bound += options.leaf_bytes;
            return options.leaf_bytes;
        };
        let allowed = waiting_bytes((*bytes).max(options.unit_bytes()));
        bound += allowed;
        allowed * DUE_HALVES / 2
    };
    let thresholds: Vec<u64> = load.leaf_bytes.iter().map(&mut threshold).collect();
    debug_assert!(
        bound <= thresholds.iter().fold(0, |sum: u64, threshold| sum.saturating_add(*threshold)),
        "pivots at their thresholds exceed the bound"
    );
    (thresholds, bound)
}

/// Maximum buffer size of a node if all entries are new: the bytes of its leaves.
pub(super) fn max_buffered_bytes(options: &BeTreeOptions, leaf_bytes: &[Option<u64>]) -> u64 {
    let of = |leaf_bytes: &Option<u64>| {
        leaf_bytes.map_or(options.leaf_bytes, |bytes| bytes.max(options.unit_bytes()))
    };
    leaf_bytes.iter().map(of).sum()
}

/// Work due in a node; merging too many tiers comes first, since every query searches them.
pub(super) fn due_work(
    options: &BeTreeOptions,
    node: ObjectId,
    tier_bytes: &[u64],
    load: &NodeLoad<'_>,
    bytes_max: u64,
) -> Option<DueWork> {
    let flush = || {
        let incoming = tier_bytes.first().map_or(0, |newest| (*newest).min(DUE_BYTES_MAX));
        let pivots = options.pivots_to_flush(&NodeLoad { incoming, ..*load });
        (!pivots.is_empty()).then_some(NodeWork::Flush(pivots))
    };
    let work = options.tiers_to_merge(node, tier_bytes, bytes_max).map(NodeWork::Merge).or_else(flush)?;
    let part_of =
        |some: u64, most: u64| low64(u128::from(some) * u128::from(DueWork::FULL) / u128::from(most.max(1)));
    let (_, bound) = thresholds(options, load);
    let of_tiers = part_of(u64_of(tier_bytes.len()), most_tiers(options.stagger_of(node)));
    Some(DueWork { work, pressure: of_tiers.max(part_of(load.pending.iter().sum(), bound)) })
}

/// Work that brings the node to the state of the turtle policy: first fewer buffered bytes, above all
/// overwrites, then fewer tiers. Each job writes about four leaves of bytes.
pub(super) fn idle_work(
    options: &BeTreeOptions,
    tier_bytes: &[u64],
    load: &NodeLoad<'_>,
) -> Option<NodeWork> {
    let is_due = |pivot: &usize| {
        let allowed = load.leaf_bytes[*pivot].map_or(options.leaf_bytes, |bytes| {
            let bytes = bytes.clamp(options.unit_bytes(), options.leaf_bytes);
            load.overwrites.between(bytes, bytes / IDLE_PARTS_IF_OVERWRITING)
        });
        load.pending[*pivot] > allowed
    };
    let mut written = 0;
    let bytes_max = (options.leaf_bytes * IDLE_LEAVES).min(IDLE_BYTES_MAX);
    let has_room = |pivot: &usize| {
        let has_room = written < bytes_max;
        // The cost below a node is unknown: it is flushed alone.
        let below = load.leaf_bytes[*pivot].unwrap_or(bytes_max);
        written += load.pending[*pivot] + below;
        has_room
    };
    let due: Vec<usize> = (0..load.pending.len()).filter(is_due).take_while(has_room).collect();
    if !due.is_empty() {
        return Some(NodeWork::Flush(due));
    }
    let with_older = |newest: usize| {
        let older = &tier_bytes[newest + 1..];
        turtle::tiers_to_join(options, tier_bytes[newest], older, Overwrites::UNKNOWN)
    };
    let joins = (0..tier_bytes.len()).map(|newest| newest..=newest + with_older(newest));
    joins.into_iter().find(|which| which.start() < which.end()).map(NodeWork::Merge)
}

#[cfg(test)]
mod tests;
