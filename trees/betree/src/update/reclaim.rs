//! Winning space in small steps, for a device that is full: one leaf is merged with all that waits for it,
//! small ones become one, or one run of a buffer is written anew without what is dead of it (decision 0032).
//!
//! A flush by the policy's rules writes many leaves before it gives any of the old ones back. Here each step
//! needs the space of what it writes, a leaf or a run, and then gives back more than that where something was
//! removed or overwritten. Above the lowest nodes a share is emptied from its low end on, leaf by leaf.
//!
//! **Invariants**
//! - Each step leaves less waiting, or less of what is dead: going on comes to an end.
//! - Everything that waits for a leaf goes there together, as in a flush.

use testudo_base::{ObjectId, PAGE_BYTES, Result, RunId, num::u64_of, planted};
use testudo_contract::{Reclaim, ReclaimLimits, ReclaimTarget};

use crate::{
    BeTreeOptions,
    trunk::{
        fence::{Bounds, Fence},
        node::{Child, Node, Share, Tier},
    },
    update::{
        merge_source::{Layer, bytes_of_runs, clip_runs, runs_within},
        plan::{PlanChild, PlanNode, PlanTier, active_bounds, leaf_with},
        write::alive_of_run,
    },
};

/// A run has so many bytes of index, filter and footer at least, and takes space in pieces of about this
/// size.
const RUN_OVERHEAD_BYTES: u64 = 64 << 10;
/// A run with a single small entry takes as much.
const LEAST_RUN_BYTES: u64 = 16 << 10;
/// A step that wins less than this part of what it writes is not worth it.
const GAIN_PARTS: u64 = 32;
/// Nor is one that wins less than this, or than a sixteenth of a leaf.
const GAIN_BYTES_MIN: u64 = 16 << 10;
/// A run of which less than this part is dead is not written anew.
const DEAD_PARTS: u64 = 8;
/// What a tombstone takes itself, about.
const TOMBSTONE_BYTES: u64 = 24;

/// The most space that so many bytes of memory of a write buffer take as runs.
pub(crate) fn on_top_bytes(memory_bytes: u64, options: &BeTreeOptions) -> u64 {
    // Entries of half a page and a little more leave pages half empty.
    let data = memory_bytes * 2;
    let runs = memory_bytes / options.tier_run_bytes().max(1) + 1;
    // Small runs are a page of data each, with as much beside it as any.
    data + (runs - 1) * (32 << 10).min(options.tier_run_bytes() * 4) + 2 * RUN_OVERHEAD_BYTES
}

/// About the most space that a step needs.
pub(crate) fn bytes_max(root: &Node) -> u64 {
    let mut most = 0;
    each_candidate(root, &mut |candidate| most = most.max(candidate.held_bytes + candidate.waiting_bytes));
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
    /// Bytes of one of its entries.
    entry_bytes: u64,
    /// Bytes that wait for it, about.
    waiting_bytes: u64,
    /// Tombstones among that.
    tombstones: u64,
    /// How much of it replaces something, in bytes.
    replacing_bytes: u64,
}

impl Candidate {
    fn gain_bytes(&self) -> u64 {
        let removed = self.tombstones * (self.entry_bytes + TOMBSTONE_BYTES);
        (removed + self.replacing_bytes).min(self.held_bytes + self.waiting_bytes)
    }

    fn space_bytes(&self) -> u64 {
        (self.held_bytes + self.waiting_bytes - self.gain_bytes()) / 16 * 17 + LEAST_RUN_BYTES
    }
}

/// What waits for a leaf, about.
#[derive(Clone, Copy, Default)]
struct Waiting {
    bytes: u64,
    tombstones: u64,
}

impl Waiting {
    /// With a part of `other`.
    fn and(self, other: Self, parts: u64) -> Self {
        Self {
            bytes: self.bytes + other.bytes.div_ceil(parts),
            tombstones: self.tombstones + other.tombstones.div_ceil(parts),
        }
    }
}

