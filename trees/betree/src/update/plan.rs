//! Planning an update: incoming flows are routed down the trunk, and destinations are decided, without
//! reading an entry.
//!
//! A [`PlanNode`] shadows a node of the trunk. A flow arrives as the newest tier. Pivots with enough buffered
//! bytes are flushed, which clips sections out of every tier. The rest of the new tier is merged with the
//! tiers of its class or below. If there are too many tiers, small adjacent ones are merged. Flows that reach
//! a leaf are merged with its run.
//!
//! Where the policy leaves compaction to jobs, an arriving flow is only passed on if writing it here would be
//! wasted; the rest of it becomes a tier.
//!
//! **Invariants**
//! - Shares record the remaining data; slices are clipped by them only when a flow leaves or is written.
//! - A pivot's entries are flushed all together, which preserves their order by age.

use std::{ops::RangeInclusive, sync::Arc};

use testudo_base::{Error, ErrorKind, Result, planted};
use testudo_run::Run;
use testudo_sequence::{Bounds, Fence, Layer, RunSlice, clip_layer, clip_runs, slices_of};

use crate::{
    BeTreeOptions,
    policy::NodeLoad,
    trunk::node::{Child, Node, Pivot, Share, Tier},
    update::trivial_move::may_be_trivial_move,
};

/// Maximum height of a valid tree.
pub(crate) const MAX_HEIGHT: u32 = 32;
/// Maximum number of tier merges for each incoming flow, which adds one tier.
pub const MERGES_AT_ONCE: usize = 2;

/// Incoming data is flushed at once if it is at least one in this many bytes of a leaf …
const MUCH_PARTS: u64 = 2;
/// … and of the data buffered for its pivot.
const MOST_PARTS: u64 = 2;

/// A tier under planning: the rest of an existing one, or an incoming flow.
#[derive(Debug)]
pub(crate) enum PlanTier {
    Existing(Tier),
    /// Sources newest first, each with its own shares; to be written as one tier.
    Merge(Vec<MergeInput>),
    /// Being written: index of the output, and the pivots for which it has entries; their bytes are not known
    /// yet.
    Output {
        output: usize,
        shares: Vec<Option<Share>>,
    },
    /// An existing one, whose run `at` is rewritten without its garbage; then with the index of the output.
    Trimmed {
        tier: Tier,
        at: usize,
        output: Option<usize>,
    },
}

/// One of the inputs of a new tier.
#[derive(Debug)]
pub(crate) struct MergeInput {
    pub(crate) slices: Layer,
    pub(crate) shares: Vec<Option<Share>>,
}

/// A child under planning.
#[derive(Debug)]
pub(crate) enum PlanChild {
    /// It receives no flow.
    Untouched(Child),
    Node(Box<PlanNode>),
    /// A leaf to rewrite from these layers, newest first; the last one is its old contents.
    Leaf {
        layers: Vec<Layer>,
        bytes: u64,
        /// Bytes of its old contents, included in the above.
        held_bytes: u64,
        /// Incoming entries end before this key. The old contents from there on become a separate, older
        /// leaf, even if empty: it must be older than the entries still buffered for it.
        cut: Option<Fence>,
    },
    /// Being written; the index of the output.
    Output {
        output: usize,
        cut: Option<Fence>,
    },
    /// Replaced by these leaves, all written before.
    Cut(Vec<Pivot>),
    /// Joined into the nearest written leaf on its left.
    Joined,
}

/// A node changed by the update.
#[derive(Debug)]
pub(crate) struct PlanNode {
    pub(crate) base: Arc<Node>,
    pub(crate) tiers: Vec<PlanTier>,
    pub(crate) children: Vec<PlanChild>,
}

impl PlanNode {
    pub(crate) fn new(base: &Arc<Node>) -> Self {
        Self {
            base: Arc::clone(base),
            tiers: base.tiers.iter().cloned().map(PlanTier::Existing).collect(),
            children: base.pivots.iter().map(|pivot| PlanChild::Untouched(pivot.child.clone())).collect(),
        }
    }

