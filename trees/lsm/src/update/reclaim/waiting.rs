//! Estimates of the data above each run of the bottom, and of the step that it is worth. Reads only if keys
//! are too long to be in run references.
//!
//! A run of an upper level is assumed to be distributed uniformly over the runs of the bottom below it.
//!
//! **Invariants**
//! - If any data is above a run, its estimate is not zero.

use testudo_base::{
    PAGE_BYTES, Result,
    num::{low64, u64_of},
};
use testudo_contract::ReclaimLimits;
use testudo_run::RunRef;
use testudo_sequence::{Bounds, LEAST_RUN_BYTES};

use crate::{
    levels::{
        Levels,
        component::{Component, Held},
    },
    update::reclaim::{PART_BYTES_MIN, Target, target_of},
};

/// Approximate size of a tombstone itself.
const TOMBSTONE_BYTES: u64 = 24;

/// Estimated data above a run of the bottom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) bytes: u64,
    /// Its size in pages.
    pub(crate) page_bytes: u64,
    /// Bytes of its runs other than data pages.
    pub(crate) overhead_bytes: u64,
    pub(crate) tombstones: u64,
}

impl Waiting {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.page_bytes += other.page_bytes;
        self.overhead_bytes += other.overhead_bytes;
        self.tombstones += other.tombstones;
    }

    /// Scales `whole` to at most `bytes_max` of the bytes.
    fn share_of(&self, whole: u64, bytes_max: u64) -> u64 {
        part_of(bytes_max, whole, self.bytes)
    }
}

/// A run of the bottom that could be rewritten.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its index.
    pub(crate) first: usize,
    /// Stored bytes of the run.
    pub(crate) held_bytes: u64,
    /// Bytes of its entries.
    pub(crate) own_bytes: u64,
    /// Mean bytes of its entries.
    entry_bytes: u64,
    pub(crate) waiting: Waiting,
    /// Bytes of overwrites among the data above.
    replacing_bytes: u64,
    /// Bytes to rewrite of upper runs that begin before its keys.
    pub(crate) head_bytes: u64,
}

/// A step for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) waiting_max: u64,
    pub(crate) space_bytes: u64,
    pub(crate) gain_bytes: u64,
}

impl Candidate {
    pub(crate) fn waits(&self) -> bool {
        self.waiting.bytes > 0
    }

    /// Bytes written, without any gain, when about `waiting_max` bytes of the data above are moved down.
    pub(crate) fn written_bytes(&self, waiting_max: u64) -> u64 {
        self.held_bytes + self.waiting.share_of(self.waiting.page_bytes, waiting_max)
    }

    fn step(&self, waiting_max: u64) -> Step {
        let removed_bytes = self.waiting.tombstones * (self.entry_bytes + TOMBSTONE_BYTES);
        let gain_bytes = self.waiting.share_of(removed_bytes + self.replacing_bytes, waiting_max);
        let written_bytes = self.written_bytes(waiting_max);
        let gain_bytes = gain_bytes.min(written_bytes);
        let space_bytes = (written_bytes - gain_bytes) / 16 * 17 + LEAST_RUN_BYTES + self.head_bytes;
        let overhead_bytes = self.waiting.share_of(self.waiting.overhead_bytes, waiting_max);
        let gain_bytes = (gain_bytes + overhead_bytes).saturating_sub(self.head_bytes);
        Step { waiting_max, space_bytes, gain_bytes }
    }

    /// Returns the step for all data above, without heads of upper runs to rewrite.
    pub(crate) fn whole_step(&self) -> Step {
        Self { head_bytes: 0, ..self.clone() }.step(u64::MAX)
    }

    /// Returns the largest step that fits, and that is at most half of any failed attempt. A step after which
    /// the run is larger than before leaves `rest_bytes`: its gain above is realized once runs there are
    /// garbage.
    pub(crate) fn largest_step(&self, limits: &ReclaimLimits<'_>, rest_bytes: u64) -> Option<Step> {
        let half_of = |waiting_max: u64| waiting_max.min(self.waiting.bytes) / 2;
        let tried = limits.but.iter().filter_map(|tried| match target_of(tried) {
            Target::Down { first, count: 1, waiting_max } if *first == self.first => {
                Some(half_of(*waiting_max))
            }
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

    pub(crate) fn target(&self, waiting_max: u64) -> Target {
        Target::Down { first: self.first, count: 1, waiting_max }
    }
}

/// Returns the runs of the bottom, each with the data above it; data before the first of them counts for
/// that. Without a bottom, returns one for all keys.
pub(crate) fn candidates(levels: &Levels) -> Result<Vec<Candidate>> {
    let mut waiting = vec![Waiting::default(); levels.bottom.len().max(1)];
    let mut heads = vec![0; waiting.len()];
    for held in levels.upper().flat_map(Component::iter) {
        let extent = held.extent()?;
        let first = levels.bottom.runs_up_to(&extent.low.bytes()).saturating_sub(1);
        let end = levels.bottom.runs_below(&extent.high.bytes());
        let over = first..end.max(first + 1);
        let share = waiting_of(held, u64_of(over.len()));
        waiting[over.clone()].iter_mut().for_each(|waiting| waiting.add(share));
        for (before, head_bytes) in heads[over].iter_mut().enumerate().skip(1) {
            *head_bytes += u64_of(before) * share.page_bytes / 16 * 17 + LEAST_RUN_BYTES;
        }
    }
    let candidate = |(first, waiting): (usize, Waiting)| {
        let held = levels.bottom.get(first);
        let reference = held.map(|held| held.run().reference());
        let held_bytes = reference.map_or(0, RunRef::stored_bytes);
        let entry_bytes = reference.map_or(0, |run| run.stored_bytes() / run.entries.max(1));
        let replacing_bytes = levels.overwrites.between(0, waiting.bytes).min(held_bytes);
        let own_bytes = held.map_or(0, |held| held.bytes);
        Candidate {
            first,
            held_bytes,
            own_bytes,
            entry_bytes,
            waiting,
            replacing_bytes,
            head_bytes: heads[first],
        }
    };
    Ok(waiting.into_iter().enumerate().map(candidate).collect())
}

/// Estimates the data of a run above each of `runs` of the bottom.
fn waiting_of(held: &Held, runs: u64) -> Waiting {
    let run = held.run().reference();
    let is_lasting = run.tombstones < run.entries;
    let page_bytes = if is_lasting { u64::from(run.data_pages) * PAGE_BYTES } else { run.user_bytes };
    let alive = |whole: u64| part_of(held.bytes, whole, run.user_bytes).div_ceil(runs);
    let bytes = held.bytes.div_ceil(runs).max(1);
    let overhead_bytes = alive(run.stored_bytes() - u64::from(run.data_pages) * PAGE_BYTES);
    Waiting { bytes, page_bytes: alive(page_bytes), overhead_bytes, tombstones: alive(run.tombstones) }
}

/// Scales `whole` by `part / of`.
pub(crate) fn part_of(part: u64, whole: u64, of: u64) -> u64 {
    low64(u128::from(part.min(of)) * u128::from(whole) / u128::from(of.max(1)))
}

/// Returns the range of adjacent runs of the bottom, up to the next run.
pub(crate) fn bounds_of(levels: &Levels, first: usize, count: usize) -> Bounds {
    let low = first.checked_sub(1).and(levels.bottom.get(first)).map(|held| held.fenced.low.clone());
    let high = levels.bottom.get(first + count).map(|held| held.fenced.low.clone());
    Bounds { low, high }
}
