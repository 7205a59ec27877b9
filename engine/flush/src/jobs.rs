//! Jobs of trees: the background work of trees, concurrent with flushes and with each other (decision 0044).
//!
//! `pick_job → prepare → sync data → [flush lock] install → commit edit → publish`
//!
//! | step | file |
//! |---|---|
//! | choose among keyspaces | `schedule.rs` |
//! | pick, prepare | here |
//! | install, commit | `install.rs` |
//! | jobs that a flush waits for | `catch_up.rs` |
//! | compaction of a range | `range.rs` |
//!
//! **Invariants**
//! - Jobs of one keyspace have scopes that do not overlap.
//! - Installing requires `flush_lock`. So does preparing when the device is nearly full, or when a flush
//!   overtook the previous job.
//! - A job reads and writes no more than the bound that its tree states.

pub mod catch_up;
pub mod install;
pub mod range;
pub mod schedule;

use testudo_base::{
    Error, Result,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::{Job, JobRequest, Prepared, Scope, Tree};
use testudo_store::{
    Store,
    background::jobs_in_progress::{BegunJob, PreparedJob, Reservation},
    keyspace::KeyspaceCore,
    poison_on_panic::PoisonOnPanic,
};

use crate::{
    jobs::{
        install::{
            hold_space_after_job, install, install_job, install_prepared_unless_locked,
            lock_and_install_prepared,
        },
        schedule::{Schedule, choose_job},
    },
    manifest_edit::poison_unless_full,
    space::{
        give_back::{give_back_all_space, give_back_what_failed},
        hold_space::{hold_space, is_bound_outdated, with_held_space},
    },
};

/// A job that has begun, and the state from which it was picked.
struct Chosen {
    begun: BegunJob,
    tree: Arc<dyn Tree>,
    job: Job,
    is_idle: bool,
}

/// Progress of a job.
enum Outcome {
    /// The job was completed or dropped.
    Ended,
    /// The first half is complete.
    Prepared(PreparedJob),
}

/// Prepares a job and installs it, unless a flush runs: then that flush, or a later one, installs it.
/// Returns `false` if no tree has a job. `is_idle` as in [`JobRequest::is_idle`], for each keyspace.
pub fn run_job(
    store: &Store,
    schedule: &mut Schedule,
    is_idle: impl Fn(&KeyspaceCore) -> bool,
) -> Result<bool> {
    let Some(chosen) = choose_job(store, schedule, is_idle) else {
        return lock_and_install_prepared(store);
    };
    if let Outcome::Prepared(job) = prepare_chosen(store, chosen)? {
        store.background.hand_in(job);
        install_prepared_unless_locked(store)?;
    }
    Ok(true)
}

/// Runs half a job in stepped execution: prepares one, or installs one that an earlier step prepared;
/// `false` if there is none. Several jobs are in progress at once, and end in changing orders.
pub fn step_job(store: &Store, is_idle: impl Fn(&KeyspaceCore) -> bool) -> Result<bool> {
    let step = store.background.steps.load(Relaxed);
    // An order that repeats only after many steps.
    let turn = usize::from(step.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]);
    let installs_first = turn % 2 == 0;
    let install = |store: &Store| match store.background.take_prepared(turn / 2) {
        Some(job) => install_job(store, job).map(|_| true),
        None => Ok(false),
    };
    if installs_first && install(store)? {
        return Ok(true);
    }
    Ok(prepare_next(store, is_idle)? || install(store)?)
}

/// Runs the first half of a job, and leaves it to the next holder of `flush_lock`; `false` if there is none.
pub fn prepare_next(store: &Store, is_idle: impl Fn(&KeyspaceCore) -> bool) -> Result<bool> {
    let Some(chosen) = choose_job(store, &mut Schedule::default(), is_idle) else { return Ok(false) };
    if let Outcome::Prepared(job) = prepare_chosen(store, chosen)? {
        store.background.hand_in(job);
    }
    Ok(true)
}

/// Runs a job of this keyspace; `false` if it has none that may begin.
pub fn run_job_of(store: &Store, keyspace: &Arc<KeyspaceCore>) -> Result<bool> {
    if lock_and_install_prepared(store)? {
        return Ok(true);
    }
    run_new_job_of(store, keyspace, false).map(|progress| progress.is_some())
}

/// Runs one job that a keyspace owes, or waits for one in progress; returns the approximate number of bytes
/// merged. `None` if it owes nothing.
pub fn run_owed_job(store: &Store, keyspace: &Arc<KeyspaceCore>) -> Result<Option<u64>> {
    if lock_and_install_prepared(store)? {
        return Ok(Some(0));
    }
    if let Some(bytes) = run_new_job_of(store, keyspace, true)? {
        return Ok(Some(bytes));
    }
    let in_progress = store.background.jobs.of(keyspace.id);
    if in_progress.is_empty() {
        return Ok(None);
    }
    store.background.wait_for_job_of(keyspace.id);
    Ok(Some(in_progress.iter().map(|progress| progress.state().1).min().unwrap_or(0)))
}

/// Runs a job of this keyspace from beginning to end; returns the bytes merged. `None` if there is none that
/// may begin.
fn run_new_job_of(store: &Store, keyspace: &Arc<KeyspaceCore>, is_idle: bool) -> Result<Option<u64>> {
    begin_job_of(store, keyspace, is_idle).map(|chosen| run_chosen(store, chosen)).transpose()
}

/// Runs a job from beginning to end; returns the bytes merged.
fn run_chosen(store: &Store, chosen: Chosen) -> Result<u64> {
    chosen.begun.keyspace.expect_jobs();
    let progress = Arc::clone(&chosen.begun.progress);
    if let Outcome::Prepared(job) = prepare_chosen(store, chosen)? {
        install_job(store, job)?;
    }
    Ok(progress.state().1)
}

