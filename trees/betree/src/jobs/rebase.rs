//! Installing a written job in a later state of the tree.
//!
//! Since the job was picked, updates may have added tiers on top of its node and flushed others of its
//! pivots, and other jobs may have changed other pivots, nodes above and nodes below. So only the parts that
//! the plan changes are compared; everything else is taken from the current state.
//!
//! **Invariants**
//! - A changed pivot has the keys, the leaf and the buffered entries that it had, or those with newer
//!   entries on top. A merged tier is the same in all pivots.
//! - A tier added to a child node is newer than all of its tiers.

use std::sync::Arc;

use testudo_base::planted;
use testudo_sequence::runs_within;

use crate::{
    trunk::node::{Child, Node, Share, Tier},
    update::{
        plan::{PlanChild, PlanNode, PlanTier},
        write::Outputs,
    },
};

/// Position of a node in a tree.
struct Place<'a> {
    /// The nodes on the path, each with the pivot that leads on.
    path: Vec<(&'a Arc<Node>, usize)>,
    node: &'a Arc<Node>,
}

/// Finds the node at `height` with `key`.
fn place_at<'a>(root: &'a Arc<Node>, height: u32, key: &[u8]) -> Option<Place<'a>> {
    let (mut node, mut path) = (root, Vec::new());
    while node.height > height {
        let pivot = node.pivot_of(key);
        path.push((node, pivot));
        match &node.pivots[pivot].child {
            Child::Node(child) => node = child,
            Child::Leaf(_) => return None,
        }
    }
    (node.height == height).then_some(Place { path, node })
}

/// Returns a written plan as a plan of `root`; `None` if parts that it changes are not those in its tree.
pub(crate) fn planned_from_root(root: &Arc<Node>, plan: PlanNode, outputs: &Outputs) -> Option<PlanNode> {
    let first = (0..plan.children.len()).find(|&pivot| is_changed(&plan, pivot)).unwrap_or(0);
    let Place { path, node } = place_at(root, plan.base.height, &plan.base.pivots[first].low.to_vec())?;
    let mut plan = rebased(plan, node, outputs)?;
    for (node, pivot) in path.into_iter().rev() {
        let mut above = PlanNode::new(node);
        above.children[pivot] = PlanChild::Node(Box::new(plan));
        plan = above;
    }
    debug_assert!(Arc::ptr_eq(&plan.base, root), "the plan is that of the root");
    Some(plan)
}

/// Whether a plan changes a pivot's child, or its share of an existing tier.
fn is_changed(plan: &PlanNode, pivot: usize) -> bool {
    let older = plan.tiers.iter().rev().zip(plan.base.tiers.iter().rev());
    !matches!(plan.children[pivot], PlanChild::Untouched(_))
        || older.into_iter().any(|(tier, before)| match tier {
            PlanTier::Existing(tier) => tier.shares[pivot] != before.shares[pivot],
            _ => true,
        })
}

/// Number of new tiers of a plan on top of those that its node had, if it merges none of those.
fn tiers_on_top(plan: &PlanNode) -> Option<usize> {
    let on_top = plan.tiers.len().checked_sub(plan.base.tiers.len())?;
    let is_kept = |(tier, before): (&PlanTier, &Tier)| match tier {
        PlanTier::Existing(tier) => tier.has_same_runs(before),
        _ => false,
    };
    plan.tiers[on_top..].iter().zip(&plan.base.tiers).all(is_kept).then_some(on_top)
}

/// Returns the plan as one of `current`, a later state of its node.
fn rebased(plan: PlanNode, current: &Arc<Node>, outputs: &Outputs) -> Option<PlanNode> {
    if Arc::ptr_eq(&plan.base, current) {
        return Some(plan);
    }
    debug_assert_eq!(plan.base.height, current.height, "nodes are sought at their height");
    match tiers_on_top(&plan) {
        Some(on_top) => rebased_by_pivots(plan, on_top, current, outputs),
        None => rebased_whole(plan, current, outputs),
    }
}

