//! Operations for a keyspace that migrates to or from another tree: the ends of portions, inserting a portion
//! among the leaves, and restricting a trunk to a range (decision 0042).
//!
//! A trunk is cut exactly: at every height a pivot begins where the range ends, so that shares remain
//! correct. Leaves cannot be cut. So outgoing portions end at leaf boundaries.
//!
//! **Invariants**
//! - No run is read or written here.
//! - The key range in which a portion is inserted belongs to one leaf, which has no key in it.

use std::sync::Arc;

use testudo_base::{Error, ErrorKind, Result, num::u64_of};
use testudo_contract::{Heading, Portion};
use testudo_run::{KeyBounds, Run};
use testudo_sequence::{Bounds, Fence, Overwrites, is_outside};

use crate::{
    read_charges::ReadCharges,
    trunk::{
        assemble::{Assembly, prune},
        node::{Child, Node, Pivot, Tier},
    },
    update::plan::{PlanChild, PlanNode},
};

/// Returns the end of a portion of about `bytes`, at one end of `rest`; `None` if it is all of `rest`.
pub(crate) fn next_border(root: &Node, rest: &KeyBounds, heading: Heading, bytes: u64) -> Option<Vec<u8>> {
    let mut search = Search { rest: Bounds::from(rest), heading, wanted: bytes, found: 0 };
    search.visit(root, 0).map(|border| border.to_vec())
}

/// A search for the end of a portion, leaf by leaf.
struct Search {
    rest: Bounds,
    heading: Heading,
    wanted: u64,
    /// Bytes of the leaves passed, and of the entries buffered for them.
    found: u64,
}

impl Search {
    /// `waiting`: approximate bytes buffered above the node.
    fn visit(&mut self, node: &Node, waiting: u64) -> Option<Fence> {
        let count = node.pivots.len();
        (0..count).find_map(|step| {
            let pivot = match self.heading {
                Heading::Up => step,
                Heading::Down => count - 1 - step,
            };
            if node.bounds_of(pivot).intersection(&self.rest).is_empty() {
                return None;
            }
            let waiting = waiting / u64_of(count) + node.pending_of(pivot);
            match &node.pivots[pivot].child {
                Child::Node(child) => self.visit(child, waiting),
                leaf @ Child::Leaf(_) => {
                    self.pass(&node.pivots[pivot].low, waiting + leaf.leaf_bytes().unwrap_or_default())
                }
            }
        })
    }

    /// Passes a leaf that begins at `low`; returns `low` if the portion ends there.
    fn pass(&mut self, low: &Fence, bytes: u64) -> Option<Fence> {
        let before = self.found;
        self.found += bytes;
        let (is_enough, is_inside) = match self.heading {
            Heading::Up => (before >= self.wanted, self.rest.low.as_ref().is_none_or(|end| end < low)),
            Heading::Down => (self.found >= self.wanted, true),
        };
        (is_enough && is_inside && !low.is_empty()).then(|| low.clone())
    }
}

/// Returns the plan of `node` and its descendants with a portion among the leaves.
pub(crate) fn plan_with_portion(node: &Arc<Node>, portion: &Portion) -> Result<PlanNode> {
    let mut plan = PlanNode::new(node);
    let low = portion.bounds.low.as_deref().unwrap_or_default();
    let pivot = node.pivot_of(low);
    plan.children[pivot] = match &node.pivots[pivot].child {
        Child::Node(child) => PlanChild::Node(Box::new(plan_with_portion(child, portion)?)),
        Child::Leaf(run) => PlanChild::Cut(leaves_around(run.as_ref(), &node.bounds_of(pivot), portion)?),
    };
    Ok(plan)
}

/// Returns the leaves that replace the one with `run`: before the portion, the portion, and after it.
fn leaves_around(run: Option<&Arc<Run>>, leaf: &Bounds, portion: &Portion) -> Result<Vec<Pivot>> {
    let inside = Bounds::from(&portion.bounds);
    if inside.intersection(leaf) != inside {
        return Err(contradiction("leaves begin in a range still to be filled"));
    }
    let within = |bounds: &Bounds| -> Result<Option<Arc<Run>>> {
        let Some(run) = run else { return Ok(None) };
        Ok((!is_outside(run, bounds, false)?).then(|| Arc::clone(run)))
    };
    let mut leaves = Vec::with_capacity(portion.runs.len() + 2);
    let mut kept = run.is_none();
    if inside.low != leaf.low {
        let before = within(&Bounds { low: None, high: inside.low.clone() })?;
        kept |= before.is_some();
        leaves.push(Pivot { low: leaf.low.clone().unwrap_or_default(), child: Child::Leaf(before) });
    }
    let of_portion = |(fence, run): &(Vec<u8>, Arc<Run>)| Pivot {
        low: fence.as_slice().into(),
        child: Child::Leaf(Some(Arc::clone(run))),
    };
    leaves.extend(portion.runs.iter().map(of_portion));
    if let Some(high) = inside.high.filter(|high| Some(high) != leaf.high.as_ref()) {
        let behind = within(&Bounds { low: Some(high.clone()), high: None })?;
        kept |= behind.is_some();
        leaves.push(Pivot { low: high, child: Child::Leaf(behind) });
    }
    debug_assert!(leaves.is_sorted_by(|a, b| a.low < b.low), "the leaves of a piece are in key order");
    if kept { Ok(leaves) } else { Err(contradiction("a leaf has keys in a range still to be filled")) }
}

