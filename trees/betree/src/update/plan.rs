//! Planning an update: incoming flows go down the trunk, and what stays where is decided, without reading an
//! entry.
//!
//! A [`PlanNode`] shadows a node of the trunk. A flow arrives as the newest tier; pivots that have enough
//! waiting for them are flushed, which clips pieces out of every tier; what then is left of the new tier is
//! merged with the tiers of its class or below, and where there are too many tiers, light neighbours are
//! merged. Flows that reach a leaf are merged with its run.
//!
//! Where the policy leaves compaction to jobs, a flow that arrives only goes on where to write it first would
//! be in vain; the rest of it becomes a tier.
//!
//! **Invariants**
//! - Shares say what is left; slices are clipped by them only when a flow leaves or is written.
//! - A pivot's entries move down all together, so that order by age is kept.

use std::{ops::RangeInclusive, sync::Arc};

use testudo_base::{Error, ErrorKind, Result, planted};
use testudo_run::Run;
use testudo_sequence::{Bounds, Fence, Layer, RunSlice, clip_layer, clip_runs, slices_of};

use crate::{
    BeTreeOptions,
    policy::{NodeLoad, NodeWork},
    trunk::node::{Child, Node, Pivot, Share, Tier},
    update::trivial_move::may_be_trivial_move,
};

/// Recursion deeper than this is not a tree of ours.
pub(crate) const MAX_HEIGHT: u32 = 32;
/// Merges of tiers for each flow that comes into a node, which brings one more tier.
pub(crate) const MERGES_AT_ONCE: usize = 2;

/// A tier under planning: what is left of an existing one, or a flow that has just come in.
#[derive(Debug)]
pub(crate) enum PlanTier {
    Existing(Tier),
    /// Sources newest first, each with its own shares; to be written as one tier.
    Merge(Vec<MergeInput>),
    /// Being written; the number of the output, and for which pivots it holds entries, of bytes unknown yet.
    Output {
        output: usize,
        shares: Vec<Option<Share>>,
    },
    /// An existing one, of which run `at` is written anew without what is dead of it; then the number of the
    /// output.
    Trimmed {
        tier: Tier,
        at: usize,
        output: Option<usize>,
    },
}

/// One of the sequences that make up a new tier.
#[derive(Debug)]
pub(crate) struct MergeInput {
    pub(crate) slices: Layer,
    pub(crate) shares: Vec<Option<Share>>,
}

/// A child under planning.
#[derive(Debug)]
pub(crate) enum PlanChild {
    /// Nothing flows into it.
    Untouched(Child),
    Node(Box<PlanNode>),
    /// A leaf to be written anew from these layers, newest first; the last one is what the leaf held.
    Leaf {
        layers: Vec<Layer>,
        bytes: u64,
        /// How much of them the leaf held.
        held_bytes: u64,
        /// What flows in ends before this key. What the leaf held from there on becomes a leaf of its own: it
        /// is older. Also if that is nothing: older than what still waits for it.
        cut: Option<Fence>,
    },
    /// Being written; the number of the output.
    Output {
        output: usize,
        cut: Option<Fence>,
    },
    /// In the place of a leaf stand these, all of them written before.
    Cut(Vec<Pivot>),
    /// Joined into the nearest written leaf on its left.
    Joined,
}

