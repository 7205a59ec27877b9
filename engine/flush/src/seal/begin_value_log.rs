//! When write buffers get value logs, and when the durable state lets go of them (decision 0052).
//!
//! A flush begins the next one by its own edit; only the first is begun where a buffer is sealed.
//!
//! **Invariants**
//! - Nothing is appended to a value log before an edit has taken its space into the durable state.
//! - A value log leaves the durable state with the edit that has in a tree what refers to it.

use testudo_base::{Result, Seqno, planted, sync::Arc};
use testudo_contract::Tree;
use testudo_options::{StoredOptions, stored_tree::with_placement};
use testudo_run::RunOrigin;
use testudo_separated::{put_value_log, release_value_log};
use testudo_storage::Change;
use testudo_store::{
    Store,
    keyspace::{KeyspaceCore, WriteBuffer},
};
use testudo_values::{ValueLog, ValueLogRecord};

use crate::{manifest_edit::commit_edit, round::flushed::Flushed};

/// A buffer gets a value log if the one before got this part of all write memory in values for it, within
/// bounds …
const PART_OF_MEMORY: u64 = 64;
const LOGGABLE_BYTES_MIN: u64 = 4 << 10;
const LOGGABLE_BYTES_MAX: u64 = 1 << 20;
/// … one in so many of its bytes was of these …
const LOGGABLE_PART: u64 = 4;
/// … and they are at most three halves of the bytes that live in it: where more are overwritten there
/// is less to write at the flush.
const WRITTEN_PARTS: u64 = 3;
const LIVING_PARTS: u64 = 2;
/// It has space for this part of what its keyspace has outside, or for this much: a buffer is sealed when its
/// value log is full. Three of them have space at the same time, and larger buffers spare nothing where
/// values are written once …
const PART_OF_VALUES: u64 = 128;
const CAPACITY_SMALL: u64 = 16 << 20;
/// … but no less than for what comes in during so many flushes: the buffer before is to be flushed by then.
const FLUSHES: u64 = 3;
/// None has more space: no run does.
const CAPACITY_MAX: u64 = 900 << 20;
/// More keyspaces do not have value logs at the same time.
const VALUE_LOGS_MAX: usize = 8;
/// None is begun on a device that has not so many times its space.
const FREE_TIMES: u64 = 8;

/// The changes with which the durable state has no value log of a keyspace. REQUIRES: `flush_lock`
/// is held.
pub fn without_value_logs(store: &Store, keyspace: &KeyspaceCore) -> Vec<Change> {
    let _commit = store.commits.lock();
    keyspace.value_logs().iter().flat_map(release_value_log).collect()
}

/// Gives every keyspace a spare value log that should have one.
pub fn prepare_value_logs(store: &Store) -> Result<()> {
    store.keyspaces().iter().try_for_each(|keyspace| prepare_value_log(store, keyspace))
}

/// Gives a keyspace a spare value log, if its active buffer has got so many values for one that the next
/// one should have one. Waits for the device: where one flush follows another, each begins the next value
/// log by its own edit ([`begin_value_logs`]).
///
/// Errors: those of files; they also poison the store.
pub fn prepare_value_log(store: &Store, keyspace: &KeyspaceCore) -> Result<()> {
    if keyspace.spare_value_log.lock().is_some() {
        return Ok(());
    }
    let view = keyspace.view.load();
    let buffer = &view.active;
    // How fast values come is not known of the first one. Later flushes begin none only where nothing
    // has come in meanwhile.
    let is_first = view.tree.stats().value_segments == 0;
    let came_bytes = if is_first { buffer.loggable_bytes() } else { 0 };
    let wanted = value_log_capacity(store, buffer, came_bytes, &view.tree, &view.options);
    let Some(capacity) = wanted else {
        return Ok(());
    };
    let _flush = store.flush_lock.lock();
    store.beginning.begin().inspect_err(|error| store.poison(error))?;
    let begun = begin_value_log(store, keyspace, capacity, 0).inspect_err(|error| store.poison(error))?;
    let Some(log) = begun else { return Ok(()) };
    if !planted!("value-log-not-in-edit") {
        // The file is as long as the edit says.
        store.data.sync().inspect_err(|error| store.poison(error))?;
        let mut edit = put_value_log(log.record());
        edit.push(Change::NextRun(store.run_ids.next()));
        commit_edit(store, &edit).inspect_err(|error| store.poison(error))?;
    }
    keep_value_log(store, keyspace, log);
    Ok(())
}

