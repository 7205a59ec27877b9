//! Policies: which tiers an incoming flow joins, which pivots are flushed, what is split and joined.
//!
//! All of it is pure arithmetic over byte counts. Here is what policies share; where they differ is in
//! [`turtle`] and [`splinter`], and nowhere else. Nodes and runs are the same for all, so a tree can go on
//! with another policy at any time: what the one before has left beyond the bounds of the present one goes
//! down over the next updates.
//!
//! Flushes of memtables should take about equally long (decision 0024). So a node flushes about as many bytes
//! to its children as it receives: under even load all children reach their threshold at the same time, and
//! would otherwise all be flushed in one go.
//!
//! **Invariants**
//! - A node that was within its bound stays within it, unless one pivot alone holds more.
//! - Only neighbouring tiers are merged.

pub(crate) mod simulation;

mod splinter;
mod turtle;

use std::ops::RangeInclusive;

use testudo_base::{ObjectId, num::low64};
use testudo_sequence::{Overwrites, SPARING_RUN_BYTES, TreeShare};

/// How a tree balances writes against reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Few tiers of doubling sizes; leaves are rewritten once a leaf of bytes waits for them (TurtleKV).
    Turtle,
    /// Many tiers, merged late and many at once; leaves are rewritten for as much as their space allows
    /// (SplinterDB).
    Splinter,
}

/// Settings of a Bε-tree. The defaults suit memory budgets from 64 MiB up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeTreeOptions {
    /// What is merged and flushed when.
    pub policy: Policy,
    /// Bytes of a full leaf (L in the paper), and the most of a run of a tier. Default 2 MiB: large enough
    /// for sequential I/O, small enough that a leaf rewrite is a few milliseconds.
    pub leaf_bytes: u64,
    /// Most children of a node (ρ in the paper). Default 64, as in the paper.
    pub max_pivots: usize,
    /// Trees that differ in it merge tiers in different rounds, where the policy is to merge late. Default 0;
    /// an engine gives each of many trees a number of its own.
    pub stagger: u64,
    /// How much of its pairs the tree has itself; it finds that out. Default all.
    pub tree_share: TreeShare,
}

/// Runs of a tier that hold as much as a leaf.
const RUNS_OF_A_LEAF: u64 = 4;
/// Smaller runs than this are mostly pages that are not full.
const TIER_RUN_BYTES_MIN: u64 = 64 << 10;
/// KiB of merging that cost as much as one more source costs a scan: finding an entry in memory…
const LOOK_KIB: u32 = 2;
/// …or in a page that is read for it.
const READ_KIB: u32 = 32;
/// Buffers that have cost scans less than this are not flushed for their sake.
const CHARGES_KIB_MIN: u32 = 1 << 10;

/// What a scan is charged for looking into one tier, in KiB of merging.
pub(crate) fn look_kib(has_read: bool) -> u32 {
    if has_read { READ_KIB } else { LOOK_KIB }
}

/// What flushing is decided by, of one node.
#[derive(Debug)]
pub(crate) struct NodeLoad<'a> {
    /// Bytes that have just come in.
    pub(crate) incoming: u64,
    /// Bytes that wait for each child.
    pub(crate) pending: &'a [u64],
    /// Bytes of each child that is a leaf.
    pub(crate) leaf_bytes: &'a [Option<u64>],
    /// How much of what flows into leaves replaces what they hold.
    pub(crate) overwrites: Overwrites,
}

/// What is due in a node, or worth doing while nothing comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeWork {
    /// Merging these tiers.
    Merge(RangeInclusive<usize>),
    /// Flushing these pivots.
    Flush(Vec<usize>),
}

/// What is due in a node that updates only add to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueWork {
    pub(crate) work: NodeWork,
    /// How much the node has of the tiers and bytes that it should have at most, in parts of [`Self::FULL`].
    pub(crate) pressure: u64,
}

impl DueWork {
    /// The pressure of a node that has all that it should have.
    pub(crate) const FULL: u64 = 256;

