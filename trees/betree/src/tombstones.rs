//! When tombstones in the buffer of a node are worth a flush: plain arithmetic over runs.
//!
//! A tombstone ends, with what it deletes, in a leaf. On the way all that waits for that leaf comes with it,
//! and the leaf is written anew. So a pivot is flushed for the sake of tombstones only if what is saved is a
//! fair part of what is written below it. If it is not, they go down with everything else (decision 0060).
//!
//! **Invariants**
//! - A job takes pivots until it writes as much as it may, and none that is beyond that by itself.

use std::{ops::Range, sync::Arc};

use testudo_base::{PAGE_BYTES, num::u64_of, planted};
use testudo_run::Run;

use crate::{
    BeTreeOptions,
    trunk::node::{Child, Node},
};

/// What is written may be so many times what it saves …
const WORTH: u64 = 4;
/// … or this, while nothing comes in.
const WORTH_IF_IDLE: u64 = 16;
/// A run that has this part of tombstones is worth a look.
const HEAVY_PART: u64 = 4;
/// Bytes of a tombstone itself, at least.
const TOMBSTONE_BYTES: u64 = 8;
/// A flush for the sake of tombstones writes no more than about so much; where leaves are small, so many of
/// them.
const WRITTEN_MAX: u64 = 32 << 20;
const WRITTEN_LEAVES: u64 = 16;

/// How often what is flushed into a node is written, about.
const NODE_WRITES: u64 = 4;

/// Pivots of a node to be flushed for the sake of tombstones.
#[derive(Debug)]
pub(crate) struct WorthFlushing<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) pivots: Vec<usize>,
    /// About how many bytes end with them.
    pub(crate) saved_bytes: u64,
}

/// How much a flush for the sake of tombstones writes at most.
pub(crate) fn written_max(options: &BeTreeOptions) -> u64 {
    WRITTEN_MAX.min(options.leaf_bytes * WRITTEN_LEAVES)
}

/// The uppermost node with tombstones that are worth it, and what of it is flushed at once.
pub(crate) fn pick_tombstones<'a>(
    node: &'a Arc<Node>,
    options: &BeTreeOptions,
    is_idle: bool,
) -> Option<WorthFlushing<'a>> {
    let worth = if is_idle { WORTH_IF_IDLE } else { WORTH };
    let (mut pivots, mut saved_bytes, mut written) = (Vec::new(), 0, 0);
    // What waits is known by pages: fewer bytes than that may be as many.
    let waiting_min = if is_idle { PAGE_BYTES } else { 0 };
    let gains = gains_of(node, waiting_min);
    for (pivot, gain) in
        gains.iter().enumerate().filter(|(_, gain)| gain.tombstones > 0 || gain.dead_bytes > 0)
    {
        let child = &node.pivots[pivot].child;
        let pending = node.pending_of(pivot);
        let of_pivot = written_into(child, pending);
        let saved = gain.tombstones * (entry_bytes(child) + TOMBSTONE_BYTES);
        let most = saved.saturating_mul(worth);
        let ends_enough = saved > 0 && pending + leaf_bytes_below(child, most) <= most;
        let frees_enough = of_pivot <= gain.dead_bytes.saturating_mul(worth);
        let fits = written + of_pivot <= written_max(options) || planted!("tombstones-flushed-all-at-once");
        if (ends_enough || frees_enough) && fits {
            pivots.push(pivot);
            (saved_bytes, written) = (saved_bytes + saved + gain.dead_bytes, written + of_pivot);
        }
    }
    if !pivots.is_empty() {
        return Some(WorthFlushing { node, pivots, saved_bytes });
    }
    node.child_nodes().find_map(|child| pick_tombstones(child, options, is_idle))
}

/// What flushing a pivot gains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Gain {
    /// About so many tombstones go down.
    tombstones: u64,
    /// Of runs of which most was flushed: its part of what is free once the rest is.
    dead_bytes: u64,
}

