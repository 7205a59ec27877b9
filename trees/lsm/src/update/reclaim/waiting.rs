//! Estimates of the data above each run of the bottom, and of the step that it is worth. Reads only if keys
//! are too long to be in run references.
//!
//! A run of an upper level is assumed to be distributed uniformly over the runs of the bottom below it.
//!
//! **Invariants**
//! - If any data is above a run, its estimate is not zero.

use testudo_base::{PAGE_BYTES, Result, num::u64_of};
use testudo_contract::ReclaimLimits;
use testudo_sequence::{
    Bounds, EstimatedStep, ReclaimEstimate, WaitingEntries, lasting_page_bytes, run_space_bytes, scaled,
    target_of,
};

use crate::{
    levels::{
        Levels,
        component::{Component, LevelRun},
    },
    update::reclaim::Target,
};

/// A run of the bottom that could be rewritten.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its index.
    pub(crate) first: usize,
    /// Bytes of its entries.
    pub(crate) own_bytes: u64,
    pub(crate) estimate: ReclaimEstimate,
}

impl Candidate {
    /// Returns the largest step that fits, and that is at most half of any failed attempt.
    pub(crate) fn largest_step(&self, limits: &ReclaimLimits<'_>, rest_bytes: u64) -> Option<EstimatedStep> {
        let tried = limits.but.iter().filter_map(|tried| match target_of(tried) {
            Target::Down { first, count: 1, waiting_max } if *first == self.first => Some(*waiting_max),
            _ => None,
        });
        self.estimate.largest_step(limits, tried, rest_bytes)
    }

    pub(crate) fn target(&self, waiting_max: u64) -> Target {
        Target::Down { first: self.first, count: 1, waiting_max }
    }
}

/// Returns the runs of the bottom, each with the data above it; data before the first of them counts for
/// that. Without a bottom, returns one for all keys.
pub(crate) fn candidates(levels: &Levels) -> Result<Vec<Candidate>> {
    let mut waiting = vec![WaitingEntries::default(); levels.bottom.len().max(1)];
    let mut heads = vec![0; waiting.len()];
    for level_run in levels.upper().flat_map(Component::iter) {
        let extent = level_run.extent()?;
        let first = levels.bottom.runs_up_to(&extent.low.bytes()).saturating_sub(1);
        let end = levels.bottom.runs_below(&extent.high.bytes());
        let over = first..end.max(first + 1);
        debug_assert!(!over.is_empty() && over.end <= waiting.len(), "a run is above some of the bottom");
        let share = waiting_of(level_run, u64_of(over.len()));
        waiting[over.clone()].iter_mut().for_each(|waiting| *waiting = waiting.and(share, 1));
        for (before, head_bytes) in heads[over].iter_mut().enumerate().skip(1) {
            *head_bytes += run_space_bytes(u64_of(before) * share.page_bytes);
        }
    }
    let candidate = |(first, waiting): (usize, WaitingEntries)| {
        let level_run = levels.bottom.get(first);
        let reference = level_run.map(|level_run| level_run.run().reference());
        let own_bytes = level_run.map_or(0, |level_run| level_run.bytes);
        let estimate = ReclaimEstimate::new(reference, waiting, levels.overwrites, heads[first]);
        Candidate { first, own_bytes, estimate }
    };
    debug_assert_eq!(waiting.len(), levels.bottom.len().max(1), "one candidate for each run of the bottom");
    Ok(waiting.into_iter().enumerate().map(candidate).collect())
}

/// Estimates the data of a run above each of `runs` of the bottom.
fn waiting_of(level_run: &LevelRun, runs: u64) -> WaitingEntries {
    let run = level_run.run().reference();
    let alive = |whole: u64| scaled(level_run.bytes, whole, run.user_bytes).div_ceil(runs);
    let bytes = level_run.bytes.div_ceil(runs).max(1);
    let overhead_bytes = alive(run.stored_bytes() - u64::from(run.data_pages) * PAGE_BYTES);
    let page_bytes = alive(lasting_page_bytes(run));
    WaitingEntries { bytes, page_bytes, overhead_bytes, tombstones: alive(run.tombstones) }
}

/// Returns the range of adjacent runs of the bottom, up to the next run.
pub(crate) fn bounds_of(levels: &Levels, first: usize, count: usize) -> Bounds {
    let low =
        first.checked_sub(1).and(levels.bottom.get(first)).map(|level_run| level_run.fenced.low.clone());
    let high = levels.bottom.get(first + count).map(|level_run| level_run.fenced.low.clone());
    Bounds { low, high }
}
