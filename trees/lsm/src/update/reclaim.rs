//! Winning space in small steps, for a device that is full (decision 0032): what waits above a few runs of
//! the bottom goes down to them at once, sequences of level 1 that are small become one, or a run that is
//! partly dead is written anew.
//!
//! A move by the rules of the levels brings everything down one level and wins little before the last one.
//! Here each step needs the space of what it writes, a run of the bottom or a few, and then gives back more
//! than that where something was removed or overwritten. Of a run of a level above that begins before the
//! keys of the step, what lies before them is written anew, as old as it was.
//!
//! **Invariants**
//! - Each step leaves less waiting, fewer runs, or less of what is dead: going on comes to an end.
//! - Of what waits for a key nothing goes down before something older.

pub(crate) mod down;
pub(crate) mod waiting;

use std::ops::Range;

use testudo_base::{PAGE_BYTES, Result, RunId, num::u64_of};
use testudo_contract::{LeastGain, Opaque, Reclaim, ReclaimLimits, Work};
use testudo_sequence::{LEAST_RUN_BYTES, RUN_OVERHEAD_BYTES};

use crate::{
    LsmOptions,
    levels::{
        Levels,
        component::{Component, Held},
    },
    update::{
        jobs::plan_merge,
        reclaim::{
            down::{go_down, write_anew},
            waiting::{Candidate, candidates, part_of},
        },
        write::write_all,
    },
};

/// A step that wins less than this part of what it writes is not worth it.
const GAIN_PARTS: u64 = 32;
/// Nor is one that wins less than this, or than a sixteenth of a run.
const GAIN_BYTES_MIN: u64 = 16 << 10;
/// A run of which less than this part is dead is not written anew; and if it is about a removal.
const DEAD_PARTS: u64 = 8;
const DEAD_PARTS_ANY: u64 = 32;
/// Less than this is no step.
const PART_BYTES_MIN: u64 = 4 << 10;
/// What a step leaves after which more is taken than before.
const REST_BYTES_MAX: u64 = 256 << 10;
/// Most sequences that are merged at once: each run that is read takes memory.
const PARTS_AT_ONCE: usize = 16;

/// What a step writes anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// So many neighbouring runs of the bottom, with what waits for them.
    Down {
        first: usize,
        count: usize,
        /// Of what waits, this many bytes or a little more go there, the first in key order.
        waiting_max: u64,
    },
    /// These sequences of level 1, as one.
    Parts(Range<usize>),
    /// A run of a level, without what is dead of it.
    Run(RunId),
    /// Nothing: compaction buffers are given up.
    Retained,
}

/// What `reclaim`, which a tree of this family chose, writes anew.
pub(crate) fn target_of(reclaim: &Reclaim) -> &Target {
    match reclaim.target.of() {
        Some(target) => target,
        None => panic!("{reclaim:?} was chosen by a tree of another family"),
    }
}

