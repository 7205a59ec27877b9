//! Jobs of a Bε-tree: work made due by updates where the policy leaves that to jobs, joining small
//! neighbors, shrinking the root, flushing tombstones. Also merging and flushing buffers that slow scans
//! down, and compacting while idle.
//!
//! A job changes the subtree of one node. It is planned and written from there ([`prepare`]). It is then
//! installed in the current tree, if that node is still in it ([`planned_from_root`]), below the tiers added
//! on top meanwhile; the nodes above are rebuilt.
//!
//! **Invariants**
//! - Picking a job is pure.
//! - A job is installed only if its start node is reached from the root with exactly the children and tiers
//!   that it had.

use std::{fmt, sync::Arc};

use testudo_base::{Result, num::usize_of, planted};
use testudo_contract::{Job, JobRequest, Opaque, Prepared, RangeJob, Scope, Work};
use testudo_run::KeyBounds;
use testudo_sequence::{Bounds, Fence};

use crate::{
    BeTreeOptions,
    policy::{DueWork, NodeLoad, NodeWork},
    tombstones::{WorthFlushing, pick_tombstones},
    trunk::node::{Child, Node, Tier},
    update::{
        compact_range::{RangeStep, find_step},
        join::{Above, find_join, range_of, waiting_for},
        plan::{PlanChild, PlanNode, PlanTier},
        write::{Outputs, write_plan},
    },
};

/// Description of a job that flushes tombstones.
pub(crate) const FOR_TOMBSTONES: &str = "flush tombstones";

/// Numerator and denominator of the charge at which a flush nearly pays off: three quarters of its cost.
const NEARLY_CHARGED: (u32, u32) = (4, 3);
/// Children flushed per job: some tens of milliseconds.
const FLUSHED_AT_ONCE: usize = 8;

/// Action to take on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// The root has one child, which is to replace it.
    ShrinkRoot,
    /// Adjacent children are small enough to be joined.
    Join,
    /// The buffer exceeds its bound.
    FlushBeyondBound { pivots: Vec<usize> },
    /// Updates have made this work due.
    DoDue(NodeWork),
    /// Tombstones buffered for these pivots are worth a flush.
    FlushTombstones { pivots: Vec<usize>, saved_bytes: u64 },
    /// Scans had to read the buffered entries of these pivots, or these tiers.
    SpareScans(NodeWork),
    /// The keyspace is idle.
    CompactIdle(NodeWork),
    /// A range of keys is to be in one run for each key.
    CompactRange(RangeStep),
}

impl Action {
    fn what(&self) -> &'static str {
        match self {
            Self::ShrinkRoot => "shrink root",
            Self::Join => "join children",
            Self::FlushBeyondBound { .. } => "flush beyond the bound",
            Self::DoDue(NodeWork::Merge(_)) => "merge tiers",
            Self::DoDue(NodeWork::Flush(_)) => "flush pivots",
            Self::FlushTombstones { .. } => FOR_TOMBSTONES,
            Self::SpareScans(NodeWork::Flush(_)) => "flush for scans",
            Self::SpareScans(NodeWork::Merge(_)) => "merge for scans",
            Self::CompactIdle(_) => "compact while idle",
            Self::CompactRange(_) => "compact a range",
        }
    }

    /// Approximate bytes of the node's buffer that are moved or dropped.
    fn debt_bytes(&self, node: &Node) -> u64 {
        let pending =
            |pivots: &mut dyn Iterator<Item = usize>| pivots.map(|pivot| node.pending_of(pivot)).sum();
        match self {
            Self::ShrinkRoot | Self::Join => pending(&mut (0..node.pivots.len())),
            Self::FlushTombstones { saved_bytes, .. } => *saved_bytes,
            Self::CompactRange(step) => step.waiting_bytes,
            Self::FlushBeyondBound { pivots }
            | Self::SpareScans(NodeWork::Flush(pivots))
            | Self::DoDue(NodeWork::Flush(pivots))
            | Self::CompactIdle(NodeWork::Flush(pivots)) => pending(&mut pivots.iter().copied()),
            Self::SpareScans(NodeWork::Merge(tiers))
            | Self::DoDue(NodeWork::Merge(tiers))
            | Self::CompactIdle(NodeWork::Merge(tiers)) => {
                node.tiers[tiers.clone()].iter().map(Tier::active_bytes).sum()
            }
        }
    }

    fn on(self, node: &Arc<Node>) -> Job {
        let (what, debt_bytes) = (self.what(), self.debt_bytes(node));
        let target = Opaque::new(Target { action: self, node: Arc::clone(node) });
        Job { what, debt_bytes, scope: Scope::all(), target }
    }
}

