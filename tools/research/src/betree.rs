//! Bε-trees over byte counts: no records, no runs, no files, but the decisions of the real policies.
//!
//! Keys are distributed uniformly, so a flow of bytes is divided among the children of a node by their
//! ranges. Only leaves drop overwritten entries; merges of tiers drop nothing. A checkpoint costs
//! microseconds, so trees can be far larger than any machine.
//!
//! **Invariants**
//! - Every decision is one of [`BeTreeOptions`]; this file makes none of its own.

use testudo_base::{ObjectId, num::u64_of};
use testudo_betree::{BeTreeOptions, MERGES_AT_ONCE, NodeLoad, NodeWork};
use testudo_sequence::Overwrites;

/// Writes into a simulated tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedLoad {
    /// Incoming bytes of keys and values, one checkpoint after the other.
    pub(crate) incoming_bytes: u64,
    /// Bytes of one checkpoint (χ in the paper).
    pub(crate) flush_bytes: u64,
    /// Percentage of bytes that overwrite.
    pub(crate) overwrite_percent: u64,
    /// Writes arrive at full speed: before a checkpoint, jobs do only the work that it has to wait for.
    pub(crate) is_pressed: bool,
}

/// Costs of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SimulatedCosts {
    /// Write amplification by level: at the leaves, in the nodes above them, and so on.
    pub(crate) written_by_level: Vec<f64>,
    /// Bytes written in the most expensive checkpoint, per byte of it.
    pub(crate) dearest_flush: f64,
    /// Maximum number of tiers of a node at the end.
    pub(crate) max_tiers: usize,
    /// Space amplification at the end: bytes stored per live byte.
    pub(crate) space: f64,
}

impl SimulatedCosts {
    /// Total write amplification.
    pub(crate) fn write_amplification(&self) -> f64 {
        self.written_by_level.iter().sum()
    }
}

/// A tree of byte counts; each load continues from the state after the previous one.
#[derive(Debug)]
pub(crate) struct SimulatedTree {
    options: BeTreeOptions,
    root: SimNode,
    next_id: u64,
    /// Bytes written by the current load, by level.
    written: Vec<u64>,
    /// Bytes of new data.
    live_bytes: u64,
}

#[derive(Debug)]
enum SimChild {
    Leaf(u64),
    Node(SimNode),
}

#[derive(Debug)]
struct SimPivot {
    /// Fraction of all keys.
    width: f64,
    child: SimChild,
}

#[derive(Debug)]
struct SimTier {
    /// Bytes by pivot.
    bytes: Vec<u64>,
    /// Fraction of them that overwrites nothing.
    new_share: f64,
    /// It is not written yet.
    is_new: bool,
}

/// Data flushed for one pivot.
struct SimFlow {
    bytes: u64,
    new_share: f64,
    /// New fraction of its newest part alone.
    newest_share: f64,
}

#[derive(Debug)]
struct SimNode {
    id: ObjectId,
    height: usize,
    pivots: Vec<SimPivot>,
    tiers: Vec<SimTier>,
    overwrites: Overwrites,
    /// Changed since the last check for due work.
    is_changed: bool,
}

impl SimulatedTree {
    /// Creates an empty tree.
    pub(crate) fn new(options: BeTreeOptions) -> Self {
        let pivots = vec![SimPivot { width: 1.0, child: SimChild::Leaf(0) }];
        let (tiers, overwrites) = (Vec::new(), Overwrites::UNKNOWN);
        let root = SimNode { id: ObjectId(1), height: 1, pivots, tiers, overwrites, is_changed: false };
        Self { options, root, next_id: 2, written: Vec::new(), live_bytes: 0 }
    }

    /// Changes the settings.
    #[cfg(test)]
    pub(crate) fn set_options(&mut self, options: BeTreeOptions) {
        self.options = options;
    }