/// The gains of all pivots by runs that have many tombstones, where no fewer bytes than `waiting_min` wait if
/// any do; none if there are no such runs.
fn gains_of(node: &Node, waiting_min: u64) -> Vec<Gain> {
    let mut gains = Vec::new();
    for tier in node.tiers.iter().filter(|tier| tier.runs.iter().any(|fenced| is_heavy(&fenced.run))) {
        gains.resize(node.pivots.len(), Gain::default());
        let ranges: Vec<Range<usize>> = tier.runs.iter().map(|fenced| pivots_of(node, &fenced.run)).collect();
        // Runs that reach into a pivot share what the tier has for it.
        let mut runs_of = vec![0_u64; node.pivots.len()];
        ranges.iter().cloned().flatten().for_each(|pivot| runs_of[pivot] += 1);
        let waiting_for = |pivot: usize| {
            let share = tier.shares[pivot].as_ref()?;
            Some((share.bytes / runs_of[pivot].max(1)).max(waiting_min))
        };
        for (fenced, range) in tier.runs.iter().zip(ranges).filter(|(fenced, _)| is_heavy(&fenced.run)) {
            let reference = fenced.run.reference();
            let bytes = reference.user_bytes.max(1);
            let active: Vec<(usize, u64)> =
                range.filter_map(|pivot| Some((pivot, waiting_for(pivot)?.min(bytes)))).collect();
            let waiting: u64 = active.iter().map(|(_, bytes)| bytes).sum();
            let dead = Some(bytes.saturating_sub(waiting)).filter(|dead| *dead * 2 >= bytes).unwrap_or(0);
            // More than all of the run cannot wait.
            let whole = bytes.max(waiting);
            for (pivot, waiting) in &active {
                let part = u128::from(reference.tombstones) * u128::from(*waiting) / u128::from(whole);
                gains[*pivot].tombstones += u64::try_from(part).unwrap_or(u64::MAX);
                gains[*pivot].dead_bytes += dead / u64_of(active.len());
            }
        }
    }
    gains
}

fn is_heavy(run: &Run) -> bool {
    let reference = run.reference();
    reference.tombstones > 0 && reference.tombstones * HEAVY_PART >= reference.entries
}

/// The pivots among whose keys a run has its own, as far as its ends say.
fn pivots_of(node: &Node, run: &Run) -> Range<usize> {
    let keys = &run.reference().keys;
    let up_to = |key: &[u8]| node.pivots.partition_point(|pivot| pivot.low.is_at_most(key));
    up_to(keys.first()).saturating_sub(1)..up_to(keys.last())
}

/// About how many bytes are written where so many are flushed into a child: a leaf becomes one with them; a
/// node merges them with no more of what it buffers, and lets about as many out, each into as much again.
fn written_into(child: &Child, pending: u64) -> u64 {
    match child {
        Child::Leaf(_) => pending + child.leaf_bytes().unwrap_or_default(),
        Child::Node(_) => pending * NODE_WRITES,
    }
}

/// Bytes of an entry of the first leaf below, on average.
fn entry_bytes(child: &Child) -> u64 {
    let of_run = |run: &Run| run.reference().user_bytes / run.reference().entries.max(1);
    match child {
        Child::Leaf(run) => run.as_ref().map_or(0, |run| of_run(run)),
        Child::Node(node) => {
            node.pivots.iter().map(|pivot| entry_bytes(&pivot.child)).find(|bytes| *bytes > 0).unwrap_or(0)
        }
    }
}

/// Bytes of the leaves below; not much more than `most` are counted.
fn leaf_bytes_below(child: &Child, most: u64) -> u64 {
    let Child::Node(node) = child else { return child.leaf_bytes().unwrap_or_default() };
    let mut bytes = 0;
    for pivot in &node.pivots {
        if bytes > most {
            break;
        }
        bytes += leaf_bytes_below(&pivot.child, most - bytes);
    }
    bytes
}
