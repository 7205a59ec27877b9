//! Assembly of the next trunk from a written plan: changed nodes are rebuilt bottom-up, joined, split, and
//! the root grows or shrinks.
//!
//! **Invariants**
//! - A changed node keeps its object id if one node replaces it; additional fragments get fresh ids.
//! - Two pivots are joined only if every tier has either nothing or everything for both.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{ObjectId, Result, num::u32_of};
use testudo_sequence::{Fence, FencedRun, Overwrites, bytes_of_runs, clip_runs, runs_within};

use crate::{
    BeTreeOptions,
    read_charges::ReadCharges,
    trunk::{
        concatenate::concatenate,
        node::{Child, Node, Pivot, Share, Tier, bounds_among},
    },
    update::{
        plan::{PlanChild, PlanNode, PlanTier, active_bounds},
        retain::Came,
        write::{Arrivals, Output, Outputs},
    },
};

/// Collects the changes of an edit while the next trunk is built.
#[derive(Debug)]
pub(crate) struct Assembly {
    /// Settings of the tree after the change.
    pub(crate) options: BeTreeOptions,
    outputs: Outputs,
    pub(crate) next_object: u64,
    /// Read charges survive the change.
    pub(crate) keeps_read_charges: bool,
    /// Nodes of the new trunk that are not in the old one.
    pub(crate) put: BTreeMap<ObjectId, Arc<Node>>,
    /// Nodes of the old trunk that are not in the new one.
    pub(crate) replaced: Vec<Arc<Node>>,
    /// Additions to the compaction buffer from rewritten leaves.
    pub(crate) came: Vec<Came>,
}

/// A pivot of the new node and the index of the old pivot it came from.
struct NewPivot {
    pivot: Pivot,
    old: usize,
}

impl Assembly {
    pub(crate) fn new(options: BeTreeOptions, outputs: Outputs, next_object: u64) -> Self {
        Self {
            options,
            outputs,
            next_object,
            keeps_read_charges: false,
            put: BTreeMap::new(),
            replaced: Vec::new(),
            came: Vec::new(),
        }
    }

    /// Builds the next root from the plan of the old one.
    pub(crate) fn build_root(&mut self, plan: PlanNode) -> Result<Arc<Node>> {
        debug_assert!(plan.base.high.is_none() && plan.base.pivots[0].low.is_empty(), "the plan of a root");
        let mut fragments = self.build(plan)?;
        while fragments.len() > 1 {
            debug_assert!(
                are_neighbours(&fragments),
                "the fragments of a node cover its keys without gap or overlap"
            );
            let height = fragments[0].height + 1;
            let high = fragments.last().and_then(|fragment| fragment.high.clone());
            let pivots = fragments.into_iter().map(child_pivot).collect();
            let id = self.fresh_id();
            fragments = self.split(Node {
                id,
                height,
                pivots,
                high,
                tiers: Vec::new(),
                read_charges: ReadCharges::default(),
                overwrites: Overwrites::UNKNOWN,
            })?;
        }
        let mut root = fragments.remove(0);
        while let ([Pivot { child: Child::Node(child), .. }], []) = (&root.pivots[..], &root.tiers[..]) {
            let child = Arc::clone(child);
            self.forget(&root);
            root = child;
        }
        Ok(root)
    }

    pub(crate) fn fresh_id(&mut self) -> ObjectId {
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        id
    }

    /// Removes the node from the new trunk.
    fn forget(&mut self, node: &Arc<Node>) {
        if self.put.remove(&node.id).is_none() {
            self.replaced.push(Arc::clone(node));
        }
    }

