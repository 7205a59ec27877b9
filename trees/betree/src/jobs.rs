//! Work that a Bε-tree does by itself: joining small neighbours, shrinking the root, flushing tombstones and
//! what scans look into, compacting what is idle.
//!
//! A job changes the subtree of one node. It is planned and written from there ([`prepare`]), and becomes
//! part of the tree as it is then, if that node is still in it ([`planned_from_root`]); the nodes above are
//! rebuilt.
//!
//! **Invariants**
//! - Choosing work is pure.
//! - A job is installed only if the very node that it began with is reached from the root.

use std::{fmt, sync::Arc};

use testudo_base::{Result, planted};
use testudo_contract::{Job, Opaque, Prepared, Work};
use testudo_run::Run;
use testudo_sequence::{Bounds, Layer};

use crate::{
    BeTreeOptions,
    policy::{IdleWork, NodeLoad},
    trunk::node::{Child, Node, Tier},
    update::{
        join::{find_join, nothing_above, waiting_for},
        plan::{PlanChild, PlanNode},
        write::{Outputs, write_plan},
    },
};

/// Children flushed at once: some tens of milliseconds.
const FLUSHED_AT_ONCE: usize = 8;

/// What is to be done to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// The root has one child, which is to take its place.
    ShrinkRoot,
    /// Neighbouring children are small together.
    Join,
    /// The buffer is beyond its bound.
    FlushBeyondBound { pivots: Vec<usize> },
    /// Tombstones are many in this tier.
    FlushTombstones { tier: usize },
    /// Scans had to look into what waits for these pivots.
    FlushScanned { pivots: Vec<usize> },
    /// Nothing comes in.
    CompactIdle(IdleWork),
}

impl Action {
    fn what(&self) -> &'static str {
        match self {
            Self::ShrinkRoot => "shrink root",
            Self::Join => "join children",
            Self::FlushBeyondBound { .. } => "flush what is beyond the bound",
            Self::FlushTombstones { .. } => "flush tombstones",
            Self::FlushScanned { .. } => "flush what scans look into",
            Self::CompactIdle(_) => "compact while idle",
        }
    }

    /// About how many bytes of the node's buffer take part.
    fn debt_bytes(&self, node: &Node) -> u64 {
        let pending =
            |pivots: &mut dyn Iterator<Item = usize>| pivots.map(|pivot| node.pending_of(pivot)).sum();
        match self {
            Self::ShrinkRoot | Self::Join => pending(&mut (0..node.pivots.len())),
            Self::FlushTombstones { tier } => node.tiers[*tier].active_bytes(),
            Self::FlushBeyondBound { pivots }
            | Self::FlushScanned { pivots }
            | Self::CompactIdle(IdleWork::Flush(pivots)) => pending(&mut pivots.iter().copied()),
            Self::CompactIdle(IdleWork::Merge(tiers)) => {
                node.tiers[tiers.clone()].iter().map(Tier::active_bytes).sum()
            }
        }
    }

    fn on(self, node: &Arc<Node>) -> Job {
        let (what, debt_bytes) = (self.what(), self.debt_bytes(node));
        Job { what, debt_bytes, target: Opaque::new(Target { action: self, node: Arc::clone(node) }) }
    }
}

/// What a job is about.
struct Target {
    action: Action,
    node: Arc<Node>,
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} of node {}", self.action, self.node.id)
    }
}

/// The work that is worth most to the tree below `root`, or cheapest.
pub(crate) fn pick(root: &Arc<Node>, options: &BeTreeOptions, is_idle: bool) -> Option<Job> {
    if root.height > 1 && root.pivots.len() == 1 {
        return Some(Action::ShrinkRoot.on(root));
    }
    if let Some(node) = find_join(root, options, &nothing_above) {
        return Some(Action::Join.on(node));
    }
    if let Some((node, pivots)) = find_beyond_bound(root, options) {
        return Some(Action::FlushBeyondBound { pivots }.on(node));
    }
    if let Some((node, tier)) = find_tombstones(root) {
        return Some(Action::FlushTombstones { tier }.on(node));
    }
    if let Some((node, pivots)) = find_scanned(root, options) {
        return Some(Action::FlushScanned { pivots }.on(node));
    }
    let (node, work) = is_idle.then(|| find_idle_work(root, options))??;
    Some(Action::CompactIdle(work).on(node))
}

/// What flushing of a node that nothing comes into is decided by.
fn with_load<R>(node: &Node, decide: impl FnOnce(&NodeLoad<'_>) -> R) -> R {
    let pending: Vec<u64> = (0..node.pivots.len()).map(|pivot| node.pending_of(pivot)).collect();
    let leaf_bytes: Vec<Option<u64>> = node.pivots.iter().map(|pivot| pivot.child.leaf_bytes()).collect();
    let overwrites = node.overwrites;
    decide(&NodeLoad { incoming: 0, pending: &pending, leaf_bytes: &leaf_bytes, overwrites })
}

/// A node that buffers more than it may, the uppermost first, and what of it goes down.
fn find_beyond_bound<'a>(
    node: &'a Arc<Node>,
    options: &BeTreeOptions,
) -> Option<(&'a Arc<Node>, Vec<usize>)> {
    let pivots = with_load(node, |load| options.pivots_beyond_bound(load, FLUSHED_AT_ONCE));
    if !pivots.is_empty() {
        return Some((node, pivots));
    }
    node.child_nodes().find_map(|child| find_beyond_bound(child, options))
}

