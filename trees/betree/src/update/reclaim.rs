//! Reclaiming space in small steps on a full device: a leaf is merged with its buffered entries, small leaves
//! are joined, or a run of a buffer is rewritten without its garbage (decision 0032).
//!
//! A regular flush writes many leaves before it releases any of the old ones. Here each step needs space for
//! one leaf or run, and then releases more than that if entries were removed or overwritten. A share is
//! emptied from its low end on, leaf by leaf. If more entries are buffered for a leaf than fit, the leaf is
//! cut after those that do.
//!
//! **Invariants**
//! - Each step reduces the buffered entries, or the garbage: repeating it terminates.
//! - No buffered entry of a key is flushed before an older one.

pub(crate) mod partly_dead;
mod target;
pub(crate) mod tier_merge;

use testudo_base::{PAGE_BYTES, Result, Seqno, num::u64_of, planted};
use testudo_contract::{LeastGain, Reclaim, ReclaimLimits};
use testudo_sequence::{
    Bounds, EstimatedStep, Fence, LEAST_RUN_BYTES, Layer, REST_BYTES_MAX, ReclaimChoice, ReclaimEstimate,
    WaitingEntries, bytes_of_runs, clip_runs, key_after, lasting_page_bytes, run_space_bytes, runs_within,
    scaled, step_space_max, target_of, with_index_bytes,
};

use crate::{
    BeTreeOptions,
    trunk::node::{Child, Node, Share, Tier},
    update::{
        join::{Above, each_joinable},
        plan::{PlanChild, PlanNode, PlanTier, active_bounds, leaf_with},
        reclaim::{
            partly_dead::{Places, each_partly_dead, find_places},
            tier_merge::each_mergeable,
        },
    },
};

pub(crate) use target::Target;

/// Inverse of the fraction of a leaf that should at least be flushed into it at once.
const PARTS_OF_A_LEAF: u64 = 2;
/// Approximate upper bound on the space of a minimal worthwhile step.
pub(crate) fn bytes_max(root: &Node, options: &BeTreeOptions) -> u64 {
    let mut most = 0;
    let part_bytes = options.sparing().leaf_bytes / PARTS_OF_A_LEAF;
    each_candidate(root, &mut |candidate| most = most.max(candidate.estimate.written_bytes(part_bytes)));
    step_space_max(most.max(largest_run(root)))
}

fn largest_run(node: &Node) -> u64 {
    let own =
        node.tiers.iter().flat_map(|tier| &tier.runs).map(|fenced| fenced.run.reference().stored_bytes());
    own.chain(node.child_nodes().map(|child| largest_run(child))).max().unwrap_or(0)
}

/// A leaf that could be rewritten.
struct Candidate {
    path: Vec<usize>,
    estimate: ReclaimEstimate,
}

impl Candidate {
    /// Returns the largest step that fits, and that is at most half of any failed attempt.
    fn largest_step(&self, limits: &ReclaimLimits<'_>, rest_bytes: u64) -> Option<EstimatedStep> {
        let tried = limits.but.iter().filter_map(|tried| match target_of(tried) {
            Target::Leaf { path, waiting_max } if *path == self.path => Some(*waiting_max),
            _ => None,
        });
        self.estimate.largest_step(limits, tried, rest_bytes)
    }

    fn target(self, waiting_max: u64) -> Target {
        Target::Leaf { path: self.path, waiting_max }
    }
}

/// Returns the entries buffered in a node for one of its pivots.
fn waiting_of(node: &Node, pivot: usize) -> WaitingEntries {
    let bounds = node.bounds_of(pivot);
    let mut waiting = WaitingEntries::default();
    for tier in &node.tiers {
        let Some(share) = &tier.shares[pivot] else { continue };
        let (mut bytes, mut page_bytes, mut tombstones) = (0, 0, 0);
        for (_, fenced) in runs_within(&tier.runs, &active_bounds(&bounds, share)) {
            let run = fenced.run.reference();
            bytes += run.user_bytes;
            page_bytes += lasting_page_bytes(run);
            tombstones += run.tombstones;
        }
        // Shares are counted in pages of runs: a page shared by many pivots may be counted for only one of
        // them.
        let least = bytes.min(PAGE_BYTES) / u64_of(node.pivots.len());
        let share_bytes = share.bytes.max(least);
        waiting.bytes += share_bytes;
        waiting.page_bytes += scaled(share_bytes, page_bytes, bytes);
        waiting.tombstones += (tombstones * share_bytes).div_ceil(bytes.max(1)).min(tombstones);
    }
    waiting
}

