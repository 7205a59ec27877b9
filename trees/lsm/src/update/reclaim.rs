//! Reclaiming space in small steps on a full device (decision 0032). The data above a few runs of the bottom
//! is moved down to them at once, small sequences of level 1 are merged, or a run that is partly garbage is
//! rewritten.
//!
//! A regular move brings everything down one level and frees little before the last one. Here each step needs
//! space for its output, one or a few runs of the bottom, and then releases more than that if entries were
//! removed or overwritten. If a run of a level above begins before the keys of the step, its part before them
//! is rewritten with its old age.
//!
//! **Invariants**
//! - Each step reduces the data above the bottom, the number of runs, or the garbage: repeating it
//!   terminates.
//! - No entry of a key is moved down before an older one.

pub(crate) mod down;
pub(crate) mod waiting;

use std::ops::Range;

use testudo_base::{PAGE_BYTES, Result, RunId, num::u64_of};
use testudo_contract::{LeastGain, Reclaim, ReclaimLimits, Work};
use testudo_sequence::{
    LEAST_RUN_BYTES, REST_BYTES_MAX, ReclaimChoice, ReclaimEstimate, ReclaimTarget, run_space_bytes, scaled,
    step_space_max, target_of, with_index_bytes,
};

use crate::{
    LsmOptions,
    levels::{
        Levels,
        component::{Component, LevelRun},
    },
    update::{
        jobs::plan_merge,
        reclaim::{
            down::{go_down, write_anew},
            waiting::{Candidate, candidates},
        },
        write::write_all,
    },
};

/// Inverse of the fraction of a run that should at least be moved down into it at once.
const PARTS_OF_A_RUN: u64 = 2;
/// Quarters of a full run up to which runs are joined: the rest is for what comes down later.
const JOINED_QUARTERS: u64 = 3;
/// Maximum number of sequences merged at once: each run read takes memory.
const PARTS_AT_ONCE: usize = 16;

/// Data that a step rewrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// This many adjacent runs of the bottom, with the entries above them.
    Down {
        first: usize,
        count: usize,
        /// Approximate bytes of entries to move down, the first in key order.
        waiting_max: u64,
    },
    /// These sequences of level 1, merged.
    Parts(Range<usize>),
    /// A run of a level, without its garbage.
    Run(RunId),
    /// Nothing: drops compaction buffers.
    Retained,
}

impl ReclaimTarget for Target {
    fn is_merge(&self) -> bool {
        matches!(self, Self::Down { count: 1, .. })
    }
}

/// Approximate upper bound on the space of a minimal worthwhile step. In each sequence above, one run may be
/// mostly garbage without being released before the next step, or the one after that.
pub(crate) fn bytes_max(levels: &Levels, options: &LsmOptions) -> u64 {
    let part_bytes = options.run_bytes / PARTS_OF_A_RUN;
    let steps = candidates(levels)
        .unwrap_or_default()
        .into_iter()
        .map(|candidate| candidate.estimate.written_bytes(part_bytes));
    let stored = |level_run: &LevelRun| level_run.run().reference().stored_bytes();
    let dead_bytes: u64 = levels.upper().filter_map(|component| component.iter().map(stored).max()).sum();
    step_space_max(steps.max().unwrap_or(0)) + dead_bytes
}

/// Picks the step with the largest gain.
pub(crate) fn pick(
    levels: &Levels,
    options: &LsmOptions,
    limits: &ReclaimLimits<'_>,
) -> Result<Option<Reclaim>> {
    let mut choice = ReclaimChoice::new(limits, options.run_bytes);
    if let retained @ 1.. = levels.retained_only_bytes() {
        choice.offer(Target::Retained, 0, retained);
        if !choice.is_empty() {
            return Ok(choice.into_reclaim());
        }
    }
    let all = candidates(levels)?;
    let rest_bytes = bytes_max(levels, options).min(REST_BYTES_MAX);
    for candidate in all.iter().filter(|candidate| candidate.estimate.waits()) {
        let Some(step) = candidate.largest_step(limits, rest_bytes) else { continue };
        choice.offer(candidate.target(step.waiting_max), step.space_bytes, step.gain_bytes);
    }
    offer_pass(&all, limits, rest_bytes, &mut choice);
    offer_joins(&all, options, &mut choice);
    // Only for deletes: space that writes fill up leaves nothing for deletes.
    if limits.least_gain > LeastGain::Worthwhile {
        offer_parts(levels, options, &mut choice);
    }
    // A run that is partly garbage may become all garbage once more is moved down.
    if choice.is_empty() {
        offer_partly_dead(levels, &mut choice);
    }
    if limits.least_gain == LeastGain::None {
        for candidate in all.iter().filter(|candidate| candidate.estimate.waits()) {
            let Some(step) = candidate.largest_step(limits, 0) else { continue };
            choice.offer_next(candidate.target(step.waiting_max), step.space_bytes);
        }
    }
    Ok(choice.into_reclaim())
}

