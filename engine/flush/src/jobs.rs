//! Jobs of trees: the background work of trees, concurrent with flushes (decision 0044).
//!
//! `pick_job → prepare → sync data → [flush lock] install → commit edit → publish`
//!
//! **Invariants**
//! - A keyspace has one job at a time.
//! - Installing requires `flush_lock`. So does preparing when the device is nearly full, or when a flush
//!   overtook the previous job.

use testudo_base::{
    DropCounts, Error, Result, planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::{Job, JobRequest, Prepared, RangeJob, Tree, TreeEdit};
use testudo_options::stored_tree::options_on_arrival;
use testudo_run::KeyBounds;
use testudo_storage::Change;
use testudo_store::{
    Store,
    background::{
        background_work::{PreparedJob, Underway},
        drop_totals::Dropped,
    },
    keyspace::KeyspaceCore,
    memory::metadata::{fit_caches, note_tree},
};

use crate::{
    manifest_edit::{commit_edit, count_dropped, poison_unless_full},
    space::{
        give_back::{give_back_all_space, give_back_what_failed},
        hold_space::{hold_space, with_held_space},
    },
};

/// Maximum keyspaces with jobs to compare; the one with most debt goes first.
const CHOICES: usize = 8;

/// A chosen job and the state from which it was picked.
struct Chosen {
    underway: Underway,
    tree: Arc<dyn Tree>,
    job: Job,
    is_idle: bool,
}

/// Progress of a job.
enum Begun {
    /// No job was due.
    Nothing,
    /// The job was completed or dropped.
    Ended,
    /// The first half is complete.
    Prepared(PreparedJob),
}

/// Runs one job of one tree; `false` if no tree has one. `is_idle` as in
/// [`testudo_contract::Compact::pick_job`], for each keyspace.
pub fn run_job(store: &Store, is_idle: impl Fn(&KeyspaceCore) -> bool) -> Result<bool> {
    run_job_and(store, is_idle, |job| install_job(store, job).map(|_| ()))
}

/// Runs half a job: installs the one prepared by an earlier step, or prepares one and keeps it; `false` if
/// there is none.
pub fn step_job(store: &Store, is_idle: impl Fn(&KeyspaceCore) -> bool) -> Result<bool> {
    run_job_and(store, is_idle, |job| {
        store.background.keep(job);
        Ok(())
    })
}

fn run_job_and(
    store: &Store,
    is_idle: impl Fn(&KeyspaceCore) -> bool,
    then: impl FnOnce(PreparedJob) -> Result<()>,
) -> Result<bool> {
    if let Some(job) = store.background.take_kept() {
        return install_job(store, job).map(|_| true);
    }
    match begin_job(store, is_idle)? {
        Begun::Nothing => Ok(false),
        Begun::Ended => Ok(true),
        Begun::Prepared(job) => then(job).map(|()| true),
    }
}

fn begin_job(store: &Store, is_idle: impl Fn(&KeyspaceCore) -> bool) -> Result<Begun> {
    let Some(chosen) = choose_job(store, is_idle) else { return Ok(Begun::Nothing) };
    begin_chosen(store, chosen)
}

fn begin_chosen(store: &Store, chosen: Chosen) -> Result<Begun> {
    let Chosen { underway, tree, job, is_idle } = chosen;
    if let Some(prepared) = prepare_beside_flushes(store, &underway, &*tree, &job)? {
        return Ok(Begun::Prepared(PreparedJob { prepared, underway }));
    }
    // The job is chosen again under the lock; holding this one meanwhile would prevent its space from being
    // released.
    drop((tree, job));
    do_alone(store, &underway, |tree| Ok(tree.pick_job(&JobRequest::only(is_idle)))).map(|_| Begun::Ended)
}

/// Runs the first half of a job concurrently with flushes; `None` if flushes must be excluded.
fn prepare_beside_flushes(
    store: &Store,
    underway: &Underway,
    tree: &dyn Tree,
    job: &Job,
) -> Result<Option<Prepared>> {
    store.check_writable()?;
    if underway.keyspace.was_overtaken() {
        return Ok(None);
    }
    let preparing = store.background.jobs.begin_preparing();
    // Any later taker of held space waits for this job.
    if store.nearly_full.is_on() {
        return Ok(None);
    }
    let prepared = prepare_job(store, underway, tree, job);
    drop(preparing);
    give_back_what_failed_beside(store, prepared).map(Some)
}

/// The job with most debt among the first [`CHOICES`] found.
fn choose_job(store: &Store, is_idle: impl Fn(&KeyspaceCore) -> bool) -> Option<Chosen> {
    let (mut best, mut found): (Option<Chosen>, usize) = (None, 0);
    for keyspace in store.keyspaces() {
        let is_idle = is_idle(&keyspace);
        let has_new_reasons = keyspace.view.load().tree.has_new_reasons();
        if !keyspace.take_expected_jobs(is_idle) && !has_new_reasons {
            continue;
        }
        let Some(underway) = store.background.jobs.begin(&keyspace) else {
            keyspace.expect_jobs();
            continue;
        };
        let tree = Arc::clone(&keyspace.view.load().tree);
        let Some(job) = tree.pick_job(&JobRequest::only(is_idle)) else { continue };
        keyspace.expect_jobs();
        found += 1;
        debug_assert!(found <= CHOICES, "a few jobs are compared");
        if best.as_ref().is_none_or(|best| job.debt_bytes > best.job.debt_bytes) {
            best = Some(Chosen { underway, tree, job, is_idle });
        }
        if found == CHOICES {
            break;
        }
    }
    best
}

/// Runs the first half of a job.
fn prepare_job(
    store: &Store,
    Underway { keyspace, progress, .. }: &Underway,
    tree: &dyn Tree,
    job: &Job,
) -> Result<Prepared> {
    store.beginning.begin().inspect_err(|error| store.poison(error))?;
    let prepared = tree.prepare(&store.job_work(keyspace, progress), job);
    let prepared = prepared.map_err(|error| error.in_keyspace(&keyspace.name));
    let prepared = prepared.inspect_err(|error| poison_unless_full(store, error))?;
    store.data.sync().inspect_err(|error| store.poison(error))?;
    Ok(prepared)
}

/// Runs the second half of a job that was prepared concurrently with flushes; `false` if it was overtaken.
fn install_job(store: &Store, job: PreparedJob) -> Result<bool> {
    let PreparedJob { prepared, underway } = job;
    let _flush = store.flush_lock.lock();
    store.check_writable()?;
    let is_installed = install(store, &underway, prepared)?;
    hold_space_after_job(store)?;
    Ok(is_installed)
}

/// Runs both halves of the job that `pick` chooses, with flushes excluded; `false` if there was none.
fn do_alone(
    store: &Store,
    underway: &Underway,
    pick: impl FnOnce(&dyn Tree) -> Result<Option<Job>>,
) -> Result<bool> {
    let keyspace = &underway.keyspace;
    let _flush = store.flush_lock.lock();
    store.check_writable()?;
    let both = || {
        // Tree and job hold the extents that are replaced: drop both before the space check.
        let tree = Arc::clone(&keyspace.view.load().tree);
        let Some(job) = pick(&*tree)?.filter(|_| !keyspace.is_dropped()) else { return Ok(false) };
        let prepared = prepare_job(store, underway, &*tree, &job)?;
        drop((tree, job));
        install(store, underway, prepared)
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

fn hold_space_after_job(store: &Store) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "space is held under the flush lock");
    if store.nearly_full.is_on() && !store.has_failed() { hold_space(store) } else { Ok(()) }
}

/// Installs a prepared job; `false` if it was overtaken. REQUIRES: `flush_lock` is held.
fn install(
    store: &Store,
    Underway { keyspace, progress, .. }: &Underway,
    prepared: Prepared,
) -> Result<bool> {
    debug_assert!(store.is_flush_locked(), "one round or job at a time");
    if keyspace.is_dropped() {
        return Ok(false);
    }
    let tree = Arc::clone(&keyspace.view.load().tree);
    let edit = tree.install(&store.job_work(keyspace, progress), prepared);
    let edit = edit.map_err(|error| error.in_keyspace(&keyspace.name));
    let edit = edit.inspect_err(|error| store.poison(error))?;
    keyspace.note_installed(edit.is_some());
    match edit {
        Some(edit) => {
            let drops = progress.take_drops();
            commit_job(store, keyspace, edit, drops).inspect_err(|error| store.poison(error))?;
            Ok(true)
        }
        None => {
            store.counters.jobs_overtaken.fetch_add(1, Relaxed);
            Ok(false)
        }
    }
}

/// Runs jobs of trees that are due for a flush and behind on compaction, until they have caught up; writers
/// are throttled in proportion. A job that fails for lack of space is left to the flush.
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
fn behind_bytes(store: &Store, keyspace: &KeyspaceCore) -> u64 {
    let may_wait = !store.health.is_closing() && !store.has_failed() && !keyspace.is_dropped();
    let view = keyspace.view.load();
    let has_space = !store.nearly_full.is_short() && !store.nearly_full.is_on();
    if may_wait && has_space && !view.sealed.is_empty() { view.tree.behind_bytes() } else { 0 }
}

/// Runs one job of a keyspace, or waits for the one in flight; `false` if there is none.
fn catch_up_some(store: &Store, keyspace: &Arc<KeyspaceCore>, behind_bytes: u64) -> Result<bool> {
    if let Some(job) = store.background.take_kept() {
        return install_job(store, job).map(|_| true);
    }
    let begun = store.background.jobs.begin(keyspace);
    let Some(progress) = store.background.jobs.of(keyspace.id) else { return Ok(true) };
    // A round already in flight on another thread is the better predictor of writers' delays.
    let is_first = !store.backpressure.is_flushing();
    debug_assert!(behind_bytes > 0, "a flush waits only for jobs with work");
    if is_first {
        let flush_bytes = keyspace.view.load().sealed.last().map_or(0, |last| last.table.memory_bytes());
        store.backpressure.catch_up_started(&*store.env, progress, behind_bytes + flush_bytes);
    }
    let outcome = match begun {
        Some(underway) => do_due_job(store, underway),
        None => {
            store.background.jobs.wait_for_one();
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

/// Runs a job of this keyspace; `false` if it has none, or one is in flight.
pub fn run_job_of(store: &Store, keyspace: &Arc<KeyspaceCore>) -> Result<bool> {
    if let Some(job) = store.background.take_kept() {
        return install_job(store, job).map(|_| true);
    }
    let underway = store.background.jobs.begin(keyspace);
    underway.map_or(Ok(false), |underway| do_due_job(store, underway))
}

/// Runs one job that a keyspace owes, or waits for the one in flight; returns the approximate number of bytes
/// merged. `None` if it owes nothing.
pub fn run_owed_job(store: &Store, keyspace: &Arc<KeyspaceCore>) -> Result<Option<u64>> {
    if let Some(job) = store.background.take_kept() {
        let progress = Arc::clone(&job.underway.progress);
        return install_job(store, job).map(|_| Some(progress.state().1));
    }
    let Some(underway) = store.background.jobs.begin(keyspace) else {
        let progress = store.background.jobs.of(keyspace.id);
        store.background.jobs.wait_for_one();
        return Ok(Some(progress.map_or(0, |progress| progress.state().1)));
    };
    let progress = Arc::clone(&underway.progress);
    let tree = Arc::clone(&keyspace.view.load().tree);
    let Some(job) = tree.pick_job(&JobRequest::only(true)) else { return Ok(None) };
    keyspace.expect_jobs();
    if let Begun::Prepared(job) = begin_chosen(store, Chosen { underway, tree, job, is_idle: true })? {
        install_job(store, job)?;
    }
    Ok(Some(progress.state().1))
}

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
    if let Some(job) = store.background.take_kept() {
        return install_job(store, job).map(|_| RangeProgress::Unknown);
    }
    let Some(underway) = store.background.jobs.begin(keyspace) else {
        store.background.jobs.wait_for_one();
        return Ok(RangeProgress::Unknown);
    };
    let tree = Arc::clone(&keyspace.view.load().tree);
    let Some(RangeJob { job, mut done_below }) = pick_range(store, keyspace, &*tree, range)? else {
        return Ok(RangeProgress::Done);
    };
    keyspace.expect_jobs();
    let is_installed = match prepare_beside_flushes(store, &underway, &*tree, &job)? {
        Some(prepared) => {
            drop((tree, job));
            install_job(store, PreparedJob { prepared, underway })?
        }
        None => {
            drop((tree, job));
            do_alone(store, &underway, |tree| {
                let picked = pick_range(store, keyspace, tree, range)?;
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
) -> Result<Option<RangeJob>> {
    let picked = tree.pick_range(range);
    picked.map_err(|error| store.health.closed_or(error.in_keyspace(&keyspace.name)))
}

/// Runs a job that is due even though its keyspace is not idle; `false` if there is none.
fn do_due_job(store: &Store, underway: Underway) -> Result<bool> {
    let tree = Arc::clone(&underway.keyspace.view.load().tree);
    let Some(job) = tree.pick_job(&JobRequest::only(false)) else { return Ok(false) };
    underway.keyspace.expect_jobs();
    match begin_chosen(store, Chosen { underway, tree, job, is_idle: false })? {
        Begun::Prepared(job) => install_job(store, job).map(|_| true),
        Begun::Nothing | Begun::Ended => Ok(true),
    }
}

/// Makes the outcome of a job or a reclaim step durable and publishes it. REQUIRES: `flush_lock` is held, and
/// the data file was synced after its last page was written.
pub fn commit_job(
    store: &Store,
    keyspace: &Arc<KeyspaceCore>,
    edit: TreeEdit,
    drops: DropCounts,
) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "one round or job at a time");
    debug_assert!(!keyspace.is_dropped(), "a catalogue change waits for the flush lock");
    let mut changes = edit.changes;
    changes.push(Change::NextRun(store.run_ids.next()));
    let arrived = options_on_arrival(&keyspace.view.load().options, &*edit.tree);
    changes.extend(arrived.map(|options| Change::SetOptions(keyspace.id, options.encode())));
    commit_edit(store, &changes)?;
    let costs = arrived.and_then(|_| edit.tree.value_costs().cloned());
    note_tree(store, &*edit.tree);
    let commit = store.commits.lock();
    match arrived {
        Some(options) => keyspace.publish_options(edit.tree, options),
        None => keyspace.publish(edit.tree, None, None),
    }
    drop(commit);
    // The cost of moving must not trigger another move.
    costs.iter().for_each(|costs| costs.forget());
    count_dropped(store, keyspace, Dropped { in_merges: drops, ..Dropped::default() });
    store.counters.jobs.fetch_add(1, Relaxed);
    fit_caches(store);
    Ok(())
}

/// Returns the space of a failed attempt on a full device to the file system at once.
fn give_back_what_failed_beside<T>(store: &Store, outcome: Result<T>) -> Result<T> {
    if outcome.as_ref().is_err_and(Error::is_shortage) {
        give_back_all_space(store)?;
    }
    outcome
}
