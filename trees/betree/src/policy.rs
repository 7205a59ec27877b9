//! Policies: which tiers an incoming flow joins, which pivots are flushed, and when nodes are split and
//! joined.
//!
//! All of it is pure arithmetic over byte counts. This file has the common parts of policies; they differ
//! only in [`turtle`] and [`splinter`]. Nodes and runs are the same for all, so a tree can switch policies at
//! any time: any excess over the bounds of the new policy is flushed by the next updates.
//!
//! Flushes of memtables should take about equally long (decision 0024). So a node flushes about as many bytes
//! to its children as it receives. Otherwise, under even load, all children would reach their threshold
//! together and be flushed at once.
//!
//! **Invariants**
//! - A turtle node buffers at most `L · (ρ − 1)` bytes after an update, if it did before. A splinter node
//!   buffers at most the bytes of its leaves (a full one for each child node), and a quarter more before
//!   updates wait; the update that follows is added to that.
//! - A node joined from two, or with other settings, may exceed its bound. It then has a job until the excess
//!   is at most a leaf ([`BeTreeOptions::excess`]); no split increases it.
//! - Only adjacent tiers are merged.

mod splinter;
mod turtle;

use std::ops::RangeInclusive;

use testudo_base::{
    ObjectId,
    num::{low64, usize_of},
    planted,
};
use testudo_sequence::{Overwrites, SPARING_RUN_BYTES, TreeShare};

/// Trade-off of a tree between write and read cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Few tiers of doubling sizes; a leaf is rewritten once a leaf of bytes is buffered for it (TurtleKV).
    Turtle,
    /// Many tiers, merged lazily and many at once; a leaf is rewritten when the space limit requires it
    /// (SplinterDB).
    Splinter,
}

/// Settings of a Bε-tree. The defaults suit memory budgets from 64 MiB up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeTreeOptions {
    /// Merge and flush policy.
    pub policy: Policy,
    /// Bytes of a full leaf (L in the paper), and maximum size of a run in a tier. Default 2 MiB: large
    /// enough for sequential I/O, small enough that a leaf rewrite takes a few milliseconds.
    pub leaf_bytes: u64,
    /// Maximum number of children per node (ρ in the paper). Default 64, as in the paper.
    pub max_pivots: usize,
    /// Offset that spreads lazy tier merges of different trees over different rounds. Default 0; an engine
    /// gives each of many trees its own.
    pub stagger: u64,
    /// The tree's own share of its pairs' bytes; the tree measures it. Default all.
    pub tree_share: TreeShare,
    /// Fraction of recent updates that overwrites leaves; the tree measures it. Default unknown.
    pub inflow: Overwrites,
}

/// Inverse of the fraction of a leaf below which sizes of tiers and leaves are not distinguished.
const UNITS_OF_A_LEAF: u64 = 32;
/// A leaf with less than one in this many bytes of a full one is joined with a neighbor …
const SMALL_LEAF_PARTS: u64 = 4;
/// … if both together fill at most these quarters of one: it can then grow before it is split.
const JOINED_LEAF_QUARTERS: u64 = 3;
/// A node with at most one in this many of the pivots of a full one is joined with a neighbor …
const SMALL_NODE_PARTS: usize = 4;
/// … if both together have at most these quarters of its pivots. Splits leave as many, too.
const JOINED_NODE_QUARTERS: usize = 3;
/// Number of runs of a tier that hold as much as a leaf.
const RUNS_OF_A_LEAF: u64 = 4;
/// Minimum run size of tiers: pages of smaller runs are mostly not full.
const TIER_RUN_BYTES_MIN: u64 = 64 << 10;
/// Read cost of one more source, in KiB of merging: for an entry in memory…
const LOOK_KIB: u32 = 2;
/// …or on a page read for it.
const READ_KIB: u32 = 32;
/// Minimum charge for which a buffer is flushed.
const CHARGES_KIB_MIN: u32 = 1 << 10;