/// Target of a job.
struct Target {
    action: Action,
    node: Arc<Node>,
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} of node {}", self.action, self.node.id)
    }
}

/// Picks the job with the greatest benefit, or lowest cost, in the tree below `root`.
pub(crate) fn pick(root: &Arc<Node>, options: &BeTreeOptions, request: &JobRequest<'_>) -> Option<Job> {
    if !request.allows(&Scope::all()) {
        return None;
    }
    let is_idle = request.is_idle;
    if root.height > 1 && root.pivots.len() == 1 {
        return Some(Action::ShrinkRoot.on(root));
    }
    if let Some(job) = pick_due(root, options) {
        return Some(job);
    }
    if let Some(node) = find_join(root, options, &Above::nothing()) {
        return Some(Action::Join.on(node));
    }
    if let Some((node, pivots)) = find_beyond_bound(root, options) {
        return Some(Action::FlushBeyondBound { pivots }.on(node));
    }
    if let Some(WorthFlushing { node, pivots, saved_bytes }) = pick_tombstones(root, options, is_idle) {
        return Some(Action::FlushTombstones { pivots, saved_bytes }.on(node));
    }
    if let Some((node, work)) = find_scanned(root, options).or_else(|| find_scanned_tiers(root, options)) {
        return Some(Action::SpareScans(work).on(node));
    }
    let (node, work) = is_idle.then(|| find_idle_work(root, options))??;
    Some(Action::CompactIdle(work).on(node))
}

/// Picks the job that compacts the first leaves of `range` for which entries are buffered.
pub(crate) fn pick_range(root: &Arc<Node>, range: &KeyBounds) -> Result<Option<RangeJob>> {
    let step = find_step(root, &Bounds::from(range))?;
    Ok(step.map(|step| {
        let done_below = step.bounds.high.as_ref().map(Fence::to_vec);
        RangeJob { job: Action::CompactRange(step).on(root), done_below }
    }))
}

/// Calls `decide` with the load of a node without incoming writes.
fn with_load<R>(node: &Node, decide: impl FnOnce(&NodeLoad<'_>) -> R) -> R {
    let pending: Vec<u64> = (0..node.pivots.len()).map(|pivot| node.pending_of(pivot)).collect();
    let leaf_bytes: Vec<Option<u64>> = node.pivots.iter().map(|pivot| pivot.child.leaf_bytes()).collect();
    let overwrites = node.overwrites;
    decide(&NodeLoad { incoming: 0, pending: &pending, leaf_bytes: &leaf_bytes, overwrites })
}

/// Picks the work due in the node under most pressure; of several, the uppermost.
pub(crate) fn pick_due(root: &Arc<Node>, options: &BeTreeOptions) -> Option<Job> {
    let mut most: Option<(&Arc<Node>, DueWork)> = None;
    each_due(root, options, &mut |node, due| {
        if most.as_ref().is_none_or(|(_, most)| due.pressure > most.pressure) {
            most = Some((node, due));
        }
    });
    most.map(|(node, due)| Action::DoDue(due.work).on(node))
}

/// Calls `act` with all due work, parents first.
fn each_due<'a>(node: &'a Arc<Node>, options: &BeTreeOptions, act: &mut dyn FnMut(&'a Arc<Node>, DueWork)) {
    if !options.compacts_later() {
        return;
    }
    let tier_bytes: Vec<u64> = node.tiers.iter().map(Tier::active_bytes).collect();
    let due = with_load(node, |load| options.due_work(node.id, &tier_bytes, load));
    if let Some(due) = due {
        act(node, due);
    }
    node.child_nodes().for_each(|child| each_due(child, options, act));
}

/// Bytes that jobs must write before the next update.
pub(crate) fn behind_bytes(root: &Arc<Node>, options: &BeTreeOptions) -> u64 {
    let mut bytes = 0;
    each_due(root, options, &mut |node, due| {
        if due.is_pressing() {
            bytes += Action::DoDue(due.work).debt_bytes(node).max(1);
        }
    });
    bytes
}

/// Finds the uppermost node whose buffer exceeds its bound, and the pivots to flush.
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

/// The children of a node for which it pays to flush the buffers that scans read. If there are any, also
/// those for which it almost pays, since a job costs syncs and an edit however many children it covers.
fn scanned_pivots(node: &Node, options: &BeTreeOptions) -> Vec<usize> {
    let is_worth = |pivot: usize, charged_kib: u32| {
        if charged_kib == 0 {
            return false;
        }
        let waiting = node.pending_of(pivot);
        let below = match &node.pivots[pivot].child {
            Child::Leaf(Some(run)) => run.reference().user_bytes,
            _ => 0,
        };
        waiting > 0 && options.scans_are_worth_a_flush(charged_kib, waiting + below)
    };
    let charged = |pivot: usize| node.scan_charges.of(pivot);
    let (due, others): (Vec<usize>, Vec<usize>) =
        (0..node.pivots.len()).partition(|pivot| is_worth(*pivot, charged(*pivot)));
    if due.is_empty() {
        return due;
    }
    let (times, parts) = NEARLY_CHARGED;
    let nearly = others.into_iter().filter(|pivot| is_worth(*pivot, charged(*pivot) / parts * times));
    let mut pivots: Vec<usize> = due.into_iter().chain(nearly).take(FLUSHED_AT_ONCE).collect();
    pivots.sort_unstable();
    pivots
}

/// Finds a node with such children, and returns both.
fn find_scanned<'a>(node: &'a Arc<Node>, options: &BeTreeOptions) -> Option<(&'a Arc<Node>, NodeWork)> {
    let pivots = scanned_pivots(node, options);
    if !pivots.is_empty() {
        return Some((node, NodeWork::Flush(pivots)));
    }
    node.child_nodes().find_map(|child| find_scanned(child, options))
}

