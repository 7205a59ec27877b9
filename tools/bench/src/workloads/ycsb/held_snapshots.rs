//! Snapshots held one after the other while a workload runs, to measure their cost in space and speed.
//!
//! **Invariants**
//! - One snapshot is held at any time, and two only while one replaces the other.

use std::time::Duration;

use testudo::{Db, Result, Snapshot};

/// The snapshots of one workload.
pub(crate) struct HeldSnapshots<'a> {
    db: &'a Db,
    /// How long each snapshot is held.
    time: Duration,
    held: Snapshot,
    since: Duration,
    taken: u64,
}

impl<'a> HeldSnapshots<'a> {
    /// Takes the first snapshot.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn new(db: &'a Db, time: Duration, now: Duration) -> Result<Self> {
        Ok(Self { db, time, held: db.snapshot()?, since: now, taken: 1 })
    }

    /// Replaces the snapshot if it is due.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn keep_up(&mut self, now: Duration) -> Result<()> {
        if now.saturating_sub(self.since) >= self.time {
            self.held = self.db.snapshot()?;
            self.since = now;
            self.taken += 1;
        }
        Ok(())
    }

    /// Returns the number of snapshots taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}
