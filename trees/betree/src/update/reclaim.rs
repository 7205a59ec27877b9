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

use testudo_base::{
    Cursor, PAGE_BYTES, Result, Seqno,
    num::{low64, u64_of},
    planted,
};
use testudo_contract::{LeastGain, Opaque, Reclaim, ReclaimLimits};
use testudo_run::{MergeCursor, RunRef};
use testudo_sequence::{
    Bounds, Fence, LEAST_RUN_BYTES, Layer, RUN_OVERHEAD_BYTES, bytes_of_runs, clip_runs, layer_cursor,
    runs_within,
};

use crate::{
    BeTreeOptions,
    trunk::node::{Child, Node, Share, Tier},
    update::{
        join::{each_joinable, nothing_above},
        plan::{PlanChild, PlanNode, PlanTier, active_bounds, leaf_with},
        reclaim::{
            partly_dead::{Places, each_partly_dead, find_places},
            tier_merge::each_mergeable,
        },
    },
};

pub(crate) use target::{Target, target_of};

/// Inverse of the minimum gain of a step, as a fraction of the bytes it writes.
const GAIN_PARTS: u64 = 32;
/// Minimum gain of a step in bytes; for small leaves, a sixteenth of a leaf.
const GAIN_BYTES_MIN: u64 = 16 << 10;
/// Inverse of the minimum garbage fraction for rewriting a run, normally and for a delete.
const DEAD_PARTS: u64 = 8;
const DEAD_PARTS_ANY: u64 = 32;
/// Inverse of the fraction of a leaf that should at least be flushed into it at once.
const PARTS_OF_A_LEAF: u64 = 2;
/// Minimum bytes of a step.
const PART_BYTES_MIN: u64 = 4 << 10;
/// Space left by a step after which a leaf is larger than before: enough to rewrite runs that then contain
/// garbage.
const REST_BYTES_MAX: u64 = 256 << 10;
/// Approximate size of a tombstone itself.
const TOMBSTONE_BYTES: u64 = 24;

/// Approximate upper bound on the space of a minimal worthwhile step.
pub(crate) fn bytes_max(root: &Node, options: &BeTreeOptions) -> u64 {
    let mut most = 0;
    let part_bytes = options.sparing().leaf_bytes / PARTS_OF_A_LEAF;
    each_candidate(root, &mut |candidate| most = most.max(candidate.written_bytes(part_bytes)));
    most.max(largest_run(root)) / 8 * 9 + RUN_OVERHEAD_BYTES
}

fn largest_run(node: &Node) -> u64 {
    let own =
        node.tiers.iter().flat_map(|tier| &tier.runs).map(|fenced| fenced.run.reference().stored_bytes());
    own.chain(node.child_nodes().map(|child| largest_run(child))).max().unwrap_or(0)
}

/// A leaf that could be rewritten.
struct Candidate {
    path: Vec<usize>,
    /// Stored bytes of the leaf.
    held_bytes: u64,
    /// Approximate bytes per entry.
    entry_bytes: u64,
    /// Entries buffered for it.
    waiting: Waiting,
    /// Bytes of overwrites among them.
    replacing_bytes: u64,
}

/// A step for a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    waiting_max: u64,
    space_bytes: u64,
    gain_bytes: u64,
}

impl Candidate {
    /// Bytes written, without any gain, when about `waiting_max` of the buffered bytes are flushed.
    fn written_bytes(&self, waiting_max: u64) -> u64 {
        self.held_bytes + self.waiting.part_of(self.waiting.page_bytes, waiting_max)
    }

    /// Returns the step in which about `waiting_max` of the buffered bytes are flushed.
    fn step(&self, waiting_max: u64) -> Step {
        let removed_bytes = self.waiting.tombstones * (self.entry_bytes + TOMBSTONE_BYTES);
        let gain_bytes = self.waiting.part_of(removed_bytes + self.replacing_bytes, waiting_max);
        let written_bytes = self.written_bytes(waiting_max);
        let gain_bytes = gain_bytes.min(written_bytes);
        let space_bytes = (written_bytes - gain_bytes) / 16 * 17 + LEAST_RUN_BYTES;
        Step { waiting_max, space_bytes, gain_bytes }
    }

    /// Returns the largest step that fits, and that is at most half of any failed attempt. A step after which
    /// the leaf is larger than before leaves `rest_bytes`: its gain in runs of tiers is realized only when
    /// those are garbage or rewritten.
    fn largest_step(&self, limits: &ReclaimLimits<'_>, rest_bytes: u64) -> Option<Step> {
        let half_of = |waiting_max: u64| waiting_max.min(self.waiting.bytes) / 2;
        let tried = limits.but.iter().filter_map(|tried| match target_of(tried) {
            Target::Leaf { path, waiting_max } if *path == self.path => Some(half_of(*waiting_max)),
            _ => None,
        });
        let mut waiting_max = tried.min().unwrap_or(u64::MAX);
        while waiting_max >= PART_BYTES_MIN {
            let step = self.step(waiting_max);
            let rest_bytes = if step.space_bytes > self.held_bytes { rest_bytes } else { 0 };
            if step.space_bytes + rest_bytes <= limits.space_bytes {
                return Some(step);
            }
            waiting_max = half_of(waiting_max);
        }
        None
    }

