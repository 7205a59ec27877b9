//! Joining adjacent small children: which leaves may become one, and which buffered entries must be flushed
//! with them.
//!
//! A leaf's run claims that no older run has entries of its keys; salvage, which has only runs, relies on
//! that. It holds because entries buffered above a leaf are newer than the leaf. Reclaiming empties shares
//! leaf by leaf, so newer entries may have reached one leaf but not yet its neighbor. A join of both would be
//! as new as the entries still buffered for the neighbor.
//!
//! **Invariants**
//! - Entries buffered above a leaf are newer than the leaf's seqno.
//! - [`joinable_groups`] only returns neighbors that a job can join.

use std::{cell::LazyCell, ops::RangeInclusive};

use testudo_base::{Result, Seqno, num::u64_of, planted};
use testudo_sequence::{Bounds, Fence, Layer, RunSlice, clip_layer, clip_runs, newest_of};

use crate::{
    BeTreeOptions,
    trunk::node::{Child, Node, Tier},
    update::plan::{PlanChild, PlanNode, PlanTier, active_bounds},
};

/// No entry is newer.
const SEQNO_MAX: Seqno = Seqno(u64::MAX);

/// The layers buffered above a node, clipped to its keys, newest first. They are collected once, when first
/// needed, because a full device asks for them at every leaf.
pub(crate) struct Above<'a>(LazyCell<Clipped, Box<dyn FnOnce() -> Clipped + 'a>>);

struct Clipped {
    layers: Vec<Layer>,
    /// Least seqno of their slices.
    oldest: Seqno,
}

impl<'a> Above<'a> {
    /// Nothing is buffered above the root.
    pub(crate) fn nothing() -> Self {
        Self::new(Vec::new)
    }

    /// `layers`: newest first.
    pub(crate) fn new(layers: impl FnOnce() -> Vec<Layer> + 'a) -> Self {
        let collect = || {
            let layers = layers();
            let seqnos = layers.iter().flatten().map(|slice| slice.source.newest_seqno());
            let oldest = seqnos.min().unwrap_or(SEQNO_MAX);
            Clipped { layers, oldest }
        };
        Self(LazyCell::new(Box::new(collect)))
    }

    /// Returns the layers above a child of the node: these, and those buffered in the node.
    pub(crate) fn child<'b>(&'b self, node: &'b Node, pivot: usize) -> Above<'b> {
        self.with(node.bounds_of(pivot), move || waiting_for(node, pivot, &Bounds::default()))
    }

    /// Returns these layers within bounds, on top of `own`.
    fn with<'b>(&'b self, bounds: Bounds, own: impl FnOnce() -> Vec<Layer> + 'b) -> Above<'b> {
        Above::new(move || {
            let mut layers = self.within(&bounds, SEQNO_MAX);
            layers.extend(own());
            layers
        })
    }

    /// Returns them.
    pub(crate) fn layers(&self) -> &[Layer] {
        &self.0.layers
    }

    /// Returns their slices within bounds and no newer than `newest`. Ages are compared before keys, because
    /// most entries above a leaf are newer than it.
    pub(crate) fn within(&self, bounds: &Bounds, newest: Seqno) -> Vec<Layer> {
        if self.0.oldest > newest {
            return Vec::new();
        }
        let clipped = |layer: &Layer| {
            let as_old = layer.iter().filter(|slice| slice.source.newest_seqno() <= newest);
            as_old.filter_map(|slice| slice.clipped(bounds)).collect()
        };
        self.0.layers.iter().map(clipped).collect()
    }
}

/// Returns a tier's entries for a pivot, within bounds.
fn waiting_in(tier: &Tier, pivot: usize, bounds: &Bounds) -> Layer {
    tier.shares[pivot]
        .as_ref()
        .map_or_else(Layer::new, |share| clip_runs(&tier.runs, &active_bounds(bounds, share)))
}

/// Returns the entries buffered in a node for one of its pivots, within bounds; newest first.
pub(crate) fn waiting_for(node: &Node, pivot: usize, bounds: &Bounds) -> Vec<Layer> {
    let bounds = node.bounds_of(pivot).intersection(bounds);
    node.tiers.iter().map(|tier| waiting_in(tier, pivot, &bounds)).collect()
}

