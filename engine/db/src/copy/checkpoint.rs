//! Checkpoints: a second, complete store with the contents of a snapshot, created while the first is in use.
//!
//! **Invariants**
//! - The new store has an id of its own; it shares no bytes with the old one.
//! - Memory is bounded by one stretch of pages and two log buffers, whatever the size of the store.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use testudo_base::Result;
use testudo_recovery::new_store::{CopiedRun, NewStore, damaged_page};
use testudo_store::long_work::{Meter, Observed, Observer, WorkDone};

use crate::{Db, copy::consistent_state::ConsistentState};

/// Options of [`Db::checkpoint`]. A path converts to them.
#[derive(Debug)]
pub struct CheckpointOptions<'a> {
    target: PathBuf,
    observer: Observed<'a>,
}

impl<'a> CheckpointOptions<'a> {
    /// A checkpoint in the directory `target`, without an observer.
    pub fn new(target: impl AsRef<Path>) -> Self {
        Self { target: target.as_ref().to_owned(), observer: Observed::default() }
    }

    /// Calls `observer` periodically with the progress; its `Break` ends the copy with `Cancelled`.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(WorkDone) -> ControlFlow<()> + 'a) -> Self {
        self.observer = Observed::by(observer);
        self
    }
}

impl<P: AsRef<Path>> From<P> for CheckpointOptions<'_> {
    fn from(target: P) -> Self {
        Self::new(target)
    }
}

/// Result of [`Db::checkpoint`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CheckpointReport {
    /// Seqno of the last commit in the checkpoint.
    pub seqno: u64,
    /// Keyspaces copied.
    pub keyspaces: u64,
    /// Runs copied.
    pub runs: u64,
    /// Bytes of runs copied.
    pub run_bytes: u64,
    /// Operations copied from the write buffers.
    pub tail_operations: u64,
}

impl Db {
    /// Creates a new store in the target directory, equal to a snapshot of this moment. Durable on return.
    ///
    /// Writers are not blocked. The target must be missing or empty; an unfinished one is never opened as a
    /// store.
    ///
    /// Errors: `Invalid` for a target that is not empty; `Locked` if it is already being filled; `Corruption`
    /// if a page of this store is damaged; `Poisoned` if this store must be reopened first; `Closed`;
    /// `OutOfSpace`; `Io`; `Cancelled` by the observer. After an error the partial target is removed.
    pub fn checkpoint<'a>(&self, options: impl Into<CheckpointOptions<'a>>) -> Result<CheckpointReport> {
        let CheckpointOptions { target, mut observer } = options.into();
        self.store().read(|| self.copy_to(&target, observer.get()))
    }

    fn copy_to(&self, target: &Path, observer: &mut Observer<'_>) -> Result<CheckpointReport> {
        let store = self.store();
        // A copy may fail without space; it must not use the reserve for writes.
        let new = NewStore::begin(&store.space.plain_env(&store.env), target)?;
        let source = ConsistentState::take(self)?;
        let mut meter = Meter::new(observer, source.run_bytes());
        meter.advance(0)?;
        for run in &source.runs {
            let mut read = |page: u32, buffer: &mut [u8]| run.read_pages(page, buffer);
            let damaged = |page: u32, why: &str| damaged_page(run.reference(), page, why);
            let (reference, store) = (run.reference(), store.id);
            new.copy_run(CopiedRun { reference, store, read: &mut read, damaged: &damaged }, &mut meter)?;
        }
        let mut tail_operations = 0;
        new.finish(&source.state, source.seqno(), |tail| {
            source.for_each_tail(|operation| {
                tail_operations += 1;
                tail.push(&operation)
            })?;
            meter.advance(0)
        })?;
        Ok(CheckpointReport {
            seqno: source.seqno().0,
            keyspaces: source.state.keyspaces.len().try_into().unwrap_or(u64::MAX),
            runs: source.runs.len().try_into().unwrap_or(u64::MAX),
            run_bytes: source.run_bytes(),
            tail_operations,
        })
    }
}
