//! Compacting a range of keys: all entries buffered for adjacent leaves go down to them at once.
//!
//! A share can be emptied from its low end only. So everything buffered for a pivot whose range begins before
//! the first of the leaves goes down; the part for earlier leaves becomes the newest tier of the child.
//! Entries behind the last of the leaves stay where they are. The next step begins there, so only the first
//! step of a range writes such tiers.
//!
//! **Invariants**
//! - The bounds of a step are those of whole leaves: a leaf is older than all that is buffered for it.
//! - A leaf for which nothing is buffered is not rewritten.

use testudo_base::{Result, Seqno};
use testudo_sequence::{Bounds, Layer, clip_layer};

use crate::{
    trunk::node::{Child, Node},
    update::{
        join::{Above, holds_any},
        plan::{PlanChild, PlanNode, leaf_with},
    },
};

/// Maximum leaves, with something buffered for them, of one step …
const LEAVES_MAX: usize = 8;
/// … and maximum bytes written by a step of several leaves, if jobs may write as much.
const STEP_BYTES: u64 = 16 << 20;

/// Adjacent leaves to compact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeStep {
    /// Their keys.
    pub(crate) bounds: Bounds,
    /// Approximate bytes buffered for them.
    pub(crate) waiting_bytes: u64,
}

/// Finds the first leaves of `range` for which entries are buffered. Unless that is one leaf, at most
/// `bytes_max` are read or written.
pub(crate) fn find_step(root: &Node, range: &Bounds, bytes_max: u64) -> Result<Option<RangeStep>> {
    let bytes_max = bytes_max.min(STEP_BYTES);
    let mut search = Search { range, bytes_max, step: None, leaves: 0, written_bytes: 0, is_full: false };
    search.visit(root, &Above::nothing())?;
    Ok(search.step)
}

struct Search<'a> {
    range: &'a Bounds,
    bytes_max: u64,
    step: Option<RangeStep>,
    leaves: usize,
    written_bytes: u64,
    is_full: bool,
}

impl Search<'_> {
    fn visit(&mut self, node: &Node, above: &Above<'_>) -> Result<()> {
        for (at, pivot) in node.pivots.iter().enumerate() {
            let bounds = node.bounds_of(at);
            if self.is_full || bounds.intersection(self.range).is_empty() {
                continue;
            }
            let above = above.child(node, at);
            match &pivot.child {
                Child::Node(child) => self.visit(child, &above)?,
                leaf @ Child::Leaf(_) => {
                    self.pass(bounds, above.layers(), leaf.leaf_bytes().unwrap_or_default())?;
                }
            }
        }
        Ok(())
    }

    /// Passes a leaf with `layers` buffered for it.
    fn pass(&mut self, bounds: Bounds, layers: &[Layer], leaf_bytes: u64) -> Result<()> {
        let inside = bounds.intersection(self.range);
        if (self.step.is_none() || inside != bounds) && !holds_any(layers, &inside)? {
            // At its end a range may share a leaf with buffered keys behind it.
            self.is_full = self.step.is_some();
            return Ok(());
        }
        let mut waiting_bytes = 0;
        for slice in layers.iter().flatten() {
            waiting_bytes += slice.bytes_within(&bounds)?;
        }
        let is_written = layers.iter().any(|layer| !layer.is_empty());
        let bytes = if is_written { waiting_bytes + leaf_bytes } else { 0 };
        if self.step.is_some() && self.written_bytes + bytes > self.bytes_max {
            self.is_full = true;
            return Ok(());
        }
        let first = || RangeStep { bounds: bounds.clone(), waiting_bytes: 0 };
        let step = self.step.get_or_insert_with(first);
        step.bounds.high.clone_from(&bounds.high);
        step.waiting_bytes += waiting_bytes;
        self.leaves += usize::from(is_written);
        self.written_bytes += bytes;
        self.is_full = self.leaves >= LEAVES_MAX || self.written_bytes >= self.bytes_max;
        Ok(())
    }
}

impl PlanNode {
    /// Moves everything buffered for the leaves inside `bounds` down to them. `incoming`: entries from above,
    /// newest first, none of them behind `bounds`.
    pub(crate) fn move_down(&mut self, incoming: &[Layer], bounds: &Bounds) -> Result<()> {
        let mut first = None;
        for pivot in 0..self.children.len() {
            let own = self.base.bounds_of(pivot);
            if own.intersection(bounds).is_empty() {
                continue;
            }
            first.get_or_insert(pivot);
            let mut layers: Vec<Layer> = incoming.iter().map(|layer| clip_layer(layer, &own)).collect();
            layers.retain(|layer| !layer.is_empty());
            layers.extend(self.extract_below(pivot, bounds.high.as_ref(), Seqno(u64::MAX))?);
            match &mut self.children[pivot] {
                PlanChild::Untouched(Child::Node(child)) => {
                    let mut plan = Self::new(child);
                    plan.move_down(&layers, bounds)?;
                    self.children[pivot] = PlanChild::Node(Box::new(plan));
                }
                PlanChild::Untouched(Child::Leaf(run)) if holds_any(&layers, &own)? => {
                    let mut bytes = 0;
                    for slice in layers.iter().flatten() {
                        bytes += slice.bytes_within(&Bounds::default())?;
                    }
                    let run = run.take();
                    self.children[pivot] = leaf_with(layers, bytes, run.as_ref());
                }
                _ => {}
            }
        }
        let before = first.and_then(|first| self.base.bounds_of(first).low);
        if let Some(before) = before {
            let before = Bounds { low: None, high: Some(before) };
            let mut rest: Vec<Layer> = incoming.iter().map(|layer| clip_layer(layer, &before)).collect();
            rest.retain(|layer| !layer.is_empty());
            if holds_any(&rest, &before)? {
                self.put_layers_on_top(rest)?;
            }
        }
        Ok(())
    }
}
