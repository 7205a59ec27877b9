//! Assigns value logs to write buffers, and releases them from the durable state (decision 0052).
//!
//! A flush begins the next value log with its own edit; sealing a buffer begins only the first one.
//!
//! **Invariants**
//! - Nothing is appended to a value log before a durable edit allocates its space.
//! - A value log leaves the durable state with the edit that puts the entries that refer to it into a tree.

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

/// A buffer gets a value log if the one before received large values of this fraction of the write memory,
/// within bounds …
const PART_OF_MEMORY: u64 = 64;
const LOGGABLE_BYTES_MIN: u64 = 4 << 10;
const LOGGABLE_BYTES_MAX: u64 = 1 << 20;
/// … if these were at least one in this many of its bytes …
const LOGGABLE_PART: u64 = 4;
/// … and at most three halves of its live bytes: if more are overwritten, the flush has less to write.
const WRITTEN_PARTS: u64 = 3;
const LIVING_PARTS: u64 = 2;
/// Its maximum capacity is this fraction of the keyspace's separated values, but at least this many bytes: a
/// buffer is sealed when its value log is full. Three logs are allocated at a time, and larger buffers save
/// nothing if values are written once …
const PART_OF_VALUES: u64 = 128;
const CAPACITY_SMALL: u64 = 16 << 20;
/// … and at least the values that arrive during this many flushes: the previous buffer should be flushed by
/// then.
const FLUSHES: u64 = 3;
/// Capacity beyond the values of the buffer before: one part in this many, since arrival rates vary.
const MARGIN_PARTS: u64 = 8;
/// Maximum capacity, the same as for a run.
const CAPACITY_MAX: u64 = 900 << 20;
/// Maximum number of keyspaces with value logs at a time.
const VALUE_LOGS_MAX: usize = 8;
/// No value log is begun unless the device has this many times its capacity free.
const FREE_TIMES: u64 = 8;

const _: () = assert!(LOGGABLE_BYTES_MIN < LOGGABLE_BYTES_MAX && CAPACITY_SMALL < CAPACITY_MAX);

/// The changes that remove all value logs of a keyspace from the durable state. REQUIRES: `flush_lock` is
/// held.
pub fn without_value_logs(store: &Store, keyspace: &KeyspaceCore) -> Vec<Change> {
    debug_assert!(store.is_flush_locked(), "no value log begins or ends meanwhile");
    let _commit = store.commits.lock();
    keyspace.value_logs().iter().flat_map(release_value_log).collect()
}

/// Prepares a spare value log for each keyspace that should have one.
pub fn prepare_value_logs(store: &Store) -> Result<()> {
    store.keyspaces().iter().try_for_each(|keyspace| prepare_value_log(store, keyspace).map(|_| ()))
}

/// Prepares a spare value log if the active buffer has received enough large values for the next one to need
/// it. Waits for the device; under continuous flushing, each flush begins the next value log with its own
/// edit ([`begin_value_logs`]). Returns whether it has prepared one.
///
/// Errors: those of files; they also poison the store.
pub fn prepare_value_log(store: &Store, keyspace: &KeyspaceCore) -> Result<bool> {
    if keyspace.spare_value_log.lock().is_some() {
        return Ok(false);
    }
    let view = keyspace.view.load();
    let buffer = &view.active;
    // The arrival rate of values is unknown for the first log. Later flushes begin none only if nothing
    // arrived meanwhile.
    let came_bytes = buffer.loggable_bytes();
    let is_first = came_bytes > 0 && view.tree.stats().value_segments == 0;
    let came_bytes = if is_first { came_bytes } else { 0 };
    let wanted = value_log_capacity(store, buffer, came_bytes, &view.tree, &view.options);
    let Some(capacity) = wanted else {
        return Ok(false);
    };
    let _flush = store.flush_lock.lock();
    store.beginning.begin().inspect_err(|error| store.poison(error))?;
    let begun = begin_value_log(store, keyspace, capacity, 0).inspect_err(|error| store.poison(error))?;
    let Some(log) = begun else { return Ok(false) };
    if !planted!("value-log-not-in-edit") {
        // The file is as long as the edit says.
        store.data.sync().inspect_err(|error| store.poison(error))?;
        let mut edit = put_value_log(log.record());
        edit.push(Change::NextRun(store.run_ids.next()));
        commit_edit(store, &edit).inspect_err(|error| store.poison(error))?;
    }
    keep_value_log(store, keyspace, log);
    Ok(true)
}

