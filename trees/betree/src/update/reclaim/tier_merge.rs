//! Merging adjacent tiers that take less space as one. Small runs are mostly index, filter and footer, and
//! updates put on top stay in many of them while they are flushed leaf by leaf.
//!
//! Runs that several nodes refer to are freed only if all of these merge; so one step merges them all.
//!
//! **Invariants**
//! - Merged tiers of a node are adjacent; a range of seqnos identifies them.

use std::collections::BTreeSet;

use testudo_base::{ObjectId, PAGE_BYTES, RunId, Seqno};
use testudo_sequence::{LEAST_RUN_BYTES, scaled, with_index_bytes};

use crate::{
    trunk::node::{Child, Node, Tier},
    update::{
        plan::{PlanChild, PlanNode, PlanTier},
        reclaim::partly_dead::Places,
    },
};

/// Maximum number of tiers of a node merged at once: each run read takes memory.
const TIERS_AT_ONCE: usize = 16;

/// A merge of tiers.
pub(crate) struct Mergeable {
    pub(crate) nodes: Vec<ObjectId>,
    pub(crate) newest: Seqno,
    pub(crate) oldest: Seqno,
    /// Approximate bytes of the new tiers.
    pub(crate) written_bytes: u64,
    /// Bytes freed.
    pub(crate) freed_bytes: u64,
}

/// Calls `act` with possible merges: of each node pairs, fours and so on. `run_bytes`: size of the new runs.
pub(crate) fn each_mergeable(
    node: &Node,
    places: &Places<'_>,
    run_bytes: u64,
    act: &mut impl FnMut(Mergeable),
) {
    let mut count = 2;
    while count <= TIERS_AT_ONCE && node.tiers.len() >= count {
        for tiers in node.tiers.windows(count).step_by(count / 2) {
            act(merge_of(node, tiers, places, run_bytes));
        }
        count *= 2;
    }
    node.child_nodes().for_each(|child| each_mergeable(child, places, run_bytes, act));
}

/// Returns the merge of these tiers of a node.
fn merge_of(node: &Node, tiers: &[Tier], places: &Places<'_>, run_bytes: u64) -> Mergeable {
    let newest = tiers.first().map(Tier::newest_seqno).unwrap_or_default();
    let oldest = tiers.last().map(Tier::newest_seqno).unwrap_or_default();
    let mut nodes: Vec<&Node> = places_of(tiers, places).collect();
    nodes.push(node);
    nodes.sort_unstable_by_key(|node| node.id);
    nodes.dedup_by_key(|node| node.id);
    let ids: Vec<ObjectId> = nodes.iter().map(|node| node.id).collect();
    debug_assert!(ids.is_sorted_by(|a, b| a < b), "each node once, in the order that the search relies on");
    let (mut written_bytes, mut freed_bytes, mut seen) = (0, 0, BTreeSet::<RunId>::new());
    for node in &nodes {
        let merged = node.tiers.iter().filter(|tier| is_between(tier, newest, oldest));
        let alive: u64 = merged.clone().map(alive_bytes).sum();
        written_bytes += with_index_bytes(alive) + (alive / run_bytes + 1) * LEAST_RUN_BYTES;
        for run in merged.flat_map(|tier| &tier.runs).map(|fenced| fenced.run.reference()) {
            let is_freed = |run| places[&run].iter().all(|place| ids.binary_search(&place.node.id).is_ok());
            if seen.insert(run.id) && is_freed(run.id) {
                freed_bytes += run.stored_bytes();
            }
        }
    }
    Mergeable { nodes: ids, newest, oldest, written_bytes, freed_bytes }
}

/// Returns the nodes that refer to the runs of the tiers.
fn places_of<'a>(tiers: &[Tier], places: &Places<'a>) -> impl Iterator<Item = &'a Node> {
    let runs = tiers.iter().flat_map(|tier| &tier.runs).map(|fenced| fenced.run.reference().id);
    runs.flat_map(|run| &places[&run]).map(|place| place.node)
}

fn is_between(tier: &Tier, newest: Seqno, oldest: Seqno) -> bool {
    (oldest..=newest).contains(&tier.newest_seqno())
}

/// Approximate live bytes of a tier, in pages.
fn alive_bytes(tier: &Tier) -> u64 {
    let runs = || tier.runs.iter().map(|fenced| fenced.run.reference());
    let user_bytes = runs().map(|run| run.user_bytes).sum();
    let page_bytes = runs().map(|run| u64::from(run.data_pages) * PAGE_BYTES).sum();
    scaled(tier.active_bytes(), page_bytes, user_bytes)
}

impl PlanNode {
    /// Plans to merge the tiers of these nodes, here and below, within the range of seqnos.
    pub(crate) fn merge_between(&mut self, nodes: &[ObjectId], newest: Seqno, oldest: Seqno) {
        if nodes.contains(&self.base.id) {
            let is_merged = |tier: &PlanTier| match tier {
                PlanTier::Existing(tier) => is_between(tier, newest, oldest),
                _ => false,
            };
            let first = self.tiers.iter().position(is_merged);
            let last = self.tiers.iter().rposition(is_merged);
            if let (Some(first), Some(last)) = (first, last) {
                self.merge_tiers(first..=last);
            }
        }
        for child in &mut self.children {
            let PlanChild::Untouched(Child::Node(node)) = child else { continue };
            if has_any(node, nodes) {
                let mut plan = Self::new(node);
                plan.merge_between(nodes, newest, oldest);
                *child = PlanChild::Node(Box::new(plan));
            }
        }
    }
}

fn has_any(node: &Node, nodes: &[ObjectId]) -> bool {
    nodes.contains(&node.id) || node.child_nodes().any(|child| has_any(child, nodes))
}
