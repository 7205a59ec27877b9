//! The trunk's node: pivots with their children, and a buffer of tiers.
//!
//! **Invariants**
//! - `pivots` is not empty and strictly increasing by `low`; a node's range is `[pivots[0].low, high)`.
//! - Every tier has one share per pivot. Entries of a tier count for pivot `i` only inside
//!   `[max(low, share.from), low of i + 1)`; everything else of its runs was flushed or belongs elsewhere.
//! - A run of a tier has keys from its own `low` on, and below that of the next run.

use std::sync::Arc;

use testudo_base::{ObjectId, Seqno};
use testudo_run::Run;
use testudo_sequence::{Bounds, Fence, FencedRun, Overwrites, share_starts};

use crate::read_charges::ReadCharges;

/// The child of a pivot.
#[derive(Clone, Debug)]
pub(crate) enum Child {
    Node(Arc<Node>),
    /// A leaf; `None` while it is empty.
    Leaf(Option<Arc<Run>>),
}

impl Child {
    /// Bytes of entries of a leaf; `None` for a node.
    pub(crate) fn leaf_bytes(&self) -> Option<u64> {
        match self {
            Self::Leaf(run) => Some(run.as_ref().map_or(0, |run| run.reference().user_bytes)),
            Self::Node(_) => None,
        }
    }

    /// Whether it is the same node or leaf, by identity.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Node(one), Self::Node(other)) => Arc::ptr_eq(one, other),
            (Self::Leaf(Some(one)), Self::Leaf(Some(other))) => Arc::ptr_eq(one, other),
            (Self::Leaf(None), Self::Leaf(None)) => true,
            _ => false,
        }
    }

    /// Whether it may be the child of a node of this height at a pivot with this key.
    fn fits_below(&self, height: u32, low: &Fence) -> bool {
        match self {
            Self::Node(node) => node.height + 1 == height && node.pivots[0].low == *low,
            Self::Leaf(_) => height == 1,
        }
    }
}

/// A child and the least key that belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct Pivot {
    pub(crate) low: Fence,
    pub(crate) child: Child,
}

impl Pivot {
    /// Whether it has the same child, by identity.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.child.is_same(&other.child) && self.low == other.low
    }
}

/// Remaining entries of a tier for one pivot (TurtleKV §3.1.2: active pivots, flushed upper bounds, pending
/// bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Entries before this key were flushed; `None`: none were.
    pub(crate) from: Option<Vec<u8>>,
    /// Approximate bytes of entries buffered for the pivot.
    pub(crate) bytes: u64,
}

/// A sorted sequence of runs in a node's buffer.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) runs: Vec<FencedRun>,
    /// One per pivot; `None`: nothing is left for it.
    pub(crate) shares: Vec<Option<Share>>,
}

impl Tier {
    pub(crate) fn active_bytes(&self) -> u64 {
        self.shares.iter().flatten().map(|share| share.bytes).sum()
    }

    /// Upper bound on the seqno of its entries; all of its runs have the same.
    pub(crate) fn newest_seqno(&self) -> Seqno {
        self.runs.iter().map(|fenced| fenced.run.reference().newest_seqno).max().unwrap_or_default()
    }

    /// Whether it has the same runs, by identity, and the same shares.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.has_same_runs(other) && self.shares == other.shares
    }

    /// Whether it has the same runs, by identity.
    pub(crate) fn has_same_runs(&self, other: &Self) -> bool {
        let are_same = |(one, other): (&FencedRun, &FencedRun)| Arc::ptr_eq(&one.run, &other.run);
        self.runs.len() == other.runs.len() && self.runs.iter().zip(&other.runs).all(are_same)
    }

    pub(crate) fn is_active(&self) -> bool {
        self.shares.iter().any(Option::is_some)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: ObjectId,
    /// Distance from the leaves; at least 1.
    pub(crate) height: u32,
    pub(crate) pivots: Vec<Pivot>,
    /// Exclusive upper bound of the node's keys; `None` at the right edge of the tree.
    pub(crate) high: Option<Fence>,
    /// Newest first, also by the seqnos of their runs.
    pub(crate) tiers: Vec<Tier>,
    pub(crate) read_charges: ReadCharges,
    pub(crate) overwrites: Overwrites,
}

