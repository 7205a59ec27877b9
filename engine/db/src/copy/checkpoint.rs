//! Checkpoints: a second, complete store with the contents of a snapshot, made while the first one is in use.
//!
//! **Invariants**
//! - The new store has an id of its own; it shares no bytes with the old one.
//! - Memory is bounded by one stretch of pages and two buffers of the log, whatever the size of the store.

use std::path::Path;

use testudo_base::Result;
use testudo_recovery::new_store::{NewStore, damaged_page};
use testudo_store::long_work::{Meter, Observer, unobserved};

use crate::{Db, copy::consistent_state::ConsistentState};

/// What a checkpoint came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CheckpointReport {
    /// The last commit that it holds.
    pub seqno: u64,
    /// Keyspaces.
    pub keyspaces: u64,
    /// Runs copied.
    pub runs: u64,
    /// Bytes of those.
    pub run_bytes: u64,
    /// Operations copied from the write buffers.
    pub tail_operations: u64,
}

impl Db {
    /// Makes a new store in the directory `target`, equal to a snapshot of this moment. Durable on return.
    ///
    /// Writers are not held up. The target must not exist or be empty; one that did not end is never opened
    /// as a store.
    ///
    /// Errors: `Invalid` for a target that is not empty; `Locked` if somebody else is filling it;
    /// `Corruption` if a page of this store is damaged; `Poisoned` if this store must be reopened first;
    /// `Closed`; `OutOfSpace`; `Io`. What was made of the target is removed then.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.checkpoint_observed(target.as_ref(), &mut unobserved())
    }

    /// As [`Db::checkpoint`], telling `observer` how far it is.
    ///
    /// Errors: as [`Db::checkpoint`]; `Cancelled` if `observer` ends it.
    pub fn checkpoint_observed(
        &self,
        target: &Path,
        observer: &mut Observer<'_>,
    ) -> Result<CheckpointReport> {
        self.store().read(|| self.copy_to(target, observer))
    }

    fn copy_to(&self, target: &Path, observer: &mut Observer<'_>) -> Result<CheckpointReport> {
        let store = self.store();
        // A copy may be given up when there is no room; it must not use what is kept for writes.
        let new = NewStore::begin(&store.space.plain_env(&store.env), target)?;
        let source = ConsistentState::take(self)?;
        let mut meter = Meter::new(observer, source.run_bytes());
        meter.advance(0)?;
        for run in &source.runs {
            let mut read = |page: u32, buffer: &mut [u8]| run.read_pages(page, buffer);
            let damaged = |page: u32, why: &str| damaged_page(run.reference(), page, why);
            new.copy_run((run.reference(), store.id), &mut read, &damaged, &mut meter)?;
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