/// Finds a node above leaves for which merging all tiers into one pays off: scans then read only that one,
/// for a fraction of the cost of flushing.
fn find_scanned_tiers<'a>(node: &'a Arc<Node>, options: &BeTreeOptions) -> Option<(&'a Arc<Node>, NodeWork)> {
    if node.height > 1 {
        return node.child_nodes().find_map(|child| find_scanned_tiers(child, options));
    }
    let charged_kib = (0..node.pivots.len()).map(|pivot| u64::from(node.scan_charges.of(pivot))).sum();
    let tier_bytes: Vec<u64> = node.tiers.iter().map(Tier::active_bytes).collect();
    let is_worth = options.scans_are_worth_a_merge(charged_kib, &tier_bytes);
    debug_assert!(!is_worth || tier_bytes.len() > 1, "a merge has two inputs");
    is_worth.then(|| (node, NodeWork::Merge(0..=tier_bytes.len() - 1)))
}

/// Finds the uppermost node with worthwhile idle work, because its output may make more due below at once.
fn find_idle_work<'a>(node: &'a Arc<Node>, options: &BeTreeOptions) -> Option<(&'a Arc<Node>, NodeWork)> {
    let tier_bytes: Vec<u64> = node.tiers.iter().map(Tier::active_bytes).collect();
    if let Some(work) = with_load(node, |load| options.idle_work(&tier_bytes, load)) {
        return Some((node, work));
    }
    node.child_nodes().find_map(|child| find_idle_work(child, options))
}

/// Position of a node in a tree that may be a later state.
struct Place<'a> {
    /// The nodes on the path, each with the pivot that leads on.
    path: Vec<(&'a Arc<Node>, usize)>,
    node: &'a Arc<Node>,
    /// Number of tiers added on top since.
    newer: usize,
}

/// Finds `target` below `root`; `None` if it is no longer there.
fn place_of<'a>(root: &'a Arc<Node>, target: &Arc<Node>) -> Option<Place<'a>> {
    let low = target.pivots[0].low.to_vec();
    let (mut node, mut path) = (root, Vec::new());
    while node.height > target.height {
        let pivot = node.pivot_of(&low);
        path.push((node, pivot));
        match &node.pivots[pivot].child {
            Child::Node(child) => node = child,
            Child::Leaf(_) => return None,
        }
    }
    debug_assert_eq!(node.height, target.height, "nodes are sought at their height");
    debug_assert_eq!(path.len(), usize_of((root.height - node.height).into()), "one step per height");
    newer_tiers(node, target).map(|newer| Place { path, node, newer })
}