    /// Whether it is to be done before another update comes in: where updates come faster than jobs go, a
    /// node has up to a quarter more than it should have.
    pub(crate) fn is_pressing(&self) -> bool {
        self.pressure > Self::FULL + Self::FULL / 4
    }
}

impl BeTreeOptions {
    /// The default settings with this policy.
    pub const fn new(policy: Policy) -> Self {
        Self { policy, leaf_bytes: 2 << 20, max_pivots: 64, stagger: 0, tree_share: TreeShare::ALL }
    }

    /// Size of the smallest pieces that are worth telling apart.
    fn unit_bytes(&self) -> u64 {
        (self.leaf_bytes / 32).max(1)
    }

    /// Bytes of a full run of a tier. Fewer than of a leaf save space, because a run goes when the last of
    /// its pivots is flushed: most tiers would else be one or two runs, of which half is dead. Scans open
    /// fewer runs if they are long, so a turtle tree has small ones only where it overwrites.
    pub(crate) fn tier_run_bytes(&self, overwrites: Overwrites) -> u64 {
        let small = (self.leaf_bytes / RUNS_OF_A_LEAF).max(TIER_RUN_BYTES_MIN).min(self.leaf_bytes);
        match self.policy {
            Policy::Turtle => overwrites.surely().between(self.leaf_bytes, small),
            Policy::Splinter => small,
        }
    }

    /// How many rewrites of a record a doubling of the flush distance spares.
    pub(crate) fn rewrites_per_doubling(&self) -> f64 {
        match self.policy {
            Policy::Turtle => turtle::REWRITES_PER_DOUBLING,
            Policy::Splinter => splinter::REWRITES_PER_DOUBLING,
        }
    }

    /// The same for writing where space is short: what a run has beside its data is not to be most of it. A
    /// leaf of 4 KiB takes 16 to 20, sixteen of them as one a third of that.
    pub(crate) fn sparing(&self) -> Self {
        Self { leaf_bytes: self.leaf_bytes.max(SPARING_RUN_BYTES), ..*self }
    }

    /// How many of the existing tiers (`older`: their bytes, newest first) a new one of `bytes` is merged
    /// with.
    pub(crate) fn tiers_to_join(&self, bytes: u64, older: &[u64], overwrites: Overwrites) -> usize {
        match self.policy {
            Policy::Turtle => turtle::tiers_to_join(self, bytes, older, overwrites),
            Policy::Splinter => 0,
        }
    }

    /// A number by which nodes, and trees, do in different rounds what they would all do in one.
    fn stagger_of(&self, node: ObjectId) -> u64 {
        self.stagger.wrapping_add(node.0)
    }

    /// If a node has too many tiers (`tier_bytes`, newest first): those that are merged into one.
    pub(crate) fn tiers_to_merge(&self, node: ObjectId, tier_bytes: &[u64]) -> Option<RangeInclusive<usize>> {
        let which = match self.policy {
            Policy::Turtle => turtle::tiers_to_merge(tier_bytes),
            Policy::Splinter => splinter::tiers_to_merge(self.stagger_of(node), tier_bytes),
        };
        debug_assert!(
            which.as_ref().is_none_or(|which| which.start() < which.end() && *which.end() < tier_bytes.len()),
            "at least two of the tiers that there are"
        );
        which
    }

    /// Chooses the pivots to flush, in the order of [`Sweep`].
    ///
    /// - Of the pivots that have reached their threshold: at least one, and more until about as many bytes go
    ///   out as came in.
    /// - If the buffer is still beyond its bound: more, but not more than twice the bytes that came in. Only
    ///   a change of settings, or two nodes that have become one, can leave that much, and jobs see to that
    ///   too ([`Self::pivots_beyond_bound`]).
    pub(crate) fn pivots_to_flush(&self, load: &NodeLoad<'_>) -> Vec<usize> {
        let (thresholds, bound) = match self.policy {
            Policy::Turtle => turtle::thresholds(self, load),
            Policy::Splinter => splinter::thresholds(self, load),
        };
        debug_assert_eq!(load.pending.len(), load.leaf_bytes.len(), "one number for each child");
        debug_assert_eq!(load.pending.len(), thresholds.len(), "one threshold for each child");
        let mut sweep = Sweep::new(load.pending, &thresholds);
        let mut buffered: u64 = load.pending.iter().sum();
        let mut flushed = 0u64;
        let mut chosen = Vec::new();
        loop {
            let must_go = buffered > bound && flushed < load.incoming.saturating_mul(2).max(1);
            let Some(pivot) = sweep.next(must_go) else { return chosen };
            let bytes = load.pending[pivot];
            let has_room = flushed == 0 || flushed + bytes / 2 <= load.incoming;
            if !must_go && !has_room {
                return chosen;
            }
            debug_assert!(!chosen.contains(&pivot), "each pivot is flushed once");
            chosen.push(pivot);
            flushed += bytes;
            buffered -= bytes;
        }
    }

