//! The levels in memory: their sequences of runs, in order of age.
//!
//! Each level has sequences that fill it and sequences that are emptied into the next level (LSbM §2: C and
//! C′). Level 1 is filled by flushes, each a sequence of its own; deeper levels are filled by merges, into
//! a single sequence. The lowest level is the bottom; it is never emptied.
//!
//! **Invariants**
//! - Sequences are ordered by age: the first entry that a query finds is the newest.
//! - Levels are immutable; an update makes new ones.

pub(crate) mod component;
pub(crate) mod direct_flushes;
pub(crate) mod edit;
pub(crate) mod invariants;
pub(crate) mod layout;
pub(crate) mod levels_format;
pub(crate) mod load;
pub(crate) mod repeats;
pub(crate) mod written_counts;

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::RunId;
use testudo_contract::OutlineLine;
use testudo_run::{Run, RunRef};
use testudo_sequence::Overwrites;

use crate::{
    LsmOptions,
    forecast::{InsertForecast, JobForecast},
    levels::{
        component::{Component, LevelRun},
        direct_flushes::DirectFlushes,
        repeats::Repeats,
        written_counts::PageCounts,
    },
};

/// A level above the bottom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    /// Newest first.
    pub(crate) filling: Vec<Component>,
    /// Newest first; all older than the filling sequences. Keys before the first key of all of them are
    /// already in the next level.
    pub(crate) emptying: Vec<Component>,
    /// Bytes to empty at the start of emptying.
    pub(crate) began_bytes: u64,
    /// Fraction of repeated keys in moves into the filling sequence.
    pub(crate) repeats: Repeats,
}

impl Level {
    pub(crate) fn filling_bytes(&self) -> u64 {
        self.filling.iter().map(Component::bytes).sum()
    }

    pub(crate) fn emptying_bytes(&self) -> u64 {
        self.emptying.iter().map(Component::bytes).sum()
    }

    pub(crate) fn is_emptying(&self) -> bool {
        !self.emptying.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filling.is_empty() && self.emptying.is_empty()
    }

    /// Starts emptying the sequences that have been filling the level.
    pub(crate) fn hand_over(&mut self) {
        debug_assert!(self.emptying.is_empty(), "a level that is being emptied is not handed over");
        self.began_bytes = self.filling_bytes();
        self.emptying = std::mem::take(&mut self.filling);
        self.repeats = Repeats::default();
    }

    fn components(&self) -> impl Iterator<Item = &Component> {
        self.filling.iter().chain(&self.emptying)
    }
}

/// All levels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    /// From level 1 on, without the bottom.
    pub(crate) levels: Vec<Level>,
    /// The lowest level: nothing older is below it.
    pub(crate) bottom: Component,
    /// Runs that are not read. They were merged, but record deletions of some keys that no run of the bottom
    /// covers yet.
    pub(crate) witnesses: Vec<LevelRun>,
    pub(crate) next_object: u64,
    /// Usual bytes of a flush, measured from recent ones.
    pub(crate) flush_bytes: u64,
    /// Fraction of the flow into the bottom that overwrites.
    pub(crate) overwrites: Overwrites,
    pub(crate) direct: DirectFlushes,
    /// Fraction of repeated keys in moves into the bottom.
    pub(crate) bottom_repeats: Repeats,
    pub(crate) page_counts: PageCounts,
    pub(crate) forecast: Arc<InsertForecast>,
}

impl Levels {
    /// Returns all sequences except the bottom, newest first.
    pub(crate) fn upper(&self) -> impl Iterator<Item = &Component> {
        self.levels.iter().flat_map(Level::components)
    }

    /// Returns all sequences, newest first.
    pub(crate) fn components(&self) -> impl Iterator<Item = &Component> {
        self.upper().chain(std::iter::once(&self.bottom))
    }

    /// Like [`Levels::components`], mutable.
    pub(crate) fn components_mut(&mut self) -> impl Iterator<Item = &mut Component> {
        let upper =
            self.levels.iter_mut().flat_map(|level| level.filling.iter_mut().chain(&mut level.emptying));
        upper.chain(std::iter::once(&mut self.bottom))
    }

    /// Returns the measurements of moves by level, the bottom last.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = Repeats> {
        self.levels.iter().map(|level| level.repeats).chain([self.bottom_repeats])
    }

    /// Number of frozen sequences, whose compaction buffers get nothing more.
    pub(crate) fn frozen(&self) -> usize {
        self.repeats().filter(|repeats| repeats.is_frozen()).count()
    }

    pub(crate) fn upper_bytes(&self) -> u64 {
        self.upper().map(Component::bytes).sum()
    }

    /// Describes runs of the bottom whose pages were replaced, and, if `updates_pages`, those whose pages
    /// cannot be updated because values continue in the next page.
    pub(crate) fn bottom_outline(&self, updates_pages: bool) -> impl Iterator<Item = OutlineLine> {
        let line = |what: &'static str, is_counted: fn(&RunRef) -> bool| {
            let mut line = OutlineLine { depth: 1, what, count: 0, bytes: 0, entries: 0 };
            for level_run in self.bottom.iter().filter(|level_run| is_counted(level_run.run().reference())) {
                line.count += 1;
                line.bytes += level_run.bytes;
                line.entries += level_run.run().reference().entries;
            }
            (line.count > 0).then_some(line)
        };
        let replaced = line("with replaced pages", |run| run.replaced.is_some());
        let continued = line("with continued values", |run| run.has_continued_values);
        replaced.into_iter().chain(continued.filter(|_| updates_pages))
    }

    /// Returns all runs, witnesses included, except those of compaction buffers.
    pub(crate) fn live_runs(&self) -> impl Iterator<Item = &LevelRun> {
        self.components().flat_map(Component::iter).chain(&self.witnesses)
    }

    /// Returns the runs of all compaction buffers, each once.
    pub(crate) fn retained_runs(&self) -> BTreeMap<RunId, &Arc<Run>> {
        self.components().filter_map(Component::buffer).flat_map(|buffer| buffer.runs()).collect()
    }

    /// Returns all runs. A run that is in a compaction buffer and elsewhere is returned twice.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.live_runs().map(LevelRun::run).chain(self.retained_runs().into_values())
    }

    /// Returns the forecast for a job that starts with these levels; `None` if there is no use for one.
    pub(crate) fn job_forecast(&self, options: &LsmOptions) -> Option<Arc<JobForecast>> {
        let is_used = options.updates_pages && options.forecasts_inserts && !self.bottom.is_empty();
        is_used.then(|| {
            let (forecast, bottom) = (Arc::clone(&self.forecast), self.bottom.clone());
            let records = bottom.bytes() / bottom.mean_entry_bytes().max(1);
            Arc::new(JobForecast { forecast, bottom, records })
        })
    }

    /// Drops empty sequences.
    pub(crate) fn drop_empty(&mut self) {
        for level in &mut self.levels {
            level.filling.retain(|component| !component.is_empty());
            level.emptying.retain(|component| !component.is_empty());
            if level.emptying.is_empty() {
                level.began_bytes = 0;
            }
        }
    }

    /// Drops empty sequences, and trailing empty levels beyond `level_count`.
    pub(crate) fn tidy(&mut self, level_count: usize) {
        self.drop_empty();
        debug_assert!(level_count > 0, "a tree has a level above its bottom");
        while self.levels.len() > level_count && self.levels.last().is_some_and(Level::is_empty) {
            self.levels.pop();
        }
    }
}
