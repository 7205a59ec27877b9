//! Jobs of a Bε-tree: work made due by updates where the policy leaves that to jobs, joining small
//! neighbors, shrinking the root, flushing tombstones. Also merging and flushing buffers that slow scans
//! down, and compacting while idle.
//!
//! A job changes one node and its children: it merges tiers of the node, flushes pivots one step down, or
//! joins children. Its scope is the keys of those pivots, at the heights of the node and, unless it only
//! merges, of the children. Heights are counted from the leaves, so the tree may grow meanwhile. It is
//! written from there ([`prepare`]), then installed in the current tree ([`rebase`]); the nodes above are
//! rebuilt. A step of a range compaction takes everything down to leaves, and excludes all other jobs.
//!
//! **Invariants**
//! - Picking a job is pure.
//! - A job reads at most the limit of its request, if two tiers, or a leaf and one tier's entries for it,
//!   are not more ([`bounded`]).
//! - A job is installed only if the parts that it changes are those that it was planned from.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use testudo_base::{Result, planted};
use testudo_contract::{JOB_BYTES, Job, JobRequest, Opaque, Prepared, RangeJob, Scope, Work};
use testudo_run::KeyBounds;
use testudo_sequence::{Bounds, Fence};

use crate::{
    BeTreeOptions,
    policy::{DueWork, NodeLoad, NodeWork},
    trunk::node::{Child, Node, Tier},
    update::{
        compact_range::{RangeStep, find_step},
        outflow::Outflow,
        plan::PlanNode,
        write::{Outputs, write_plan},
    },
};

pub(crate) mod bounded;
mod find;
mod rebase;

use find::Finder;

/// Description of a job that flushes tombstones.
pub(crate) const FOR_TOMBSTONES: &str = "flush tombstones";

/// Action to take on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// Flushes these entries one step down. Child nodes may merge up to `merge_bytes_max` more into the new
    /// tier.
    Flush { outflows: Vec<Outflow>, merge_bytes_max: u64 },
    /// Joins these groups of adjacent leaves.
    JoinLeaves(Vec<RangeInclusive<usize>>),
    /// Merges tiers.
    Merge(RangeInclusive<usize>),
    /// Moves a range of keys down, so that each key is in one run.
    CompactRange(RangeStep),
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

fn job_on(node: &Arc<Node>, what: &'static str, action: Action, debt_bytes: u64, scope: Scope) -> Job {
    let target = Opaque::new(Target { action, node: Arc::clone(node) });
    Job { what, debt_bytes, scope, target }
}

/// Picks the job with the greatest benefit, or lowest cost, in the tree below `root`.
pub(crate) fn pick(root: &Arc<Node>, options: &BeTreeOptions, request: &JobRequest<'_>) -> Option<Job> {
    Finder::new(options, request).find(root)
}

/// Picks the work due in the node under most pressure; of several, the uppermost.
pub(crate) fn pick_due(root: &Arc<Node>, options: &BeTreeOptions, request: &JobRequest<'_>) -> Option<Job> {
    Finder::new(options, request).find_due(root)
}

/// Picks the job that compacts the first leaves of `range` for which entries are buffered.
pub(crate) fn pick_range(root: &Arc<Node>, range: &KeyBounds, bytes_max: u64) -> Result<Option<RangeJob>> {
    let step = find_step(root, &Bounds::from(range), bytes_max)?;
    Ok(step.map(|step| {
        let done_below = step.bounds.high.as_ref().map(Fence::to_vec);
        let debt_bytes = step.waiting_bytes;
        let action = Action::CompactRange(step);
        RangeJob { job: job_on(root, "compact a range", action, debt_bytes, Scope::all()), done_below }
    }))
}

/// Bytes buffered for each pivot of a node, and bytes of its leaves.
struct Load<'a> {
    node: &'a Node,
    pending: Vec<u64>,
    leaf_bytes: Vec<Option<u64>>,
}