/// Begins a spare value log for each keyspace of a round that is still being written and whose flushed buffer
/// had enough large values. Adds the changes to the edit of the round, and returns the logs in the order of
/// `flushed`. REQUIRES: `flush_lock` is held; [`keep_value_log`] follows that edit.
///
/// Errors: those of files.
pub fn begin_value_logs(
    store: &Store,
    flushed: &[Flushed],
    edit: &mut Vec<Change>,
) -> Result<Vec<Option<Arc<ValueLog>>>> {
    debug_assert!(store.is_flush_locked(), "one round at a time");
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

/// Makes this value log the spare for the keyspace's next buffer. REQUIRES: the durable state has it.
pub fn keep_value_log(store: &Store, keyspace: &KeyspaceCore, log: Arc<ValueLog>) {
    debug_assert!(store.is_flush_locked(), "one value log is begun at a time");
    store.value_logs.add(&log);
    let before = keyspace.spare_value_log.lock().replace(log);
    debug_assert!(before.is_none(), "a keyspace has one spare value log");
}

/// Capacity of the value log for a buffer that receives as much as `buffer` did; `None` if it does not need
/// one. `came_bytes`: large values that arrived while `buffer` was flushed.
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
    // A tree that stays small accepts no separated values.
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
        // Their values are merged eventually: a larger log makes for a larger flush.
        true => CAPACITY_MAX,
        false => (stored_bytes / PART_OF_VALUES).max(CAPACITY_SMALL).max(came_bytes * FLUSHES),
    };
    let most = most.min(CAPACITY_MAX);
    let capacity = (loggable_bytes + loggable_bytes / MARGIN_PARTS).min(most);
    debug_assert!(capacity <= CAPACITY_MAX, "a value log is no larger than a run");
    let has_space = store.env.free_bytes(&store.directory).is_ok_and(|free| free / FREE_TIMES >= capacity);
    has_space.then_some(capacity)
}

/// Begins a value log that is not in the durable state yet, in addition to `begun_before` others of this
/// round. `None` if the keyspace has a spare one, there are too many, or space is short. REQUIRES:
/// `flush_lock` is held.
fn begin_value_log(
    store: &Store,
    keyspace: &KeyspaceCore,
    capacity: u64,
    begun_before: usize,
) -> Result<Option<Arc<ValueLog>>> {
    debug_assert!(store.is_flush_locked(), "one is begun at a time");
    let has_one = keyspace.spare_value_log.lock().is_some();
    let are_many = store.value_logs.count() + begun_before >= VALUE_LOGS_MAX;
    if keyspace.is_dropped() || has_one || are_many || store.has_failed() {
        return Ok(None);
    }
    debug_assert!(capacity > 0, "a value log has room for a value");
    let origin = RunOrigin {
        id: store.run_ids.take(),
        keyspace: keyspace.id,
        keyspace_name: Arc::clone(&keyspace.name),
        newest_seqno: Seqno(0),
    };
    match ValueLog::begin(&store.data, origin, capacity) {
        // Then the values go into the WAL.
        Err(error) if error.is_shortage() => Ok(None),
        outcome => outcome.map(|log| Some(Arc::new(log))),
    }
}

/// Keyspaces whose unused value logs are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusedIn {
    IdleKeyspaces,
    AllKeyspaces,
}

/// Releases unused value logs, and those found on open that are no longer needed.
pub fn give_up_unused_value_logs(store: &Store, unused_in: UnusedIn) -> Result<()> {
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
        if unused_in == UnusedIn::AllKeyspaces || keyspace.idle.lock().is_idle(now) {
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

/// The changes that remove value logs from the durable state: that of the `flushed` buffer, and those found
/// on open once all writes recovered from them are flushed.
pub fn released_value_logs(store: &Store, keyspace: &KeyspaceCore, flushed: &WriteBuffer) -> Vec<Change> {
    debug_assert!(flushed.sealed_at() > Seqno(0), "nothing is appended to the log any more");
    let log = flushed.value_log().map(|log| log.record().clone());
    let mut released: Vec<ValueLogRecord> = log.into_iter().collect();
    if is_recovered_in(store, keyspace, Some(flushed)) {
        released.extend(keyspace.found_value_logs.lock().iter().cloned());
    }
    released.iter().flat_map(release_value_log).collect()
}

/// Forgets released value logs. REQUIRES: the edit of [`released_value_logs`] is durable.
pub fn forget_released_value_logs(store: &Store, keyspace: &KeyspaceCore, flushed: &WriteBuffer) {
    debug_assert!(store.is_flush_locked(), "the edit was committed under the same lock");
    flushed.value_log().into_iter().for_each(|log| log.give_up());
    if is_recovered_in(store, keyspace, Some(flushed)) {
        keyspace.found_value_logs.lock().clear();
    }
}

/// Whether the tree, with `flushed`, contains everything that recovery read from the log.
fn is_recovered_in(store: &Store, keyspace: &KeyspaceCore, flushed: Option<&WriteBuffer>) -> bool {
    let Some(recovered) = store.log.recovered_until() else { return false };
    let view = keyspace.view.load();
    let is_flushed =
        |buffer: &Arc<WriteBuffer>| flushed.is_some_and(|flushed| std::ptr::eq(Arc::as_ptr(buffer), flushed));
    let mut waiting = view.buffers().filter(|buffer| !is_flushed(buffer));
    waiting.all(|buffer| buffer.first_commit().is_none_or(|first| first > recovered))
}

/// Whether any value log found on open is left.
pub fn has_found_value_logs(store: &Store) -> bool {
    store.keyspaces().iter().any(|keyspace| !keyspace.found_value_logs.lock().is_empty())
}
