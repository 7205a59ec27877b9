//! Checks of a trunk and, optionally, of everything it refers to: rules that hold under every policy and
//! setting, and the bounds of the present ones.
//!
//! **Invariants**
//! - A node is within its bounds (TurtleKV §3.1.2: it buffers at most L·(ρ − 1)), or a job that repairs
//!   it is due.

use std::sync::Arc;

use testudo_base::{Error, ErrorKind, Result};
use testudo_sequence::{Bounds, FencedRun, check_run, is_outside};

use crate::{
    BeTreeOptions,
    jobs::is_bounded,
    trunk::node::{Child, Node, Tier},
    update::{
        join::{Above, holds_any},
        plan::MAX_HEIGHT,
    },
};

/// Maximum number of children of a node under any settings.
const MAX_PIVOTS: usize = 1024;

/// Checks the trunk. Fails with `Corruption` that names the violated rule and the node.
pub(crate) fn check(root: &Arc<Node>, options: &BeTreeOptions, deep: bool) -> Result<()> {
    if !root.pivots[0].low.is_empty() || root.high.is_some() {
        return broken(root, "the root does not cover all keys");
    }
    check_node(root, deep, 0, &Above::nothing())?;
    check_bounds(root, options)
}

/// Checks the buffers of a node and of all below.
fn check_bounds(node: &Arc<Node>, options: &BeTreeOptions) -> Result<()> {
    if !is_bounded(node, options) {
        return broken(node, "the buffer exceeds its bound, and no work is due");
    }
    node.child_nodes().try_for_each(|child| check_bounds(child, options))
}

fn broken(node: &Node, what: &str) -> Result<()> {
    Err(Error::new(ErrorKind::Corruption, format!("node {}: {what}", node.id)))
}

fn check_node(node: &Arc<Node>, deep: bool, depth: u32, above: &Above<'_>) -> Result<()> {
    if depth > MAX_HEIGHT {
        return broken(node, "the tree is too deep");
    }
    if node.pivots.is_empty() || node.pivots.len() > MAX_PIVOTS {
        return broken(node, "has an impossible number of pivots");
    }
    if !node.pivots.windows(2).all(|pair| pair[0].low < pair[1].low) {
        return broken(node, "pivots do not increase");
    }
    for tier in &node.tiers {
        check_tier(node, tier, deep)?;
    }
    for (index, pivot) in node.pivots.iter().enumerate() {
        let bounds = node.bounds_of(index);
        match &pivot.child {
            Child::Node(child) => {
                if child.height + 1 != node.height
                    || child.pivots[0].low != pivot.low
                    || child.high.as_ref()
                        != node.pivots.get(index + 1).map(|next| &next.low).or(node.high.as_ref())
                {
                    return broken(child, "does not fit the pivot of its parent");
                }
                check_node(child, deep, depth + 1, &above.child(node, index))?;
            }
            Child::Leaf(_) if node.height != 1 => return broken(node, "a leaf at the wrong depth"),
            Child::Leaf(None) => {}
            Child::Leaf(Some(run)) => {
                let reference = run.reference();
                if is_outside(run, &bounds, deep)? {
                    return broken(node, "a leaf has keys outside its fences");
                }
                if reference.tombstones > 0 && reference.entries > 1 {
                    return broken(node, "a leaf holds tombstones");
                }
                if deep {
                    check_run(run)?;
                    let as_old = above.child(node, index).within(&bounds, reference.newest_seqno);
                    if holds_any(&as_old, &bounds)? {
                        return broken(node, "a leaf is as new as its buffered entries");
                    }
                }
            }
        }
    }
    Ok(())
}

fn check_tier(node: &Node, tier: &Tier, deep: bool) -> Result<()> {
    if tier.shares.len() != node.pivots.len() {
        return broken(node, "a tier's shares do not match the pivots");
    }
    if !tier.is_active() || tier.runs.is_empty() {
        return broken(node, "a tier without active shares");
    }
    if !tier.runs.windows(2).all(|pair| pair[0].low < pair[1].low) {
        return broken(node, "fences of a tier do not increase");
    }
    for (at, FencedRun { low, run }) in tier.runs.iter().enumerate() {
        let high = tier.runs.get(at + 1).map(|next| next.low.clone());
        if is_outside(run, &Bounds { low: low.as_low(), high }, deep)? {
            return broken(node, "runs of a tier overlap");
        }
        if deep {
            check_run(run)?;
        }
    }
    Ok(())
}