/// Offers the first step of a pass over all keys in order, if the pass gains enough. It is the only one that
/// never rewrites parts of runs that begin before its keys.
fn offer_pass(
    all: &[Candidate],
    limits: &ReclaimLimits<'_>,
    rest_bytes: u64,
    choice: &mut ReclaimChoice<'_, Target>,
) {
    let waits = || all.iter().filter(|candidate| candidate.estimate.waits());
    let (mut space_bytes, mut gain_bytes) = (0, 0);
    for step in waits().map(|candidate| candidate.estimate.whole_step()) {
        space_bytes += step.space_bytes;
        gain_bytes += step.gain_bytes;
    }
    let Some(first) = waits().next() else { return };
    let Some(step) = first.largest_step(limits, rest_bytes) else { return };
    if gain_bytes >= choice.least_gain(space_bytes) {
        let mean_gain = gain_bytes / u64_of(waits().count());
        choice.offer(first.target(step.waiting_max), step.space_bytes, step.gain_bytes.max(mean_gain));
    }
}

/// Offers joins of adjacent runs of the bottom, with the entries above them.
fn offer_joins(all: &[Candidate], options: &LsmOptions, choice: &mut ReclaimChoice<'_, Target>) {
    let size = |candidate: &Candidate| candidate.own_bytes + candidate.estimate.waiting.bytes;
    let mut first = 0;
    while first < all.len() {
        let mut last = first;
        let mut bytes = size(&all[first]);
        while last + 1 < all.len() && bytes + size(&all[last + 1]) <= options.run_bytes / 4 * JOINED_QUARTERS
        {
            last += 1;
            bytes += size(&all[last]);
        }
        if last > first {
            let space = run_space_bytes(bytes) + all[first].estimate.head_bytes;
            let freed = |estimate: &ReclaimEstimate| estimate.stored_bytes + estimate.waiting.overhead_bytes;
            let stored: u64 = all[first..=last].iter().map(|candidate| freed(&candidate.estimate)).sum();
            let count = last - first + 1;
            let target = Target::Down { first: all[first].first, count, waiting_max: u64::MAX };
            choice.offer(target, space, stored.saturating_sub(space));
        }
        first = last + 1;
    }
}

/// Offers merges of adjacent sequences of level 1 that take less space as one: small runs are mostly index,
/// filter and footer.
fn offer_parts(levels: &Levels, options: &LsmOptions, choice: &mut ReclaimChoice<'_, Target>) {
    let Some(level) = levels.levels.first() else { return };
    let mut count = 2;
    while count <= PARTS_AT_ONCE && count <= level.filling.len() {
        for from in (0..=level.filling.len() - count).step_by(count / 2) {
            let parts = &level.filling[from..from + count];
            let runs = || parts.iter().flat_map(Component::iter);
            let freed: u64 = runs().map(|level_run| level_run.run().reference().stored_bytes()).sum();
            let alive: u64 = runs().map(alive_bytes).sum();
            let space = with_index_bytes(alive) + (alive / options.run_bytes + 1) * LEAST_RUN_BYTES;
            choice.offer(Target::Parts(from..from + count), space, freed.saturating_sub(space));
        }
        count *= 2;
    }
}

/// Approximate live bytes of a run, in pages.
fn alive_bytes(level_run: &LevelRun) -> u64 {
    let run = level_run.run().reference();
    scaled(level_run.bytes, u64::from(run.data_pages) * PAGE_BYTES, run.user_bytes)
}

/// Offers runs that partly lie before their fences.
fn offer_partly_dead(levels: &Levels, choice: &mut ReclaimChoice<'_, Target>) {
    let parts = choice.garbage_parts();
    for level_run in
        levels.components().flat_map(Component::iter).filter(|level_run| level_run.fenced.is_clipped())
    {
        let reference = level_run.run().reference();
        let stored = reference.stored_bytes();
        let alive = scaled(level_run.bytes, stored, reference.user_bytes);
        let left = alive.next_multiple_of(PAGE_BYTES).max(LEAST_RUN_BYTES);
        let dead = stored.saturating_sub(left);
        if dead >= stored / parts && dead > 0 {
            choice.offer(Target::Run(reference.id), run_space_bytes(alive), dead);
        }
    }
}

/// Executes a step; returns the levels after it.
pub(crate) fn reclaim(
    levels: &Levels,
    work: &Work,
    options: &LsmOptions,
    reclaim: &Reclaim,
) -> Result<Levels> {
    let mut next = levels.clone();
    next.forget_retained();
    match target_of(reclaim) {
        Target::Retained => {}
        Target::Down { first, count, waiting_max } => {
            debug_assert!(*count > 0 && first + count <= next.bottom.len().max(1), "runs of the bottom");
            go_down(&mut next, *first..first + count, *waiting_max, work, options)?;
        }
        Target::Parts(parts) => {
            let mut destinations = vec![plan_merge(&next, parts.clone(), options)?];
            let written = write_all(&mut destinations, work, options, None)?;
            for (destination, runs) in destinations.into_iter().zip(written) {
                next.install(destination, runs)?;
            }
        }
        Target::Run(run) => write_anew(&mut next, *run, work, options)?,
    }
    debug_assert!(u64_of(next.levels.len()) <= 64, "no tree has so many levels");
    Ok(next)
}