    /// The most that a node with such children may buffer, whatever overwrites.
    pub(crate) fn bound(&self, leaf_bytes: &[Option<u64>]) -> u64 {
        match self.policy {
            Policy::Turtle => turtle::max_buffered_bytes(self),
            Policy::Splinter => splinter::max_buffered_bytes(self, leaf_bytes),
        }
    }

    /// Pivots to flush of a node that buffers more than it may, although nothing comes in: it was put
    /// together of two, or comes from other settings. At most so many; none if it is no more than a leaf
    /// beyond its bound, which the next update sees to.
    pub(crate) fn pivots_beyond_bound(&self, load: &NodeLoad<'_>, count: usize) -> Vec<usize> {
        let (bound, mut buffered) = (self.bound(load.leaf_bytes), load.pending.iter().sum::<u64>());
        if buffered <= bound + self.leaf_bytes {
            return Vec::new();
        }
        let mut fullest: Vec<usize> =
            (0..load.pending.len()).filter(|&pivot| load.pending[pivot] > 0).collect();
        fullest.sort_by_key(|&pivot| std::cmp::Reverse(load.pending[pivot]));
        let is_beyond = |pivot: &usize| {
            let is_beyond = buffered > bound;
            buffered -= load.pending[*pivot];
            is_beyond
        };
        let mut chosen: Vec<usize> = fullest.into_iter().take_while(is_beyond).take(count).collect();
        chosen.sort_unstable();
        chosen
    }

    /// Whether updates only put tiers on top, and what that makes due is done by jobs.
    pub(crate) fn compacts_later(&self) -> bool {
        match self.policy {
            Policy::Turtle => false,
            Policy::Splinter => true,
        }
    }

    /// What updates have made due in a node; nothing where they do that themselves.
    pub(crate) fn due_work(
        &self,
        node: ObjectId,
        tier_bytes: &[u64],
        load: &NodeLoad<'_>,
    ) -> Option<DueWork> {
        match self.policy {
            Policy::Turtle => None,
            Policy::Splinter => splinter::due_work(self, node, tier_bytes, load),
        }
    }

    /// What is worth doing to a node while nothing comes in. It comes to an end: what is flushed stays below,
    /// what is merged stays merged.
    pub(crate) fn idle_work(&self, tier_bytes: &[u64], load: &NodeLoad<'_>) -> Option<NodeWork> {
        match self.policy {
            Policy::Turtle => turtle::idle_work(self, load),
            Policy::Splinter => splinter::idle_work(self, tier_bytes, load),
        }
    }

    /// Whether flushing so many bytes costs no more than scans would have saved by it, which have been
    /// charged so many KiB for looking into the buffer.
    pub(crate) fn scans_are_worth_a_flush(&self, charged_kib: u32, bytes: u64) -> bool {
        charged_kib >= CHARGES_KIB_MIN && u64::from(charged_kib) << 10 >= bytes
    }

    /// Whether merging all tiers of a node into one costs no more than scans would have saved by it, which
    /// have been charged so many KiB for looking into them. They were charged for each by its bytes, about:
    /// the less of a tier is in memory, the more often a page of it is read. What is left to look into costs
    /// as much as the largest tier did.
    pub(crate) fn scans_are_worth_a_merge(&self, charged_kib: u64, tier_bytes: &[u64]) -> bool {
        let (total, largest) =
            (tier_bytes.iter().sum::<u64>(), tier_bytes.iter().max().copied().unwrap_or(0));
        let saved = u128::from(charged_kib << 10) * u128::from(total - largest);
        tier_bytes.len() > 1
            && charged_kib >= u64::from(CHARGES_KIB_MIN)
            && saved >= u128::from(total) * u128::from(total)
    }

