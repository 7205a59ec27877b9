//! Choice of the next job, outside the scopes of jobs in progress and within the limit of the request.
//!
//! **Invariants**
//! - A job's scope overlaps none of those in progress.
//! - What jobs in progress flush counts as gone.

use std::{ops::RangeInclusive, sync::Arc};

use testudo_contract::{Job, JobRequest};

use super::{Action, FOR_TOMBSTONES, Load, bounded::part_within, job_on, leaf_bytes_of, scope_of};
use crate::{
    BeTreeOptions,
    policy::{DueWork, NodeWork},
    tombstones::{WorthFlushing, pick_tombstones},
    trunk::node::{Child, Node},
    update::{
        join::{Above, joinable_groups},
        outflow::Outflow,
    },
};

/// Numerator and denominator of the charge at which a flush nearly pays off: three quarters of its cost.
const NEARLY_CHARGED: (u32, u32) = (4, 3);
/// Children flushed per job: some tens of milliseconds.
const FLUSHED_AT_ONCE: usize = 8;

/// Finds work in a tree.
pub(super) struct Finder<'a> {
    options: &'a BeTreeOptions,
    request: &'a JobRequest<'a>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(options: &'a BeTreeOptions, request: &'a JobRequest<'a>) -> Self {
        Self { options, request }
    }

    /// Finds the job with the greatest benefit, or lowest cost.
    pub(super) fn find(&self, root: &Arc<Node>) -> Option<Job> {
        self.find_shrink(root)
            .or_else(|| self.find_due(root))
            .or_else(|| self.find_join(root, &Above::nothing()))
            .or_else(|| self.find_in_tree(root, &|node| self.beyond_bound(node)))
            .or_else(|| self.find_tombstones(root))
            .or_else(|| self.find_in_tree(root, &|node| self.charged_pivots(node)))
            .or_else(|| self.find_in_tree(root, &|node| self.charged_tiers(node)))
            .or_else(|| {
                // The uppermost node first, because its output may make more due below at once.
                let is_idle = self.request.is_idle;
                is_idle.then(|| self.find_in_tree(root, &|node| self.idle_work(node)))?
            })
    }

    /// Returns the job of the uppermost node that has one.
    fn find_in_tree(&self, node: &Arc<Node>, job_of: &dyn Fn(&Arc<Node>) -> Option<Job>) -> Option<Job> {
        job_of(node).or_else(|| node.child_nodes().find_map(|child| self.find_in_tree(child, job_of)))
    }

    /// Whether a job on these pivots may begin.
    fn allows(&self, node: &Node, pivots: RangeInclusive<usize>, includes_children: bool) -> bool {
        self.request.busy.is_empty() || self.request.allows(&scope_of(node, pivots, includes_children))
    }

    /// Returns the load of a node, without the pivots of jobs in progress.
    fn load<'n>(&self, node: &'n Node) -> Load<'n> {
        let mut load = Load::of(node);
        for (pivot, pending) in load.pending.iter_mut().enumerate() {
            if *pending > 0 && !self.allows(node, pivot..=pivot, true) {
                *pending = 0;
            }
        }
        load
    }

    /// Returns a job that flushes as many of `pivots` as the limit permits, in this order; of the first one,
    /// if need be, the oldest tiers.
    fn flush(&self, what: &'static str, node: &Arc<Node>, pivots: &[usize]) -> Option<Job> {
        let mut left = self.request.bytes_max;
        let mut outflows: Vec<Outflow> = Vec::new();
        let mut keys: Option<RangeInclusive<usize>> = None;
        for &pivot in pivots {
            let wider = match &keys {
                None => pivot..=pivot,
                Some(keys) => pivot.min(*keys.start())..=pivot.max(*keys.end()),
            };
            if !self.allows(node, wider.clone(), true) {
                continue;
            }
            let outflow = match outflows.is_empty() {
                true => Outflow::within(node, pivot, left),
                false => Outflow::whole(node, pivot).filter(|outflow| outflow.read_bytes(node) <= left),
            };
            let Some(outflow) = outflow else { continue };
            left = left.saturating_sub(outflow.read_bytes(node));
            outflows.push(outflow);
            keys = Some(wider);
        }
        let scope = scope_of(node, keys?, true);
        outflows.sort_unstable_by_key(|outflow| outflow.pivot);
        let debt_bytes = outflows.iter().map(|outflow| outflow.bytes).sum();
        Some(job_on(node, what, Action::Flush { outflows, merge_bytes_max: left }, debt_bytes, scope))
    }

    fn merge(&self, what: &'static str, node: &Arc<Node>, tiers: RangeInclusive<usize>) -> Option<Job> {
        let pivots = 0..=node.pivots.len() - 1;
        if !self.allows(node, pivots.clone(), false) {
            return None;
        }
        let debt_bytes = node.tiers[tiers.clone()].iter().map(|tier| tier.active_bytes()).sum();
        Some(job_on(node, what, Action::Merge(tiers), debt_bytes, scope_of(node, pivots, false)))
    }

    /// A root with one child is replaced by it, once everything is flushed.
    fn find_shrink(&self, root: &Arc<Node>) -> Option<Job> {
        let is_due = root.height > 1 && root.pivots.len() == 1;
        is_due.then(|| self.flush("shrink root", root, &[0]))?
    }

    /// Finds the work due in the node under most pressure; of several, the uppermost.
    pub(super) fn find_due(&self, root: &Arc<Node>) -> Option<Job> {
        let mut due = Vec::new();
        if self.options.compacts_later() {
            self.collect_due(root, &mut due);
        }
        due.sort_by_key(|(_, due)| std::cmp::Reverse(due.pressure));
        due.into_iter().find_map(|(node, due)| self.due_job(node, due.work))
    }

    /// Collects all due work, parents first.
    fn collect_due<'n>(&self, node: &'n Arc<Node>, due: &mut Vec<(&'n Arc<Node>, DueWork)>) {
        due.extend(self.due_work(node).map(|work| (node, work)));
        node.child_nodes().for_each(|child| self.collect_due(child, due));
    }

    fn due_work(&self, node: &Node) -> Option<DueWork> {
        let load = self.load(node);
        self.options.due_work(node.id, &load.tier_bytes(), &load.at_rest(), self.request.bytes_max)
    }

    fn due_job(&self, node: &Arc<Node>, work: NodeWork) -> Option<Job> {
        match work {
            NodeWork::Merge(tiers) => self.merge("merge tiers", node, tiers),
            NodeWork::Flush(pivots) => self.flush("flush pivots", node, &pivots),
        }
    }

    /// Finds a node with children that are worth joining.
    fn find_join(&self, node: &Arc<Node>, above: &Above<'_>) -> Option<Job> {
        let what = "join children";
        let job = if node.height == 1 { self.join_leaves(node, above) } else { self.join_nodes(node) };
        job.map(|job| Job { what, ..job }).or_else(|| {
            let mut children = node.child_nodes().enumerate();
            children.find_map(|(pivot, child)| self.find_join(child, &above.child(node, pivot)))
        })
    }

    /// The entries buffered for two child nodes are flushed, so that their pivots can become one.
    fn join_nodes(&self, node: &Arc<Node>) -> Option<Job> {
        let pivots_of = |pivot: usize| match &node.pivots[pivot].child {
            Child::Node(child) => child.pivots.len(),
            Child::Leaf(_) => usize::MAX / 4,
        };
        let mut pairs = (1..node.pivots.len()).map(|right| [right - 1, right]);
        pairs.find_map(|pair| {
            let [left, right] = pair;
            let is_worth_it = self.options.nodes_should_join(pivots_of(left), pivots_of(right));
            if !is_worth_it || !self.allows(node, left..=right, true) {
                return None;
            }
            let scope = scope_of(node, left..=right, true);
            let flush = self.flush("", node, &pair).map(|job| Job { scope: scope.clone(), ..job });
            let nothing = Action::Flush { outflows: Vec::new(), merge_bytes_max: 0 };
            flush.or_else(|| Some(job_on(node, "", nothing, 0, scope)))
        })
    }

    fn join_leaves(&self, node: &Arc<Node>, above: &Above<'_>) -> Option<Job> {
        let (mut groups, mut bytes): (Vec<RangeInclusive<usize>>, u64) = (Vec::new(), 0);
        for group in joinable_groups(node, self.options, above) {
            let first = groups.first().map_or(*group.pivots.start(), |first| *first.start());
            let fits = groups.is_empty() || bytes + group.bytes <= self.request.bytes_max;
            if fits && self.allows(node, first..=*group.pivots.end(), true) {
                bytes += group.bytes;
                groups.push(group.pivots);
            }
        }
        let pivots = *groups.first()?.start()..=*groups.last()?.end();
        let debt_bytes = pivots.clone().map(|pivot| node.pending_of(pivot)).sum();
        let scope = scope_of(node, pivots, true);
        Some(job_on(node, "", Action::JoinLeaves(groups), debt_bytes, scope))
    }

    /// A node that exceeds its bounds without incoming writes.
    fn beyond_bound(&self, node: &Arc<Node>) -> Option<Job> {
        let load = self.load(node);
        let pivots = self.options.pivots_beyond_bound(&load.at_rest(), FLUSHED_AT_ONCE);
        self.flush("flush beyond the bound", node, &pivots).or_else(|| {
            let tiers = self.options.tiers_to_merge(node.id, &load.tier_bytes(), self.request.bytes_max)?;
            self.merge("merge beyond the bound", node, tiers)
        })
    }

    /// Whether a node has a job that brings it closer to its bounds.
    pub(super) fn repairs(&self, node: &Arc<Node>) -> bool {
        let due = || self.due_work(node).and_then(|due| self.due_job(node, due.work));
        self.beyond_bound(node).or_else(due).is_some()
    }

    fn find_tombstones(&self, root: &Arc<Node>) -> Option<Job> {
        let is_allowed = |node: &Node, pivot: usize| self.allows(node, pivot..=pivot, true);
        let worth = pick_tombstones(root, self.options, self.request.is_idle, &is_allowed)?;
        let WorthFlushing { node, pivots, saved_bytes } = worth;
        let job = self.flush(FOR_TOMBSTONES, node, &pivots)?;
        Some(Job { debt_bytes: saved_bytes, ..job })
    }

    /// The children of a node for which it pays to flush the buffers that reads search. If there are any,
    /// also those for which it almost pays, since a job costs syncs and an edit however many children it
    /// covers.
    fn charged_pivots(&self, node: &Arc<Node>) -> Option<Job> {
        let is_worth = |pivot: usize, charged_kib: u32| {
            if charged_kib == 0 {
                return false;
            }
            let waiting = node.pending_of(pivot);
            let below = leaf_bytes_of(&node.pivots[pivot].child);
            waiting > 0 && self.options.reads_are_worth_a_flush(charged_kib, waiting + below)
        };
        let charged = |pivot: usize| node.read_charges.of(pivot);
        let (due, others): (Vec<usize>, Vec<usize>) =
            (0..node.pivots.len()).partition(|pivot| is_worth(*pivot, charged(*pivot)));
        if due.is_empty() {
            return None;
        }
        let (times, parts) = NEARLY_CHARGED;
        let nearly = others.into_iter().filter(|pivot| is_worth(*pivot, charged(*pivot) / parts * times));
        let pivots: Vec<usize> = due.into_iter().chain(nearly).take(FLUSHED_AT_ONCE).collect();
        self.flush("flush for reads", node, &pivots)
    }

    /// A node above leaves for which merging all tiers into one pays off: reads then search only that one,
    /// for a fraction of the cost of flushing. If all are too many for one job, the newest of them.
    fn charged_tiers(&self, node: &Arc<Node>) -> Option<Job> {
        if node.height > 1 {
            return None;
        }
        let charged_kib = (0..node.pivots.len()).map(|pivot| u64::from(node.read_charges.of(pivot))).sum();
        let tier_bytes = Load::of(node).tier_bytes();
        if !self.options.reads_are_worth_a_merge(charged_kib, &tier_bytes) {
            return None;
        }
        debug_assert!(tier_bytes.len() > 1, "a merge has two inputs");
        let tiers = part_within(0..=tier_bytes.len() - 1, &tier_bytes, self.request.bytes_max)?;
        self.merge("merge for reads", node, tiers)
    }

    fn idle_work(&self, node: &Arc<Node>) -> Option<Job> {
        let what = "compact while idle";
        let load = self.load(node);
        match self.options.idle_work(&load.tier_bytes(), &load.at_rest())? {
            NodeWork::Flush(pivots) => self.flush(what, node, &pivots),
            NodeWork::Merge(tiers) => {
                let tiers = part_within(tiers, &load.tier_bytes(), self.request.bytes_max)?;
                self.merge(what, node, tiers)
            }
        }
    }
}
