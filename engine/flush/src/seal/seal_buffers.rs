//! Sealing: an active write buffer stops taking commits, and a new one replaces it.
//!
//! Sizes decide which buffers are sealed, and when (`sealing.rs`); a full value log also seals its buffer.
//!
//! **Invariants**
//! - The largest buffers are sealed, and only one per keyspace at a time, except for flushes of the whole
//!   store.
//! - Buffers are sealed, then counted, under the commit lock.

use testudo_base::{Result, Seqno, planted, sync::Arc};
use testudo_store::{
    Store,
    keyspace::{KeyspaceCore, WriteBuffer},
};

use crate::seal::{
    begin_value_log::prepare_value_log,
    sealing::{self, Fill},
};

/// Maximum buffers of keyspaces at rest that are sealed together: bounds the delay of concurrent writes.
const AT_REST_TOGETHER: usize = 64;

/// Seals the largest active buffers if they are due.
pub fn seal_if_full(store: &Store) {
    // Must come first: a commit that finds sealing due from now on requests another check.
    store.backpressure.begin_seal_check();
    if !store.backpressure.may_be_full() {
        return;
    }
    let mut candidates = Vec::new();
    let mut fill = check_buffers(store, |bytes, keyspace| candidates.push((bytes, Arc::clone(keyspace))));
    let write_buffers = store.backpressure.write_buffers();
    if fill.is_time(write_buffers).is_ok() {
        let sizes: Vec<u64> = candidates.iter().map(|(bytes, _)| *bytes).collect();
        for buffer in sealing::choose(&sizes, write_buffers) {
            // A failure stops writes and is reported to the next writer.
            if prepare_value_log(store, &candidates[buffer].1).is_err() {
                return;
            }
        }
        // Preparing may have taken a while.
        candidates.clear();
        fill = check_buffers(store, |bytes, keyspace| candidates.push((bytes, Arc::clone(keyspace))));
    }
    let _commit = store.commits.lock();
    if fill.is_time(write_buffers).is_ok() {
        let sizes: Vec<u64> = candidates.iter().map(|(bytes, _)| *bytes).collect();
        for buffer in sealing::choose(&sizes, write_buffers) {
            seal(store, &candidates[buffer].1);
        }
    }
    recount_buffers(store);
}

/// Returns the fill of the write buffers. Calls `candidate` with each active buffer that can be sealed
/// (nothing of its keyspace is sealed already) and its size in bytes.
fn check_buffers(store: &Store, mut candidate: impl FnMut(u64, &Arc<KeyspaceCore>)) -> Fill {
    let mut fill = Fill::default();
    for keyspace in &store.buffered.all() {
        let view = keyspace.view.load();
        if view.active.first_commit().is_some() {
            let bytes = view.active.table.memory_bytes();
            fill.active += bytes;
            fill.largest = bytes.max(fill.largest);
            if view.sealed.is_empty() {
                candidate(bytes, keyspace);
            }
        }
        fill.sealed += view.sealed.iter().map(|buffer| buffer.table.memory_bytes()).sum::<u64>();
    }
    fill
}

/// Seals the active buffer of a keyspace that has outgrown its own share, unless one is sealed already.
pub fn seal_one(store: &Store, keyspace: &KeyspaceCore) {
    seal_one_if(store, keyspace, |_| true);
}

fn seal_one_if(store: &Store, keyspace: &KeyspaceCore, is_due: impl FnOnce(&Arc<WriteBuffer>) -> bool) {
    let _commit = store.commits.lock();
    let view = keyspace.view.load();
    if view.sealed.is_empty() && !keyspace.is_dropped() && is_due(&view.active) {
        seal(store, keyspace);
        recount_buffers(store);
        store.background.wake();
    }
}

/// Seals `buffer` if it is active and its value log is full. If no spare log is ready, the background
/// prepares one first, because that waits for the device. Does nothing if space is short: no buffer gets a
/// value log then.
pub fn seal_with_full_log(store: &Store, keyspace: &KeyspaceCore, buffer: &WriteBuffer) {
    if !buffer.has_full_log() || !keyspace.view.load().sealed.is_empty() {
        return;
    }
    if store.nearly_full.is_on() || store.space.is_short() {
        return;
    }
    let has_spare = || keyspace.spare_value_log.lock().is_some();
    if has_spare() {
        seal_one_if(store, keyspace, |active| std::ptr::eq(Arc::as_ptr(active), buffer) && has_spare());
    } else {
        store.value_logs.note_full();
        store.background.wake();
    }
}