    /// Applies a load; returns its costs.
    pub(crate) fn apply(&mut self, load: &SimulatedLoad) -> SimulatedCosts {
        self.written = Vec::new();
        let new_share = 1.0 - load.overwrite_percent as f64 / 100.0;
        let (mut written, mut dearest) = (0, 0.0f64);
        for _ in 0..load.incoming_bytes / load.flush_bytes.max(1) {
            self.checkpoint(load.flush_bytes, new_share);
            self.change_root(|tree, root| tree.run_jobs(root, load.is_pressed));
            let before = std::mem::replace(&mut written, self.written.iter().sum());
            dearest = dearest.max(ratio(written - before, load.flush_bytes));
        }
        let mut totals = Totals::default();
        self.root.add_to(&mut totals);
        SimulatedCosts {
            written_by_level: self.written.iter().map(|&bytes| ratio(bytes, load.incoming_bytes)).collect(),
            dearest_flush: dearest,
            max_tiers: totals.max_tiers,
            space: ratio(totals.bytes, self.live_bytes),
        }
    }

    fn checkpoint(&mut self, bytes: u64, new_share: f64) {
        self.live_bytes += part_of(bytes, new_share);
        self.change_root(|tree, root| tree.push(root, bytes, new_share));
    }

    /// Does the work due in a node and below it, or only the pressing part.
    fn run_jobs(&mut self, node: &mut SimNode, is_pressed: bool) {
        while std::mem::take(&mut node.is_changed) {
            let due =
                node.with_load(0, |load| self.options.due_work(node.id, &node.tier_bytes(), load, u64::MAX));
            match due.filter(|due| !is_pressed || due.is_pressing()).map(|due| due.work) {
                Some(NodeWork::Merge(which)) => node.merge(*which.start(), *which.end()),
                Some(NodeWork::Flush(pivots)) => self.flush_all(node, &pivots),
                None => break,
            }
            self.settle(node);
        }
        for pivot in (0..node.pivots.len()).rev() {
            if let SimChild::Node(child) = &mut node.pivots[pivot].child {
                self.run_jobs(child, is_pressed);
                self.divide(node, pivot);
            }
        }
    }

    /// Changes the root, which grows if it has become too large.
    fn change_root(&mut self, change: impl FnOnce(&mut Self, &mut SimNode)) {
        let empty = SimNode { pivots: Vec::new(), tiers: Vec::new(), ..self.root.copy_of_head() };
        let mut root = std::mem::replace(&mut self.root, empty);
        change(self, &mut root);
        let mut fragments = self.split(root);
        while fragments.len() > 1 {
            let height = fragments[0].height + 1;
            let pivots = fragments.into_iter().map(SimPivot::of_node).collect();
            let (id, overwrites) = (self.fresh_id(), Overwrites::UNKNOWN);
            fragments =
                self.split(SimNode { id, height, pivots, tiers: Vec::new(), overwrites, is_changed: true });
        }
        self.root = fragments.remove(0);
    }

    fn fresh_id(&mut self) -> ObjectId {
        self.next_id += 1;
        ObjectId(self.next_id - 1)
    }

    fn record_written(&mut self, level: usize, bytes: u64) {
        if self.written.len() <= level {
            self.written.resize(level + 1, 0);
        }
        self.written[level] += bytes;
    }

    /// Adds a flow to a node, as a plan does.
    fn push(&mut self, node: &mut SimNode, incoming: u64, new_share: f64) {
        node.tiers.insert(0, SimTier { bytes: node.divided(incoming), new_share, is_new: true });
        if self.options.compacts_later() {
            let passed: Vec<usize> =
                (0..node.pivots.len()).filter(|&pivot| self.passes_on(node, pivot)).collect();
            self.flush_all(node, &passed);
        } else {
            let chosen = node.with_load(incoming, |load| self.options.pivots_to_flush(load));
            self.flush_all(node, &chosen);
            self.merge_tiers(node);
        }
        self.settle(node);
    }