    fn build(&mut self, plan: PlanNode) -> Result<Vec<Arc<Node>>> {
        let PlanNode { base, tiers, children } = plan;
        debug_assert_eq!(children.len(), base.pivots.len(), "a plan has one child per pivot");
        self.replaced.push(Arc::clone(&base));
        let (pivots, overwrites) = self.build_pivots(&base, children)?;
        let tiers = self.build_tiers(&base, tiers, &pivots)?;
        let olds: Vec<usize> = pivots.iter().map(|new| new.old).collect();
        let node = Node {
            id: base.id,
            height: base.height,
            pivots: pivots.into_iter().map(|new| new.pivot).collect(),
            high: base.high.clone(),
            tiers,
            read_charges: ReadCharges::default(),
            overwrites,
        };
        let mut node = self.join_nodes(node);
        if self.keeps_read_charges && node.pivots.len() == olds.len() {
            // Charges for merged tiers are settled.
            let is_same = |(new, old): (&Pivot, &usize)| new.is_same(&base.pivots[*old]);
            let (left, before) = match node.pivots.iter().zip(&olds).all(is_same) {
                true => (u32_of(node.tiers.len()), u32_of(base.tiers.len()).max(1)),
                false => (1, 1),
            };
            let charge = |(new, old): (usize, &usize)| match node.pending_of(new) {
                0 => 0,
                _ => base.read_charges.of(*old) / before * left.min(before),
            };
            node.read_charges = olds.iter().enumerate().map(charge).collect();
        }
        self.split(node)
    }

    fn build_pivots(&mut self, base: &Node, children: Vec<PlanChild>) -> Result<(Vec<NewPivot>, Overwrites)> {
        let mut pivots: Vec<NewPivot> = Vec::with_capacity(children.len());
        let mut arrivals = Arrivals::default();
        for (old, child) in children.into_iter().enumerate() {
            let low = base.pivots[old].low.clone();
            match child {
                PlanChild::Untouched(child) => pivots.push(NewPivot { pivot: Pivot { low, child }, old }),
                PlanChild::Node(plan) => {
                    let fragments = self.build(*plan)?;
                    pivots.extend(
                        fragments.into_iter().map(|fragment| NewPivot { pivot: child_pivot(fragment), old }),
                    );
                }
                PlanChild::Output { output, cut } => {
                    let Output { mut runs, arrivals: of_leaf, came } =
                        std::mem::take(&mut self.outputs[output]);
                    arrivals += of_leaf;
                    self.came.extend(came);
                    let behind = cut.map(|cut| {
                        let first = runs.partition_point(|fenced| fenced.low < cut);
                        leaf_pivots(cut, runs.split_off(first))
                    });
                    let leaves = leaf_pivots(low, runs).into_iter().chain(behind.into_iter().flatten());
                    pivots.extend(leaves.map(|pivot| NewPivot { pivot, old }));
                }
                PlanChild::Cut(leaves) => {
                    pivots.extend(leaves.into_iter().map(|pivot| NewPivot { pivot, old }));
                }
                PlanChild::Joined => {}
                PlanChild::Leaf { .. } => unreachable!("every planned leaf was written"),
            }
        }
        debug_assert!(
            pivots.first().is_some_and(|first| first.pivot.low == base.pivots[0].low),
            "the new pivots begin where the node does"
        );
        debug_assert!(
            pivots.is_sorted_by(|a, b| a.pivot.low < b.pivot.low && a.old <= b.old),
            "new pivots ascend strictly, in the order of the old ones"
        );
        debug_assert!(arrivals.replacing <= arrivals.entries, "overwrites are among the arrivals");
        Ok((pivots, base.overwrites.after(arrivals.entries, arrivals.replacing)))
    }