/// Cost charged to a scan for one tier, in KiB of merging.
pub(crate) fn look_kib(has_read: bool) -> u32 {
    if has_read { READ_KIB } else { LOOK_KIB }
}

/// Cost charged to a point read for one tier without its key, in KiB of merging, if its filter was read, or
/// did not exclude the key. `reads`: pages that were not cached.
pub(crate) fn probe_kib(reads: u32) -> u32 {
    if reads == 0 { LOOK_KIB } else { reads.saturating_mul(READ_KIB) }
}

/// Input of flush decisions of one node.
#[derive(Debug)]
pub struct NodeLoad<'a> {
    /// Incoming bytes.
    pub incoming: u64,
    /// Bytes buffered for each child.
    pub pending: &'a [u64],
    /// Bytes of each child that is a leaf.
    pub leaf_bytes: &'a [Option<u64>],
    /// Fraction of the flow into leaves that overwrites.
    pub overwrites: Overwrites,
}

/// Work that is due in a node, or worthwhile while idle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeWork {
    /// Merging these tiers.
    Merge(RangeInclusive<usize>),
    /// Flushing these pivots.
    Flush(Vec<usize>),
}

/// Work that is due in a node where updates only add tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueWork {
    /// The work.
    pub work: NodeWork,
    /// Ratio of the node's tiers and bytes to their targets, in parts of [`Self::FULL`].
    pub pressure: u64,
}

impl DueWork {
    /// The pressure of a node at its target.
    pub const FULL: u64 = 256;

    /// A node may exceed its target by a quarter.
    const SLACK: u64 = Self::FULL / 4;

    /// Whether it must be done before the next update. If updates arrive faster than jobs finish, a node
    /// exceeds its target by up to a quarter.
    pub fn is_pressing(&self) -> bool {
        self.pressure > Self::FULL + Self::SLACK
    }
}

/// Excess of a node over its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Buffered bytes beyond the bound.
    pub(crate) bytes: u64,
    /// Tiers beyond their limit.
    pub(crate) tiers: usize,
}

impl Excess {
    /// Whether the node exceeds any bound.
    pub(crate) fn is_any(&self) -> bool {
        self.bytes > 0 || self.tiers > 0
    }
}

