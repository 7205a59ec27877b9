//! Rewriting runs of tiers that are partly garbage.
//!
//! When a node is split, both parts keep its runs, so several nodes may refer to one run. Its space is freed
//! when the last of them drops it: a step changes all of them, or none.
//!
//! **Invariants**
//! - The estimated gain of a step is free afterwards, as far as sizes are known.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{PAGE_BYTES, Result, RunId, num::u64_of};
use testudo_run::RunRef;
use testudo_sequence::{Bounds, LEAST_RUN_BYTES, scaled};

use crate::{
    trunk::node::{Child, Node, Tier},
    update::{
        plan::{PlanChild, PlanNode, PlanTier},
        write::alive_of_run,
    },
};

/// A run of tiers that is partly garbage.
pub(crate) struct PartlyDead {
    pub(crate) run: RunId,
    /// Number of runs that replace it: one for each node that refers to it.
    pub(crate) places: u64,
    /// Approximate live bytes.
    pub(crate) alive_bytes: u64,
    /// Net gain in bytes.
    pub(crate) dead_bytes: u64,
}

/// A reference of a node to a run.
pub(crate) struct Place<'a> {
    pub(crate) node: &'a Node,
    tier: &'a Tier,
    at: usize,
}

/// All references, by run.
pub(crate) type Places<'a> = BTreeMap<RunId, Vec<Place<'a>>>;

/// Calls `act` with the runs whose garbage fraction is at least `1 / parts`.
pub(crate) fn each_partly_dead(all: &Places<'_>, parts: u64, act: &mut impl FnMut(PartlyDead)) -> Result<()> {
    debug_assert!(parts > 0, "a fraction");
    for (&run, places) in all {
        debug_assert!(!places.is_empty(), "a run is found where it is referred to");
        // If one node refers to it twice, a step would drop only one of the references.
        let is_twice_in_one = places.windows(2).any(|pair| pair[0].node.id == pair[1].node.id);
        if is_twice_in_one || matches!(&places[..], [place] if is_all_alive(place)) {
            continue;
        }
        let reference = places[0].reference();
        let stored = reference.stored_bytes();
        let (mut alive_bytes, mut left) = (0, 0);
        for place in places {
            let mut alive = 0;
            for slice in alive_of_run(place.node, place.tier, place.at) {
                alive += slice.bytes_within(&Bounds::default())?;
            }
            let alive = scaled(alive, stored, reference.user_bytes);
            alive_bytes += alive;
            left += alive.next_multiple_of(PAGE_BYTES).max(LEAST_RUN_BYTES);
        }
        let dead_bytes = stored.saturating_sub(left);
        if dead_bytes >= stored / parts && dead_bytes > 0 {
            act(PartlyDead { run, places: u64_of(places.len()), alive_bytes, dead_bytes });
        }
    }
    Ok(())
}

/// Finds the references in `node` and its descendants.
pub(crate) fn find_places<'a>(node: &'a Node, places: &mut Places<'a>) {
    for tier in &node.tiers {
        for (at, fenced) in tier.runs.iter().enumerate() {
            places.entry(fenced.run.reference().id).or_default().push(Place { node, tier, at });
        }
    }
    node.child_nodes().for_each(|child| find_places(child, places));
}

impl Place<'_> {
    fn reference(&self) -> &RunRef {
        self.tier.runs[self.at].run.reference()
    }
}

/// Whether all keys of the run belong to the node, and every pivot that it can overlap has a full share of
/// its tier.
fn is_all_alive(place: &Place<'_>) -> bool {
    let Place { node, tier, at } = place;
    let next = tier.runs.get(at + 1).map(|next| &next.low);
    let keys = &place.reference().keys;
    let is_inside = keys.begin_at_or_after(&node.pivots[0].low.head())
        && node.high.as_ref().is_none_or(|high| keys.end_before(&high.head()));
    let first = node.pivots.partition_point(|pivot| pivot.low <= tier.runs[*at].low).saturating_sub(1);
    let reaches = |pivot: usize| {
        let low = &node.pivots[pivot].low;
        next.is_none_or(|next| low < next) && !keys.end_before(&low.head())
    };
    is_inside
        && (first..node.pivots.len())
            .take_while(|&pivot| pivot == first || reaches(pivot))
            .all(|pivot| tier.shares[pivot].as_ref().is_some_and(|share| share.from.is_none()))
}

impl PlanNode {
    /// Plans to rewrite a run of tiers, here and below, without its garbage.
    pub(crate) fn trim(&mut self, run: RunId) {
        for tier in &mut self.tiers {
            let PlanTier::Existing(existing) = tier else { continue };
            if let Some(at) = position_of(existing, run) {
                *tier = PlanTier::Trimmed { tier: existing.clone(), at, output: None };
            }
        }
        for child in &mut self.children {
            let PlanChild::Untouched(Child::Node(node)) = child else { continue };
            if has_run(node, run) {
                let mut plan = Self::new(node);
                plan.trim(run);
                *child = PlanChild::Node(Box::new(plan));
            }
        }
    }
}

fn position_of(tier: &Tier, run: RunId) -> Option<usize> {
    tier.runs.iter().position(|fenced| fenced.run.reference().id == run)
}

fn has_run(node: &Arc<Node>, run: RunId) -> bool {
    node.tiers.iter().any(|tier| position_of(tier, run).is_some())
        || node.child_nodes().any(|child| has_run(child, run))
}
