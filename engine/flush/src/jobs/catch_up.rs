//! Jobs that a flush waits for: those of its own keyspaces, where the tree is too far behind the writes.
//!
//! A round takes only keyspaces whose trees keep up. Those that are behind stay sealed, and delay their own
//! writers, until jobs have caught up: on the job threads, or on the thread that has nothing else to flush.
//!
//! **Invariants**
//! - No lock is held while a job is waited for.
//! - A job that fails for lack of space is left to the flush.

use testudo_base::{Result, planted, sync::Arc};
use testudo_store::{Store, keyspace::KeyspaceCore};

use crate::jobs::{begin_job_of, install::lock_and_install_prepared, run_chosen};

/// Pace of jobs before any was measured, in nanoseconds per KiB: 250 MB a second.
const FIRST_PACE: u64 = 4 << 10;

/// Sealed keyspaces by whether they are behind.
#[derive(Debug, Default)]
pub struct Sealed {
    pub is_any_ready: bool,
    /// With the bytes that jobs must read, and those of the buffer.
    behind: Vec<(Arc<KeyspaceCore>, (u64, u64))>,
}

impl Sealed {
    /// Whether all of them wait for jobs.
    pub fn are_all_behind(&self) -> bool {
        !self.is_any_ready && !self.behind.is_empty()
    }

    /// Whether a job of a keyspace that is behind is in progress.
    pub fn has_jobs(&self, store: &Store) -> bool {
        self.behind.iter().any(|(keyspace, _)| !store.background.jobs.of(keyspace.id).is_empty())
    }
}

/// Returns the sealed keyspaces, and has the writers of those that are behind delayed.
pub fn look_at_sealed(store: &Store) -> Sealed {
    let mut sealed = Sealed::default();
    for keyspace in store.buffered.sealed() {
        let Some(buffer) = keyspace.view.load().sealed.last().cloned() else { continue };
        match behind_bytes(store, &keyspace) {
            0 => sealed.is_any_ready = true,
            bytes => sealed.behind.push((keyspace, (bytes, buffer.table.memory_bytes()))),
        }
    }
    if sealed.behind.is_empty() && !store.backpressure.behind.is_any() {
        return sealed;
    }
    let is_behind = |id| sealed.behind.iter().any(|(keyspace, _)| keyspace.id == id);
    store.backpressure.behind.retain(is_behind);
    for (keyspace, bytes) in &sealed.behind {
        let jobs = store.background.jobs.of(keyspace.id);
        let pace = store.background.limits.nanos_per_kib().unwrap_or(FIRST_PACE);
        let several = u64::try_from(jobs.len()).unwrap_or(1).max(1);
        store.backpressure.behind.set(keyspace.id, *bytes, jobs, pace / several);
    }
    sealed
}

/// Runs jobs of trees that are due for a flush and behind on compaction, until one can be flushed.
pub fn catch_up(store: &Store) -> Result<()> {
    if !awaits_jobs(store) {
        return Ok(());
    }
    loop {
        let sealed = look_at_sealed(store);
        if !sealed.are_all_behind() {
            return Ok(());
        }
        for (keyspace, _) in &sealed.behind {
            // Without a job that may help, it is flushed as it is.
            if !catch_up_some(store, keyspace)? {
                return Ok(());
            }
        }
    }
}

fn awaits_jobs(store: &Store) -> bool {
    store.log.wal.is_some() && !planted!("jobs-never-awaited")
}

/// Number of bytes jobs should read before the sealed buffers are flushed.
pub(crate) fn behind_bytes(store: &Store, keyspace: &KeyspaceCore) -> u64 {
    let may_wait = !store.health.is_closing() && !store.has_failed() && !keyspace.is_dropped();
    let has_space = !store.nearly_full.is_short() && !store.nearly_full.is_on();
    if !(may_wait && has_space && awaits_jobs(store)) {
        return 0;
    }
    let view = keyspace.view.load();
    if view.sealed.is_empty() { 0 } else { view.tree.behind_bytes() }
}

/// Runs one job of a keyspace, or waits for one in progress; `false` if there is none.
fn catch_up_some(store: &Store, keyspace: &Arc<KeyspaceCore>) -> Result<bool> {
    if lock_and_install_prepared(store)? {
        return Ok(true);
    }
    let outcome = match begin_job_of(store, keyspace, false) {
        Some(chosen) => run_chosen(store, chosen).map(|_| true),
        None if store.background.jobs.of(keyspace.id).is_empty() => Ok(false),
        None => {
            store.background.wait_for_job_of(keyspace.id);
            Ok(true)
        }
    };
    match outcome {
        Err(error) if error.is_shortage() => Ok(false),
        outcome => outcome,
    }
}
