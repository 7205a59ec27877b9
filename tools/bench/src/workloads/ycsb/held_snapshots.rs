//! Snapshots that are held while a workload runs, one after the other: what they cost in space and speed.
//!
//! **Invariants**
//! - At any moment of the workload there is one, and only while it is replaced a second one.

use std::time::Duration;

use testudo::{Db, Result, Snapshot};

/// The snapshots of one workload.
pub(crate) struct HeldSnapshots<'a> {
    db: &'a Db,
    /// How long each is held.
    time: Duration,
    held: Snapshot,
    since: Duration,
    taken: u64,
}

impl<'a> HeldSnapshots<'a> {
    /// Takes the first one.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn new(db: &'a Db, time: Duration, now: Duration) -> Result<Self> {
        Ok(Self { db, time, held: db.snapshot()?, since: now, taken: 1 })
    }

    /// Takes the next one in the place of the one before if it is time to.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn keep_up(&mut self, now: Duration) -> Result<()> {
        if now.saturating_sub(self.since) >= self.time {
            self.held = self.db.snapshot()?;
            self.since = now;
            self.taken += 1;
        }
        Ok(())
    }

    /// How many there were.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}