impl BeTreeOptions {
    /// Creates default settings with this policy.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            leaf_bytes: 2 << 20,
            max_pivots: 64,
            stagger: 0,
            tree_share: TreeShare::ALL,
            inflow: Overwrites::UNKNOWN,
        }
    }

    /// Size below which tiers and leaves are not distinguished.
    fn unit_bytes(&self) -> u64 {
        (self.leaf_bytes / UNITS_OF_A_LEAF).max(1)
    }

    /// Bytes of a full run of a tier. Runs smaller than a leaf save space, because a run is freed when the
    /// last of its pivots is flushed: most tiers would otherwise be one or two runs, half garbage. Scans open
    /// fewer runs if they are long, so a turtle tree has small ones only under overwrites.
    pub(crate) fn tier_run_bytes(&self, overwrites: Overwrites) -> u64 {
        debug_assert!(self.leaf_bytes > 0, "a leaf holds something");
        let small = (self.leaf_bytes / RUNS_OF_A_LEAF).max(TIER_RUN_BYTES_MIN).min(self.leaf_bytes);
        match self.policy {
            Policy::Turtle => overwrites.surely().between(self.leaf_bytes, small),
            Policy::Splinter => small,
        }
    }

    /// Rewrites per record saved by doubling the flush distance.
    pub(crate) fn rewrites_per_doubling(&self) -> f64 {
        match self.policy {
            Policy::Turtle => turtle::REWRITES_PER_DOUBLING,
            Policy::Splinter => splinter::REWRITES_PER_DOUBLING,
        }
    }

    /// Returns settings for use when space is short: overhead must not dominate a run. A leaf of 4 KiB takes
    /// 16 to 20 KiB; sixteen of them as one take a third of that.
    pub(crate) fn sparing(&self) -> Self {
        Self { leaf_bytes: self.leaf_bytes.max(SPARING_RUN_BYTES), ..*self }
    }

    /// Number of existing tiers (`older`: their bytes, newest first) with which a new one of `bytes` is
    /// merged.
    pub fn tiers_to_join(&self, bytes: u64, older: &[u64], overwrites: Overwrites) -> usize {
        let count = match self.policy {
            Policy::Turtle => turtle::tiers_to_join(self, bytes, older, overwrites),
            Policy::Splinter => 0,
        };
        debug_assert!(count <= older.len(), "only existing tiers are joined");
        count
    }

    /// Offset by which nodes and trees spread work over different rounds.
    fn stagger_of(&self, node: ObjectId) -> u64 {
        self.stagger.wrapping_add(node.0)
    }

    /// Returns the tiers to merge into one if a node has too many (`tier_bytes`, newest first): up to
    /// `bytes_max`, but at least two.
    pub fn tiers_to_merge(
        &self,
        node: ObjectId,
        tier_bytes: &[u64],
        bytes_max: u64,
    ) -> Option<RangeInclusive<usize>> {
        let which = match self.policy {
            Policy::Turtle => turtle::tiers_to_merge(tier_bytes),
            Policy::Splinter => splinter::tiers_to_merge(self.stagger_of(node), tier_bytes, bytes_max),
        };
        debug_assert!(
            which.as_ref().is_none_or(|which| which.start() < which.end() && *which.end() < tier_bytes.len()),
            "at least two existing tiers"
        );
        which
    }

    /// Chooses the pivots to flush, in the order of `Sweep`.
    ///
    /// - Of the pivots that have reached their threshold: at least one, and more until about as many bytes go
    ///   out as came in.
    /// - If the buffer still exceeds its bound: more, up to twice the incoming bytes. Only a change of
    ///   settings or a join of two nodes can leave that much, and jobs handle that too
    ///   (`pivots_beyond_bound`).
    pub fn pivots_to_flush(&self, load: &NodeLoad<'_>) -> Vec<usize> {
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
            let Some(pivot) = sweep.next(must_go) else { break };
            let bytes = load.pending[pivot];
            let has_room = flushed == 0 || flushed + bytes / 2 <= load.incoming;
            if !must_go && !has_room || planted!("one-pivot-per-update") && !chosen.is_empty() {
                break;
            }
            debug_assert!(bytes > 0, "a chosen pivot has entries");
            debug_assert!(!chosen.contains(&pivot), "each pivot is flushed once");
            chosen.push(pivot);
            flushed += bytes;
            buffered -= bytes;
        }
        // So a node that was within its bound stays within it (TurtleKV §3.2).
        debug_assert!(
            buffered <= bound || flushed >= load.incoming || planted!("one-pivot-per-update"),
            "beyond its bound, a node flushes at least as much as came in"
        );
        chosen
    }

    /// Maximum buffer size of a node with such children, without overwrites.
    pub(crate) fn bound(&self, leaf_bytes: &[Option<u64>]) -> u64 {
        match self.policy {
            Policy::Turtle => turtle::max_buffered_bytes(self),
            Policy::Splinter => splinter::max_buffered_bytes(self, leaf_bytes),
        }
    }

    /// Returns the excess of a node over its bounds.
    ///
    /// Neither updates nor jobs make a node that was within its bounds exceed them, except where jobs do the
    /// work: there, updates wait once a node is [`DueWork::SLACK`] beyond its target, so a node exceeds it by
    /// that and by one update. A join of two nodes adds up what both had, and a change of settings moves the
    /// bounds. A split divides it. Bytes are estimates, so a leaf of them is tolerated.
    pub(crate) fn excess(&self, node: ObjectId, tier_bytes: &[u64], load: &NodeLoad<'_>) -> Excess {
        let tiers_max = match self.policy {
            Policy::Turtle => turtle::MAX_TIERS,
            Policy::Splinter => splinter::most_tiers(self.stagger_of(node)),
        };
        let bytes_max = self.bound(load.leaf_bytes) + self.leaf_bytes;
        Excess {
            bytes: load.pending.iter().sum::<u64>().saturating_sub(bytes_max),
            tiers: tier_bytes.len().saturating_sub(usize_of(tiers_max)),
        }
    }

    /// Returns up to `count` pivots to flush of a node that exceeds its bound without incoming writes: it was
    /// joined from two, or has other settings. Returns none if the excess is at most a leaf, which the next
    /// update handles.
    pub(crate) fn pivots_beyond_bound(&self, load: &NodeLoad<'_>, count: usize) -> Vec<usize> {
        let (bound, mut buffered) = (self.bound(load.leaf_bytes), load.pending.iter().sum::<u64>());
        if buffered <= bound + self.leaf_bytes || planted!("excess-never-due") {
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
        debug_assert!(!chosen.is_empty() && chosen.len() <= count.max(1), "a job flushes some pivots");
        chosen
    }

    /// Whether updates only add tiers on top, and the work this makes due is done by jobs.
    pub fn compacts_later(&self) -> bool {
        match self.policy {
            Policy::Turtle => false,
            Policy::Splinter => true,
        }
    }

    /// Returns work made due by updates; none if updates do it themselves. `bytes_max`: limit of a merge.
    pub fn due_work(
        &self,
        node: ObjectId,
        tier_bytes: &[u64],
        load: &NodeLoad<'_>,
        bytes_max: u64,
    ) -> Option<DueWork> {
        match self.policy {
            Policy::Turtle => None,
            Policy::Splinter => splinter::due_work(self, node, tier_bytes, load, bytes_max),
        }
    }

    /// Returns worthwhile work on a node while idle. Repeating it terminates: flushed data stays below,
    /// merged tiers stay merged.
    pub(crate) fn idle_work(&self, tier_bytes: &[u64], load: &NodeLoad<'_>) -> Option<NodeWork> {
        match self.policy {
            Policy::Turtle => turtle::idle_work(self, load),
            Policy::Splinter => splinter::idle_work(self, tier_bytes, load),
        }
    }

    /// Whether flushing `bytes` costs no more than it would have saved reads, which were charged
    /// `charged_kib` for reading the buffer.
    pub(crate) fn reads_are_worth_a_flush(&self, charged_kib: u32, bytes: u64) -> bool {
        charged_kib >= CHARGES_KIB_MIN && u64::from(charged_kib) << 10 >= bytes
    }

    /// Whether merging all tiers of a node into one costs no more than it would have saved reads, which were
    /// charged `charged_kib` for reading them. The charge per tier is about proportional to its size: the
    /// less of it is in memory, the more often a page is read. Reading the merged tier costs as much as the
    /// largest one did.
    pub(crate) fn reads_are_worth_a_merge(&self, charged_kib: u64, tier_bytes: &[u64]) -> bool {
        let (total, largest) =
            (tier_bytes.iter().sum::<u64>(), tier_bytes.iter().max().copied().unwrap_or(0));
        debug_assert!(largest <= total, "the largest tier is one of them");
        let saved = u128::from(charged_kib << 10) * u128::from(total - largest);
        tier_bytes.len() > 1
            && charged_kib >= u64::from(CHARGES_KIB_MIN)
            && saved >= u128::from(total) * u128::from(total)
    }

    /// Whether two adjacent leaves are worth joining.
    pub(crate) fn leaves_should_join(&self, left: u64, right: u64) -> bool {
        left.min(right) < self.leaf_bytes / SMALL_LEAF_PARTS && self.fit_one_leaf(left + right)
    }

    /// Whether `bytes` may become one leaf after a join. Splits produce larger ones, to avoid joining them
    /// again.
    pub(crate) fn fit_one_leaf(&self, bytes: u64) -> bool {
        bytes <= self.leaf_bytes / 4 * JOINED_LEAF_QUARTERS
    }

    /// Whether two adjacent nodes are worth joining, by their number of pivots.
    pub(crate) fn nodes_should_join(&self, left: usize, right: usize) -> bool {
        left.min(right) <= (self.max_pivots / SMALL_NODE_PARTS).max(1)
            && left + right <= self.max_pivots * JOINED_NODE_QUARTERS / 4
    }

    /// Number of nodes into which this many pivots are split.
    pub fn node_fragments(&self, pivots: usize) -> usize {
        debug_assert!(pivots > 0, "a node has children");
        debug_assert!(self.max_pivots > 1, "a node has room for two children");
        let pieces = if pivots <= self.max_pivots {
            1
        } else {
            pivots.div_ceil(self.max_pivots * JOINED_NODE_QUARTERS / 4)
        };
        debug_assert!(pivots.div_ceil(pieces) <= self.max_pivots, "each piece is within the limit");
        pieces
    }
}