/// Begins a spare value log for each of the keyspaces of a round that is written on and of which what is
/// flushed had so many values for one; with the changes by which the edit of the round has them, each
/// where its keyspace is in `flushed`. REQUIRES: `flush_lock` is held; they are kept after that edit
/// ([`keep_value_log`]).
///
/// Errors: those of files.
pub fn begin_value_logs(
    store: &Store,
    flushed: &[Flushed],
    edit: &mut Vec<Change>,
) -> Result<Vec<Option<Arc<ValueLog>>>> {
    let mut begun = Vec::with_capacity(flushed.len());
    for Flushed { keyspace, buffer, edit: tree_edit, .. } in flushed {
        let view = keyspace.view.load();
        let tree = tree_edit.as_ref().map_or(&view.tree, |edit| &edit.tree);
        let is_written = view.active.first_commit().is_some();
        let came_bytes = view.active.loggable_bytes();
        let capacity = || value_log_capacity(store, buffer, came_bytes, tree, &view.options);
        let log = match is_written.then(capacity).flatten() {
            Some(capacity) => {
                let begun_before = begun.iter().flatten().count();
                begin_value_log(store, keyspace, capacity, begun_before)?
            }
            None => None,
        };
        if !planted!("value-log-not-in-edit") {
            edit.extend(log.iter().flat_map(|log| put_value_log(log.record())));
        }
        begun.push(log);
    }
    Ok(begun)
}

/// The next buffer of the keyspace gets this value log. REQUIRES: the durable state has it.
pub fn keep_value_log(store: &Store, keyspace: &KeyspaceCore, log: Arc<ValueLog>) {
    store.value_logs.add(&log);
    *keyspace.spare_value_log.lock() = Some(log);
}

/// How much space a value log is worth to a buffer that is to get as much as `buffer` did, if any.
/// `came_bytes`: large values that have come in while that was flushed.
fn value_log_capacity(
    store: &Store,
    buffer: &WriteBuffer,
    came_bytes: u64,
    tree: &Arc<dyn Tree>,
    options: &StoredOptions,
) -> Option<u64> {
    let loggable_bytes = buffer.loggable_bytes();
    let part = store.backpressure.write_buffers() / PART_OF_MEMORY;
    let table_bytes = buffer.table.user_bytes();
    let is_worth_it = loggable_bytes >= part.clamp(LOGGABLE_BYTES_MIN, LOGGABLE_BYTES_MAX)
        && loggable_bytes * LOGGABLE_PART >= table_bytes
        && loggable_bytes * LIVING_PARTS <= table_bytes * WRITTEN_PARTS;
    // A tree that stays small takes no values that lie outside.
    let takes_values = || with_placement(Arc::clone(tree), options, table_bytes).value_segments().is_some();
    if !is_worth_it
        || !takes_values()
        || store.log.wal.is_none()
        || store.nearly_full.is_on()
        || store.space.is_short()
    {
        return None;
    }
    let stored_bytes = tree.stats().value_bytes;
    let most = match options.placement_in_force().logs_medium() {
        // They are merged in the end: the more, the larger a flush is.
        true => CAPACITY_MAX,
        false => (stored_bytes / PART_OF_VALUES).max(CAPACITY_SMALL).max(came_bytes * FLUSHES),
    };
    let most = most.min(CAPACITY_MAX);
    let capacity = (loggable_bytes + loggable_bytes / 8).min(most);
    let has_space = store.env.free_bytes(&store.directory).is_ok_and(|free| free / FREE_TIMES >= capacity);
    has_space.then_some(capacity)
}