/// Seals active buffers with full value logs that commits left to the background.
///
/// Errors: those of files; they also poison the store.
pub fn seal_with_full_logs(store: &Store) -> Result<()> {
    if !store.value_logs.take_note_of_full() {
        return Ok(());
    }
    for keyspace in store.keyspaces() {
        let buffer = Arc::clone(&keyspace.view.load().active);
        if buffer.has_full_log() {
            prepare_value_log(store, &keyspace)?;
            seal_one_if(store, &keyspace, |active| Arc::ptr_eq(active, &buffer));
        }
    }
    Ok(())
}

/// Seals the active buffers of keyspaces at rest, up to one round; returns whether there were any. The data
/// that they delete occupies the trees until then. Does nothing if space is short: buffers are then flushed
/// only to reclaim space.
pub fn seal_at_rest(store: &Store) -> bool {
    if store.nearly_full.is_on() || store.space.is_short() || planted!("rest-not-flushed") {
        return false;
    }
    let now = store.background_time();
    let is_due = |keyspace: &Arc<KeyspaceCore>| {
        let view = keyspace.view.load();
        let waits = view.active.first_commit().is_some() && view.sealed.is_empty();
        waits && !keyspace.is_dropped() && keyspace.idle.lock().is_at_rest(now)
    };
    let due: Vec<_> =
        store.catalogue.read().by_id.values().filter(|keyspace| is_due(keyspace)).cloned().collect();
    if due.is_empty() {
        return false;
    }
    let _commit = store.commits.lock();
    let sizes = due.iter().map(|keyspace| keyspace.view.load().active.table.memory_bytes());
    let count = sealing::count_of_round(sizes, store.backpressure.write_buffers());
    let count = count.clamp(1, AT_REST_TOGETHER);
    // Another thread may have sealed one meanwhile.
    for keyspace in due.into_iter().take(count).filter(is_due) {
        seal(store, &keyspace);
    }
    recount_buffers(store);
    true
}

/// Seals every non-empty active buffer, for a flush of the whole store.
pub fn seal_all(store: &Store) {
    let _commit = store.commits.lock();
    for keyspace in store.buffered.all() {
        if keyspace.view.load().active.first_commit().is_some() {
            seal(store, &keyspace);
        }
    }
    recount_buffers(store);
    store.background.wake();
}

/// Seals buffers that hold commits at or before `seqno`, oldest first, up to one round, so that the log can
/// be released.
/// REQUIRES: the commit lock is not held.
pub fn seal_older_than(store: &Store, seqno: Seqno) {
    let mut old: Vec<(Seqno, Arc<KeyspaceCore>)> = Vec::new();
    for keyspace in store.buffered.all() {
        let first = keyspace.view.load().active.first_commit();
        old.extend(first.filter(|first| *first <= seqno).map(|first| (first, keyspace)));
    }
    old.sort_unstable_by_key(|(first, keyspace)| (*first, keyspace.id));
    let _commit = store.commits.lock();
    let sizes = old.iter().map(|(_, keyspace)| keyspace.view.load().active.table.memory_bytes());
    let count = sealing::count_of_round(sizes, store.backpressure.write_buffers());
    debug_assert!(count <= old.len(), "a round of these buffers");
    for (_, keyspace) in &old[..count] {
        seal(store, keyspace);
    }
    recount_buffers(store);
}

/// Seals the active buffer unless it is empty: another thread may have sealed it since it was chosen.
/// REQUIRES: the commit lock is held.
fn seal(store: &Store, keyspace: &KeyspaceCore) {
    debug_assert!(store.commits.is_locked(), "no seqno is assigned meanwhile");
    if keyspace.view.load().active.first_commit().is_some() {
        keyspace.seal_active(store.last_seqno(), store.new_table(&keyspace.full_merge));
    }
}

/// Recounts the bytes of write buffers after some were sealed or flushed. REQUIRES: the commit lock is held.
pub fn recount_buffers(store: &Store) {
    debug_assert!(store.commits.is_locked(), "nothing is sealed or published meanwhile");
    let fill = check_buffers(store, |_, _| ());
    debug_assert!(fill.largest <= fill.active, "the largest buffer is one of the active ones");
    let check_at = fill.is_time(store.backpressure.write_buffers()).err().unwrap_or(fill.active);
    let sealed = fill.sealed + store.snapshots.holdings.awaited_bytes();
    store.backpressure.set_counted(fill.active, sealed, check_at);
}

/// Whether any sealed buffer is waiting.
pub fn has_sealed(store: &Store) -> bool {
    store.buffered.all().iter().any(|keyspace| !keyspace.view.load().sealed.is_empty())
}
