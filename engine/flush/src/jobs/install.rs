//! Installing prepared jobs in the current trees.
//!
//! A prepared job waits in a queue (`BackgroundWork::hand_in`) for the next holder of `flush_lock`: a flush
//! installs the jobs that were prepared before it begins, and the thread that prepared a job does it if no
//! flush runs.
//!
//! **Invariants**
//! - `flush_lock` is held.
//! - A job whose keyspace was dropped, or whose inputs are gone, has no effect: its space is released.

use testudo_base::{
    DropCounts, Result, planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::{Prepared, TreeEdit};
use testudo_options::stored_tree::options_on_arrival;
use testudo_storage::Change;
use testudo_store::{
    Store,
    background::{
        drop_totals::Dropped,
        jobs_in_progress::{BegunJob, PreparedJob},
    },
    keyspace::KeyspaceCore,
    memory::metadata::{fit_caches, note_tree},
    poison_on_panic::PoisonOnPanic,
};

use crate::{
    manifest_edit::{commit_edit, count_dropped, references_of},
    space::hold_space::hold_space,
};

/// Installs a job that was prepared concurrently with flushes; `false` if it was overtaken.
pub(super) fn install_job(store: &Store, job: PreparedJob) -> Result<bool> {
    let _flush = store.flush_lock.lock();
    install_and_hold(store, job)
}

fn install_and_hold(store: &Store, job: PreparedJob) -> Result<bool> {
    let PreparedJob { prepared, begun } = job;
    store.check_writable()?;
    let is_installed = install(store, &begun, prepared)?;
    hold_space_after_job(store)?;
    Ok(is_installed)
}

/// Installs the jobs that wait for it. REQUIRES: `flush_lock` is held.
pub fn install_prepared(store: &Store) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "one round or job at a time");
    while let Some(job) = store.background.take_prepared(0) {
        install_and_hold(store, job)?;
    }
    Ok(())
}

/// As [`install_prepared`], but takes the lock itself; `false` if no job waited.
pub fn lock_and_install_prepared(store: &Store) -> Result<bool> {
    if store.background.prepared_jobs() == 0 {
        return Ok(false);
    }
    let _flush = store.flush_lock.lock();
    install_prepared(store).map(|()| true)
}

/// As [`lock_and_install_prepared`], unless the lock is held.
pub(super) fn install_prepared_unless_locked(store: &Store) -> Result<()> {
    match store.flush_lock.try_lock() {
        Some(_flush) => install_prepared(store),
        None => Ok(()),
    }
}

/// Looks at the device again if it is nearly full, or if the job may have been the first to find it full,
/// because the reserve was used.
pub(super) fn hold_space_after_job(store: &Store) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "space is held under the flush lock");
    let is_to_check = store.nearly_full.is_on() || store.space.is_short();
    if is_to_check && !store.has_failed() { hold_space(store) } else { Ok(()) }
}

/// Installs a prepared job; `false` if it was overtaken. REQUIRES: `flush_lock` is held.
pub(super) fn install(
    store: &Store,
    BegunJob { keyspace, progress, .. }: &BegunJob,
    prepared: Prepared,
) -> Result<bool> {
    debug_assert!(store.is_flush_locked(), "one round or job at a time");
    if keyspace.is_dropped() && !planted!("job-of-dropped-keyspace-installed") {
        if planted!("dropped-job-frees-runs") {
            let tree = Arc::clone(&keyspace.view.load().tree);
            let edit = tree.install(&store.job_work(keyspace, progress), prepared)?;
            edit.iter().for_each(|edit| store.data.extents().apply_durable(references_of(&edit.changes)));
        }
        return Ok(false);
    }
    let _guard = PoisonOnPanic::new(store);
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
            keyspace.expect_jobs();
            store.counters.jobs_overtaken.fetch_add(1, Relaxed);
            Ok(false)
        }
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
    debug_assert!(
        !keyspace.is_dropped() || planted!("job-of-dropped-keyspace-installed"),
        "a catalogue change waits for the flush lock"
    );
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
    if store.backpressure.behind.is_any() {
        store.background.wake();
    }
    fit_caches(store);
    Ok(())
}