/// A node with a tier that consists of tombstones for a quarter or more. Flushing what that tier holds brings
/// them nearer to the leaves, where they and what they delete disappear.
fn find_tombstones(node: &Arc<Node>) -> Option<(&Arc<Node>, usize)> {
    let has_many = |tier: &Tier| {
        let count = |of: fn(&Run) -> u64| -> u64 { tier.runs.iter().map(|fenced| of(&fenced.run)).sum() };
        let tombstones = count(|run| run.reference().tombstones);
        tombstones > 0 && tombstones * 4 >= count(|run| run.reference().entries)
    };
    if let Some(tier) = node.tiers.iter().position(has_many) {
        return Some((node, tier));
    }
    node.child_nodes().find_map(find_tombstones)
}

/// The children of a node for which it pays to flush what scans look into on the way to them.
fn scanned_pivots(node: &Node, options: &BeTreeOptions) -> Vec<usize> {
    let is_due = |pivot: &usize| {
        let charges = node.scan_charges.of(*pivot);
        if charges == 0 {
            return false;
        }
        let waiting = node.pending_of(*pivot);
        let below = match &node.pivots[*pivot].child {
            Child::Leaf(Some(run)) => run.reference().user_bytes,
            _ => 0,
        };
        waiting > 0 && options.scans_are_worth_a_flush(charges, waiting + below)
    };
    (0..node.pivots.len()).filter(is_due).take(FLUSHED_AT_ONCE).collect()
}

/// A node with such children, and which.
fn find_scanned<'a>(node: &'a Arc<Node>, options: &BeTreeOptions) -> Option<(&'a Arc<Node>, Vec<usize>)> {
    let pivots = scanned_pivots(node, options);
    if !pivots.is_empty() {
        return Some((node, pivots));
    }
    node.child_nodes().find_map(|child| find_scanned(child, options))
}

/// A node to which something is worth doing while nothing comes in, the uppermost first: what it lets out may
/// be let out below at once.
fn find_idle_work<'a>(node: &'a Arc<Node>, options: &BeTreeOptions) -> Option<(&'a Arc<Node>, IdleWork)> {
    let tier_bytes: Vec<u64> = node.tiers.iter().map(Tier::active_bytes).collect();
    if let Some(work) = with_load(node, |load| options.idle_work(&tier_bytes, load)) {
        return Some((node, work));
    }
    node.child_nodes().find_map(|child| find_idle_work(child, options))
}

/// The nodes on the way to `target`, each with the pivot that leads on; `None` if it is not in the tree.
fn path_to<'a>(root: &'a Arc<Node>, target: &Arc<Node>) -> Option<Vec<(&'a Arc<Node>, usize)>> {
    let low = target.pivots[0].low.to_vec();
    let (mut node, mut path) = (root, Vec::new());
    while !is_same(node, target) {
        let pivot = node.pivot_of(&low);
        path.push((node, pivot));
        match &node.pivots[pivot].child {
            Child::Node(child) => node = child,
            Child::Leaf(_) => return None,
        }
    }
    Some(path)
}

/// Whether a node is the one that a job began with: a node that has changed since is another object.
fn is_same(node: &Arc<Node>, target: &Arc<Node>) -> bool {
    Arc::ptr_eq(node, target)
        || (planted!("job-installed-on-changed-state")
            && (node.id, node.pivots.len()) == (target.id, target.pivots.len()))
}

/// A job of which all runs were written: the plan of its node.
struct PreparedJob {
    plan: PlanNode,
    outputs: Outputs,
}

/// Plans and writes a job of the tree below `root`.
pub(crate) fn prepare(root: &Arc<Node>, options: &BeTreeOptions, work: &Work, job: &Job) -> Result<Prepared> {
    let Target { action, node } = job.target.of().expect("the job was picked from a Bε-tree");
    let path = path_to(root, node).expect("the job was picked from this state");
    let depth = u32::try_from(path.len()).unwrap_or(u32::MAX);
    let mut plan = PlanNode::new(node);
    let pending = plan.pending();
    let flush = |plan: &mut PlanNode, pivots: &mut dyn Iterator<Item = usize>| {
        for pivot in pivots {
            plan.flush(pivot, pending[pivot], options, depth)?;
        }
        Ok(())
    };
    match action {
        Action::ShrinkRoot => flush(&mut plan, &mut std::iter::once(0))?,
        Action::Join => {}
        Action::FlushTombstones { tier } => {
            let shares = &node.tiers[*tier].shares;
            flush(&mut plan, &mut (0..shares.len()).filter(|&pivot| shares[pivot].is_some()))?;
        }
        Action::FlushBeyondBound { pivots } | Action::FlushScanned { pivots } => {
            flush(&mut plan, &mut pivots.iter().copied())?
        }
        Action::CompactIdle(work) => plan.do_idle_work(work.clone(), options, depth)?,
    }
    let above = |bounds: &Bounds| -> Vec<Layer> {
        path.iter().flat_map(|(node, pivot)| waiting_for(node, *pivot, bounds)).collect()
    };
    plan.join_children(options, depth, &above)?;
    let outputs = write_plan(&mut plan, work, options)?;
    Ok(Prepared::new(job.what, PreparedJob { plan, outputs }))
}

/// The plan of a prepared job as one of the tree below `root`; `None` if the node of the job is not in it.
pub(crate) fn planned_from_root(root: &Arc<Node>, prepared: Prepared) -> Option<(PlanNode, Outputs)> {
    // What a tree of another family has prepared is nothing to this one.
    let PreparedJob { mut plan, outputs } = prepared.into()?;
    let target = Arc::clone(&plan.base);
    for (node, pivot) in path_to(root, &target)?.into_iter().rev() {
        let mut above = PlanNode::new(node);
        above.children[pivot] = PlanChild::Node(Box::new(plan));
        plan = above;
    }
    Some((plan, outputs))
}