    /// Whether the incoming data of a pivot is passed on at once.
    fn passes_on(&self, node: &SimNode, pivot: usize) -> bool {
        let newest = node.tiers[0].bytes[pivot];
        newest > 0
            && newest * 2 >= node.pending_of(pivot)
            && match node.pivots[pivot].leaf_bytes() {
                Some(held) => held == 0 || newest >= held.max(self.options.leaf_bytes / 2),
                None => newest >= self.options.leaf_bytes / 2,
            }
    }

    fn flush_all(&mut self, node: &mut SimNode, pivots: &[usize]) {
        for &pivot in pivots {
            let newest = node.tiers.iter().find(|tier| tier.bytes[pivot] > 0);
            let newest_share = newest.map_or(1.0, |tier| tier.new_share);
            let (bytes, mut new_bytes) = (node.pending_of(pivot), 0.0);
            for tier in &mut node.tiers {
                new_bytes += std::mem::take(&mut tier.bytes[pivot]) as f64 * tier.new_share;
            }
            let new_share = new_bytes / bytes.max(1) as f64;
            self.flush(node, pivot, &SimFlow { bytes, new_share, newest_share });
        }
        node.tiers.retain(|tier| tier.total() > 0);
    }

    /// Writes new tiers, and splits oversized children.
    fn settle(&mut self, node: &mut SimNode) {
        node.is_changed = true;
        for tier in node.tiers.iter_mut().filter(|tier| tier.is_new) {
            tier.is_new = false;
            self.record_written(node.height, tier.total());
        }
        for pivot in (0..node.pivots.len()).rev() {
            self.divide(node, pivot);
        }
    }

    fn flush(&mut self, node: &mut SimNode, pivot: usize, flow: &SimFlow) {
        let &SimFlow { bytes, new_share, newest_share } = flow;
        match &mut node.pivots[pivot].child {
            SimChild::Node(child) => self.push(child, bytes, new_share),
            SimChild::Leaf(held) => {
                *held += part_of(bytes, new_share);
                let held = *held;
                node.overwrites = node.overwrites.after(bytes, part_of(bytes, 1.0 - newest_share));
                self.record_written(0, held);
            }
        }
    }

    /// Merges the tiers of a node.
    fn merge_tiers(&mut self, node: &mut SimNode) {
        if node.tiers.first().is_some_and(|tier| tier.is_new) {
            let bytes = node.tier_bytes();
            let count = self.options.tiers_to_join(bytes[0], &bytes[1..], node.overwrites);
            node.merge(0, count);
        }
        for _ in 0..MERGES_AT_ONCE {
            let Some(which) = self.options.tiers_to_merge(node.id, &node.tier_bytes(), u64::MAX) else {
                return;
            };
            node.merge(*which.start(), *which.end());
        }
    }

    /// Splits a pivot whose leaf or node has become too large.
    fn divide(&mut self, node: &mut SimNode, pivot: usize) {
        let count = match &node.pivots[pivot].child {
            SimChild::Leaf(bytes) => bytes.div_ceil(self.options.leaf_bytes).max(1),
            SimChild::Node(child) => u64_of(self.options.node_fragments(child.pivots.len())),
        };
        if count == 1 {
            return;
        }
        let SimPivot { width, child } = node.pivots.remove(pivot);
        let fragments: Vec<SimPivot> = match child {
            SimChild::Leaf(bytes) => {
                let width = width / count as f64;
                (0..count).map(|_| SimPivot { width, child: SimChild::Leaf(bytes / count) }).collect()
            }
            SimChild::Node(child) => self.split(child).into_iter().map(SimPivot::of_node).collect(),
        };
        for tier in &mut node.tiers {
            let bytes = tier.bytes.remove(pivot);
            let shares = fragments.iter().map(|fragment| part_of(bytes, fragment.width / width));
            tier.bytes.splice(pivot..pivot, shares);
        }
        node.pivots.splice(pivot..pivot, fragments);
    }