    /// Whether two neighbouring leaves are worth joining.
    pub(crate) fn leaves_should_join(&self, left: u64, right: u64) -> bool {
        left.min(right) < self.leaf_bytes / 4 && self.fit_one_leaf(left + right)
    }

    /// Whether so many bytes may be one leaf after two were joined; what is cut shall be more, lest it is
    /// joined again.
    pub(crate) fn fit_one_leaf(&self, bytes: u64) -> bool {
        bytes <= self.leaf_bytes / 4 * 3
    }

    /// Whether two neighbouring nodes are worth joining, by their number of pivots.
    pub(crate) fn nodes_should_join(&self, left: usize, right: usize) -> bool {
        left.min(right) <= (self.max_pivots / 4).max(1) && left + right <= self.max_pivots * 3 / 4
    }

    /// Into how many nodes this many pivots go.
    pub(crate) fn node_pieces(&self, pivots: usize) -> usize {
        debug_assert!(pivots > 0, "a node has children");
        if pivots <= self.max_pivots { 1 } else { pivots.div_ceil(self.max_pivots * 3 / 4) }
    }
}

/// Goes through the pivots of a node that are due.
///
/// Under even load all of them are about equally due, and any order would do. But the runs of a tier each
/// reach over many pivots, and are dead weight from when the first of those is flushed until the last one is.
/// So the sweep goes on where the one before has ended, which shows in how little waits there: neighbours are
/// flushed one after the other, and runs end soon after each other's ends.
struct Sweep<'a> {
    pending: &'a [u64],
    /// What waits for each pivot, in parts of its threshold; nothing once it is chosen.
    parts: Vec<u64>,
    last: Option<usize>,
}

impl<'a> Sweep<'a> {
    /// As many parts as make a pivot due.
    const DUE: u64 = 256;

    fn new(pending: &'a [u64], thresholds: &[u64]) -> Self {
        let part = |(&bytes, &threshold): (&u64, &u64)| {
            low64(u128::from(bytes) * u128::from(Self::DUE) / u128::from(threshold.max(1)))
        };
        Self { pending, parts: pending.iter().zip(thresholds).map(part).collect(), last: None }
    }

    /// The next pivot: the neighbour of the last one if it is half due, else one of those that are due, or,
    /// if something must go, of the fullest.
    fn next(&mut self, must_go: bool) -> Option<usize> {
        let neighbour = self.last.map(|last| last + 1).filter(|&next| next < self.parts.len());
        let pivot =
            neighbour.filter(|&next| self.parts[next] >= Self::DUE / 2).or_else(|| self.begin(must_go))?;
        self.parts[pivot] = 0;
        self.last = Some(pivot);
        Some(pivot)
    }

    /// Of those that are about as far beyond their threshold as any, the one whose left neighbour was flushed
    /// last.
    fn begin(&self, must_go: bool) -> Option<usize> {
        let is_left = |pivot: &usize| self.parts[*pivot] > 0;
        let farthest = self.parts.iter().copied().max().filter(|&parts| parts > 0)?;
        let fullest = (0..self.parts.len()).filter(is_left).map(|pivot| self.pending[pivot]).max()?;
        let is_due = |pivot: &usize| {
            if farthest >= Self::DUE {
                self.parts[*pivot] >= (farthest / 4 * 3).max(Self::DUE)
            } else {
                must_go && is_left(pivot) && self.pending[*pivot] >= fullest / 4 * 3
            }
        };
        let left_of = |pivot: usize| pivot.checked_sub(1).unwrap_or(self.parts.len() - 1);
        (0..self.parts.len()).filter(is_due).min_by_key(|&pivot| self.parts[left_of(pivot)])
    }
}

#[cfg(test)]
mod tests;