    /// Adds a flow of about `bytes` to the node. `layers` is newest first and inside the node's range.
    pub(crate) fn push(
        &mut self,
        layers: Vec<Layer>,
        bytes: u64,
        options: &BeTreeOptions,
        depth: u32,
    ) -> Result<()> {
        if depth > MAX_HEIGHT {
            return Err(Error::new(ErrorKind::Corruption, "a tree is impossibly deep"));
        }
        self.put_layers_on_top(layers)?;
        if options.compacts_later() {
            self.pass_on(options, depth)?;
            self.tiers.retain(PlanTier::is_active);
            return Ok(());
        }
        self.flush_pivots(bytes, options, depth)?;
        self.settle_new_tier(options);
        self.bound_tiers(options);
        Ok(())
    }

    /// Flushes incoming data if writing it here first would be wasted: it is most of the data buffered for
    /// the pivot, and at least half a leaf.
    fn pass_on(&mut self, options: &BeTreeOptions, depth: u32) -> Result<()> {
        for (pivot, waiting) in self.pending().into_iter().enumerate() {
            let newest = self.newest_bytes(pivot);
            if newest == 0 || newest * MOST_PARTS < waiting {
                continue;
            }
            let is_much = newest >= options.leaf_bytes / MUCH_PARTS;
            let passes = match &self.children[pivot] {
                PlanChild::Untouched(Child::Leaf(None)) => true,
                PlanChild::Untouched(Child::Leaf(Some(run))) => {
                    is_much
                        && (newest >= run.reference().user_bytes
                            || may_be_trivial_move(run, &self.layers_of(pivot), options)?)
                }
                _ => is_much,
            };
            if passes {
                self.flush(pivot, waiting, options, depth)?;
            }
        }
        Ok(())
    }

    /// Adds a layer above all tiers, to be written as one.
    pub(crate) fn put_on_top(&mut self, slices: Layer) -> Result<()> {
        self.put_layers_on_top(vec![slices])
    }

    /// Adds layers, newest first, above all tiers, to be written as one.
    pub(crate) fn put_layers_on_top(&mut self, layers: Vec<Layer>) -> Result<()> {
        let mut inputs = Vec::with_capacity(layers.len());
        for slices in layers {
            let shares = self.shares_of(&slices)?;
            debug_assert_eq!(shares.len(), self.children.len(), "an input has one share per pivot");
            inputs.push(MergeInput { slices, shares });
        }
        self.tiers.insert(0, PlanTier::Merge(inputs));
        Ok(())
    }

    /// Bytes of a layer for each pivot.
    fn shares_of(&self, slices: &[RunSlice]) -> Result<Vec<Option<Share>>> {
        let mut shares = Vec::with_capacity(self.children.len());
        for pivot in 0..self.children.len() {
            let bounds = self.base.bounds_of(pivot);
            let mut bytes = 0;
            let mut any = false;
            for slice in slices.iter().filter_map(|slice| slice.clipped(&bounds)) {
                any = true;
                bytes += slice.bytes_within(&bounds)?;
            }
            // Estimates may be zero for a few entries; those must not be lost.
            shares.push(any.then(|| Share { from: None, bytes: bytes.max(1) }));
        }
        Ok(shares)
    }

    /// Bytes buffered for each pivot.
    pub(crate) fn pending(&self) -> Vec<u64> {
        debug_assert_eq!(self.children.len(), self.base.pivots.len(), "a plan has one child per pivot");
        let mut pending = vec![0u64; self.children.len()];
        let mut add = |shares: &[Option<Share>]| {
            for (pending, share) in pending.iter_mut().zip(shares) {
                *pending += share.as_ref().map_or(0, |share| share.bytes);
            }
        };
        for tier in &self.tiers {
            match tier {
                PlanTier::Existing(tier) => add(&tier.shares),
                PlanTier::Merge(inputs) => inputs.iter().for_each(|input| add(&input.shares)),
                PlanTier::Output { .. } | PlanTier::Trimmed { .. } => {}
            }
        }
        pending
    }

    /// Bytes for `pivot` in the newest tier.
    fn newest_bytes(&self, pivot: usize) -> u64 {
        match self.tiers.first() {
            Some(PlanTier::Merge(inputs)) => {
                inputs.iter().filter_map(|input| input.shares[pivot].as_ref()).map(|share| share.bytes).sum()
            }
            _ => 0,
        }
    }

