//! Measurements of a tree: bytes of a range of keys, and the outline.

use std::sync::Arc;

use testudo_base::{Result, num::u64_of};
use testudo_contract::OutlineLine;
use testudo_sequence::{Bounds, FencedRun, bytes_of_runs};

use crate::{
    trunk::node::{Child, Node, Share, Tier},
    update::plan::active_bounds,
};

/// Approximate bytes of the entries inside `bounds`, below `node` and in its tiers.
pub(super) fn node_bytes(node: &Arc<Node>, bounds: &Bounds) -> Result<u64> {
    let mut bytes = 0;
    for (index, pivot) in node.pivots.iter().enumerate() {
        let inside = node.bounds_of(index).intersection(bounds);
        if inside.is_empty() {
            continue;
        }
        let share_of = |tier: &Tier| -> Option<Share> { tier.shares[index].clone() };
        for tier in &node.tiers {
            if let Some(share) = share_of(tier) {
                bytes += bytes_of_runs(&tier.runs, &active_bounds(&inside, &share))?;
            }
        }
        bytes += match &pivot.child {
            Child::Node(child) => node_bytes(child, &inside)?,
            Child::Leaf(None) => 0,
            Child::Leaf(Some(run)) => {
                let keys = inside.to_keys();
                run.bytes_between(keys.low.as_deref(), keys.high.as_deref())?
            }
        };
    }
    Ok(bytes)
}

/// Adds the lines of `node` and of its descendants.
pub(super) fn outline_node(node: &Arc<Node>, depth: u32, lines: &mut Vec<OutlineLine>) {
    let entries = |runs: &[FencedRun]| runs.iter().map(|fenced| fenced.run.reference().entries).sum();
    let buffered = node.tiers.iter().map(Tier::active_bytes).sum();
    let count = u64_of(node.pivots.len());
    lines.push(OutlineLine { depth, what: "node", count, bytes: buffered, entries: 0 });
    for tier in &node.tiers {
        let (count, bytes) = (u64_of(tier.runs.len()), tier.active_bytes());
        lines.push(OutlineLine {
            depth: depth + 1,
            what: "tier",
            count,
            bytes,
            entries: entries(&tier.runs),
        });
    }
    for pivot in &node.pivots {
        match &pivot.child {
            Child::Node(child) => outline_node(child, depth + 1, lines),
            Child::Leaf(run) => {
                let (bytes, entries) =
                    run.as_ref().map_or((0, 0), |run| (run.reference().user_bytes, run.reference().entries));
                let count = u64::from(run.is_some());
                lines.push(OutlineLine { depth: depth + 1, what: "leaf", count, bytes, entries });
            }
        }
    }
}