/// Error for stored state that no migration can have written.
fn contradiction(what: &str) -> Error {
    Error::new(ErrorKind::Corruption, format!("a tree of a moving keyspace: {what}"))
}

/// Restricts the trunk below `root` to `keep`.
pub(crate) fn restricted_root(
    assembly: &mut Assembly,
    root: &Arc<Node>,
    keep: &KeyBounds,
) -> Result<Arc<Node>> {
    let keep = Bounds::from(keep);
    let mut node = restricted(assembly, root, &keep)?;
    debug_assert!(!node.pivots.is_empty() || keep.is_empty(), "a range has keys");
    if let Some(low) = keep.low {
        let child = empty_child(assembly, root.height, Fence::default(), Some(low));
        node.pivots.insert(0, Pivot { low: Fence::default(), child });
        node.tiers.iter_mut().for_each(|tier| tier.shares.insert(0, None));
    }
    if let Some(high) = keep.high {
        let child = empty_child(assembly, root.height, high.clone(), None);
        node.pivots.push(Pivot { low: high, child });
        node.tiers.iter_mut().for_each(|tier| tier.shares.push(None));
        node.high = None;
    }
    debug_assert_eq!(node.height, root.height, "a restricted trunk keeps its height");
    Ok(put(assembly, node))
}

/// Returns an empty child of a node of this height.
fn empty_child(assembly: &mut Assembly, height: u32, low: Fence, high: Option<Fence>) -> Child {
    debug_assert!(height >= 1, "a node is above leaves");
    if height == 1 {
        return Child::Leaf(None);
    }
    let child = empty_child(assembly, height - 1, low.clone(), high.clone());
    let node = Node {
        id: assembly.fresh_id(),
        height: height - 1,
        pivots: vec![Pivot { low, child }],
        high,
        tiers: Vec::new(),
        read_charges: ReadCharges::default(),
        overwrites: Overwrites::UNKNOWN,
    };
    Child::Node(put(assembly, node))
}

fn put(assembly: &mut Assembly, node: Node) -> Arc<Node> {
    let node = Arc::new(node.with_shared_starts());
    assembly.put.insert(node.id, Arc::clone(&node));
    node
}

/// Returns a node restricted to `keep`, which is also its range.
fn restricted(assembly: &mut Assembly, node: &Arc<Node>, keep: &Bounds) -> Result<Node> {
    assembly.replaced.push(Arc::clone(node));
    let mut kept = Vec::new();
    let mut pivots = Vec::new();
    for (at, pivot) in node.pivots.iter().enumerate() {
        let bounds = node.bounds_of(at);
        let inside = bounds.intersection(keep);
        if inside.is_empty() {
            if let Child::Node(child) = &pivot.child {
                forget(assembly, child);
            }
            continue;
        }
        let child = match &pivot.child {
            Child::Node(child) if inside != bounds => {
                let node = restricted(assembly, child, keep)?;
                Child::Node(put(assembly, node))
            }
            Child::Leaf(Some(run)) => {
                if inside != bounds && is_outside(run, &inside, false)? {
                    return Err(contradiction("a leaf crosses the border"));
                }
                Child::Leaf(Some(Arc::clone(run)))
            }
            child => child.clone(),
        };
        kept.push(at);
        pivots.push(Pivot { low: inside.low.unwrap_or_default(), child });
    }
    debug_assert_eq!(kept.len(), pivots.len(), "each pivot has its old one");
    let high = node.high.iter().chain(&keep.high).min().cloned();
    let mut tiers = Vec::with_capacity(node.tiers.len());
    for tier in &node.tiers {
        let shares = kept.iter().map(|at| tier.shares[*at].clone()).collect();
        let mut tier = Tier { runs: tier.runs.clone(), shares };
        prune(&mut tier, &pivots, high.as_ref());
        if tier.is_active() {
            tiers.push(tier);
        }
    }
    Ok(Node {
        id: node.id,
        height: node.height,
        pivots,
        high,
        tiers,
        read_charges: ReadCharges::default(),
        overwrites: node.overwrites,
    })
}

/// Removes the node and all descendants from the new trunk.
fn forget(assembly: &mut Assembly, node: &Arc<Node>) {
    assembly.replaced.push(Arc::clone(node));
    node.child_nodes().for_each(|child| forget(assembly, child));
}