/// Begins the job that the tree of a keyspace picks outside the scopes of those in progress.
fn begin_job_of(store: &Store, keyspace: &Arc<KeyspaceCore>, is_idle: bool) -> Option<Chosen> {
    let jobs = &store.background.jobs;
    // Listed before the tree is loaded: a job that is no longer in the list is in the tree.
    let busy = jobs.busy(keyspace.id, None)?;
    let tree = Arc::clone(&keyspace.view.load().tree);
    let request = request(store, is_idle, &busy);
    let job = tree.pick_job(&request)?;
    let begun = jobs.begin(keyspace, &job, tree.job_bytes_max(request.bytes_max), None)?;
    Some(Chosen { begun, tree, job, is_idle })
}

fn request<'a>(store: &Store, is_idle: bool, busy: &'a [Scope]) -> JobRequest<'a> {
    JobRequest { is_idle, busy, bytes_max: store.job_bytes_max() }
}

fn prepare_chosen(store: &Store, chosen: Chosen) -> Result<Outcome> {
    let Chosen { begun, tree, job, is_idle } = chosen;
    if let Some(prepared) = prepare_beside_flushes(store, &begun, &*tree, &job)? {
        return Ok(Outcome::Prepared(PreparedJob { prepared, begun }));
    }
    let keyspace = Arc::clone(&begun.keyspace);
    // The job is chosen again under the lock; holding this one meanwhile would prevent its space from being
    // released, and it would exclude itself.
    drop((tree, job, begun));
    do_alone(store, &keyspace, is_idle, None, |tree, request| Ok(tree.pick_job(request)))?;
    Ok(Outcome::Ended)
}

/// Runs the first half of a job concurrently with flushes; `None` if it has to be done with flushes excluded.
fn prepare_beside_flushes(
    store: &Store,
    begun: &BegunJob,
    tree: &dyn Tree,
    job: &Job,
) -> Result<Option<Prepared>> {
    store.check_writable()?;
    if begun.keyspace.was_overtaken() {
        return Ok(None);
    }
    let preparing = store.background.jobs.begin_preparing();
    // Any later taker of held space waits for this job.
    if store.nearly_full.is_on() {
        return Ok(None);
    }
    let prepared = prepare_job(store, begun, tree, job);
    drop(preparing);
    match give_back_what_failed_beside(store, prepared) {
        // The bound of the data file is of a time at which the device had less space.
        Err(error) if error.is_shortage() && is_bound_outdated(store) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Runs the first half of a job.
fn prepare_job(
    store: &Store,
    BegunJob { keyspace, progress, bytes_max, .. }: &BegunJob,
    tree: &dyn Tree,
    job: &Job,
) -> Result<Prepared> {
    let _guard = PoisonOnPanic::new(store);
    store.beginning.begin().inspect_err(|error| store.poison(error))?;
    let began = store.env.monotonic();
    let prepared = tree.prepare(&store.job_work(keyspace, progress), job);
    let prepared = prepared.map_err(|error| error.in_keyspace(&keyspace.name));
    let prepared = prepared.inspect_err(|error| poison_unless_full(store, error))?;
    store.data.sync().inspect_err(|error| store.poison(error))?;
    let bytes = progress.state().1;
    debug_assert!(bytes <= *bytes_max, "{}: {bytes} bytes", job.what);
    store.background.limits.record_job(bytes, began, store.env.monotonic());
    Ok(prepared)
}

/// Runs both halves of the job that `pick` chooses, with flushes excluded; `false` if there was none that
/// may begin.
fn do_alone(
    store: &Store,
    keyspace: &Arc<KeyspaceCore>,
    is_idle: bool,
    reservation: Option<&Reservation<'_>>,
    pick: impl FnOnce(&dyn Tree, &JobRequest<'_>) -> Result<Option<Job>>,
) -> Result<bool> {
    let jobs = &store.background.jobs;
    let _flush = store.flush_lock.lock();
    store.check_writable()?;
    if is_bound_outdated(store) {
        hold_space(store)?;
    }
    let both = || {
        let Some(busy) = jobs.busy(keyspace.id, reservation) else { return Ok(false) };
        // Tree and job hold the extents that are replaced: drop both before the space check.
        let tree = Arc::clone(&keyspace.view.load().tree);
        let request = request(store, is_idle, &busy);
        let Some(job) = pick(&*tree, &request)?.filter(|_| !keyspace.is_dropped()) else { return Ok(false) };
        let bytes_max = tree.job_bytes_max(request.bytes_max);
        let Some(begun) = jobs.begin(keyspace, &job, bytes_max, reservation) else { return Ok(false) };
        let prepared = prepare_job(store, &begun, &*tree, &job)?;
        drop((tree, job));
        install(store, &begun, prepared)
    };
    // The job's output replaces the extents that it frees, and the job may be what blocks reclamation. But
    // its space is freed late, so a reclaim step, and removals on top, must stay possible at any time.
    let outcome = if store.nearly_full.is_short() {
        with_held_space(store, store.nearly_full.reclaiming_bytes(), both)
    } else {
        both()
    };
    give_back_what_failed(store, &outcome)?;
    hold_space_after_job(store)?;
    outcome
}

/// Returns the space of a failed attempt on a full device to the file system at once.
fn give_back_what_failed_beside<T>(store: &Store, outcome: Result<T>) -> Result<T> {
    if outcome.as_ref().is_err_and(Error::is_shortage) {
        give_back_all_space(store)?;
    }
    outcome
}