    fn build_tiers(&mut self, base: &Node, tiers: Vec<PlanTier>, pivots: &[NewPivot]) -> Result<Vec<Tier>> {
        let mut built = Vec::with_capacity(tiers.len());
        for tier in tiers {
            let (runs, full): (Vec<FencedRun>, Vec<Option<Share>>) = match tier {
                PlanTier::Existing(tier) => (tier.runs, tier.shares),
                PlanTier::Output { output, shares } => {
                    (std::mem::take(&mut self.outputs[output].runs), shares)
                }
                PlanTier::Trimmed { tier: Tier { mut runs, shares }, at, output } => {
                    let output = output.expect("every planned tier was written");
                    debug_assert!(at < runs.len(), "the trimmed run is in its tier");
                    let mut trimmed = std::mem::take(&mut self.outputs[output].runs);
                    if let Some(first) = trimmed.first_mut() {
                        first.low = runs[at].low.clone();
                    }
                    runs.splice(at..=at, trimmed);
                    (runs, shares)
                }
                PlanTier::Merge(_) => unreachable!("every planned tier was written"),
            };
            debug_assert_eq!(full.len(), base.pivots.len(), "a tier has one share per old pivot");
            debug_assert!(runs.is_sorted_by(|a, b| a.low < b.low), "the runs of a tier ascend");
            let shares = new_shares(base, &runs, &full, pivots)?;
            let mut tier = Tier { runs, shares };
            let plain: Vec<Pivot> = pivots.iter().map(|new| new.pivot.clone()).collect();
            prune(&mut tier, &plain, base.high.as_ref());
            if tier.is_active() {
                built.push(tier);
            }
        }
        Ok(built)
    }

    /// Joins adjacent child nodes that have few children.
    fn join_nodes(&mut self, mut node: Node) -> Node {
        let mut left = 0;
        while left + 1 < node.pivots.len() {
            let (Child::Node(a), Child::Node(b)) = (&node.pivots[left].child, &node.pivots[left + 1].child)
            else {
                break;
            };
            let small = self.options.nodes_should_join(a.pivots.len(), b.pivots.len());
            if !small || !node.tiers.iter().all(|tier| can_unite(tier, left)) {
                left += 1;
                continue;
            }
            let joined = Arc::new(concatenate(a, b).with_shared_starts());
            let (a, b) = (Arc::clone(a), Arc::clone(b));
            self.forget(&a);
            self.forget(&b);
            self.put.insert(joined.id, Arc::clone(&joined));
            node.pivots[left].child = Child::Node(joined);
            node.pivots.remove(left + 1);
            for tier in &mut node.tiers {
                unite(tier, left);
            }
        }
        node
    }

    /// Splits a node that has too many children, and registers the fragments.
    fn split(&mut self, mut node: Node) -> Result<Vec<Arc<Node>>> {
        let count = node.pivots.len();
        let fragments = self.options.node_fragments(count);
        debug_assert!((1..=count).contains(&fragments), "no fragment of a node is empty");
        let mut out = Vec::with_capacity(fragments);
        for fragment in 0..fragments {
            let (from, to) = (count * fragment / fragments, count * (fragment + 1) / fragments);
            let id = if fragment == 0 { node.id } else { self.fresh_id() };
            let high = node.pivots.get(to).map(|next| next.low.clone()).or_else(|| node.high.clone());
            let pivots = node.pivots[from..to].to_vec();
            let mut tiers = Vec::with_capacity(node.tiers.len());
            for tier in &node.tiers {
                let mut part = Tier { runs: tier.runs.clone(), shares: tier.shares[from..to].to_vec() };
                prune(&mut part, &pivots, high.as_ref());
                if part.is_active() {
                    part.runs.shrink_to_fit();
                    tiers.push(part);
                }
            }
            tiers.shrink_to_fit();
            // A split node loses its charges.
            let charges = std::mem::take(&mut node.read_charges);
            let read_charges = if fragments == 1 { charges } else { ReadCharges::default() };
            let (height, overwrites) = (node.height, node.overwrites);
            let part = Node { id, height, pivots, high, tiers, read_charges, overwrites };
            let part = Arc::new(part.with_shared_starts());
            self.put.insert(id, Arc::clone(&part));
            out.push(part);
        }
        debug_assert!(are_neighbours(&out), "the pieces of a node cover its keys without gap or overlap");
        debug_assert_eq!(out[0].id, node.id, "the first piece keeps the id");
        debug_assert_eq!(
            out.last().map(|last| &last.high),
            Some(&node.high),
            "the last piece ends with the node"
        );
        Ok(out)
    }
}

