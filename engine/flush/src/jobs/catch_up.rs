//! Jobs that a flush waits for: those of its own keyspaces, where the tree is too far behind the writes.
//!
//! **Invariants**
//! - No lock is held meanwhile.
//! - A job that fails for lack of space is left to the flush.

use testudo_base::{Result, planted, sync::Arc};
use testudo_store::{Store, keyspace::KeyspaceCore};

use crate::jobs::{begin_job_of, install::lock_and_install_prepared, run_chosen};

/// Runs jobs of trees that are due for a flush and behind on compaction, until they have caught up; writers
/// are throttled in proportion.
pub fn catch_up(store: &Store) -> Result<()> {
    if store.log.wal.is_none() || planted!("jobs-never-awaited") {
        return Ok(());
    }
    for keyspace in store.buffered.all() {
        loop {
            let behind_bytes = behind_bytes(store, &keyspace);
            if behind_bytes == 0 || !catch_up_some(store, &keyspace, behind_bytes)? {
                break;
            }
        }
    }
    Ok(())
}

/// Number of bytes jobs should write before the sealed buffers are flushed.
pub(super) fn behind_bytes(store: &Store, keyspace: &KeyspaceCore) -> u64 {
    let may_wait = !store.health.is_closing() && !store.has_failed() && !keyspace.is_dropped();
    let view = keyspace.view.load();
    let has_space = !store.nearly_full.is_short() && !store.nearly_full.is_on();
    if may_wait && has_space && !view.sealed.is_empty() { view.tree.behind_bytes() } else { 0 }
}

/// Runs one job of a keyspace, or waits for one in progress; `false` if there is none.
fn catch_up_some(store: &Store, keyspace: &Arc<KeyspaceCore>, behind_bytes: u64) -> Result<bool> {
    if lock_and_install_prepared(store)? {
        return Ok(true);
    }
    // A round already in flight on another thread is the better predictor of writers' delays.
    let is_first = !store.backpressure.is_flushing();
    debug_assert!(behind_bytes > 0, "a flush waits only for jobs with work");
    let chosen = begin_job_of(store, keyspace, false);
    let jobs = store.background.jobs.of(keyspace.id);
    if jobs.is_empty() {
        return Ok(false);
    }
    if is_first {
        let flush_bytes = keyspace.view.load().sealed.last().map_or(0, |last| last.table.memory_bytes());
        store.backpressure.catch_up_started(&*store.env, jobs, behind_bytes + flush_bytes);
    }
    let outcome = match chosen {
        Some(chosen) => run_chosen(store, chosen).map(|_| true),
        None => {
            store.background.wait_for_job_of(keyspace.id);
            Ok(true)
        }
    };
    if is_first {
        store.backpressure.flush_ended(&*store.env);
    }
    match outcome {
        Err(error) if error.is_shortage() => Ok(false),
        outcome => outcome,
    }
}