/// Whether any of the layers has a key within bounds.
pub(crate) fn holds_any(layers: &[Layer], bounds: &Bounds) -> Result<bool> {
    for slice in layers.iter().flatten() {
        if slice.holds_any(bounds)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Like [`waiting_for`], for all keys of the pivot of a node under planning.
fn waiting_in_plan(base: &Node, tiers: &[PlanTier], pivot: usize) -> Vec<Layer> {
    let bounds = base.bounds_of(pivot);
    let mut layers = Vec::new();
    for tier in tiers {
        match tier {
            PlanTier::Existing(tier) | PlanTier::Trimmed { tier, .. } => {
                layers.push(waiting_in(tier, pivot, &bounds));
            }
            PlanTier::Merge(inputs) => {
                for input in inputs {
                    let Some(share) = &input.shares[pivot] else { continue };
                    layers.push(clip_layer(&input.slices, &active_bounds(&bounds, share)));
                }
            }
            PlanTier::Output { .. } => unreachable!("nothing is joined after its plan is closed"),
        }
    }
    layers
}

/// Returns the keys of adjacent children.
pub(crate) fn range_of(node: &Node, first: usize, last: usize) -> Bounds {
    debug_assert!(first <= last && last < node.pivots.len(), "children of the node, in order");
    Bounds { low: node.bounds_of(first).low, high: node.bounds_of(last).high }
}

/// Newest seqno of adjacent leaves and their entries buffered in the node: that of one leaf joined from all.
pub(crate) fn newest_in(node: &Node, first: usize, last: usize) -> Seqno {
    let leaf = |pivot: usize| match &node.pivots[pivot].child {
        Child::Leaf(Some(run)) => run.reference().newest_seqno,
        _ => Seqno::default(),
    };
    let pivots = first..=last;
    let waiting = pivots.clone().map(|pivot| newest_of(&waiting_for(node, pivot, &Bounds::default())));
    waiting.chain(pivots.map(leaf)).max().unwrap_or_default()
}

/// Slices of `above` that are no newer than `newest`.
fn as_old(above: &Above<'_>, bounds: &Bounds, newest: Seqno) -> impl Iterator<Item = RunSlice> {
    let newest = if planted!("joined-leaf-too-new") { Seqno(0) } else { newest };
    above.within(bounds, newest).into_iter().flatten()
}

fn is_any_as_old(above: &Above<'_>, bounds: &Bounds, newest: Seqno) -> bool {
    as_old(above, bounds, newest).next().is_some()
}

/// Adjacent leaves that can be joined.
pub(crate) struct Joinable {
    /// Path to the first.
    pub(crate) path: Vec<usize>,
    pub(crate) count: usize,
    /// Bytes of their entries and of everything flushed into them.
    pub(crate) bytes: u64,
    /// Their stored bytes.
    pub(crate) stored_bytes: u64,
}

/// Calls `act` with groups of leaves that can be joined, including the entries flushed with them.
pub(crate) fn each_joinable(
    node: &Node,
    options: &BeTreeOptions,
    path: &mut Vec<usize>,
    above: &Above<'_>,
    act: &mut dyn FnMut(Joinable),
) -> Result<()> {
    if node.height > 1 {
        for (pivot, child) in node.child_nodes().enumerate() {
            path.push(pivot);
            each_joinable(child, options, path, &above.child(node, pivot), act)?;
            path.pop();
        }
        return Ok(());
    }
    let mut first = 0;
    while first < node.pivots.len() {
        let joinable = joinable_from(node, first, options, above)?;
        first += joinable.count;
        if joinable.count > 1 {
            let path = path.iter().copied().chain(joinable.path).collect();
            act(Joinable { path, ..joinable });
        }
    }
    Ok(())
}

/// Returns the longest group of leaves of a node, from `first` on, that can be joined.
fn joinable_from(node: &Node, first: usize, options: &BeTreeOptions, above: &Above<'_>) -> Result<Joinable> {
    let size = |pivot: usize| node.pivots[pivot].child.leaf_bytes().unwrap_or(0) + node.pending_of(pivot);
    let stored = |pivot: usize| match &node.pivots[pivot].child {
        Child::Leaf(Some(run)) => run.reference().stored_bytes(),
        _ => 0,
    };
    let (mut bytes, mut above_bytes, mut last) = (size(first), 0, first);
    while last + 1 < node.pivots.len() && options.leaves_should_join(bytes, size(last + 1)) {
        let Some(needed) = bytes_as_old(node, first, last + 1, above)? else { break };
        if !options.fit_one_leaf(bytes + size(last + 1) + needed) {
            break;
        }
        last += 1;
        (bytes, above_bytes) = (bytes + size(last), needed);
    }
    debug_assert!(
        last == first || options.fit_one_leaf(bytes + above_bytes),
        "joined leaves fit one, or they would be split again"
    );
    Ok(Joinable {
        path: vec![first],
        count: last - first + 1,
        bytes: bytes + above_bytes,
        stored_bytes: (first..=last).map(stored).sum(),
    })
}

/// Bytes buffered above adjacent leaves that are no newer than the joined leaf would be; `None` if entries
/// before them would have to be flushed first.
fn bytes_as_old(node: &Node, first: usize, last: usize, above: &Above<'_>) -> Result<Option<u64>> {
    let (bounds, newest) = (range_of(node, first, last), newest_in(node, first, last));
    if bounds.low.is_some() && is_any_as_old(above, &Bounds { low: None, high: bounds.low.clone() }, newest) {
        return Ok(None);
    }
    let mut bytes = 0;
    for slice in as_old(above, &bounds, newest) {
        bytes += slice.bytes_within(&bounds)?;
    }
    Ok(Some(bytes))
}

/// A join of leaves.
struct Joining<'a> {
    count: usize,
    /// Their exclusive upper bound.
    high: Option<Fence>,
    /// Newest seqno of the joined leaf: newer entries stay where they are.
    newest: Seqno,
    options: &'a BeTreeOptions,
}

/// Adjacent leaves of a node that are worth joining.
pub(crate) struct Group {
    pub(crate) pivots: RangeInclusive<usize>,
    /// Bytes of their entries and of those buffered for them.
    pub(crate) bytes: u64,
}

/// Returns the groups of leaves of a node that are worth joining and that a job can join, in key order.
pub(crate) fn joinable_groups(node: &Node, options: &BeTreeOptions, above: &Above<'_>) -> Vec<Group> {
    debug_assert_eq!(node.height, 1, "the children are leaves");
    let size = |pivot: usize| node.pivots[pivot].child.leaf_bytes().unwrap_or(0) + node.pending_of(pivot);
    let mut groups = Vec::new();
    let mut first = 0;
    while first < node.pivots.len() {
        let (mut bytes, mut last) = (size(first), first);
        while last + 1 < node.pivots.len()
            && options.leaves_should_join(bytes, size(last + 1))
            && !is_any_as_old(above, &range_of(node, first, last + 1), newest_in(node, first, last + 1))
        {
            last += 1;
            bytes += size(last);
        }
        if last > first {
            debug_assert!(options.fit_one_leaf(bytes), "joined leaves fit one, or they would be split again");
            groups.push(Group { pivots: first..=last, bytes });
        }
        first = last + 1;
    }
    groups
}

/// Returns the parent node and pivot of the leaf at the end of a path.
fn leaf_parent<'a>(node: &'a Node, path: &[usize]) -> (&'a Node, usize) {
    debug_assert!(!path.is_empty(), "a path leads to a leaf");
    match &node.pivots[path[0]].child {
        Child::Node(child) => leaf_parent(child, &path[1..]),
        Child::Leaf(_) => (node, path[0]),
    }
}

