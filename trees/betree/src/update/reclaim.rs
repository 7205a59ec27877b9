//! Winning space in small steps, for a device that is full: one leaf is merged with all that waits for it,
//! small ones become one, or one run of a buffer is written anew without what is dead of it (decision 0032).
//!
//! A flush by the policy's rules writes many leaves before it gives any of the old ones back. Here each step
//! needs the space of what it writes, a leaf or a run, and then gives back more than that where something was
//! removed or overwritten. A share is emptied from its low end on, leaf by leaf; and where more waits for a
//! leaf than fits, the leaf is cut behind what does.
//!
//! **Invariants**
//! - Each step leaves less waiting, or less of what is dead: going on comes to an end.
//! - Of what waits for a key nothing goes down before something older.

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

/// A step that wins less than this part of what it writes is not worth it.
const GAIN_PARTS: u64 = 32;
/// Nor is one that wins less than this, or than a sixteenth of a leaf.
const GAIN_BYTES_MIN: u64 = 16 << 10;
/// A run of which less than this part is dead is not written anew; and if it is about a removal.
const DEAD_PARTS: u64 = 8;
const DEAD_PARTS_ANY: u64 = 32;
/// Of what waits for a leaf at least this part of a leaf should go there at once.
const PARTS_OF_A_LEAF: u64 = 2;
/// Less than this is no step.
const PART_BYTES_MIN: u64 = 4 << 10;
/// What a step leaves after which a leaf takes more than before: enough to write runs anew that are then
/// partly dead.
const REST_BYTES_MAX: u64 = 256 << 10;
/// What a tombstone takes itself, about.
const TOMBSTONE_BYTES: u64 = 24;

/// About the most space that a step needs that does as little as is worth it.
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

/// A leaf that could be written anew.
struct Candidate {
    path: Vec<usize>,
    /// Bytes that the leaf takes.
    held_bytes: u64,
    /// Bytes that one of its entries takes.
    entry_bytes: u64,
    /// What waits for it, about.
    waiting: Waiting,
    /// How much of it replaces something, in bytes.
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
    /// What is written, if nothing is won, when about so many bytes of what waits go down.
    fn written_bytes(&self, waiting_max: u64) -> u64 {
        self.held_bytes + self.waiting.part_of(self.waiting.page_bytes, waiting_max)
    }

    /// The step in which about so many bytes of what waits go down.
    fn step(&self, waiting_max: u64) -> Step {
        let removed_bytes = self.waiting.tombstones * (self.entry_bytes + TOMBSTONE_BYTES);
        let gain_bytes = self.waiting.part_of(removed_bytes + self.replacing_bytes, waiting_max);
        let written_bytes = self.written_bytes(waiting_max);
        let gain_bytes = gain_bytes.min(written_bytes);
        let space_bytes = (written_bytes - gain_bytes) / 16 * 17 + LEAST_RUN_BYTES;
        Step { waiting_max, space_bytes, gain_bytes }
    }

    /// The largest step that fits, and that is half at most of what was tried in vain. One after which the
    /// leaf takes more than before leaves `rest_bytes`: what it wins in runs of tiers is won when those are
    /// dead or written anew.
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

/// What waits for a leaf, about.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    bytes: u64,
    /// What that takes in pages.
    page_bytes: u64,
    tombstones: u64,
}

impl Waiting {
    /// With a part of `other`.
    fn and(self, other: Self, parts: u64) -> Self {
        Self {
            bytes: self.bytes + other.bytes.div_ceil(parts),
            page_bytes: self.page_bytes + other.page_bytes.div_ceil(parts),
            tombstones: self.tombstones + other.tombstones.div_ceil(parts),
        }
    }

    /// The part of `whole` that belongs to at most so many of the bytes.
    fn part_of(&self, whole: u64, bytes_max: u64) -> u64 {
        let (part, of) = (bytes_max.min(self.bytes), self.bytes.max(1));
        low64(u128::from(whole) * u128::from(part) / u128::from(of))
    }
}

/// What the entries of a run take in pages: tombstones do not last.
fn page_bytes_of(run: &RunRef) -> u64 {
    let is_lasting = run.tombstones < run.entries;
    if is_lasting { u64::from(run.data_pages) * PAGE_BYTES } else { run.user_bytes }
}

