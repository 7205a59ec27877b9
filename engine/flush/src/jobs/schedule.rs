//! Choice of the next job among all keyspaces.
//!
//! A keyspace whose flush waits for jobs comes first, then the job with the largest debt. Keyspaces are
//! searched in turn, so none is passed over because others always have jobs.
//!
//! **Invariants**
//! - A search that finds no job changes nothing but the expectation of jobs.

use testudo_base::{KeyspaceId, sync::Arc};
use testudo_store::{Store, keyspace::KeyspaceCore};

use crate::jobs::{Chosen, begin_job_of, catch_up::behind_bytes};

/// Maximum number of jobs to compare.
const CHOICES: usize = 8;

/// State of a thread that searches for jobs.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Keyspace at which the last search ended.
    last: KeyspaceId,
}

/// Chooses a job among the first [`CHOICES`] found, and begins it.
pub(super) fn choose_job(
    store: &Store,
    schedule: &mut Schedule,
    is_idle: impl Fn(&KeyspaceCore) -> bool,
) -> Option<Chosen> {
    let limits = &store.background.limits;
    let is_paused = limits.is_paused() || !limits.time_to_wait(store.env.monotonic()).is_zero();
    let is_flushing = store.backpressure.is_flushing();
    let mut best: Option<(bool, Chosen)> = None;
    let mut found = 0;
    for keyspace in in_turn(store, schedule.last) {
        let is_idle = is_idle(&keyspace);
        let is_pressing = || behind_bytes(store, &keyspace) > 0;
        // A job that is overtaken again would be repeated under the lock of the flush.
        if (is_paused && !is_pressing()) || (is_flushing && keyspace.was_overtaken()) {
            continue;
        }
        let has_new_reasons = keyspace.view.load().tree.has_new_reasons();
        if !keyspace.take_expected_jobs(is_idle) && !has_new_reasons {
            continue;
        }
        let is_busy = !store.background.jobs.of(keyspace.id).is_empty();
        let Some(chosen) = begin_job_of(store, &keyspace, is_idle) else {
            // There may be one once those in progress have ended.
            if is_busy {
                keyspace.expect_jobs();
            }
            continue;
        };
        keyspace.expect_jobs();
        found += 1;
        schedule.last = keyspace.id;
        let is_pressing = is_pressing();
        let is_better = |(was_pressing, best): &(bool, Chosen)| {
            (is_pressing, chosen.job.debt_bytes) > (*was_pressing, best.job.debt_bytes)
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some((is_pressing, chosen));
        }
        if found == CHOICES {
            break;
        }
    }
    let chosen = best.map(|(_, chosen)| chosen);
    if chosen.is_some() {
        // Other threads may find more.
        store.background.job_wakeup.wake();
    }
    chosen
}

/// All keyspaces, those behind `last` first.
fn in_turn(store: &Store, last: KeyspaceId) -> impl Iterator<Item = Arc<KeyspaceCore>> {
    let mut keyspaces = store.keyspaces();
    let next = keyspaces.partition_point(|keyspace| keyspace.id <= last);
    keyspaces.rotate_left(next);
    debug_assert!(next <= keyspaces.len(), "a place in the catalogue");
    keyspaces.into_iter()
}