    fn target(self, waiting_max: u64) -> Target {
        Target::Leaf { path: self.path, waiting_max }
    }
}

/// Approximate totals of the entries buffered for a leaf.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    bytes: u64,
    /// Their size in pages.
    page_bytes: u64,
    tombstones: u64,
}

impl Waiting {
    /// Adds a fraction `1 / parts` of `other`.
    fn and(self, other: Self, parts: u64) -> Self {
        Self {
            bytes: self.bytes + other.bytes.div_ceil(parts),
            page_bytes: self.page_bytes + other.page_bytes.div_ceil(parts),
            tombstones: self.tombstones + other.tombstones.div_ceil(parts),
        }
    }

    /// Scales `whole` to at most `bytes_max` of the bytes.
    fn part_of(&self, whole: u64, bytes_max: u64) -> u64 {
        let (part, of) = (bytes_max.min(self.bytes), self.bytes.max(1));
        low64(u128::from(whole) * u128::from(part) / u128::from(of))
    }
}

/// Bytes of a run's entries in pages; plain bytes if all are tombstones, which a leaf drops.
fn page_bytes_of(run: &RunRef) -> u64 {
    let is_lasting = run.tombstones < run.entries;
    if is_lasting { u64::from(run.data_pages) * PAGE_BYTES } else { run.user_bytes }
}

/// Returns the entries buffered in a node for one of its pivots.
fn waiting_of(node: &Node, pivot: usize) -> Waiting {
    let bounds = node.bounds_of(pivot);
    let mut waiting = Waiting::default();
    for tier in &node.tiers {
        let Some(share) = &tier.shares[pivot] else { continue };
        let (mut bytes, mut page_bytes, mut tombstones) = (0, 0, 0);
        for (_, fenced) in runs_within(&tier.runs, &active_bounds(&bounds, share)) {
            let run = fenced.run.reference();
            bytes += run.user_bytes;
            page_bytes += page_bytes_of(run);
            tombstones += run.tombstones;
        }
        // Shares are counted in pages of runs: a page shared by many pivots may be counted for only one of
        // them.
        let least = bytes.min(PAGE_BYTES) / u64_of(node.pivots.len());
        let share_bytes = share.bytes.max(least);
        waiting.bytes += share_bytes;
        waiting.page_bytes += low64_of(share_bytes, page_bytes, bytes);
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
    visit(root, &mut Vec::new(), (Order::LowestFirst, None), Waiting::default(), act);
}

/// Calls `act` with all leaves that have buffered entries, whether or not others must be flushed first.
fn each_awaiting(root: &Node, act: &mut impl FnMut(Candidate)) {
    visit(root, &mut Vec::new(), (Order::Any, None), Waiting::default(), act);
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
    above: Waiting,
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
                visit(child, path, (order, first), above.and(own, leaves_of(child).max(1)), act);
            }
            Child::Leaf(run) if above.bytes + own.bytes > 0 => {
                let waiting = above.and(own, 1);
                let reference = run.as_ref().map(|run| run.reference());
                let held_bytes = reference.map_or(0, |reference| reference.stored_bytes());
                act(Candidate {
                    path: path.clone(),
                    held_bytes,
                    entry_bytes: reference
                        .map_or(0, |reference| reference.stored_bytes() / reference.entries.max(1)),
                    waiting,
                    replacing_bytes: node.overwrites.between(0, waiting.bytes).min(held_bytes),
                });
            }
            Child::Leaf(_) => {}
        }
        path.pop();
    }
}

/// The best of the steps offered.
struct Choice<'a> {
    limits: &'a ReclaimLimits<'a>,
    gain_min: u64,
    best: Option<Chosen>,
}

/// The best step so far.
struct Chosen {
    target: Target,
    space_bytes: u64,
    gain_bytes: u64,
}

/// Returns the step that drops the data only in the compaction buffer, which takes `retained_bytes`.
pub(crate) fn giving_up(retained_bytes: u64) -> Reclaim {
    Reclaim {
        is_merge: false,
        target: Opaque::new(Target::Retained),
        space_bytes: 0,
        gain_bytes: retained_bytes,
    }
}