impl PlanNode {
    /// Joins adjacent small leaves, and prepares joins of nodes that have few children: the entries buffered
    /// for both are flushed, so that their pivots can become one.
    pub(crate) fn join_children(
        &mut self,
        options: &BeTreeOptions,
        depth: u32,
        above: &Above<'_>,
    ) -> Result<()> {
        if self.base.height == 1 {
            return self.join_leaves(options, depth, above);
        }
        for left in 0..self.children.len().saturating_sub(1) {
            let counts = (self.child_pivots(left), self.child_pivots(left + 1));
            if options.nodes_should_join(counts.0, counts.1) {
                for pivot in [left, left + 1] {
                    let bytes = self.pending()[pivot];
                    if bytes > 0 {
                        self.flush(pivot, bytes, options, depth)?;
                    }
                }
            }
        }
        for (pivot, child) in self.children.iter_mut().enumerate() {
            let PlanChild::Node(plan) = child else { continue };
            let (base, tiers) = (&self.base, &self.tiers);
            let above_child = above.with(base.bounds_of(pivot), || waiting_in_plan(base, tiers, pivot));
            plan.join_children(options, depth + 1, &above_child)?;
        }
        Ok(())
    }

    fn child_pivots(&self, pivot: usize) -> usize {
        match &self.children[pivot] {
            PlanChild::Untouched(Child::Node(node)) => node.pivots.len(),
            PlanChild::Node(plan) => plan.children.len(),
            _ => usize::MAX / 4,
        }
    }

    fn join_leaves(&mut self, options: &BeTreeOptions, depth: u32, above: &Above<'_>) -> Result<()> {
        let pending = self.pending();
        let size = |child: &PlanChild, pending: u64| match child {
            PlanChild::Untouched(Child::Leaf(run)) => {
                Some(pending + run.as_ref().map_or(0, |run| run.reference().user_bytes))
            }
            PlanChild::Leaf { bytes, .. } => Some(pending + bytes),
            _ => None,
        };
        let mut left = 0;
        for right in 1..self.children.len() {
            let sizes =
                (size(&self.children[left], pending[left]), size(&self.children[right], pending[right]));
            let (Some(left_bytes), Some(right_bytes)) = sizes else { continue };
            if !options.leaves_should_join(left_bytes, right_bytes)
                || is_any_as_old(
                    above,
                    &range_of(&self.base, left, right),
                    self.newest_of_leaves(left, right),
                )
            {
                left = right;
                continue;
            }
            debug_assert!(left < right, "leaves are joined into one on their left");
            for pivot in [left, right] {
                self.flush_or_touch(pivot, options, depth)?;
            }
            self.join_pair(left, right);
        }
        Ok(())
    }