impl Node {
    /// Returns the node with common prefixes of long fences shared.
    pub(crate) fn with_shared_starts(mut self) -> Self {
        debug_assert!(!self.pivots.is_empty(), "a node has children");
        debug_assert!(self.pivots.is_sorted_by(|a, b| a.low < b.low), "pivots ascend strictly");
        debug_assert!(
            self.tiers.iter().all(|tier| tier.shares.len() == self.pivots.len()),
            "a tier has one share per pivot"
        );
        debug_assert!(
            self.tiers.iter().all(|tier| tier.runs.is_sorted_by(|a, b| a.low < b.low)),
            "the runs of a tier ascend"
        );
        debug_assert!(self.height >= 1, "leaves are no nodes");
        debug_assert!(
            self.high.as_ref().is_none_or(|high| self.pivots.iter().all(|pivot| pivot.low < *high)),
            "the node ends after its last pivot"
        );
        debug_assert!(
            self.pivots.iter().all(|pivot| pivot.child.fits_below(self.height, &pivot.low)),
            "a child is one lower than its node and begins at its pivot"
        );
        let lows = self.pivots.iter_mut().map(|pivot| &mut pivot.low);
        let runs = self.tiers.iter_mut().flat_map(|tier| &mut tier.runs).map(|fenced| &mut fenced.low);
        share_starts(lows.chain(runs).chain(&mut self.high).collect());
        self
    }

    /// Bytes buffered for a child.
    pub(crate) fn pending_of(&self, pivot: usize) -> u64 {
        debug_assert!(pivot < self.pivots.len(), "a pivot of the node");
        self.tiers.iter().filter_map(|tier| tier.shares[pivot].as_ref()).map(|share| share.bytes).sum()
    }

    /// Returns the pivot of `key`. REQUIRES: the key is in the node's range.
    pub(crate) fn pivot_of(&self, key: &[u8]) -> usize {
        debug_assert!(self.pivots[0].low.is_at_most(key), "the key is in the node's range");
        self.pivots.partition_point(|pivot| pivot.low.is_at_most(key)).saturating_sub(1)
    }

    /// Total bytes of the runs, from here down, that may have entries of `key`.
    pub(crate) fn user_bytes_beside(&self, key: &[u8]) -> u64 {
        let (mut node, mut bytes) = (self, 0);
        loop {
            let pivot = node.pivot_of(key);
            for tier in node.tiers.iter().filter(|tier| tier.shares[pivot].is_some()) {
                let run = tier.runs.partition_point(|fenced| fenced.low.is_at_most(key)).checked_sub(1);
                bytes += run.map_or(0, |run| tier.runs[run].run.reference().user_bytes);
            }
            match &node.pivots[pivot].child {
                Child::Node(child) => node = child,
                leaf @ Child::Leaf(_) => return bytes + leaf.leaf_bytes().unwrap_or_default(),
            }
        }
    }

    /// Returns the range of keys of a pivot.
    pub(crate) fn bounds_of(&self, pivot: usize) -> Bounds {
        bounds_among(&self.pivots, self.high.as_ref(), pivot)
    }

    /// Returns all runs that the node refers to, leaves included, once per reference.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        let leaves = self.pivots.iter().filter_map(|pivot| match &pivot.child {
            Child::Leaf(run) => run.as_ref(),
            Child::Node(_) => None,
        });
        self.tiers.iter().flat_map(|tier| &tier.runs).map(|fenced| &fenced.run).chain(leaves)
    }

    /// Returns the leaf below the node whose range contains `key`, unless it is empty.
    pub(crate) fn leaf_of(&self, key: &[u8]) -> Option<&Arc<Run>> {
        match &self.pivots[self.pivot_of(key)].child {
            Child::Node(child) => child.leaf_of(key),
            Child::Leaf(leaf) => leaf.as_ref(),
        }
    }

    pub(crate) fn child_nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.pivots.iter().filter_map(|pivot| match &pivot.child {
            Child::Node(node) => Some(node),
            Child::Leaf(_) => None,
        })
    }
}

/// Returns the range of keys of a pivot among others.
pub(crate) fn bounds_among(pivots: &[Pivot], high: Option<&Fence>, pivot: usize) -> Bounds {
    debug_assert!(pivot < pivots.len(), "a pivot among these");
    let high = pivots.get(pivot + 1).map(|next| &next.low).or(high);
    Bounds { low: pivots[pivot].low.as_low(), high: high.cloned() }
}