/// Iterator over the due pivots of a node.
///
/// Under even load all of them are about equally due, and any order would do. But the runs of a tier each
/// span many pivots, and hold garbage from the flush of the first of them until the last. So the sweep
/// continues where the previous one ended, recognizable by the little data buffered there. Adjacent pivots
/// are flushed one after the other, and runs are freed soon after each other.
struct Sweep<'a> {
    pending: &'a [u64],
    /// Buffered bytes of each pivot as a fraction of its threshold; zero once it is chosen.
    parts: Vec<u64>,
    last: Option<usize>,
}

impl<'a> Sweep<'a> {
    /// Fraction that makes a pivot due.
    const DUE: u64 = 256;
    /// The same for the right neighbor of the last pivot: half, so that a sweep rarely leaves one out.
    const DUE_IN_PASSING: u64 = Self::DUE / 2;

    /// Inverse of the fraction of the farthest pivot's part that continues a sweep.
    const BEGUN_PARTS: u64 = 2;

    /// Those at least about as large as `most`: three quarters of it.
    fn about(most: u64) -> u64 {
        most / 4 * 3
    }

    fn new(pending: &'a [u64], thresholds: &[u64]) -> Self {
        debug_assert_eq!(pending.len(), thresholds.len(), "one threshold for each pivot");
        let part = |(&bytes, &threshold): (&u64, &u64)| {
            low64(u128::from(bytes) * u128::from(Self::DUE) / u128::from(threshold.max(1)))
        };
        Self { pending, parts: pending.iter().zip(thresholds).map(part).collect(), last: None }
    }