/// A value log that the durable state does not have yet, beside `begun_before` others like that; `None`
/// if the keyspace has a spare one, there are many, or there is no space. REQUIRES: `flush_lock` is held.
fn begin_value_log(
    store: &Store,
    keyspace: &KeyspaceCore,
    capacity: u64,
    begun_before: usize,
) -> Result<Option<Arc<ValueLog>>> {
    debug_assert!(store.flush_lock.is_locked(), "one is begun at a time");
    let has_one = keyspace.spare_value_log.lock().is_some();
    let are_many = store.value_logs.count() + begun_before >= VALUE_LOGS_MAX;
    if keyspace.is_dropped() || has_one || are_many || store.has_failed() {
        return Ok(None);
    }
    let origin = RunOrigin {
        id: store.run_ids.take(),
        keyspace: keyspace.id,
        keyspace_name: Arc::clone(&keyspace.name),
        newest_seqno: Seqno(0),
    };
    match ValueLog::begin(&store.data, origin, capacity) {
        // The values go into the log.
        Err(error) if error.is_shortage() => Ok(None),
        outcome => outcome.map(|log| Some(Arc::new(log))),
    }
}

/// Gives up value logs that nothing was appended to, of keyspaces that are idle or of all, and those that
/// the opening found and nothing needs.
pub fn give_up_unused_value_logs(store: &Store, of_all: bool) -> Result<()> {
    if store.log.wal.is_none() || (store.value_logs.count() == 0 && !has_found_value_logs(store)) {
        return Ok(());
    }
    let _flush = store.flush_lock.lock();
    if store.has_failed() {
        return Ok(());
    }
    let mut recovered = Vec::new();
    let now = store.background_time();
    let mut unused: Vec<Arc<ValueLog>> = Vec::new();
    for keyspace in store.keyspaces() {
        if of_all || keyspace.idle.lock().is_idle(now) {
            unused.extend(keyspace.spare_value_log.lock().take());
            let _commit = store.commits.lock();
            unused.extend(keyspace.view.load().active.give_up_unused_log());
        }
        if is_recovered_in(store, &keyspace, None) {
            recovered.append(&mut keyspace.found_value_logs.lock());
        }
    }
    let of_unused = unused.iter().map(|log| log.record());
    let records = of_unused.chain(&recovered);
    let edit: Vec<_> = records.flat_map(release_value_log).collect();
    if !edit.is_empty() {
        commit_edit(store, &edit).inspect_err(|error| store.poison(error))?;
        unused.iter().for_each(|log| log.give_up());
    }
    Ok(())
}

/// The changes with which value logs leave the durable state: those of buffers that are `flushed`, and
/// those that the opening found, once nothing that recovery took from them waits to be flushed.
pub fn released_value_logs(store: &Store, keyspace: &KeyspaceCore, flushed: &WriteBuffer) -> Vec<Change> {
    let log = flushed.value_log().map(|log| log.record().clone());
    let mut released: Vec<ValueLogRecord> = log.into_iter().collect();
    if is_recovered_in(store, keyspace, Some(flushed)) {
        released.extend(keyspace.found_value_logs.lock().iter().cloned());
    }
    released.iter().flat_map(release_value_log).collect()
}

/// The edit before was that of [`released_value_logs`].
pub fn forget_released_value_logs(store: &Store, keyspace: &KeyspaceCore, flushed: &WriteBuffer) {
    flushed.value_log().into_iter().for_each(|log| log.give_up());
    if is_recovered_in(store, keyspace, Some(flushed)) {
        keyspace.found_value_logs.lock().clear();
    }
}

/// Whether the tree has, with `flushed`, everything that recovery took from the log.
fn is_recovered_in(store: &Store, keyspace: &KeyspaceCore, flushed: Option<&WriteBuffer>) -> bool {
    let Some(recovered) = store.log.recovered_until() else { return false };
    let view = keyspace.view.load();
    let is_flushed =
        |buffer: &Arc<WriteBuffer>| flushed.is_some_and(|flushed| std::ptr::eq(Arc::as_ptr(buffer), flushed));
    let mut waiting = view.buffers().filter(|buffer| !is_flushed(buffer));
    waiting.all(|buffer| buffer.first_commit().is_none_or(|first| first > recovered))
}

/// Whether there is a value log that the opening found.
pub fn has_found_value_logs(store: &Store) -> bool {
    store.keyspaces().iter().any(|keyspace| !keyspace.found_value_logs.lock().is_empty())
}