/// A node that the update changes.
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

    /// Lets a flow of about `bytes` into the node. `layers` is newest first and inside the node's range.
    pub(crate) fn push(
        &mut self,
        layers: Vec<Layer>,
        bytes: u64,
        options: &BeTreeOptions,
        depth: u32,
    ) -> Result<()> {
        if depth > MAX_HEIGHT {
            return Err(Error::new(ErrorKind::Corruption, "a tree is deeper than any tree can be"));
        }
        let mut inputs = Vec::with_capacity(layers.len());
        for slices in layers {
            let shares = self.shares_of(&slices)?;
            inputs.push(MergeInput { slices, shares });
        }
        self.tiers.insert(0, PlanTier::Merge(inputs));
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

    /// Flushes what has come in where to write it here first would be in vain: most of what waits for the
    /// pivot, and half a leaf of it.
    fn pass_on(&mut self, options: &BeTreeOptions, depth: u32) -> Result<()> {
        for (pivot, waiting) in self.pending().into_iter().enumerate() {
            let newest = self.newest_bytes(pivot);
            if newest == 0 || newest * 2 < waiting {
                continue;
            }
            let is_much = newest >= options.leaf_bytes / 2;
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

    /// Puts a layer on top of all tiers, to be written as one, and nothing else.
    pub(crate) fn put_on_top(&mut self, slices: Layer) -> Result<()> {
        let shares = self.shares_of(&slices)?;
        self.tiers.insert(0, PlanTier::Merge(vec![MergeInput { slices, shares }]));
        Ok(())
    }

    /// How many bytes of a layer wait for each pivot.
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
            // Estimates may be zero where there are a few entries; those must not be forgotten.
            shares.push(any.then(|| Share { from: None, bytes: bytes.max(1) }));
        }
        Ok(shares)
    }

    /// Bytes that wait for each pivot.
    pub(crate) fn pending(&self) -> Vec<u64> {
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

    /// Bytes that wait for `pivot` in the newest tier.
    fn newest_bytes(&self, pivot: usize) -> u64 {
        match self.tiers.first() {
            Some(PlanTier::Merge(inputs)) => {
                inputs.iter().filter_map(|input| input.shares[pivot].as_ref()).map(|share| share.bytes).sum()
            }
            _ => 0,
        }
    }

    /// Flushes what has come in, half a leaf of it or more, beside a leaf that can stay as it is: a tier
    /// would be written in vain. The bytes that have flowed out.
    fn flush_beside_leaves(&mut self, options: &BeTreeOptions, depth: u32) -> Result<u64> {
        let mut flushed = 0;
        for pivot in 0..self.children.len() {
            if self.newest_bytes(pivot) < options.leaf_bytes / 2 {
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
            // A root with one node below it is on its way out: everything goes down.
            chosen = vec![0];
        }
        for pivot in chosen {
            self.flush(pivot, pending[pivot], options, depth)?;
        }
        Ok(())
    }

    /// Does what was found due, or worth doing while nothing comes in.
    pub(crate) fn do_work(&mut self, work: NodeWork, options: &BeTreeOptions, depth: u32) -> Result<()> {
        match work {
            NodeWork::Merge(which) => self.merge_tiers(which),
            NodeWork::Flush(pivots) => {
                let pending = self.pending();
                for pivot in pivots {
                    self.flush(pivot, pending[pivot], options, depth)?;
                }
            }
        }
        Ok(())
    }

    /// Moves everything that waits for `pivot` into its child.
    pub(crate) fn flush(
        &mut self,
        pivot: usize,
        bytes: u64,
        options: &BeTreeOptions,
        depth: u32,
    ) -> Result<()> {
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

    /// Takes everything that waits for `pivot` out of the tiers, newest first.
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

    /// What waits for `pivot`, newest first.
    pub(crate) fn layers_of(&self, pivot: usize) -> Vec<Layer> {
        let bounds = self.base.bounds_of(pivot);
        let mut layers = Vec::new();
        let mut keep = |layer: Layer| {
            if !layer.is_empty() {
                layers.push(layer);
            }
        };
        for tier in &self.tiers {
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

    /// Merges what is left of the newest tier with those older ones that are no larger.
    fn settle_new_tier(&mut self, options: &BeTreeOptions) {
        self.tiers.retain(PlanTier::is_active);
        if !matches!(self.tiers.first(), Some(PlanTier::Merge(_))) {
            return;
        }
        let bytes: Vec<u64> = self.tiers.iter().map(PlanTier::active_bytes).collect();
        let count = options.tiers_to_join(bytes[0], &bytes[1..], self.base.overwrites);
        self.merge_tiers(0..=count);
    }

    /// Merges neighbouring tiers if there are too many. A policy that finds more of them than it would have
    /// made gets rid of them over the next updates.
    fn bound_tiers(&mut self, options: &BeTreeOptions) {
        for _ in 0..MERGES_AT_ONCE {
            let bytes: Vec<u64> = self.tiers.iter().map(PlanTier::active_bytes).collect();
            let Some(which) = options.tiers_to_merge(self.base.id, &bytes) else { return };
            self.merge_tiers(which);
        }
    }

    /// Makes one tier, to be written, of neighbouring ones.
    pub(crate) fn merge_tiers(&mut self, which: RangeInclusive<usize>) {
        let first = if planted!("merged-tiers-on-top") { 0 } else { *which.start() };
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

/// What of a pivot's range a share still covers.
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