/// Number of tiers on top of those at the start of a job; `None` if anything else has changed.
fn newer_tiers(node: &Arc<Node>, target: &Arc<Node>) -> Option<usize> {
    if Arc::ptr_eq(node, target) {
        return Some(0);
    }
    let newer = node.tiers.len().checked_sub(target.tiers.len())?;
    if planted!("job-installed-on-changed-state")
        && (node.id, node.pivots.len()) == (target.id, target.pivots.len())
    {
        return Some(newer);
    }
    let have_same_pivots = node.pivots.len() == target.pivots.len()
        && node.high == target.high
        && node.pivots.iter().zip(&target.pivots).all(|(one, other)| one.is_same(other));
    let have_same_tiers =
        || node.tiers[newer..].iter().zip(&target.tiers).all(|(one, other)| one.is_same(other));
    (node.id == target.id && have_same_pivots && have_same_tiers()).then_some(newer)
}

/// A job whose runs are all written: the plan of its node.
struct PreparedJob {
    plan: PlanNode,
    outputs: Outputs,
}

/// Plans and writes a job of the tree below `root`.
pub(crate) fn prepare(root: &Arc<Node>, options: &BeTreeOptions, work: &Work, job: &Job) -> Result<Prepared> {
    let Target { action, node } = job.target.of().expect("the job was picked from a Bε-tree");
    let Place { path, .. } = place_of(root, node).expect("the job was picked from this state");
    let depth = u32::try_from(path.len()).unwrap_or(u32::MAX);
    let mut plan = PlanNode::new(node);
    let pending = plan.pending();
    debug_assert_eq!(pending.len(), node.pivots.len(), "one number per pivot");
    let flush = |plan: &mut PlanNode, pivots: &mut dyn Iterator<Item = usize>| {
        for pivot in pivots {
            plan.flush(pivot, pending[pivot], options, depth)?;
        }
        Ok(())
    };
    match action {
        Action::ShrinkRoot => flush(&mut plan, &mut std::iter::once(0))?,
        Action::Join => {}
        Action::CompactRange(step) => {
            // Joins would rewrite leaves outside the range.
            plan.move_down(&[], &step.bounds)?;
            let outputs = write_plan(&mut plan, work, options)?;
            return Ok(Prepared::new(job.what, PreparedJob { plan, outputs }));
        }
        Action::FlushTombstones { pivots, .. } | Action::FlushBeyondBound { pivots } => {
            flush(&mut plan, &mut pivots.iter().copied())?
        }
        Action::SpareScans(work) | Action::DoDue(work) | Action::CompactIdle(work) => {
            plan.do_work(work.clone(), options, depth)?
        }
    }
    let bounds = range_of(node, 0, node.pivots.len() - 1);
    let above =
        Above::new(|| path.iter().flat_map(|(parent, pivot)| waiting_for(parent, *pivot, &bounds)).collect());
    plan.join_children(options, depth, &above)?;
    let outputs = write_plan(&mut plan, work, options)?;
    Ok(Prepared::new(job.what, PreparedJob { plan, outputs }))
}

/// Whether a tier has no entries for pivots that a plan joins: they would count for both or neither.
fn is_beside_joins(tier: &Tier, plan: &PlanNode) -> bool {
    let is_joined = |pivot: usize| matches!(plan.children.get(pivot), Some(PlanChild::Joined));
    (0..tier.shares.len())
        .all(|pivot| tier.shares[pivot].is_none() || !(is_joined(pivot) || is_joined(pivot + 1)))
        || planted!("joined-below-what-came-in")
}

/// Returns the plan of a prepared job as a plan of `root`; `None` if the job's node is not in its tree.
pub(crate) fn planned_from_root(root: &Arc<Node>, prepared: Prepared) -> Option<(PlanNode, Outputs)> {
    // Ignore jobs prepared by a tree of another family.
    let PreparedJob { mut plan, outputs } = prepared.into()?;
    let Place { path, node, newer } = place_of(root, &plan.base)?;
    debug_assert!(newer <= node.tiers.len(), "tiers on top are tiers of the node");
    let newer = if planted!("tiers-on-top-forgotten") { &[] } else { &node.tiers[..newer] };
    if newer.iter().any(|tier| !is_beside_joins(tier, &plan)) {
        return None;
    }
    plan.base = Arc::clone(node);
    plan.tiers.splice(0..0, newer.iter().cloned().map(PlanTier::Existing));
    for (node, pivot) in path.into_iter().rev() {
        let mut above = PlanNode::new(node);
        above.children[pivot] = PlanChild::Node(Box::new(plan));
        plan = above;
    }
    debug_assert!(Arc::ptr_eq(&plan.base, root), "the plan is that of the root");
    Some((plan, outputs))
}