/// Returns the first key buffered in a node for one of its pivots.
fn start_of(node: &Node, pivot: usize) -> Option<Fence> {
    let low = &node.pivots[pivot].low;
    let from = |share: &Share| match &share.from {
        Some(from) if low.is_less_than(from) => Fence::from(from.as_slice()),
        _ => low.clone(),
    };
    node.tiers.iter().filter_map(|tier| tier.shares[pivot].as_ref()).map(from).min()
}

fn leaves_of(node: &Node) -> u64 {
    if node.height == 1 {
        return u64_of(node.pivots.len());
    }
    node.child_nodes().map(|child| leaves_of(child)).sum()
}

/// Calls `act` with all leaves that have buffered entries which can be flushed now.
fn each_candidate(root: &Node, act: &mut impl FnMut(Candidate)) {
    visit(root, &mut Vec::new(), (Order::LowestFirst, None), WaitingEntries::default(), act);
}

/// Calls `act` with all leaves that have buffered entries, whether or not others must be flushed first.
fn each_awaiting(root: &Node, act: &mut impl FnMut(Candidate)) {
    visit(root, &mut Vec::new(), (Order::Any, None), WaitingEntries::default(), act);
}

/// Leaves to visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Those into which entries can be flushed now.
    LowestFirst,
    Any,
}

/// `from`: the first key buffered above the node, which must be flushed first.
fn visit(
    node: &Node,
    path: &mut Vec<usize>,
    (order, from): (Order, Option<&Fence>),
    above: WaitingEntries,
    act: &mut impl FnMut(Candidate),
) {
    let pivots = match from.filter(|_| order == Order::LowestFirst) {
        Some(from) => {
            let pivot = node.pivot_of(&from.bytes());
            pivot..pivot + 1
        }
        None => 0..node.pivots.len(),
    };
    for pivot in pivots {
        path.push(pivot);
        let own = waiting_of(node, pivot);
        match &node.pivots[pivot].child {
            Child::Node(child) => {
                let start = start_of(node, pivot);
                let first = start.as_ref().into_iter().chain(from).min();
                debug_assert!(child.height < node.height, "children are lower");
                visit(child, path, (order, first), above.and(own, leaves_of(child).max(1)), act);
            }
            Child::Leaf(run) if above.bytes + own.bytes > 0 => {
                let reference = run.as_ref().map(|run| run.reference());
                let estimate = ReclaimEstimate::new(reference, above.and(own, 1), node.overwrites, 0);
                act(Candidate { path: path.clone(), estimate });
            }
            Child::Leaf(_) => {}
        }
        path.pop();
    }
}

/// Returns gain and bytes written below each pivot of the root if all buffered entries were flushed.
fn gains_of_pivots(root: &Node) -> Vec<(u64, u64)> {
    let mut of_pivots = vec![(0, 0); root.pivots.len()];
    each_awaiting(root, &mut |candidate| {
        let step = candidate.estimate.step(u64::MAX);
        let (gain, written) = &mut of_pivots[candidate.path[0]];
        *gain += step.gain_bytes;
        *written += step.space_bytes - LEAST_RUN_BYTES;
    });
    of_pivots
}