impl<'a> Load<'a> {
    fn of(node: &'a Node) -> Self {
        let pending = (0..node.pivots.len()).map(|pivot| node.pending_of(pivot)).collect();
        let leaf_bytes = node.pivots.iter().map(|pivot| pivot.child.leaf_bytes()).collect();
        Self { node, pending, leaf_bytes }
    }

    /// The load without incoming writes.
    fn at_rest(&self) -> NodeLoad<'_> {
        let overwrites = self.node.overwrites;
        NodeLoad { incoming: 0, pending: &self.pending, leaf_bytes: &self.leaf_bytes, overwrites }
    }

    fn tier_bytes(&self) -> Vec<u64> {
        self.node.tiers.iter().map(Tier::active_bytes).collect()
    }
}

/// Bytes that jobs must write before the next update.
pub(crate) fn behind_bytes(root: &Arc<Node>, options: &BeTreeOptions) -> u64 {
    if !options.compacts_later() {
        return 0;
    }
    let load = Load::of(root);
    let tier_bytes = load.tier_bytes();
    let due = options.due_work(root.id, &tier_bytes, &load.at_rest(), JOB_BYTES);
    let own = due.filter(DueWork::is_pressing).map_or(0, |due| {
        let bytes: u64 = match due.work {
            NodeWork::Merge(tiers) => tier_bytes[tiers].iter().sum(),
            NodeWork::Flush(pivots) => pivots.iter().map(|pivot| load.pending[*pivot]).sum(),
        };
        bytes.max(1)
    });
    own + root.child_nodes().map(|child| behind_bytes(child, options)).sum::<u64>()
}

/// Whether a node is within its bounds, or has a job that brings it closer to them.
pub(crate) fn is_bounded(node: &Arc<Node>, options: &BeTreeOptions) -> bool {
    let load = Load::of(node);
    let request = JobRequest::only(false);
    let excess = options.excess(node.id, &load.tier_bytes(), &load.at_rest());
    !excess.is_any() || Finder::new(options, &request).repairs(node)
}

/// A job whose runs are all written: the plan of its node.
struct PreparedJob {
    plan: PlanNode,
    outputs: Outputs,
}

/// Plans and writes a job of the tree below `root`.
pub(crate) fn prepare(options: &BeTreeOptions, work: &Work, job: &Job) -> Result<Prepared> {
    let Target { action, node } = job.target.of().expect("the job was picked from a Bε-tree");
    let mut plan = PlanNode::new(node);
    match action {
        Action::Flush { outflows, merge_bytes_max } => {
            for outflow in outflows {
                plan.flush_oldest(outflow, options, *merge_bytes_max)?;
            }
        }
        Action::JoinLeaves(groups) => {
            groups.iter().try_for_each(|group| plan.join_group(group.clone(), options))?;
        }
        Action::Merge(tiers) => plan.merge_tiers(tiers.clone()),
        Action::CompactRange(step) => plan.move_down(&[], &step.bounds)?,
    }
    let outputs = write_plan(&mut plan, work, options)?;
    Ok(Prepared::new(job.what, PreparedJob { plan, outputs }))
}

/// Returns the plan of a prepared job as a plan of `root`; `None` if its input is not in its tree.
pub(crate) fn planned_from_root(root: &Arc<Node>, prepared: Prepared) -> Option<(PlanNode, Outputs)> {
    // Ignore jobs prepared by a tree of another family.
    let PreparedJob { plan, outputs } = prepared.into()?;
    Some((rebase::planned_from_root(root, plan, &outputs)?, outputs))
}

/// Returns the scope of a job on adjacent pivots of a node, from the first to the last of `pivots`.
fn scope_of(node: &Node, pivots: RangeInclusive<usize>, includes_children: bool) -> Scope {
    let low = node.bounds_of(*pivots.start()).low;
    let high = node.bounds_of(*pivots.end()).high;
    let below = u32::from(includes_children && !planted!("children-outside-of-scopes"));
    Scope { keys: Bounds { low, high }.to_keys(), layers: node.height - below..=node.height }
}

/// Bytes of a leaf; 0 for a node.
fn leaf_bytes_of(child: &Child) -> u64 {
    child.leaf_bytes().unwrap_or_default()
}
