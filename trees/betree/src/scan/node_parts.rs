//! The sources of a trunk for the range of one leaf, the part that a scan reads at a time.
//!
//! On the path from the root to the leaf every node contributes the data of its tiers for that part, newest
//! first; then comes the leaf itself. So a scan compares at most a dozen sources, however deep the tree is.
//!
//! **Invariants**
//! - A tier's cursor sees only entries inside the tier's shares.

use std::sync::Arc;

use testudo_base::num::u64_of;
use testudo_run::Run;
use testudo_sequence::{
    Bounds, Entrance, Fence, FencedRun, PartRange, PartSources, ScanParts, SequenceCursor, runs_within,
};

use crate::{
    policy::look_kib,
    trunk::node::{Child, Node},
};

/// The leaves at and below a root, each with its buffered data.
#[derive(Debug)]
pub(crate) struct NodeParts {
    root: Arc<Node>,
    /// Nodes to charge for the scan, on the path to its start.
    looks: Vec<Look>,
}

/// Tiers that a scan reads in one node.
#[derive(Debug)]
struct Look {
    node: Arc<Node>,
    pivot: usize,
    /// Number of such tiers.
    tiers: usize,
}

/// Returns the child of `node` at an entrance.
fn pivot_at(entrance: Entrance<'_>, node: &Node) -> usize {
    match entrance {
        Entrance::At(key) => node.pivot_of(key),
        Entrance::Before(key) => {
            node.pivots.partition_point(|pivot| pivot.low.is_less_than(key)).saturating_sub(1)
        }
        Entrance::Last => node.pivots.len() - 1,
    }
}

/// Wraps a leaf, which has no keys before its pivot.
fn leaf_of(run: &Arc<Run>) -> FencedRun {
    FencedRun { low: Fence::default(), run: Arc::clone(run) }
}

impl NodeParts {
    pub(crate) fn new(root: &Arc<Node>) -> Self {
        Self { root: Arc::clone(root), looks: Vec::new() }
    }

    /// Returns the nodes down to the leaf, each with the pivot taken; and the part.
    fn path(&self, entrance: Entrance<'_>) -> (Vec<(Arc<Node>, usize)>, PartRange) {
        let mut path = Vec::with_capacity(4);
        let mut node = Arc::clone(&self.root);
        let (mut low, mut high) = (None, None);
        loop {
            let pivot = pivot_at(entrance, &node);
            low = node.pivots[pivot].low.as_low().map(|low| Arc::from(low.to_vec())).or(low);
            high = node.pivots.get(pivot + 1).map(|next| Arc::from(next.low.to_vec())).or(high);
            let child = node.pivots[pivot].child.clone();
            path.push((node, pivot));
            match child {
                Child::Node(child) => node = child,
                Child::Leaf(_) => break,
            }
        }
        debug_assert_eq!(u64_of(path.len()), u64::from(self.root.height), "a path has one node per height");
        (path, PartRange { low, high })
    }
}

impl ScanParts for NodeParts {
    fn enter(&mut self, entrance: Entrance<'_>, goes_on: bool) -> PartSources {
        let (path, range) = self.path(entrance);
        let PartRange { low, high } = &range;
        self.looks.clear();
        let mut cursors = Vec::with_capacity(16);
        let mut waiting_bytes = Vec::with_capacity(16);
        for (depth, (node, pivot)) in path.iter().enumerate() {
            // Approximate share of one leaf in the entries buffered for a child.
            let leaves =
                path[depth + 1..].iter().map(|(below, _)| u64_of(below.pivots.len())).product::<u64>();
            let before = cursors.len();
            for tier in &node.tiers {
                let Some(share) = &tier.shares[*pivot] else { continue };
                let flushed =
                    share.from.as_deref().filter(|from| low.as_deref().is_none_or(|low| low < *from));
                let from = flushed.map(Arc::from).or_else(|| low.clone());
                let bounds =
                    Bounds { low: from.clone().map(Fence::from), high: high.clone().map(Fence::from) };
                let within = runs_within(&tier.runs, &bounds);
                let runs: Vec<FencedRun> = within.map(|(_, fenced)| fenced.clone()).collect();
                if !runs.is_empty() {
                    cursors.push(SequenceCursor::new(runs, from, high.clone()));
                    waiting_bytes.push(share.bytes / leaves);
                }
            }
            if !goes_on && cursors.len() > before {
                let tiers = cursors.len() - before;
                self.looks.push(Look { node: Arc::clone(node), pivot: *pivot, tiers });
            }
            if let Child::Leaf(Some(run)) = &node.pivots[*pivot].child {
                cursors.push(SequenceCursor::leaf(&leaf_of(run)));
                waiting_bytes.push(run.reference().user_bytes);
            }
        }
        debug_assert_eq!(cursors.len(), waiting_bytes.len(), "each source has its estimate");
        PartSources { range, cursors, waiting_bytes }
    }

    /// Charges the nodes that the scan had to read at its start.
    fn on_positioned(&mut self, sources: &[SequenceCursor]) {
        let mut sources = sources.iter();
        for Look { node, pivot, tiers } in self.looks.drain(..) {
            let cost = sources.by_ref().take(tiers).map(|source| look_kib(source.has_read())).sum();
            node.read_charges.charge(pivot, node.pivots.len(), cost);
            self.root.read_charges.note();
        }
    }

    fn leaf_at(&self, border: &[u8]) -> Option<FencedRun> {
        let mut node = &self.root;
        loop {
            match &node.pivots[node.pivot_of(border)].child {
                Child::Node(child) => node = child,
                Child::Leaf(run) => return run.as_ref().map(leaf_of),
            }
        }
    }
}