    /// Returns the next pivot: the right neighbor of the last one if it is half due, else one of the due
    /// pivots, or, with `must_go`, of the fullest.
    fn next(&mut self, must_go: bool) -> Option<usize> {
        let neighbour = self.last.map(|last| last + 1).filter(|&next| next < self.parts.len());
        let pivot = neighbour
            .filter(|&next| self.parts[next] >= Self::DUE_IN_PASSING)
            .or_else(|| self.begin(must_go))?;
        debug_assert!(self.parts[pivot] > 0, "a pivot is chosen once");
        self.parts[pivot] = 0;
        self.last = Some(pivot);
        Some(pivot)
    }

    /// If any pivot is due, returns the one whose left neighbor was flushed last, among those that are at
    /// least half as due as the farthest: the sweep goes on there. Beginning at the farthest instead would
    /// leave gaps, and the pivots in them keep the runs of all tiers alive.
    fn begin(&self, must_go: bool) -> Option<usize> {
        let is_left = |pivot: &usize| self.parts[*pivot] > 0;
        let farthest = self.parts.iter().copied().max().filter(|&parts| parts > 0)?;
        let fullest = (0..self.parts.len()).filter(is_left).map(|pivot| self.pending[pivot]).max()?;
        let is_due = |pivot: &usize| {
            if farthest >= Self::DUE {
                self.parts[*pivot] >= farthest / Self::BEGUN_PARTS
            } else {
                must_go && is_left(pivot) && self.pending[*pivot] >= Self::about(fullest)
            }
        };
        let left_of = |pivot: usize| pivot.checked_sub(1).unwrap_or(self.parts.len() - 1);
        (0..self.parts.len()).filter(is_due).min_by_key(|&pivot| self.parts[left_of(pivot)])
    }
}

#[cfg(test)]
mod tests;