/// Returns the pivots with enough gain, absolute and relative to the bytes written, in descending order.
fn promising(of_pivots: &[(u64, u64)], choice: &ReclaimChoice<'_, Target>) -> Vec<usize> {
    let is_enough = |pivot: &usize| {
        let (gain, written) = of_pivots[*pivot];
        gain >= choice.worthwhile_gain(written)
    };
    let mut promising: Vec<usize> = (0..of_pivots.len()).filter(is_enough).collect();
    promising.sort_by_key(|&pivot| std::cmp::Reverse(of_pivots[pivot].0));
    promising
}

/// Picks the step with the largest gain.
pub(crate) fn pick(
    root: &Node,
    options: &BeTreeOptions,
    limits: &ReclaimLimits<'_>,
) -> Result<Option<Reclaim>> {
    let options = &options.sparing();
    let mut choice = ReclaimChoice::new(limits, options.leaf_bytes);
    let rest_bytes = bytes_max(root, options).min(REST_BYTES_MAX);
    each_candidate(root, &mut |candidate| {
        let Some(step) = candidate.largest_step(limits, rest_bytes) else { return };
        choice.offer(candidate.target(step.waiting_max), step.space_bytes, step.gain_bytes);
    });
    each_joinable(root, options, &mut Vec::new(), &Above::nothing(), &mut |joinable| {
        let space = run_space_bytes(joinable.bytes);
        let gain = joinable.stored_bytes.saturating_sub(space);
        choice.offer(Target::Leaves(joinable.path, joinable.count), space, gain);
    })?;
    // A run that is partly garbage may become all garbage once more leaves are written.
    if choice.is_empty() {
        let mut places = Places::new();
        find_places(root, &mut places);
        // Only for deletes: space that writes fill up leaves nothing for deletes.
        if limits.least_gain > LeastGain::Worthwhile {
            each_mergeable(root, &places, options.tier_run_bytes(root.overwrites), &mut |merge| {
                let (nodes, newest, oldest) = (merge.nodes, merge.newest, merge.oldest);
                let gain_bytes = merge.freed_bytes.saturating_sub(merge.written_bytes);
                choice.offer(Target::Tiers { nodes, newest, oldest }, merge.written_bytes, gain_bytes);
            });
        }
        each_partly_dead(&places, choice.garbage_parts(), &mut |dead| {
            let space_bytes = with_index_bytes(dead.alive_bytes) + LEAST_RUN_BYTES * dead.places;
            choice.offer(Target::Run(dead.run), space_bytes, dead.dead_bytes);
        })?;
    }
    // Gain may be blocked by a leaf without any.
    if limits.least_gain == LeastGain::Worthwhile && choice.is_empty() {
        for pivot in promising(&gains_of_pivots(root), &choice) {
            each_candidate(root, &mut |candidate| {
                let step = candidate.largest_step(limits, rest_bytes).filter(|_| candidate.path[0] == pivot);
                let Some(step) = step else { return };
                choice.offer_next(candidate.target(step.waiting_max), step.space_bytes);
            });
        }
    }
    if limits.least_gain == LeastGain::None {
        each_candidate(root, &mut |candidate| {
            let Some(step) = candidate.largest_step(limits, 0) else { return };
            choice.offer_next(candidate.target(step.waiting_max), step.space_bytes);
        });
    }
    Ok(choice.into_reclaim())
}

impl PlanNode {
    /// Merges the leaf at the end of `path` with its buffered entries: all of them, or the first ones, up to
    /// about `waiting_max` bytes.
    pub(crate) fn flush_into_leaf(&mut self, path: &[usize], waiting_max: u64) -> Result<()> {
        let leaf_high = leaf_at(&self.base, path);
        let mut cut = None;
        if waiting_max < u64::MAX {
            let mut waiting = Vec::new();
            add_waiting(&self.base, path, leaf_high.as_ref(), &mut waiting);
            cut = key_after(waiting, waiting_max)?;
        }
        let high = cut.clone().or(leaf_high);
        self.flush_below(Vec::new(), path, high.as_ref(), cut)
    }

