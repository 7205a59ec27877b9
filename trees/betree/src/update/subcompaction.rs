//! Cutting a large output tier into parts, which several workers merge in parallel (fork/join, TurtleKV §4).
//!
//! A tier is cut at the pivots of its node: the bytes for each of them are known, so nothing has to be read.
//! For leaves, see `leaf_parts.rs`.
//!
//! **Invariants**
//! - The parts of a destination are disjoint, in key order, and together the whole.
use testudo_sequence::{Bounds, Fence};

use crate::{BeTreeOptions, trunk::node::Node, update::plan::MergeInput};

/// Parts per worker: slack, so that the workers end together although sizes are estimates.
const PARTS_PER_WORKER: u64 = 2;

/// Minimum size of a part, in leaves: each part ends with a run that may be small.
const TIER_PART_LEAVES_MIN: u64 = 2;

/// A key at which a destination may be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// First key after the cut.
    pub(crate) key: Fence,
    /// Approximate bytes before it.
    pub(crate) bytes_before: u64,
}

/// A part of a destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bounds: Bounds,
    /// Approximate bytes of entries in it.
    pub(crate) bytes: u64,
}

/// Returns the boundaries of a tier merged from `inputs`: the lower bounds of pivots.
pub(crate) fn boundaries_of(node: &Node, inputs: &[MergeInput]) -> Vec<Boundary> {
    debug_assert!(
        inputs.iter().all(|input| input.shares.len() == node.pivots.len()),
        "an input has one share per pivot"
    );
    let mut bytes_before = 0;
    let mut boundaries = Vec::new();
    for pivot in 0..node.pivots.len() {
        if pivot > 0 {
            boundaries.push(Boundary { key: node.pivots[pivot].low.clone(), bytes_before });
        }
        let shares = inputs.iter().filter_map(|input| input.shares[pivot].as_ref());
        bytes_before += shares.map(|share| share.bytes).sum::<u64>();
    }
    boundaries
}

/// Maximum size of a part, when `total` bytes are to be written by `workers`.
pub(crate) fn part_bytes_max(total: u64, workers: u64, options: &BeTreeOptions) -> u64 {
    // A single worker cuts too, so that single-threaded tests exercise the same code.
    total.div_ceil(workers.max(2) * PARTS_PER_WORKER).max(options.leaf_bytes * TIER_PART_LEAVES_MIN)
}

/// Cuts `bytes` into parts of about equal size, up to about `bytes_max`, as far as the boundaries permit.
pub(crate) fn cut(bytes: u64, boundaries: &[Boundary], bytes_max: u64) -> Vec<Part> {
    debug_assert!(
        boundaries.is_sorted_by(|a, b| a.key < b.key && a.bytes_before <= b.bytes_before),
        "boundaries ascend"
    );
    let count = bytes.div_ceil(bytes_max.max(1)).max(1);
    let mut parts = Vec::new();
    let (mut low, mut done) = (None, 0);
    for boundary in boundaries {
        let next = u64::try_from(parts.len()).unwrap_or(u64::MAX) + 1;
        let due = next * (bytes / count);
        if next < count
            && boundary.bytes_before > done
            && boundary.bytes_before >= due
            && boundary.bytes_before < bytes
        {
            let high = Some(boundary.key.clone());
            let bounds = Bounds { low: std::mem::replace(&mut low, high.clone()), high };
            parts.push(Part { bounds, bytes: boundary.bytes_before - done });
            done = boundary.bytes_before;
        }
    }
    parts.push(Part { bounds: Bounds { low, high: None }, bytes: bytes.saturating_sub(done) });
    debug_assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), bytes, "parts are together the whole");
    debug_assert!(
        parts.is_sorted_by(|a, b| a.bounds.high.is_some() && a.bounds.high == b.bounds.low),
        "parts are adjacent, in key order"
    );
    parts
}

#[cfg(test)]
mod tests;