/// About the most space that a step needs that does as little as is worth it. Of each sequence above a run
/// may be dead for the most part, and is not given back before the next step, or the one after that.
pub(crate) fn bytes_max(levels: &Levels, options: &LsmOptions) -> u64 {
    let part_bytes = options.run_bytes / 2;
    let steps = candidates(levels)
        .unwrap_or_default()
        .into_iter()
        .map(|candidate| candidate.written_bytes(part_bytes));
    let stored = |held: &Held| held.run().reference().stored_bytes();
    let dead_bytes: u64 = levels.upper().filter_map(|component| component.iter().map(stored).max()).sum();
    steps.max().unwrap_or(0) / 8 * 9 + RUN_OVERHEAD_BYTES + dead_bytes
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

impl Chosen {
    fn into_reclaim(self) -> Reclaim {
        Reclaim {
            is_merge: matches!(self.target, Target::Down { count: 1, .. }),
            target: Opaque::new(self.target),
            space_bytes: self.space_bytes,
            gain_bytes: self.gain_bytes,
        }
    }
}

impl Choice<'_> {
    fn offer(&mut self, target: Target, space_bytes: u64, gain_bytes: u64) {
        let is_better = self.best.as_ref().is_none_or(|best| gain_bytes > best.gain_bytes);
        if gain_bytes >= self.least_gain(space_bytes) && is_better && self.is_possible(&target, space_bytes) {
            self.best = Some(Chosen { target, space_bytes, gain_bytes });
        }
    }

    /// What work that takes so much space has to win.
    fn least_gain(&self, space_bytes: u64) -> u64 {
        match self.limits.least_gain {
            LeastGain::Worthwhile => {
                self.gain_min.max(space_bytes.saturating_sub(LEAST_RUN_BYTES) / GAIN_PARTS)
            }
            LeastGain::Any | LeastGain::None => 1,
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

/// The step that wins most.
pub(crate) fn pick(
    levels: &Levels,
    options: &LsmOptions,
    limits: &ReclaimLimits<'_>,
) -> Result<Option<Reclaim>> {
    let mut choice = Choice { limits, gain_min: GAIN_BYTES_MIN.min(options.run_bytes / 16), best: None };
    if let retained @ 1.. = levels.retained_only_bytes() {
        choice.offer(Target::Retained, 0, retained);
        if let Some(given_up) = choice.best.take() {
            return Ok(Some(given_up.into_reclaim()));
        }
    }
    let all = candidates(levels)?;
    let rest_bytes = bytes_max(levels, options).min(REST_BYTES_MAX);
    for candidate in all.iter().filter(|candidate| candidate.waits()) {
        let Some(step) = candidate.largest_step(limits, rest_bytes) else { continue };
        choice.offer(candidate.target(step.waiting_max), step.space_bytes, step.gain_bytes);
    }
    offer_pass(&all, limits, rest_bytes, &mut choice);
    offer_joins(&all, options, &mut choice);
    // For removals alone: what writes fill to the last leaves nothing for what removals need.
    if limits.least_gain > LeastGain::Worthwhile {
        offer_parts(levels, options, &mut choice);
    }
    // A run that is partly dead may be dead altogether once more has gone down.
    if choice.best.is_none() {
        offer_partly_dead(levels, &mut choice);
    }
    if limits.least_gain == LeastGain::None {
        for candidate in all.iter().filter(|candidate| candidate.waits()) {
            let Some(step) = candidate.largest_step(limits, 0) else { continue };
            choice.offer_next(candidate.target(step.waiting_max), step.space_bytes);
        }
    }
    Ok(choice.best.map(Chosen::into_reclaim))
}

/// The first step of a pass over all keys, in their order, if that wins enough in the end. It is the only one
/// that has nothing to write anew of runs that begin before its keys.
fn offer_pass(all: &[Candidate], limits: &ReclaimLimits<'_>, rest_bytes: u64, choice: &mut Choice<'_>) {
    let waits = || all.iter().filter(|candidate| candidate.waits());
    let (mut space_bytes, mut gain_bytes) = (0, 0);
    for step in waits().map(Candidate::whole_step) {
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

/// Neighbouring runs of the bottom that would be one, with what waits for them.
fn offer_joins(all: &[Candidate], options: &LsmOptions, choice: &mut Choice<'_>) {
    let size = |candidate: &Candidate| candidate.own_bytes + candidate.waiting.bytes;
    let mut first = 0;
    while first < all.len() {
        let mut last = first;
        let mut bytes = size(&all[first]);
        while last + 1 < all.len() && bytes + size(&all[last + 1]) <= options.run_bytes / 4 * 3 {
            last += 1;
            bytes += size(&all[last]);
        }
        if last > first {
            let space = bytes / 16 * 17 + LEAST_RUN_BYTES + all[first].head_bytes;
            let freed = |candidate: &Candidate| candidate.held_bytes + candidate.waiting.overhead_bytes;
            let stored: u64 = all[first..=last].iter().map(freed).sum();
            let count = last - first + 1;
            let target = Target::Down { first: all[first].first, count, waiting_max: u64::MAX };
            choice.offer(target, space, stored.saturating_sub(space));
        }
        first = last + 1;
    }
}

/// Neighbouring sequences of level 1 that take less space as one: small runs are index, filter and footer for
/// the most part.
fn offer_parts(levels: &Levels, options: &LsmOptions, choice: &mut Choice<'_>) {
    let Some(level) = levels.levels.first() else { return };
    let mut count = 2;
    while count <= PARTS_AT_ONCE && count <= level.filling.len() {
        for from in (0..=level.filling.len() - count).step_by(count / 2) {
            let parts = &level.filling[from..from + count];
            let runs = || parts.iter().flat_map(Component::iter);
            let freed: u64 = runs().map(|held| held.run().reference().stored_bytes()).sum();
            let alive: u64 = runs().map(alive_bytes).sum();
            let space = alive / 16 * 17 + (alive / options.run_bytes + 1) * LEAST_RUN_BYTES;
            choice.offer(Target::Parts(from..from + count), space, freed.saturating_sub(space));
        }
        count *= 2;
    }
}

/// About what of a run counts, in pages.
fn alive_bytes(held: &Held) -> u64 {
    let run = held.run().reference();
    part_of(held.bytes, u64::from(run.data_pages) * PAGE_BYTES, run.user_bytes)
}

/// Runs above the bottom of which a part lies before their fences.
fn offer_partly_dead(levels: &Levels, choice: &mut Choice<'_>) {
    let parts = match choice.limits.least_gain {
        LeastGain::Worthwhile => DEAD_PARTS,
        LeastGain::Any | LeastGain::None => DEAD_PARTS_ANY,
    };
    for held in levels.components().flat_map(Component::iter).filter(|held| held.fenced.is_clipped()) {
        let reference = held.run().reference();
        let stored = reference.stored_bytes();
        let alive = part_of(held.bytes, stored, reference.user_bytes);
        let left = alive.next_multiple_of(PAGE_BYTES).max(LEAST_RUN_BYTES);
        let dead = stored.saturating_sub(left);
        if dead >= stored / parts && dead > 0 {
            choice.offer(Target::Run(reference.id), alive / 16 * 17 + LEAST_RUN_BYTES, dead);
        }
    }
}

/// The levels after a step.
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
            go_down(&mut next, *first..first + count, *waiting_max, work, options)?;
        }
        Target::Parts(parts) => {
            let mut destinations = vec![plan_merge(&next, parts.clone(), options)?];
            let written = write_all(&mut destinations, work, options)?;
            for (destination, runs) in destinations.into_iter().zip(written) {
                next.install(destination, runs)?;
            }
        }
        Target::Run(run) => write_anew(&mut next, *run, work, options)?,
    }
    debug_assert!(u64_of(next.levels.len()) <= 64, "no tree has so many levels");
    Ok(next)
}