/// What waits in a node for one of its pivots.
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
        // Shares are counted in pages of runs: what is in a page of many pivots may count for one of them
        // alone.
        let least = bytes.min(PAGE_BYTES) / u64_of(node.pivots.len());
        let share_bytes = share.bytes.max(least);
        waiting.bytes += share_bytes;
        waiting.page_bytes += low64_of(share_bytes, page_bytes, bytes);
        waiting.tombstones += (tombstones * share_bytes).div_ceil(bytes.max(1)).min(tombstones);
    }
    waiting
}

/// The first key of what waits in a node for one of its pivots.
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

/// Tells `act` of all leaves for which something waits, and to which it can go now.
fn each_candidate(root: &Node, act: &mut impl FnMut(Candidate)) {
    visit(root, &mut Vec::new(), (Order::LowestFirst, None), Waiting::default(), act);
}

/// Tells `act` of all leaves for which something waits, whatever has to go before it.
fn each_awaiting(root: &Node, act: &mut impl FnMut(Candidate)) {
    visit(root, &mut Vec::new(), (Order::Any, None), Waiting::default(), act);
}

/// Which leaves are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Those to which something can go now.
    LowestFirst,
    Any,
}

/// `from`: the first key of what waits above the node, which has to go first.
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

/// The best of the steps that were offered.
struct Choice<'a> {
    limits: &'a ReclaimLimits<'a>,
    gain_min: u64,
    best: Option<Chosen>,
}

/// The step that is best so far.
struct Chosen {
    target: Target,
    space_bytes: u64,
    gain_bytes: u64,
}

/// The step that gives up what only the compaction buffer has, which takes so many bytes.
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

    /// The first that is possible is taken, whatever it wins.
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

/// What would be won and written below each pivot of the root if all that waits went down.
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

/// The pivots below which enough is won, for itself and for what is written; those with most first.
fn promising(of_pivots: &[(u64, u64)], gain_min: u64) -> Vec<usize> {
    let is_enough = |pivot: &usize| {
        let (gain, written) = of_pivots[*pivot];
        gain >= gain_min.max(written / GAIN_PARTS)
    };
    let mut promising: Vec<usize> = (0..of_pivots.len()).filter(is_enough).collect();
    promising.sort_by_key(|&pivot| std::cmp::Reverse(of_pivots[pivot].0));
    promising
}

/// The step that wins most.
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
    // A run that is partly dead may be dead altogether once more leaves are written.
    if choice.best.is_none() {
        let parts = match limits.least_gain {
            LeastGain::Worthwhile => DEAD_PARTS,
            LeastGain::Any | LeastGain::None => DEAD_PARTS_ANY,
        };
        let mut places = Places::new();
        find_places(root, &mut places);
        // For removals alone: what writes fill to the last leaves nothing for what removals need.
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
    // What could be won may wait behind a leaf at which nothing can.
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

/// `part` of `of`, as a part of `whole`.
pub(crate) fn low64_of(part: u64, whole: u64, of: u64) -> u64 {
    low64(u128::from(part.min(of)) * u128::from(whole) / u128::from(of.max(1)))
}

impl PlanNode {
    /// Merges the leaf at the end of `path` with what waits for it: all of it, or the first bytes of it, at
    /// most about so many.
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

    /// Moves what waits below `high` for the leaf at the end of `path`, here and below, and `incoming` from
    /// above, newest first, into the leaf.
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

    /// Takes what waits for `pivot` below `high`, and is no newer than `newest_max`, out of the tiers, newest
    /// first.
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

/// Where the leaf at the end of a path ends.
fn leaf_at(node: &Node, path: &[usize]) -> Option<Fence> {
    match &node.pivots[path[0]].child {
        Child::Node(child) => leaf_at(child, &path[1..]),
        Child::Leaf(_) => node.bounds_of(path[0]).high,
    }
}

/// Adds what waits below `high` for the leaf at the end of `path`, newest first.
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

/// The first key behind about so many bytes of what the layers hold, and behind one key at least.
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
