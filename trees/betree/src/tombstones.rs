//! When tombstones in the buffer of a node are worth a flush: plain arithmetic over runs.
//!
//! A tombstone is dropped, with the entries it deletes, in a leaf. Everything buffered for that leaf is
//! flushed with it, and the leaf is rewritten. So a pivot is flushed for its tombstones only if the savings
//! are a fair fraction of the bytes written. Otherwise they go down with everything else (decision 0060).
//!
//! **Invariants**
//! - A job takes pivots up to its write limit, and none that exceeds the limit by itself.

use std::{ops::Range, sync::Arc};

use testudo_base::{PAGE_BYTES, num::u64_of, planted};
use testudo_run::Run;
use testudo_sequence::{
    TOMBSTONE_BYTES_MIN, has_many_tombstones, tombstone_job_bytes_max, written_per_saved,
};

use crate::{
    BeTreeOptions,
    trunk::node::{Child, Node},
};

/// The garbage of a run counts if it is at least one in this many of its bytes: less is not freed soon.
const MOSTLY_DEAD_PART: u64 = 2;
/// Approximate number of times that data flushed into a node is written.
const NODE_WRITES: u64 = 4;

/// Pivots of a node to flush for their tombstones.
#[derive(Debug)]
pub(crate) struct WorthFlushing<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) pivots: Vec<usize>,
    /// Approximate bytes dropped by the flush.
    pub(crate) saved_bytes: u64,
}

/// Write limit of a tombstone flush.
pub(crate) fn written_max(options: &BeTreeOptions) -> u64 {
    tombstone_job_bytes_max(options.leaf_bytes)
}

/// Finds the uppermost node with tombstones worth flushing, and the pivots to flush at once, of those that
/// `is_allowed` permits.
pub(crate) fn pick_tombstones<'a>(
    node: &'a Arc<Node>,
    options: &BeTreeOptions,
    is_idle: bool,
    is_allowed: &dyn Fn(&Node, usize) -> bool,
) -> Option<WorthFlushing<'a>> {
    let worth = written_per_saved(is_idle);
    let (mut pivots, mut saved_bytes, mut written) = (Vec::new(), 0, 0);
    // Buffered bytes are known by pages: smaller counts may be a whole page.
    let waiting_min = if is_idle { PAGE_BYTES } else { 0 };
    let gains = gains_of(node, waiting_min);
    for (pivot, gain) in
        gains.iter().enumerate().filter(|(_, gain)| gain.tombstones > 0 || gain.dead_bytes > 0)
    {
        let child = &node.pivots[pivot].child;
        let pending = node.pending_of(pivot);
        let of_pivot = written_into(child, pending);
        let saved = gain.tombstones * (entry_bytes(child) + TOMBSTONE_BYTES_MIN);
        let most = saved.saturating_mul(worth);
        let ends_enough = saved > 0 && pending + leaf_bytes_below(child, most) <= most;
        let frees_enough = of_pivot <= gain.dead_bytes.saturating_mul(worth);
        let fits = written + of_pivot <= written_max(options) || planted!("tombstones-flushed-all-at-once");
        if (ends_enough || frees_enough) && fits && is_allowed(node, pivot) {
            pivots.push(pivot);
            (saved_bytes, written) = (saved_bytes + saved + gain.dead_bytes, written + of_pivot);
        }
    }
    debug_assert!(
        written <= written_max(options) || planted!("tombstones-flushed-all-at-once"),
        "a job keeps its write limit"
    );
    if !pivots.is_empty() {
        return Some(WorthFlushing { node, pivots, saved_bytes });
    }
    node.child_nodes().find_map(|child| pick_tombstones(child, options, is_idle, is_allowed))
}

/// Gain of flushing a pivot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Gain {
    /// Approximate number of tombstones flushed.
    tombstones: u64,
    /// The pivot's share of the space freed once mostly flushed runs are flushed completely.
    dead_bytes: u64,
}

/// Returns the gains of all pivots from runs with many tombstones, assuming at least `waiting_min` buffered
/// bytes where there are any; empty if there are no such runs.
fn gains_of(node: &Node, waiting_min: u64) -> Vec<Gain> {
    let mut gains = Vec::new();
    for tier in node.tiers.iter().filter(|tier| tier.runs.iter().any(|fenced| is_heavy(&fenced.run))) {
        gains.resize(node.pivots.len(), Gain::default());
        let ranges: Vec<Range<usize>> = tier.runs.iter().map(|fenced| pivots_of(node, &fenced.run)).collect();
        // The runs that overlap a pivot divide the tier's share for it among them.
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
            let dead = Some(bytes.saturating_sub(waiting))
                .filter(|dead| *dead * MOSTLY_DEAD_PART >= bytes)
                .unwrap_or(0);
            // At most the whole run can be buffered.
            let whole = bytes.max(waiting);
            debug_assert!(whole > 0 && dead <= bytes, "no more than the run is garbage");
            for (pivot, waiting) in &active {
                let part = u128::from(reference.tombstones) * u128::from(*waiting) / u128::from(whole);
                gains[*pivot].tombstones += u64::try_from(part).unwrap_or(u64::MAX);
                gains[*pivot].dead_bytes += dead / u64_of(active.len());
            }
        }
    }
    debug_assert!(gains.is_empty() || gains.len() == node.pivots.len(), "one gain per pivot");
    gains
}

fn is_heavy(run: &Run) -> bool {
    let reference = run.reference();
    has_many_tombstones(reference.tombstones, || reference.entries)
}

/// Returns the pivots that a run overlaps, by its key ends.
fn pivots_of(node: &Node, run: &Run) -> Range<usize> {
    let keys = &run.reference().keys;
    let up_to = |key: &[u8]| node.pivots.partition_point(|pivot| pivot.low.is_at_most(key));
    up_to(keys.first()).saturating_sub(1)..up_to(keys.last())
}

/// Approximate bytes written for a flush of `pending` bytes into a child. A leaf is merged with them. A node
/// merges them with as many bytes of its buffer, and flushes about as many, each merged with as many again.
fn written_into(child: &Child, pending: u64) -> u64 {
    match child {
        Child::Leaf(_) => pending + child.leaf_bytes().unwrap_or_default(),
        Child::Node(_) => pending * NODE_WRITES,
    }
}

/// Mean entry size of the first leaf below, in bytes.
fn entry_bytes(child: &Child) -> u64 {
    let of_run = |run: &Run| run.reference().user_bytes / run.reference().entries.max(1);
    match child {
        Child::Leaf(run) => run.as_ref().map_or(0, |run| of_run(run)),
        Child::Node(node) => {
            node.pivots.iter().map(|pivot| entry_bytes(&pivot.child)).find(|bytes| *bytes > 0).unwrap_or(0)
        }
    }
}

/// Bytes of the leaves below; counting stops soon after `most`.
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