    /// Flushes incoming data of half a leaf or more into leaves whose runs can stay as they are, where
    /// writing a tier would be wasted. Returns the bytes flushed.
    fn flush_beside_leaves(&mut self, options: &BeTreeOptions, depth: u32) -> Result<u64> {
        let mut flushed = 0;
        for pivot in 0..self.children.len() {
            if self.newest_bytes(pivot) < options.leaf_bytes / MUCH_PARTS {
                continue;
            }
            let PlanChild::Untouched(Child::Leaf(Some(run))) = &self.children[pivot] else { continue };
            if may_be_trivial_move(run, &self.layers_of(pivot), options)? {
                let bytes = self.pending()[pivot];
                self.flush(pivot, bytes, options, depth)?;
                flushed += bytes;
            }
        }
        Ok(flushed)
    }

    fn flush_pivots(&mut self, incoming: u64, options: &BeTreeOptions, depth: u32) -> Result<()> {
        let incoming = incoming.saturating_sub(self.flush_beside_leaves(options, depth)?);
        let pending = self.pending();
        let leaf_bytes = |child: &PlanChild| match child {
            PlanChild::Untouched(child) => child.leaf_bytes(),
            _ => None,
        };
        let leaf_bytes: Vec<Option<u64>> = self.children.iter().map(leaf_bytes).collect();
        let overwrites = self.base.overwrites;
        let load = NodeLoad { incoming, pending: &pending, leaf_bytes: &leaf_bytes, overwrites };
        let mut chosen = options.pivots_to_flush(&load);
        if self.base.height > 1 && self.children.len() == 1 && pending[0] > 0 {
            // A root with one child node is about to be removed: everything is flushed.
            chosen = vec![0];
        }
        debug_assert!(chosen.iter().all(|pivot| pending[*pivot] > 0), "only pivots with entries are flushed");
        for pivot in chosen {
            self.flush(pivot, pending[pivot], options, depth)?;
        }
        Ok(())
    }

    /// Flushes everything buffered for `pivot` into its child.
    pub(crate) fn flush(
        &mut self,
        pivot: usize,
        bytes: u64,
        options: &BeTreeOptions,
        depth: u32,
    ) -> Result<()> {
        debug_assert!(pivot < self.children.len(), "a pivot of the node");
        let layers = self.extract(pivot);
        match &mut self.children[pivot] {
            PlanChild::Untouched(Child::Node(node)) => {
                let mut plan = PlanNode::new(node);
                plan.push(layers, bytes, options, depth + 1)?;
                self.children[pivot] = PlanChild::Node(Box::new(plan));
            }
            PlanChild::Node(plan) => plan.push(layers, bytes, options, depth + 1)?,
            PlanChild::Untouched(Child::Leaf(run)) => {
                let run = run.take();
                self.children[pivot] = leaf_with(layers, bytes, run.as_ref());
            }
            PlanChild::Leaf { layers: below, bytes: below_bytes, .. } => {
                below.splice(0..0, layers);
                *below_bytes += bytes;
            }
            PlanChild::Joined | PlanChild::Cut(_) | PlanChild::Output { .. } => {
                unreachable!("nothing is flushed after its plan is closed")
            }
        }
        Ok(())
    }

    /// Removes everything buffered for `pivot` from the tiers; returns it, newest first.
    pub(crate) fn extract(&mut self, pivot: usize) -> Vec<Layer> {
        let mut layers = self.layers_of(pivot);
        if planted!("flush-forgets-a-tier") && layers.len() > 2 {
            layers.remove(2);
        }
        for tier in &mut self.tiers {
            match tier {
                PlanTier::Existing(tier) => tier.shares[pivot] = None,
                PlanTier::Merge(inputs) => inputs.iter_mut().for_each(|input| input.shares[pivot] = None),
                PlanTier::Output { .. } | PlanTier::Trimmed { .. } => {}
            }
        }
        layers
    }

    /// Returns everything buffered for `pivot`, newest first.
    pub(crate) fn layers_of(&self, pivot: usize) -> Vec<Layer> {
        let bounds = self.base.bounds_of(pivot);
        let mut layers = Vec::new();
        let mut keep = |layer: Layer| {
            if !layer.is_empty() {
                layers.push(layer);
            }
        };
        for tier in &self.tiers {
            debug_assert!(tier.has_shares_for(self.children.len()), "a tier has one share per pivot");
            match tier {
                PlanTier::Existing(tier) => {
                    if let Some(share) = &tier.shares[pivot] {
                        keep(clip_runs(&tier.runs, &active_bounds(&bounds, share)));
                    }
                }
                PlanTier::Merge(inputs) => {
                    for input in inputs {
                        if let Some(share) = &input.shares[pivot] {
                            keep(clip_layer(&input.slices, &active_bounds(&bounds, share)));
                        }
                    }
                }
                PlanTier::Output { .. } | PlanTier::Trimmed { .. } => {}
            }
        }
        layers
    }