    /// Splits a node that has too many children.
    fn split(&mut self, mut node: SimNode) -> Vec<SimNode> {
        let count = node.pivots.len();
        let fragments = self.options.node_fragments(count);
        let mut out = Vec::with_capacity(fragments);
        for fragment in (1..fragments).rev() {
            let from = count * fragment / fragments;
            let pivots = node.pivots.split_off(from);
            let cut = |tier: &mut SimTier| {
                let (new_share, is_new) = (tier.new_share, false);
                SimTier { bytes: tier.bytes.split_off(from), new_share, is_new }
            };
            let tiers = node.tiers.iter_mut().map(cut).collect();
            out.push(SimNode { id: self.fresh_id(), pivots, tiers, ..node.copy_of_head() });
        }
        out.push(node);
        out.reverse();
        out
    }
}

impl SimPivot {
    fn of_node(node: SimNode) -> Self {
        Self { width: node.pivots.iter().map(|pivot| pivot.width).sum(), child: SimChild::Node(node) }
    }

    fn leaf_bytes(&self) -> Option<u64> {
        match self.child {
            SimChild::Leaf(bytes) => Some(bytes),
            SimChild::Node(_) => None,
        }
    }
}

impl SimTier {
    fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// Totals over a tree.
#[derive(Default)]
struct Totals {
    max_tiers: usize,
    bytes: u64,
}

impl SimNode {
    /// Returns the node without its contents.
    fn copy_of_head(&self) -> Self {
        let (id, height, overwrites) = (self.id, self.height, self.overwrites);
        Self { id, height, pivots: Vec::new(), tiers: Vec::new(), overwrites, is_changed: true }
    }

    fn tier_bytes(&self) -> Vec<u64> {
        self.tiers.iter().map(SimTier::total).collect()
    }

    fn pending_of(&self, pivot: usize) -> u64 {
        self.tiers.iter().map(|tier| tier.bytes[pivot]).sum()
    }

    fn with_load<R>(&self, incoming: u64, decide: impl FnOnce(&NodeLoad<'_>) -> R) -> R {
        let pending: Vec<u64> = (0..self.pivots.len()).map(|pivot| self.pending_of(pivot)).collect();
        let leaf_bytes: Vec<Option<u64>> = self.pivots.iter().map(SimPivot::leaf_bytes).collect();
        let overwrites = self.overwrites;
        decide(&NodeLoad { incoming, pending: &pending, leaf_bytes: &leaf_bytes, overwrites })
    }

    /// Divides bytes among the pivots by their fractions of the keys.
    fn divided(&self, bytes: u64) -> Vec<u64> {
        let width: f64 = self.pivots.iter().map(|pivot| pivot.width).sum();
        self.pivots.iter().map(|pivot| part_of(bytes, pivot.width / width)).collect()
    }

    fn merge(&mut self, newest: usize, oldest: usize) {
        let mut bytes = vec![0; self.pivots.len()];
        let mut new_bytes = 0.0;
        for tier in self.tiers.drain(newest..=oldest) {
            new_bytes += tier.total() as f64 * tier.new_share;
            bytes.iter_mut().zip(tier.bytes).for_each(|(sum, bytes)| *sum += bytes);
        }
        let new_share = new_bytes / bytes.iter().sum::<u64>().max(1) as f64;
        self.tiers.insert(newest, SimTier { bytes, new_share, is_new: true });
    }

    fn add_to(&self, totals: &mut Totals) {
        totals.max_tiers = totals.max_tiers.max(self.tiers.len());
        totals.bytes += self.tiers.iter().map(SimTier::total).sum::<u64>();
        for pivot in &self.pivots {
            match &pivot.child {
                SimChild::Leaf(bytes) => totals.bytes += bytes,
                SimChild::Node(node) => node.add_to(totals),
            }
        }
    }
}

/// Returns a fraction of `bytes`.
#[expect(clippy::cast_possible_truncation, reason = "a share of a count fits where the count does")]
fn part_of(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share.clamp(0.0, 1.0)) as u64
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests;