/// Rebases a plan that keeps the runs of all tiers.
fn rebased_by_pivots(
    plan: PlanNode,
    on_top: usize,
    current: &Arc<Node>,
    outputs: &Outputs,
) -> Option<PlanNode> {
    let changed: Vec<bool> = (0..plan.children.len()).map(|pivot| is_changed(&plan, pivot)).collect();
    let joined: Vec<bool> = (0..plan.children.len()).map(|pivot| is_joined(&plan, pivot)).collect();
    let PlanNode { base, mut tiers, children } = plan;
    let older = tiers.split_off(on_top);
    let mut moved = PlanNode::new(current);
    for (pivot, child) in children.into_iter().enumerate().filter(|(pivot, _)| changed[*pivot]) {
        let to = same_pivot(&base, pivot, current)?;
        let newer = move_shares(&base, &older, pivot, &mut moved, to)?;
        if joined[pivot] && newer > 0 && !planted!("joined-below-what-came-in") {
            return None;
        }
        moved.children[to] = moved_child(child, &base, pivot, &current.pivots[to].child, outputs)?;
    }
    if !tiers.is_empty() {
        let covers_same = base.pivots[0].low == current.pivots[0].low && base.high == current.high;
        if !covers_same || !is_newest(&tiers, current, outputs) {
            return None;
        }
        let shared = |tier| with_shares_of(tier, &base, current);
        let on_top = tiers.into_iter().map(shared).collect::<Option<Vec<_>>>()?;
        moved.tiers.splice(0..0, on_top);
    }
    Some(moved)
}

/// Rebases a plan that merges tiers of its node.
fn rebased_whole(plan: PlanNode, current: &Arc<Node>, outputs: &Outputs) -> Option<PlanNode> {
    let joined: Vec<bool> = (0..plan.children.len()).map(|pivot| is_joined(&plan, pivot)).collect();
    let PlanNode { base, tiers, children } = plan;
    let has_same_pivots = base.pivots.len() == current.pivots.len()
        && base.high == current.high
        && base.pivots.iter().zip(&current.pivots).all(|(one, other)| one.low == other.low);
    let newer = current.tiers.len().checked_sub(base.tiers.len())?;
    let is_same =
        |(one, other): (&Tier, &Tier)| one.is_same(other) || planted!("job-installed-on-changed-state");
    if !has_same_pivots || !current.tiers[newer..].iter().zip(&base.tiers).all(is_same) {
        return None;
    }
    let newer = if planted!("tiers-on-top-forgotten") { &[] } else { &current.tiers[..newer] };
    let is_beside = |tier: &Tier| {
        joined
            .iter()
            .zip(&tier.shares)
            .all(|(joined, share)| !joined || share.is_none() || planted!("joined-below-what-came-in"))
    };
    if !newer.iter().all(is_beside) {
        return None;
    }
    let mut moved = PlanNode::new(current);
    for (pivot, child) in children.into_iter().enumerate() {
        moved.children[pivot] = moved_child(child, &base, pivot, &current.pivots[pivot].child, outputs)?;
    }
    moved.tiers = newer.iter().cloned().map(PlanTier::Existing).chain(tiers).collect();
    Some(moved)
}

/// Whether a plan joins a pivot with a neighbor.
fn is_joined(plan: &PlanNode, pivot: usize) -> bool {
    let joins = |pivot: usize| matches!(plan.children.get(pivot), Some(PlanChild::Joined));
    joins(pivot) || joins(pivot + 1)
}

/// Returns the pivot of `current` with the keys of a pivot of `base`.
fn same_pivot(base: &Node, pivot: usize, current: &Node) -> Option<usize> {
    let to = current.pivots.binary_search_by(|other| other.low.cmp(&base.pivots[pivot].low)).ok()?;
    (base.bounds_of(pivot) == current.bounds_of(to)).then_some(to)
}

