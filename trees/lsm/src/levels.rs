//! The levels in memory: which sequences of runs there are, and in which order of age.
//!
//! Each level has sequences that fill it and sequences that are emptied into the next level (LSbM §2: C and
//! C′). Level 1 is filled by flushes, each a sequence of its own; a deeper one by merges, into a single
//! sequence. The lowest level is the bottom; it is never emptied.
//!
//! **Invariants**
//! - Sequences follow each other by age: what a query finds first is newest.
//! - Levels do not change; an update makes new ones.

pub(crate) mod component;
pub(crate) mod edit;
pub(crate) mod invariants;
pub(crate) mod layout;
pub(crate) mod levels_format;
pub(crate) mod load;
pub(crate) mod repeats;

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::RunId;
use testudo_run::Run;
use testudo_sequence::Overwrites;

use crate::levels::{
    component::{Component, Held},
    repeats::Repeats,
};

/// A level above the bottom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    /// Newest first.
    pub(crate) filling: Vec<Component>,
    /// Newest first; older than what fills. What lies before the first key of all of them is in the next
    /// level already.
    pub(crate) emptying: Vec<Component>,
    /// What was there to empty when that began.
    pub(crate) began_bytes: u64,
    /// How much of what moves bring into what fills it repeats keys.
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

    /// What has filled it is emptied from now on.
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
    /// Nothing older lies below it.
    pub(crate) bottom: Component,
    /// Runs that nobody reads: they were merged, but say of some keys that those are gone, which no other run
    /// of the bottom says yet.
    pub(crate) witnesses: Vec<Held>,
    pub(crate) next_object: u64,
    /// Bytes of a flush, as the last ones have shown.
    pub(crate) flush_bytes: u64,
    /// How much of what flows into the bottom replaces something.
    pub(crate) overwrites: Overwrites,
    /// How much of what moves bring into the bottom repeats keys.
    pub(crate) bottom_repeats: Repeats,
}

impl Levels {
    /// All sequences but the bottom, newest first.
    pub(crate) fn upper(&self) -> impl Iterator<Item = &Component> {
        self.levels.iter().flat_map(Level::components)
    }

    /// All sequences, newest first.
    pub(crate) fn components(&self) -> impl Iterator<Item = &Component> {
        self.upper().chain(std::iter::once(&self.bottom))
    }

    /// As [`Levels::components`].
    pub(crate) fn components_mut(&mut self) -> impl Iterator<Item = &mut Component> {
        let upper =
            self.levels.iter_mut().flat_map(|level| level.filling.iter_mut().chain(&mut level.emptying));
        upper.chain(std::iter::once(&mut self.bottom))
    }

    /// What moves have shown, level by level, the bottom last.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = Repeats> {
        self.levels.iter().map(|level| level.repeats).chain([self.bottom_repeats])
    }

    /// Sequences whose compaction buffers get nothing more.
    pub(crate) fn frozen(&self) -> usize {
        self.repeats().filter(|repeats| repeats.is_frozen()).count()
    }

    pub(crate) fn upper_bytes(&self) -> u64 {
        self.upper().map(Component::bytes).sum()
    }

    /// All runs but those of compaction buffers, those that nobody reads included.
    pub(crate) fn live_runs(&self) -> impl Iterator<Item = &Held> {
        self.components().flat_map(Component::iter).chain(&self.witnesses)
    }

    /// The runs of all compaction buffers, each once.
    pub(crate) fn retained_runs(&self) -> BTreeMap<RunId, &Arc<Run>> {
        self.components().filter_map(Component::buffer).flat_map(|buffer| buffer.runs()).collect()
    }

    /// All runs. One that is in a compaction buffer and elsewhere comes twice.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.live_runs().map(Held::run).chain(self.retained_runs().into_values())
    }

    /// Drops sequences that have become empty.
    pub(crate) fn drop_empty(&mut self) {
        for level in &mut self.levels {
            level.filling.retain(|component| !component.is_empty());
            level.emptying.retain(|component| !component.is_empty());
            if level.emptying.is_empty() {
                level.began_bytes = 0;
            }
        }
    }

    /// Drops what is not needed: empty sequences, and empty levels at the end beyond so many.
    pub(crate) fn tidy(&mut self, level_count: usize) {
        self.drop_empty();
        while self.levels.len() > level_count && self.levels.last().is_some_and(Level::is_empty) {
            self.levels.pop();
        }
    }
}