/// Whether each node ends where the next one begins, at one height.
fn are_neighbours(nodes: &[Arc<Node>]) -> bool {
    nodes.is_sorted_by(|a, b| a.height == b.height && a.high.as_ref() == Some(&b.pivots[0].low))
}

fn child_pivot(node: Arc<Node>) -> Pivot {
    Pivot { low: node.pivots[0].low.clone(), child: Child::Node(node) }
}

/// Returns pivots for the runs that replace a leaf, the first at `low`; an empty leaf stays as a pivot
/// without a run.
fn leaf_pivots(low: Fence, runs: Vec<FencedRun>) -> Vec<Pivot> {
    let leaf = |fenced: FencedRun| Pivot { low: fenced.low, child: Child::Leaf(Some(fenced.run)) };
    let mut pivots: Vec<Pivot> = runs.into_iter().map(leaf).collect();
    match pivots.first_mut() {
        Some(first) => first.low = low,
        None => pivots.push(Pivot { low, child: Child::Leaf(None) }),
    }
    debug_assert!(pivots.is_sorted_by(|a, b| a.low < b.low), "the runs of a leaf are disjoint, in key order");
    pivots
}

/// Returns the shares of a tier after its node's pivots were replaced.
fn new_shares(
    base: &Node,
    runs: &[FencedRun],
    old_shares: &[Option<Share>],
    pivots: &[NewPivot],
) -> Result<Vec<Option<Share>>> {
    let plain: Vec<Pivot> = pivots.iter().map(|new| new.pivot.clone()).collect();
    let mut shares = Vec::with_capacity(pivots.len());
    for (index, new) in pivots.iter().enumerate() {
        let neighbours = [index.checked_sub(1), Some(index + 1)];
        let is_split =
            neighbours.into_iter().flatten().any(|other| pivots.get(other).is_some_and(|p| p.old == new.old));
        let share = match &old_shares[new.old] {
            None => None,
            Some(share) if !is_split && share.bytes > 0 => Some(share.clone()),
            Some(share) => {
                let bounds = active_bounds(&bounds_among(&plain, base.high.as_ref(), index), share);
                let some = !bounds.is_empty() && !clip_runs(runs, &bounds).is_empty();
                let from = share.from.clone().filter(|from| new.pivot.low.is_less_than(from));
                let bytes = if some { bytes_of_runs(runs, &bounds)?.max(1) } else { 0 };
                some.then_some(Share { from, bytes })
            }
        };
        debug_assert!(share.as_ref().is_none_or(|share| share.bytes > 0), "a share that is left has bytes");
        shares.push(share);
    }
    Ok(shares)
}

/// Drops the runs of a tier that have no data for any pivot, and shares that no run covers.
pub(crate) fn prune(tier: &mut Tier, pivots: &[Pivot], high: Option<&Fence>) {
    debug_assert_eq!(tier.shares.len(), pivots.len(), "a tier has one share per pivot");
    let mut needed = vec![false; tier.runs.len()];
    for (pivot, share) in tier.shares.iter_mut().enumerate() {
        let Some(active) = share else { continue };
        let bounds = active_bounds(&bounds_among(pivots, high, pivot), active);
        let mut any = false;
        for (at, _) in runs_within(&tier.runs, &bounds) {
            needed[at] = true;
            any = true;
        }
        if !any {
            *share = None;
        }
    }
    let mut needed = needed.into_iter();
    tier.runs.retain(|_| needed.next().unwrap_or(false));
}

/// Whether a tier's shares for pivots `left` and `left + 1` can be united.
fn can_unite(tier: &Tier, left: usize) -> bool {
    match (&tier.shares[left], &tier.shares[left + 1]) {
        (None, None) => true,
        (Some(_), Some(right)) => right.from.is_none(),
        _ => false,
    }
}

fn unite(tier: &mut Tier, left: usize) {
    debug_assert!(can_unite(tier, left), "the tier has nothing or everything for both pivots");
    let right = tier.shares.remove(left + 1);
    if let (Some(share), Some(right)) = (&mut tier.shares[left], right) {
        share.bytes += right.bytes;
    }
}