/// Gives the current tiers the shares of the plan's tiers (`older`) for a pivot. Returns the number of
/// tiers with newer entries for it; `None` if the older ones are not those that it had.
fn move_shares(
    base: &Node,
    older: &[PlanTier],
    pivot: usize,
    moved: &mut PlanNode,
    to: usize,
) -> Option<usize> {
    let bounds = base.bounds_of(pivot);
    let mut at = moved.tiers.len();
    for (tier, before) in older.iter().zip(&base.tiers).rev() {
        let (PlanTier::Existing(tier), Some(share)) = (tier, &before.shares[pivot]) else { continue };
        // Tiers without entries for the pivot do not matter.
        let current = loop {
            at = at.checked_sub(1)?;
            let PlanTier::Existing(current) = &mut moved.tiers[at] else { return None };
            if current.shares[to].is_some() {
                break current;
            }
        };
        let is_same = current.shares[to].as_ref().is_some_and(|current| current.from == share.from) && {
            let runs = |tier: &Tier| -> Vec<_> {
                runs_within(&tier.runs, &bounds).map(|(_, fenced)| Arc::as_ptr(&fenced.run)).collect()
            };
            runs(current) == runs(before)
        };
        if !is_same && !planted!("job-installed-on-changed-state") {
            return None;
        }
        current.shares[to].clone_from(&tier.shares[pivot]);
    }
    let is_newer = |tier: &&mut PlanTier| match tier {
        PlanTier::Existing(tier) => tier.shares[to].is_some(),
        _ => true,
    };
    let newer = moved.tiers[..at].iter_mut().filter(is_newer);
    if planted!("tiers-on-top-forgotten") {
        newer.for_each(|tier| {
            if let PlanTier::Existing(tier) = tier {
                tier.shares[to] = None;
            }
        });
        return Some(0);
    }
    Some(newer.count())
}

/// Returns the plan's child of a pivot in the current state, where the pivot has the child `current`.
fn moved_child(
    child: PlanChild,
    base: &Node,
    pivot: usize,
    current: &Child,
    outputs: &Outputs,
) -> Option<PlanChild> {
    match (child, current) {
        (PlanChild::Untouched(_), current) => Some(PlanChild::Untouched(current.clone())),
        (PlanChild::Node(plan), Child::Node(current)) => {
            Some(PlanChild::Node(Box::new(rebased(*plan, current, outputs)?)))
        }
        (PlanChild::Node(_), Child::Leaf(_)) => None,
        (written, current) => {
            let is_same =
                base.pivots[pivot].child.is_same(current) || planted!("job-installed-on-changed-state");
            is_same.then_some(written)
        }
    }
}

/// Whether new tiers are newer than those of the node.
fn is_newest(on_top: &[PlanTier], current: &Node, outputs: &Outputs) -> bool {
    let Some(newest) = current.tiers.first().map(Tier::newest_seqno) else { return true };
    let is_newer = |tier: &PlanTier| match tier {
        PlanTier::Output { output, .. } => {
            outputs[*output].runs.iter().all(|fenced| fenced.run.reference().newest_seqno > newest)
        }
        _ => false,
    };
    on_top.iter().all(is_newer)
}

/// Returns a new tier with shares for the pivots of `current`, which has the keys of `base`.
fn with_shares_of(tier: PlanTier, base: &Node, current: &Node) -> Option<PlanTier> {
    let PlanTier::Output { output, shares } = tier else { return None };
    debug_assert!(shares.iter().flatten().all(|share| share.from.is_none()), "a new tier is whole");
    let share_of = |pivot: usize| {
        let bounds = current.bounds_of(pivot);
        let overlaps = |other: &usize| !base.bounds_of(*other).intersection(&bounds).is_empty();
        let mut others = (0..shares.len()).filter(overlaps);
        // The assembly finds out the bytes.
        others.any(|other| shares[other].is_some()).then_some(Share { from: None, bytes: 0 })
    };
    let shares = (0..current.pivots.len()).map(share_of).collect();
    Some(PlanTier::Output { output, shares })
}