/// What waits in a node for one of its pivots.
fn waiting_of(node: &Node, pivot: usize) -> Waiting {
    let bounds = node.bounds_of(pivot);
    let mut waiting = Waiting::default();
    for tier in &node.tiers {
        let Some(share) = &tier.shares[pivot] else { continue };
        let (mut bytes, mut tombstones) = (0, 0);
        for (_, fenced) in runs_within(&tier.runs, &active_bounds(&bounds, share)) {
            bytes += fenced.run.reference().user_bytes;
            tombstones += fenced.run.reference().tombstones;
        }
        // Shares are counted in pages of runs: what is in a page of many pivots may count for one of them
        // alone.
        let least = bytes.min(PAGE_BYTES) / u64_of(node.pivots.len());
        let share_bytes = share.bytes.max(least);
        waiting.bytes += share_bytes;
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
    visit(root, &mut Vec::new(), None, Waiting::default(), act);
}

/// `from`: the first key of what waits above the node, which has to go first.
fn visit(
    node: &Node,
    path: &mut Vec<usize>,
    from: Option<&Fence>,
    above: Waiting,
    act: &mut impl FnMut(Candidate),
) {
    let pivots = match from {
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
                visit(child, path, first, above.and(own, leaves_of(child).max(1)), act);
            }
            Child::Leaf(run) if above.bytes + own.bytes > 0 => {
                let waiting = above.and(own, 1);
                let reference = run.as_ref().map(|run| run.reference());
                let held_bytes = reference.map_or(0, |reference| reference.stored_bytes());
                act(Candidate {
                    path: path.clone(),
                    held_bytes,
                    entry_bytes: reference
                        .map_or(0, |reference| reference.user_bytes / reference.entries.max(1)),
                    waiting_bytes: waiting.bytes,
                    tombstones: waiting.tombstones,
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
    best: Option<Reclaim>,
}

impl Choice<'_> {
    fn offer(&mut self, target: ReclaimTarget, space_bytes: u64, gain_bytes: u64) {
        let ReclaimLimits { is_urgent, but, .. } = self.limits;
        let is_worth_it =
            gain_bytes >= self.gain_min.max((space_bytes - LEAST_RUN_BYTES) / GAIN_PARTS) || *is_urgent;
        let is_better = self.best.as_ref().map_or(gain_bytes > 0, |best| gain_bytes > best.gain_bytes);
        let fits = space_bytes <= self.limits.space_bytes;
        if is_worth_it && is_better && fits && but.iter().all(|other| other.target != target) {
            self.best = Some(Reclaim { target, space_bytes, gain_bytes });
        }
    }
}

/// The step that wins most.
pub(crate) fn pick(
    root: &Node,
    options: &BeTreeOptions,
    limits: &ReclaimLimits<'_>,
) -> Result<Option<Reclaim>> {
    let mut choice = Choice { limits, gain_min: GAIN_BYTES_MIN.min(options.leaf_bytes / 16), best: None };
    each_candidate(root, &mut |candidate| {
        let (space, gain) = (candidate.space_bytes(), candidate.gain_bytes());
        choice.offer(ReclaimTarget::Leaf(candidate.path), space, gain);
    });
    each_joinable(root, options, &mut Vec::new(), &mut |path, count, space, gain| {
        choice.offer(ReclaimTarget::Leaves(path.to_vec(), count), space, gain);
    });
    // A run that is partly dead may be dead altogether once more leaves are written.
    if choice.best.is_none() {
        each_partly_dead(root, &mut |node, run, alive, dead| {
            choice.offer(ReclaimTarget::Run(node, run), alive / 16 * 17 + LEAST_RUN_BYTES, dead);
        })?;
    }
    Ok(choice.best)
}

/// Tells `act` of neighbouring leaves that would be one: the way to the first, how many, and the bytes that
/// takes and wins.
fn each_joinable(
    node: &Node,
    options: &BeTreeOptions,
    path: &mut Vec<usize>,
    act: &mut impl FnMut(&[usize], usize, u64, u64),
) {
    if node.height > 1 {
        for (pivot, child) in node.child_nodes().enumerate() {
            path.push(pivot);
            each_joinable(child, options, path, act);
            path.pop();
        }
        return;
    }
    let size = |pivot: usize| node.pivots[pivot].child.leaf_bytes().unwrap_or(0) + node.pending_of(pivot);
    let stored = |pivot: usize| match &node.pivots[pivot].child {
        Child::Leaf(Some(run)) => run.reference().stored_bytes(),
        _ => 0,
    };
    let mut first = 0;
    while first < node.pivots.len() {
        let (mut bytes, mut taken, mut end) = (size(first), stored(first), first + 1);
        while end < node.pivots.len() && options.leaves_should_join(bytes, size(end)) {
            bytes += size(end);
            taken += stored(end);
            end += 1;
        }
        if end - first > 1 {
            let space = bytes / 16 * 17 + LEAST_RUN_BYTES;
            path.push(first);
            act(path, end - first, space, taken.saturating_sub(bytes / 16 * 17 + LEAST_RUN_BYTES));
            path.pop();
        }
        first = end;
    }
}

fn each_partly_dead(node: &Node, act: &mut impl FnMut(ObjectId, RunId, u64, u64)) -> Result<()> {
    for tier in &node.tiers {
        for (at, fenced) in tier.runs.iter().enumerate() {
            let reference = fenced.run.reference();
            if is_all_alive(node, tier, at) {
                continue;
            }
            let mut alive = 0;
            for slice in alive_of_run(node, tier, at) {
                alive += slice.bytes_within(&Bounds::default())?;
            }
            let stored = reference.stored_bytes();
            let alive = low64_of(alive, stored, reference.user_bytes);
            let dead = stored - alive;
            if dead >= stored / DEAD_PARTS && dead > 0 {
                act(node.id, reference.id, alive, dead);
            }
        }
    }
    for child in node.child_nodes() {
        each_partly_dead(child, act)?;
    }
    Ok(())
}

/// Whether every pivot of which the run can have keys has a whole share of its tier.
fn is_all_alive(node: &Node, tier: &Tier, at: usize) -> bool {
    let next = tier.runs.get(at + 1).map(|next| &next.low);
    let keys = &tier.runs[at].run.reference().keys;
    let first = node.pivots.partition_point(|pivot| pivot.low <= tier.runs[at].low).saturating_sub(1);
    let reaches = |pivot: usize| {
        let low = &node.pivots[pivot].low;
        next.is_none_or(|next| low < next) && !keys.end_before(&low.head())
    };
    (first..node.pivots.len())
        .take_while(|&pivot| pivot == first || reaches(pivot))
        .all(|pivot| tier.shares[pivot].as_ref().is_some_and(|share| share.from.is_none()))
}

/// `part` of `of`, as a part of `whole`.
fn low64_of(part: u64, whole: u64, of: u64) -> u64 {
    testudo_base::num::low64(u128::from(part.min(of)) * u128::from(whole) / u128::from(of.max(1)))
}

impl PlanNode {
    /// Merges the leaf at the end of `path` with everything that waits for it, here and below, and with
    /// `incoming` from above, newest first.
    pub(crate) fn flush_into_leaf(
        &mut self,
        incoming: Vec<Layer>,
        path: &[usize],
        depth: usize,
    ) -> Result<()> {
        let pivot = path[depth];
        let mut layers = incoming;
        if self.base.height == 1 {
            layers.extend(self.extract(pivot));
            let mut bytes = 0;
            for slice in layers.iter().flatten() {
                bytes += slice.bytes_within(&Bounds::default())?;
            }
            if let PlanChild::Untouched(Child::Leaf(run)) = &mut self.children[pivot] {
                let run = run.take();
                self.children[pivot] = leaf_with(layers, bytes, run.as_ref());
            }
            return Ok(());
        }
        let PlanChild::Untouched(Child::Node(child)) = &self.children[pivot] else { return Ok(()) };
        let high = leaf_at(child, &path[depth + 1..]);
        let mut plan = Self::new(child);
        layers.extend(self.extract_below(pivot, high.as_ref())?);
        plan.flush_into_leaf(layers, path, depth + 1)?;
        self.children[pivot] = PlanChild::Node(Box::new(plan));
        Ok(())
    }

    /// Takes what waits for `pivot` below `high` out of the tiers, newest first.
    fn extract_below(&mut self, pivot: usize, high: Option<&Fence>) -> Result<Vec<Layer>> {
        let bounds = self.base.bounds_of(pivot);
        let Some(high) = high.filter(|high| bounds.high.as_ref().is_none_or(|end| *high < end)) else {
            return Ok(self.extract(pivot));
        };
        let below = Bounds { low: None, high: Some(high.clone()) };
        let mut layers = Vec::new();
        for tier in &mut self.tiers {
            let PlanTier::Existing(Tier { runs, shares }) = tier else { continue };
            let Some(share) = &shares[pivot] else { continue };
            if share.from.as_ref().is_some_and(|from| high.is_at_most(from)) {
                continue;
            }
            let layer = clip_runs(runs, &active_bounds(&bounds, share).intersection(&below));
            if !layer.is_empty() {
                layers.push(layer);
            }
            let from = Some(high.to_vec());
            let rest = active_bounds(&bounds, &Share { from: from.clone(), bytes: 0 });
            let is_left = !clip_runs(runs, &rest).is_empty() && !planted!("rest-of-share-forgotten");
            let bytes = bytes_of_runs(runs, &rest)?.max(1);
            shares[pivot] = is_left.then_some(Share { from, bytes });
        }
        Ok(layers)
    }

    /// Makes one leaf of `count` neighbouring ones, the first at the end of `path`, with what waits for them
    /// in their node.
    pub(crate) fn join_into_leaf(
        &mut self,
        path: &[usize],
        count: usize,
        options: &BeTreeOptions,
    ) -> Result<()> {
        let pivot = path[0];
        if self.base.height > 1 {
            let PlanChild::Untouched(Child::Node(child)) = &self.children[pivot] else { return Ok(()) };
            let mut plan = Self::new(child);
            plan.join_into_leaf(&path[1..], count, options)?;
            self.children[pivot] = PlanChild::Node(Box::new(plan));
            return Ok(());
        }
        for leaf in pivot..pivot + count {
            self.flush_or_touch(leaf, options, 0)?;
        }
        (pivot + 1..pivot + count).for_each(|leaf| self.join_pair(pivot, leaf));
        Ok(())
    }

    /// Lets a run of a tier be written anew without what is dead of it.
    pub(crate) fn trim(&mut self, run: RunId) {
        for tier in &mut self.tiers {
            let PlanTier::Existing(existing) = tier else { continue };
            if let Some(at) = existing.runs.iter().position(|fenced| fenced.run.reference().id == run) {
                *tier = PlanTier::Trimmed { tier: existing.clone(), at, output: None };
                return;
            }
        }
    }
}

/// Where the leaf at the end of a path ends.
fn leaf_at(node: &Node, path: &[usize]) -> Option<Fence> {
    match &node.pivots[path[0]].child {
        Child::Node(child) => leaf_at(child, &path[1..]),
        Child::Leaf(_) => node.bounds_of(path[0]).high,
    }
}