    /// Flushes the entries below `high` that are buffered for the leaf at the end of `path`, here and below,
    /// together with `incoming` from above, newest first, into the leaf.
    fn flush_below(
        &mut self,
        incoming: Vec<Layer>,
        path: &[usize],
        high: Option<&Fence>,
        leaf_cut: Option<Fence>,
    ) -> Result<()> {
        debug_assert_eq!(u64_of(path.len()), u64::from(self.base.height), "one step per height");
        let pivot = path[0];
        let mut layers = incoming;
        layers.extend(self.extract_below(pivot, high, Seqno(u64::MAX))?);
        if self.base.height == 1 {
            let mut bytes = 0;
            for slice in layers.iter().flatten() {
                bytes += slice.bytes_within(&Bounds::default())?;
            }
            if let PlanChild::Untouched(Child::Leaf(run)) = &mut self.children[pivot] {
                let run = run.take();
                let mut leaf = leaf_with(layers, bytes, run.as_ref());
                if let PlanChild::Leaf { cut, .. } = &mut leaf {
                    *cut = leaf_cut;
                }
                self.children[pivot] = leaf;
            }
            return Ok(());
        }
        let PlanChild::Untouched(Child::Node(child)) = &self.children[pivot] else { return Ok(()) };
        let mut plan = Self::new(child);
        plan.flush_below(layers, &path[1..], high, leaf_cut)?;
        self.children[pivot] = PlanChild::Node(Box::new(plan));
        Ok(())
    }

    /// Removes the entries buffered for `pivot` below `high`, and no newer than `newest_max`, from the tiers;
    /// returns them newest first.
    pub(crate) fn extract_below(
        &mut self,
        pivot: usize,
        high: Option<&Fence>,
        newest_max: Seqno,
    ) -> Result<Vec<Layer>> {
        let bounds = self.base.bounds_of(pivot);
        let high = high.filter(|high| bounds.high.as_ref().is_none_or(|end| *high < end));
        let below = Bounds { low: None, high: high.cloned() };
        let mut layers = Vec::new();
        for tier in &mut self.tiers {
            let PlanTier::Existing(tier) = tier else { continue };
            if tier.newest_seqno() > newest_max {
                continue;
            }
            let Tier { runs, shares } = tier;
            let Some(share) = &shares[pivot] else { continue };
            if share.from.as_ref().is_some_and(|from| high.is_some_and(|high| high.is_at_most(from))) {
                continue;
            }
            let layer = clip_runs(runs, &active_bounds(&bounds, share).intersection(&below));
            if !layer.is_empty() {
                layers.push(layer);
            }
            let Some(high) = high else {
                shares[pivot] = None;
                continue;
            };
            let from = Some(high.to_vec());
            let rest = active_bounds(&bounds, &Share { from: from.clone(), bytes: 0 });
            let is_left = !clip_runs(runs, &rest).is_empty() && !planted!("rest-of-share-forgotten");
            let bytes = bytes_of_runs(runs, &rest)?.max(1);
            shares[pivot] = is_left.then_some(Share { from, bytes });
        }
        Ok(layers)
    }
}

/// Returns the exclusive upper bound of the leaf at the end of a path.
fn leaf_at(node: &Node, path: &[usize]) -> Option<Fence> {
    debug_assert_eq!(u64_of(path.len()), u64::from(node.height), "one step per height");
    match &node.pivots[path[0]].child {
        Child::Node(child) => leaf_at(child, &path[1..]),
        Child::Leaf(_) => node.bounds_of(path[0]).high,
    }
}

/// Adds the entries below `high` that are buffered for the leaf at the end of `path`, newest first.
fn add_waiting(node: &Node, path: &[usize], high: Option<&Fence>, layers: &mut Vec<Layer>) {
    let bounds = node.bounds_of(path[0]).intersection(&Bounds { low: None, high: high.cloned() });
    for tier in &node.tiers {
        if let Some(share) = &tier.shares[path[0]] {
            layers.push(clip_runs(&tier.runs, &active_bounds(&bounds, share)));
        }
    }
    if let Child::Node(child) = &node.pivots[path[0]].child {
        add_waiting(child, &path[1..], high, layers);
    }
}

#[cfg(test)]
mod tests;
