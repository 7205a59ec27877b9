//! The last steps of a flush: sync the data, commit the edit, publish the trees, release the log.
//!
//! **Invariants**
//! - The data file is synced before an edit that refers to it.
//! - Reference counts change only after their edit is durable.
//! - Log segments are released only after the edit that states the new start of the log is durable.
//! - Readers switch from a buffer to the tree that contains it atomically, under the commit lock.

use testudo_base::{
    Result, Seqno, planted,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_records::KeyspaceRecords;
use testudo_storage::Change;
use testudo_store::{
    Store,
    background::stages::{Stage, StageClock},
    memory::metadata::{fit_caches, note_tree},
};

use crate::{
    log_release::{LogStart, leave_released, log_start_without, release_segments},
    manifest_edit::{commit_edit, count_dropped},
    round::flushed::Flushed,
    seal::{
        begin_value_log::{
            begin_value_logs, forget_released_value_logs, keep_value_log, released_value_logs,
        },
        seal_buffers::recount_sealed,
    },
};

/// Flushed records are admitted to the record cache if there was one read for this many writes: recently
/// written records are likely to be read soon if the workload reads at all.
const WRITES_OF_READ: u64 = 2;

/// Makes a round of flushed buffers durable, shows it to readers, and releases the log segments that it held.
/// A job thread removes their files.
pub fn commit_flushed(store: &Store, mut flushed: Vec<Flushed>, clock: &mut StageClock<'_>) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "one round or job at a time");
    debug_assert!(!flushed.is_empty(), "a round has buffers");
    let mut edit = edit_of(store, &mut flushed);
    debug_assert!(!edit.is_empty(), "the edit states what was flushed");
    let begun = begin_value_logs(store, &flushed, &mut edit)?;
    edit.push(Change::NextRun(store.run_ids.next()));
    let log_start = log_start_without(store, &flushed);
    edit.extend(log_start.map(LogStart::change));
    if !planted!("data-unsynced-at-edit") {
        store.data.sync()?;
    }
    clock.end(Stage::Data);
    if planted!("extent-freed-before-edit") {
        store.manifest.commit(&edit)?;
    } else {
        commit_edit(store, &edit)?;
    }
    clock.end(Stage::Edit);
    debug_assert_eq!(begun.len(), flushed.len(), "a value log or none for each buffer");
    flushed.iter().for_each(|flushed| forget_released_value_logs(store, &flushed.keyspace, &flushed.buffer));
    for (flushed, log) in flushed.iter().zip(begun) {
        log.into_iter().for_each(|log| keep_value_log(store, &flushed.keyspace, log));
    }
    let records = advance_records(store, &flushed)?;
    publish_flushed(store, flushed, records);
    let released = log_start.map_or(Ok(()), |start| release_segments(store, start));
    store.long_values.expect_sweep();
    store.background.job_wakeup.wake();
    store.counters.flushes.fetch_add(1, Relaxed);
    fit_caches(store);
    let left = leave_released(store);
    clock.end(Stage::Publish);
    released.and(left)
}

/// Builds the manifest edit of a round; moves the changes out of the tree edits.
fn edit_of(store: &Store, flushed: &mut [Flushed]) -> Vec<Change> {
    let mut edit = Vec::new();
    for Flushed { keyspace, buffer, edit: tree_edit, .. } in flushed {
        edit.extend(released_value_logs(store, keyspace, buffer));
        if let Some(tree_edit) = tree_edit {
            edit.append(&mut tree_edit.changes);
        }
        let is_too_high = planted!("flushed-seqno-too-high");
        let flushed = if is_too_high { store.last_seqno() } else { buffer.sealed_at() };
        debug_assert!(flushed <= store.last_seqno(), "only assigned seqnos are flushed");
        debug_assert!(
            store.manifest.with_state(|state| {
                state.keyspaces.get(&keyspace.id).is_some_and(|record| record.flushed <= flushed)
            }),
            "the flushed seqno of a live keyspace never goes back"
        );
        edit.push(Change::Flushed(keyspace.id, flushed));
    }
    edit
}

/// The cached records advanced to the flushed trees; `None` where nothing was flushed.
fn advance_records(store: &Store, flushed: &[Flushed]) -> Result<Vec<Option<KeyspaceRecords>>> {
    let since = |now: u64, before: &AtomicU64| now.saturating_sub(before.swap(now, Relaxed));
    let counters = &store.counters;
    let reads = since(store.records.reads(), &counters.reads_flushed);
    let writes = since(counters.user_writes.sum(), &counters.writes_flushed);
    let admits = reads >= writes / WRITES_OF_READ;
    let advance = |flushed: &Flushed| {
        flushed.edit.as_ref()?;
        let records = flushed.keyspace.view.load().records.clone();
        let mut updates = flushed.buffer.table.cursor_to_end(Seqno(u64::MAX));
        Some(records.advance(&mut updates, admits && reads > 0))
    };
    flushed.iter().map(|flushed| advance(flushed).transpose()).collect()
}

/// Publishes the new trees. The caller still refers to the buffers, so they are freed later, without the
/// commit lock: that takes milliseconds.
fn publish_flushed(store: &Store, flushed: Vec<Flushed>, records: Vec<Option<KeyspaceRecords>>) {
    debug_assert_eq!(flushed.len(), records.len(), "records of every buffer");
    let mut retired = Vec::with_capacity(flushed.len());
    let now = store.background_time();
    let commit = store.commits.lock();
    for (Flushed { keyspace, buffer, edit, dropped }, records) in flushed.into_iter().zip(records) {
        let tree = edit.map_or_else(|| Arc::clone(&keyspace.view.load().tree), |edit| edit.tree);
        note_tree(store, &*tree);
        keyspace.publish(tree, Some(&buffer), records);
        store.buffered.note_flushed(&keyspace);
        count_dropped(store, &keyspace, dropped);
        keyspace.idle.lock().record_flush(now);
        retired.push(buffer);
        keyspace.expect_jobs();
    }
    store.snapshots.holdings.await_relief(&retired);
    recount_sealed(store);
    drop(commit);
    store.snapshots.holdings.record_flushed(retired.into_iter());
}