    /// Newest seqno of two leaves and their entries buffered here.
    fn newest_of_leaves(&self, left: usize, right: usize) -> Seqno {
        let leaf = |pivot: usize| match &self.children[pivot] {
            PlanChild::Untouched(Child::Leaf(Some(run))) => run.reference().newest_seqno,
            PlanChild::Leaf { layers, .. } => newest_of(layers),
            _ => Seqno::default(),
        };
        let newest = |pivot: usize| newest_of(&self.layers_of(pivot)).max(leaf(pivot));
        newest(left).max(newest(right))
    }

    /// Joins `count` adjacent leaves, the first at the end of `path`, with the entries buffered for them in
    /// their node, and with those above it that are no newer.
    pub(crate) fn join_into_leaf(
        &mut self,
        path: &[usize],
        count: usize,
        options: &BeTreeOptions,
    ) -> Result<()> {
        let (node, first) = leaf_parent(&self.base, path);
        debug_assert!(count > 1 && first + count <= node.pivots.len(), "two or more leaves of one node");
        let last = first + count - 1;
        let (high, newest) = (range_of(node, first, last).high, newest_in(node, first, last));
        let newest = if planted!("joined-leaf-too-new") { Seqno(0) } else { newest };
        self.join_below(Vec::new(), path, &Joining { count, high, newest, options })
    }

    /// Joins adjacent leaves with everything buffered for them.
    pub(crate) fn join_group(&mut self, group: RangeInclusive<usize>, options: &BeTreeOptions) -> Result<()> {
        debug_assert!(self.base.height == 1 && group.start() < group.end(), "two or more leaves");
        for leaf in group.clone() {
            self.flush_or_touch(leaf, options, 0)?;
        }
        group.clone().skip(1).for_each(|leaf| self.join_pair(*group.start(), leaf));
        Ok(())
    }

    /// `incoming`: entries from above, newest first.
    fn join_below(&mut self, incoming: Vec<Layer>, path: &[usize], joining: &Joining<'_>) -> Result<()> {
        debug_assert_eq!(u64_of(path.len()), u64::from(self.base.height), "one step per height");
        let pivot = path[0];
        if self.base.height > 1 {
            let PlanChild::Untouched(Child::Node(child)) = &self.children[pivot] else { return Ok(()) };
            let mut plan = Self::new(child);
            let mut layers = incoming;
            layers.extend(self.extract_below(pivot, joining.high.as_ref(), joining.newest)?);
            plan.join_below(layers, &path[1..], joining)?;
            self.children[pivot] = PlanChild::Node(Box::new(plan));
            return Ok(());
        }
        let others = pivot + 1..pivot + joining.count;
        for leaf in pivot..others.end {
            self.flush_or_touch(leaf, joining.options, 0)?;
        }
        others.for_each(|leaf| self.join_pair(pivot, leaf));
        if let PlanChild::Leaf { layers, bytes, .. } = &mut self.children[pivot] {
            for slice in incoming.iter().flatten() {
                *bytes += slice.bytes_within(&Bounds::default())?;
            }
            layers.splice(0..0, incoming);
        }
        Ok(())
    }

    fn flush_or_touch(&mut self, pivot: usize, options: &BeTreeOptions, depth: u32) -> Result<()> {
        let bytes = self.pending()[pivot];
        self.flush(pivot, bytes, options, depth)
    }

    /// Appends the leaf `right` to the leaf `left`: their keys are disjoint, so their oldest layers can be
    /// concatenated.
    fn join_pair(&mut self, left: usize, right: usize) {
        debug_assert!(left < right, "keys of the right leaf follow those of the left one");
        let right_child = std::mem::replace(&mut self.children[right], PlanChild::Joined);
        let PlanChild::Leaf {
            layers: right_layers, bytes: right_bytes, held_bytes: right_held_bytes, ..
        } = right_child
        else {
            return;
        };
        let PlanChild::Leaf { layers, bytes, held_bytes, .. } = &mut self.children[left] else { return };
        *bytes += right_bytes;
        *held_bytes += right_held_bytes;
        for (age, layer) in right_layers.into_iter().enumerate() {
            match layers.get_mut(age) {
                Some(beside) => beside.extend(layer),
                None => layers.push(layer),
            }
        }
    }
}
