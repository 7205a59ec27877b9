//! Jobs that compact a range of keys on request.
//!
//! **Invariants**
//! - The keyspace is reserved until the job begins, so jobs of the tree itself cannot keep it waiting.

use testudo_base::{Result, sync::Arc};
use testudo_contract::{RangeJob, Tree};
use testudo_run::KeyBounds;
use testudo_store::{Store, background::jobs_in_progress::PreparedJob, keyspace::KeyspaceCore};

use crate::jobs::{
    do_alone,
    install::{install_job, lock_and_install_prepared},
    prepare_beside_flushes,
};

/// Progress of compacting a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeProgress {
    /// Nothing of the range is above the bottom.
    Done,
    /// A job has completed the keys before this one; `None`: all of them.
    DoneBelow(Option<Vec<u8>>),
    /// Another job ran, or this one was overtaken.
    Unknown,
}

/// Runs one job that compacts the beginning of `range`, or waits for the job in flight.
pub fn run_range_job(
    store: &Store,
    keyspace: &Arc<KeyspaceCore>,
    range: &KeyBounds,
) -> Result<RangeProgress> {
    if lock_and_install_prepared(store)? {
        return Ok(RangeProgress::Unknown);
    }
    let jobs = &store.background.jobs;
    let reservation = Some(jobs.reserve(keyspace.id));
    let tree = Arc::clone(&keyspace.view.load().tree);
    let bytes_max = store.job_bytes_max();
    let picked = pick_range(store, keyspace, &*tree, range, bytes_max)?;
    let Some(RangeJob { job, mut done_below }) = picked else { return Ok(RangeProgress::Done) };
    keyspace.expect_jobs();
    let bytes_max = tree.job_bytes_max(bytes_max);
    let Some(begun) = jobs.begin(keyspace, &job, bytes_max, reservation.as_ref()) else {
        drop((tree, job));
        store.background.wait_for_job_of(keyspace.id);
        return Ok(RangeProgress::Unknown);
    };
    drop(reservation);
    let is_installed = match prepare_beside_flushes(store, &begun, &*tree, &job)? {
        Some(prepared) => {
            drop((tree, job));
            install_job(store, PreparedJob { prepared, begun })?
        }
        None => {
            drop((tree, job, begun));
            do_alone(store, keyspace, false, None, |tree, request| {
                let picked = pick_range(store, keyspace, tree, range, request.bytes_max)?;
                Ok(picked.map(|picked| {
                    done_below = picked.done_below;
                    picked.job
                }))
            })?
        }
    };
    Ok(if is_installed { RangeProgress::DoneBelow(done_below) } else { RangeProgress::Unknown })
}

fn pick_range(
    store: &Store,
    keyspace: &KeyspaceCore,
    tree: &dyn Tree,
    range: &KeyBounds,
    bytes_max: u64,
) -> Result<Option<RangeJob>> {
    let picked = tree.pick_range(range, bytes_max);
    picked.map_err(|error| store.health.closed_or(error.in_keyspace(&keyspace.name)))
}
