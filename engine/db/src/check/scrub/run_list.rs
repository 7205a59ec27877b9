//! The runs that a scrub has still to read, in the order of their ids.
//!
//! The list of all runs is made at once and refers to them weakly, so that their space can be released while
//! the scrub waits. A run that no longer exists when its turn comes was replaced by a merge, or opened again
//! by a change of its keyspace's tree. A new list tells which.
//!
//! **Invariants**
//! - A pass over an unchanged store makes two lists: the first, and an empty one at the end.
//! - In a store in use, each further list follows a change of a tree, and at most one is made for each batch.

use std::{collections::VecDeque, sync::Weak};

use testudo_base::{RunId, sync::Arc};

/// A run, or another object, with the name of its keyspace.
pub(super) type OfKeyspace<T> = (Arc<T>, Arc<str>);

/// Runs to scrub, after those already taken.
#[derive(Debug)]
pub(super) struct RunList<T> {
    runs: VecDeque<(Weak<T>, Arc<str>)>,
}

impl<T> RunList<T> {
    pub(super) fn new() -> Self {
        Self { runs: VecDeque::new() }
    }

    /// Takes the next runs, at most `count`; none at the end of the pass. `list` returns the runs that exist
    /// now and were not taken yet.
    pub(super) fn take(
        &mut self,
        count: usize,
        list: impl FnOnce() -> Vec<(RunId, OfKeyspace<T>)>,
    ) -> Vec<OfKeyspace<T>> {
        debug_assert!(count > 0, "an empty batch ends the pass");
        if let Some(batch) = self.take_listed(count) {
            return batch;
        }
        let mut runs = list();
        runs.sort_by_key(|(id, _)| *id);
        runs.dedup_by_key(|(id, _)| *id);
        let later = runs.split_off(runs.len().min(count));
        self.runs = later.into_iter().map(|(_, (run, keyspace))| (Arc::downgrade(&run), keyspace)).collect();
        runs.into_iter().map(|(_, run)| run).collect()
    }

    /// The next runs of the list; `None` at its end, and if one of them no longer exists.
    fn take_listed(&mut self, count: usize) -> Option<Vec<OfKeyspace<T>>> {
        let batch = self.runs.drain(..count.min(self.runs.len()));
        let batch: Option<Vec<_>> = batch.map(|(run, keyspace)| Some((run.upgrade()?, keyspace))).collect();
        batch.filter(|batch| !batch.is_empty())
    }
}

#[cfg(test)]
mod tests;
