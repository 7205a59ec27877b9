//! Cutting a large tier that is to be written into parts, which several hands merge at once (fork/join, TurtleKV §4).
//!
//! A tier is cut where the pivots of its node are: what waits for each of them is known, so nothing has to be read. Leaves
//! are not cut: they are small, and a part without entries could not state that older ones of its keys are gone.
//!
//! **Invariants**
//! - The parts of a destination are disjoint, in key order, and together the whole.

use crate::{
    BeTreeOptions,
    trunk::{
        fence::{Bounds, Fence},
        node::Node,
    },
    update::plan::MergeInput,
};

/// Parts for each hand: some slack, so that the hands end together although sizes are estimates.
const PARTS_PER_HAND: u64 = 2;

/// Where a destination may be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seam {
    /// First key of what follows.
    pub(crate) key: Fence,
    /// About how many bytes lie before it.
    pub(crate) bytes_before: u64,
}

/// A part of a destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bounds: Bounds,
    /// About how many bytes of entries are in it.
    pub(crate) bytes: u64,
}

/// The seams of a tier that `inputs` are merged into: the borders of pivots.
pub(crate) fn seams_of(node: &Node, inputs: &[MergeInput]) -> Vec<Seam> {
    debug_assert!(
        inputs.iter().all(|input| input.shares.len() == node.pivots.len()),
        "an input has one share per pivot"
    );
    let mut bytes_before = 0;
    let mut seams = Vec::new();
    for pivot in 0..node.pivots.len() {
        if pivot > 0 {
            seams.push(Seam { key: node.pivots[pivot].low.clone(), bytes_before });
        }
        let shares = inputs.iter().filter_map(|input| input.shares[pivot].as_ref());
        bytes_before += shares.map(|share| share.bytes).sum::<u64>();
    }
    seams
}

/// Bytes beyond which a destination is cut, when `total` bytes are to be written by so many hands.
pub(crate) fn part_bytes_max(total: u64, hands: u64, options: &BeTreeOptions) -> u64 {
    // A single hand cuts too, so that tests which do everything in one thread see what the others see.
    total.div_ceil(hands.max(2) * PARTS_PER_HAND).max(options.leaf_bytes * 2)
}

/// Cuts `bytes` into parts of about equal size, about `bytes_max` at most, as far as the seams allow it.
pub(crate) fn cut(bytes: u64, seams: &[Seam], bytes_max: u64) -> Vec<Part> {
    debug_assert!(
        seams.is_sorted_by(|a, b| a.key < b.key && a.bytes_before <= b.bytes_before),
        "seams ascend"
    );
    let count = bytes.div_ceil(bytes_max.max(1)).max(1);
    let mut parts = Vec::new();
    let (mut low, mut done) = (None, 0);
    for seam in seams {
        let next = u64::try_from(parts.len()).unwrap_or(u64::MAX) + 1;
        let due = next * (bytes / count);
        if next < count && seam.bytes_before > done && seam.bytes_before >= due && seam.bytes_before < bytes {
            let high = Some(seam.key.clone());
            let bounds = Bounds { low: std::mem::replace(&mut low, high.clone()), high };
            parts.push(Part { bounds, bytes: seam.bytes_before - done });
            done = seam.bytes_before;
        }
    }
    parts.push(Part { bounds: Bounds { low, high: None }, bytes: bytes.saturating_sub(done) });
    parts
}

#[cfg(test)]
mod tests;
