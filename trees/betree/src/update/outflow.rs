//! Flushing a part of what a node buffers for a pivot: its oldest tiers.
//!
//! A job reads and writes a limited number of bytes, and the entries buffered for one pivot may be more. The
//! oldest of them can go first, because everything that stays is newer. A job moves entries down one step: a
//! child node gets them as a tier, and further work there is a job of its own.
//!
//! **Invariants**
//! - Entries that stay are newer than all that are flushed.

use testudo_base::{Result, num::usize_of};
use testudo_sequence::{Layer, clip_runs};

use crate::{
    BeTreeOptions,
    trunk::node::{Child, Node},
    update::plan::{PlanChild, PlanNode, PlanTier, active_bounds, leaf_with},
};

/// The oldest of the entries buffered for a pivot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outflow {
    pub(crate) pivot: usize,
    /// Number of tiers with entries for the pivot, counted from the oldest.
    pub(crate) tiers: u64,
    /// Bytes of their entries for the pivot.
    pub(crate) bytes: u64,
}

impl Outflow {
    /// Returns as many of the oldest tiers as read and write up to `bytes_max`, at least one; `None` if
    /// nothing is buffered.
    pub(crate) fn within(node: &Node, pivot: usize, bytes_max: u64) -> Option<Self> {
        let below = node.pivots[pivot].child.leaf_bytes().unwrap_or_default();
        let mut outflow = Self { pivot, tiers: 0, bytes: 0 };
        let mut newest = None;
        for tier in node.tiers.iter().rev() {
            let Some(share) = &tier.shares[pivot] else { continue };
            // Tiers of one age cannot be told apart by it, so they go together.
            let is_newer = newest.is_none_or(|newest| tier.newest_seqno() > newest);
            if outflow.tiers > 0 && is_newer && below + outflow.bytes + share.bytes > bytes_max {
                break;
            }
            newest = Some(tier.newest_seqno());
            (outflow.tiers, outflow.bytes) = (outflow.tiers + 1, outflow.bytes + share.bytes);
        }
        debug_assert!(outflow.bytes <= node.pending_of(pivot), "a part of what is buffered");
        (outflow.tiers > 0).then_some(outflow)
    }

    /// Returns all tiers.
    pub(crate) fn whole(node: &Node, pivot: usize) -> Option<Self> {
        Self::within(node, pivot, u64::MAX)
    }

    /// Bytes that flushing it reads: these, and the leaf that is rewritten with them.
    pub(crate) fn read_bytes(&self, node: &Node) -> u64 {
        self.bytes + node.pivots[self.pivot].child.leaf_bytes().unwrap_or_default()
    }
}

impl PlanNode {
    /// Flushes the oldest tiers of a pivot into its child. A child node may merge the new tier with older
    /// ones, up to `merge_bytes_max` bytes in addition.
    pub(crate) fn flush_oldest(
        &mut self,
        outflow: &Outflow,
        options: &BeTreeOptions,
        merge_bytes_max: u64,
    ) -> Result<()> {
        let layers = self.extract_oldest(outflow);
        let child = &mut self.children[outflow.pivot];
        match child {
            PlanChild::Untouched(Child::Node(_)) if layers.is_empty() => {}
            PlanChild::Untouched(Child::Node(node)) => {
                let mut plan = Self::new(node);
                plan.put_layers_on_top(layers)?;
                if !options.compacts_later() {
                    plan.settle_within(options, outflow.bytes, merge_bytes_max);
                }
                *child = PlanChild::Node(Box::new(plan));
            }
            PlanChild::Untouched(Child::Leaf(run)) => {
                let run = run.take();
                *child = leaf_with(layers, outflow.bytes, run.as_ref());
            }
            _ => unreachable!("a job flushes each pivot once"),
        }
        Ok(())
    }

    /// Removes the oldest entries buffered for a pivot from the tiers; returns them, newest first.
    fn extract_oldest(&mut self, outflow: &Outflow) -> Vec<Layer> {
        let bounds = self.base.bounds_of(outflow.pivot);
        let mut layers = Vec::new();
        let mut left = usize_of(outflow.tiers);
        for tier in self.tiers.iter_mut().rev() {
            let PlanTier::Existing(tier) = tier else { continue };
            if left == 0 {
                break;
            }
            let Some(share) = tier.shares[outflow.pivot].take() else { continue };
            left -= 1;
            layers.push(clip_runs(&tier.runs, &active_bounds(&bounds, &share)));
        }
        debug_assert_eq!(left, 0, "the tiers were counted in this state");
        layers.reverse();
        layers.retain(|layer| !layer.is_empty());
        layers
    }

    /// Merges the new tier of `bytes` with older ones that are no larger, as long as those are within the
    /// limit.
    fn settle_within(&mut self, options: &BeTreeOptions, bytes: u64, merge_bytes_max: u64) {
        let older: Vec<u64> = self.tiers[1..].iter().map(PlanTier::active_bytes).collect();
        let mut count = options.tiers_to_join(bytes, &older, self.base.overwrites);
        while older[..count].iter().sum::<u64>() > merge_bytes_max {
            count -= 1;
        }
        self.merge_tiers(0..=count);
    }
}
