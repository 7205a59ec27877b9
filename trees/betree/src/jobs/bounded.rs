//! The smallest units of a tree's work, which a job does even if they exceed its limit.
//!
//! The bytes of a unit are those that it reads: it writes no more entries than that.
//!
//! | job | smallest unit |
//! |---|---|
//! | flush into a leaf | the leaf, and the entries of one tier for it |
//! | flush into a node | the entries of one tier for it |
//! | merge | the two smallest adjacent tiers of a node that has too many |
//! | join of leaves | three quarters of a full leaf |
//! | step of a range compaction | a leaf, and everything buffered on the path to it |
//!
//! A leaf is up to twice a full one, or one entry. Of at least twelve tiers, the two smallest adjacent ones
//! are at most a sixth of the buffer, and what is buffered for a leaf is about as much as the leaf.
//!
//! **Invariants**
//! - The bound covers all of them.

use std::ops::RangeInclusive;

use crate::{
    BeTreeOptions,
    jobs::Load,
    trunk::node::{Child, Node},
};

/// Returns the largest of the smallest units in the tree below `root`.
pub(crate) fn largest_unit(root: &Node, options: &BeTreeOptions) -> u64 {
    options.leaf_bytes.max(unit_below(root, options, 0))
}

/// `path_bytes`: bytes buffered on the path to the node.
fn unit_below(node: &Node, options: &BeTreeOptions, path_bytes: u64) -> u64 {
    let load = Load::of(node);
    let smallest_pair = options.tiers_to_merge(node.id, &load.tier_bytes(), 0);
    let merge = smallest_pair.map_or(0, |pair| load.tier_bytes()[pair].iter().sum());
    let below = node.pivots.iter().zip(&load.pending).map(|(pivot, pending)| match &pivot.child {
        Child::Node(child) => unit_below(child, options, path_bytes + pending),
        leaf @ Child::Leaf(_) => path_bytes + pending + leaf.leaf_bytes().unwrap_or_default(),
    });
    below.max().unwrap_or_default().max(merge)
}

/// Returns the newest part of `tiers` that is at most `bytes_max` and at least two tiers.
pub(crate) fn part_within(
    tiers: RangeInclusive<usize>,
    tier_bytes: &[u64],
    bytes_max: u64,
) -> Option<RangeInclusive<usize>> {
    let (newest, mut oldest) = (*tiers.start(), *tiers.end());
    while oldest > newest && tier_bytes[newest..=oldest].iter().sum::<u64>() > bytes_max {
        oldest -= 1;
    }
    (oldest > newest).then_some(newest..=oldest)
}