impl Chosen {
    fn into_reclaim(self) -> Reclaim {
        Reclaim {
            is_merge: matches!(self.target, Target::Leaf { .. }),
            target: Opaque::new(self.target),
            space_bytes: self.space_bytes,
            gain_bytes: self.gain_bytes,
        }
    }
}

impl Choice<'_> {
    fn offer(&mut self, target: Target, space_bytes: u64, gain_bytes: u64) {
        let gain_min = match self.limits.least_gain {
            LeastGain::Worthwhile => self.gain_min.max((space_bytes - LEAST_RUN_BYTES) / GAIN_PARTS),
            LeastGain::Any | LeastGain::None => 1,
        };
        let is_better = self.best.as_ref().is_none_or(|best| gain_bytes > best.gain_bytes);
        if gain_bytes >= gain_min && is_better && self.is_possible(&target, space_bytes) {
            self.best = Some(Chosen { target, space_bytes, gain_bytes });
        }
    }

    /// Takes the first possible step, regardless of its gain.
    fn offer_next(&mut self, target: Target, space_bytes: u64) {
        if self.best.is_none() && self.is_possible(&target, space_bytes) {
            self.best = Some(Chosen { target, space_bytes, gain_bytes: 0 });
        }
    }

    fn is_possible(&self, target: &Target, space_bytes: u64) -> bool {
        let ReclaimLimits { space_bytes: left, but, .. } = self.limits;
        space_bytes <= *left && but.iter().all(|other| target_of(other) != target)
    }
}

/// Returns gain and bytes written below each pivot of the root if all buffered entries were flushed.
fn gains_of_pivots(root: &Node) -> Vec<(u64, u64)> {
    let mut of_pivots = vec![(0, 0); root.pivots.len()];
    each_awaiting(root, &mut |candidate| {
        let step = candidate.step(u64::MAX);
        let (gain, written) = &mut of_pivots[candidate.path[0]];
        *gain += step.gain_bytes;
        *written += step.space_bytes - LEAST_RUN_BYTES;
    });
    of_pivots
}

/// Returns the pivots with enough gain, absolute and relative to the bytes written, in descending order.
fn promising(of_pivots: &[(u64, u64)], gain_min: u64) -> Vec<usize> {
    let is_enough = |pivot: &usize| {
        let (gain, written) = of_pivots[*pivot];
        gain >= gain_min.max(written / GAIN_PARTS)
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
    let mut choice = Choice { limits, gain_min: GAIN_BYTES_MIN.min(options.leaf_bytes / 16), best: None };
    let rest_bytes = bytes_max(root, options).min(REST_BYTES_MAX);
    each_candidate(root, &mut |candidate| {
        let Some(step) = candidate.largest_step(limits, rest_bytes) else { return };
        choice.offer(candidate.target(step.waiting_max), step.space_bytes, step.gain_bytes);
    });
    each_joinable(root, options, &mut Vec::new(), &nothing_above, &mut |joinable| {
        let space = joinable.bytes / 16 * 17 + LEAST_RUN_BYTES;
        let gain = joinable.stored_bytes.saturating_sub(space);
        choice.offer(Target::Leaves(joinable.path, joinable.count), space, gain);
    })?;
    // A run that is partly garbage may become all garbage once more leaves are written.
    if choice.best.is_none() {
        let parts = match limits.least_gain {
            LeastGain::Worthwhile => DEAD_PARTS,
            LeastGain::Any | LeastGain::None => DEAD_PARTS_ANY,
        };
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
        each_partly_dead(&places, parts, &mut |dead| {
            let space_bytes = dead.alive_bytes / 16 * 17 + LEAST_RUN_BYTES * dead.places;
            choice.offer(Target::Run(dead.run), space_bytes, dead.dead_bytes);
        })?;
    }
    // Gain may be blocked by a leaf without any.
    if limits.least_gain == LeastGain::Worthwhile && choice.best.is_none() {
        for pivot in promising(&gains_of_pivots(root), choice.gain_min) {
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
    Ok(choice.best.map(Chosen::into_reclaim))
}

/// Scales `whole` by `part / of`.
pub(crate) fn low64_of(part: u64, whole: u64, of: u64) -> u64 {
    low64(u128::from(part.min(of)) * u128::from(whole) / u128::from(of.max(1)))
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
            cut = key_behind(waiting, waiting_max)?;
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

/// Returns the key after about `bytes` of the layers' entries, and after at least one key.
fn key_behind(layers: Vec<Layer>, bytes: u64) -> Result<Option<Fence>> {
    let mut merge = MergeCursor::new(layers.into_iter().map(layer_cursor).collect());
    merge.seek_first()?;
    while merge.entry().is_some() && (merge.passed_bytes() == 0 || merge.passed_bytes() < bytes) {
        merge.next()?;
    }
    Ok(merge.entry().map(|entry| entry.key.into()))
}

#[cfg(test)]
mod tests;
