//! Checks of a trunk and, when asked for, of everything it refers to: what holds under every policy and every setting.

use std::sync::Arc;

use testudo_base::{Error, ErrorKind, Result};
use testudo_run::Run;

use crate::{
    node::{Child, Node, Tier},
    plan::MAX_HEIGHT,
};

/// Most children that settings can allow a node.
const MAX_PIVOTS: usize = 1024;

/// Fails with `Corruption` that says which rule is broken, where.
pub(crate) fn check(root: &Arc<Node>, deep: bool) -> Result<()> {
    if !root.pivots[0].low.is_empty() || root.high.is_some() {
        return broken(root, "the root does not cover all keys");
    }
    check_node(root, deep, 0)
}

fn broken(node: &Node, what: &str) -> Result<()> {
    Err(Error::new(ErrorKind::Corruption, format!("node {}: {what}", node.id)))
}

fn check_node(node: &Arc<Node>, deep: bool, depth: u32) -> Result<()> {
    if depth > MAX_HEIGHT {
        return broken(node, "the tree is too deep");
    }
    if node.pivots.is_empty() || node.pivots.len() > MAX_PIVOTS {
        return broken(node, "has no pivots, or more than any tree has");
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
                    || child.high != bounds.high
                {
                    return broken(child, "does not fit the pivot of its parent");
                }
                check_node(child, deep, depth + 1)?;
            }
            Child::Leaf(_) if node.height != 1 => return broken(node, "a leaf at the wrong depth"),
            Child::Leaf(None) => {}
            Child::Leaf(Some(run)) => {
                let reference = run.reference();
                if !bounds.contains(&reference.first_key) || !bounds.contains(&reference.last_key) {
                    return broken(node, "a leaf has keys outside its fences");
                }
                if reference.tombstones > 0 && reference.entries > 1 {
                    return broken(node, "a leaf holds tombstones");
                }
                if deep {
                    check_run(run)?;
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
        return broken(node, "a tier from which nothing is left");
    }
    let disjoint =
        tier.runs.windows(2).all(|pair| pair[0].reference().last_key < pair[1].reference().first_key);
    if !disjoint {
        return broken(node, "runs of a tier overlap");
    }
    if deep {
        for run in &tier.runs {
            check_run(run)?;
        }
    }
    Ok(())
}

/// Reads a whole run: every page verifies, keys increase, counts agree, the filter knows every key.
fn check_run(run: &Arc<Run>) -> Result<()> {
    run.check_pages()?;
    run.check_entries()
}