    /// Merges the rest of the newest tier with older ones that are no larger.
    fn settle_new_tier(&mut self, options: &BeTreeOptions) {
        self.tiers.retain(PlanTier::is_active);
        if !matches!(self.tiers.first(), Some(PlanTier::Merge(_))) {
            return;
        }
        let bytes: Vec<u64> = self.tiers.iter().map(PlanTier::active_bytes).collect();
        let count = options.tiers_to_join(bytes[0], &bytes[1..], self.base.overwrites);
        debug_assert!(count < self.tiers.len(), "a new tier joins existing ones");
        self.merge_tiers(0..=count);
    }

    /// Merges adjacent tiers if there are too many. After a change of policy, the excess is reduced over the
    /// next updates.
    fn bound_tiers(&mut self, options: &BeTreeOptions) {
        for _ in 0..MERGES_AT_ONCE {
            let bytes: Vec<u64> = self.tiers.iter().map(PlanTier::active_bytes).collect();
            let Some(which) = options.tiers_to_merge(self.base.id, &bytes, u64::MAX) else { return };
            self.merge_tiers(which);
        }
    }

    /// Replaces adjacent tiers with one to be written.
    pub(crate) fn merge_tiers(&mut self, which: RangeInclusive<usize>) {
        let first = if planted!("merged-tiers-on-top") { 0 } else { *which.start() };
        debug_assert!(which.start() <= which.end() && *which.end() < self.tiers.len(), "tiers of the node");
        let mut merged = Vec::new();
        for tier in self.tiers.drain(which) {
            match tier {
                PlanTier::Merge(inputs) => merged.extend(inputs),
                PlanTier::Existing(tier) => {
                    merged.push(MergeInput { slices: slices_of(&tier.runs), shares: tier.shares })
                }
                PlanTier::Output { .. } | PlanTier::Trimmed { .. } => {
                    unreachable!("nothing is merged after its plan is closed")
                }
            }
        }
        self.tiers.insert(first, PlanTier::Merge(merged));
    }
}

pub(crate) fn leaf_with(mut layers: Vec<Layer>, bytes: u64, run: Option<&Arc<Run>>) -> PlanChild {
    let held_bytes = run.map_or(0, |run| run.reference().user_bytes);
    layers.extend(run.map(|run| vec![RunSlice::whole_run(run)]));
    PlanChild::Leaf { layers, bytes: bytes + held_bytes, held_bytes, cut: None }
}

/// Returns the part of a pivot's range that a share still covers.
pub(crate) fn active_bounds(bounds: &Bounds, share: &Share) -> Bounds {
    match &share.from {
        Some(from) => bounds.intersection(&Bounds { low: Some(from.as_slice().into()), high: None }),
        None => bounds.clone(),
    }
}

impl PlanTier {
    fn is_active(&self) -> bool {
        match self {
            Self::Existing(tier) => tier.is_active(),
            Self::Merge(inputs) => inputs.iter().any(|input| input.shares.iter().any(Option::is_some)),
            Self::Output { .. } | Self::Trimmed { .. } => true,
        }
    }

    /// Whether it has one share for each of `pivots` pivots.
    fn has_shares_for(&self, pivots: usize) -> bool {
        match self {
            Self::Existing(tier) | Self::Trimmed { tier, .. } => tier.shares.len() == pivots,
            Self::Merge(inputs) => inputs.iter().all(|input| input.shares.len() == pivots),
            Self::Output { shares, .. } => shares.len() == pivots,
        }
    }

    pub(crate) fn active_bytes(&self) -> u64 {
        match self {
            Self::Existing(tier) => tier.active_bytes(),
            Self::Merge(inputs) => {
                inputs.iter().flat_map(|input| &input.shares).flatten().map(|share| share.bytes).sum()
            }
            Self::Output { .. } | Self::Trimmed { .. } => 0,
        }
    }
}
