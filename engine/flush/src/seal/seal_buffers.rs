//! Sealing: an active write buffer takes no more commits, and a new one takes its place.
//!
//! Which buffers, and when, is arithmetic over their sizes (`sealing.rs`); or a value log is full.
//!
//! **Invariants**
//! - The largest buffers are sealed, and of a keyspace only one at a time, but for flushes of the whole
//!   store.
//! - Buffers are sealed, and then counted, under the commit lock.

use testudo_base::{Result, Seqno, planted, sync::Arc};
use testudo_store::{
    Store,
    keyspace::{KeyspaceCore, WriteBuffer},
};

use crate::seal::{
    begin_value_log::prepare_value_log,
    sealing::{self, Fill},
};

/// Buffers of keyspaces at rest that are sealed together: what is written meanwhile need not wait for long.
const AT_REST_TOGETHER: usize = 64;

/// Seals the largest active buffers if it is time.
pub fn seal_if_full(store: &Store) {
    // First of all: whoever sees from now on that it may be time wakes it again.
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
            // A failure stops writes, and is told to whoever writes next.
            if prepare_value_log(store, &candidates[buffer].1).is_err() {
                return;
            }
        }
        // That may have taken some time.
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

/// How full the write buffers are. `candidate` is told of active ones that can be sealed, because nothing
/// of their keyspace is sealed already, and of their bytes.
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

/// Seals `buffer` if it is active and its value log is full. If there is none for the next buffer the
/// background sees to that first: it waits for the device. Not where space is short, for nothing gets a
/// value log there.
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

/// Seals active buffers with full value logs that commits have left to the background.
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

/// Seals the active buffers of keyspaces that are at rest, as many as make a round; whether there was
/// one. What they remove takes space in the trees until then. Not where space is short: there buffers are
/// flushed as far as that wins some.
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
    // Somebody else may have sealed one meanwhile.
    for keyspace in due.into_iter().take(count).filter(is_due) {
        seal(store, &keyspace);
    }
    recount_buffers(store);
    true
}

/// Seals every active buffer that was written, for a flush of the whole store.
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

/// Seals buffers that hold commits at or before `seqno`, the oldest first, as many as make a round, so
/// that the log can be released.
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
    for (_, keyspace) in &old[..count] {
        seal(store, keyspace);
    }
    recount_buffers(store);
}

/// Seals the active buffer, unless it is empty: somebody may have sealed one since it was chosen.
/// REQUIRES: the commit lock is held.
fn seal(store: &Store, keyspace: &KeyspaceCore) {
    debug_assert!(store.commits.is_locked(), "nothing is assigned a seqno meanwhile");
    if keyspace.view.load().active.first_commit().is_some() {
        keyspace.seal_active(store.last_seqno(), store.new_table(&keyspace.full_merge));
    }
}

/// Counts the bytes of write buffers, right after some were sealed or flushed. REQUIRES: the commit lock
/// is held.
pub fn recount_buffers(store: &Store) {
    debug_assert!(store.commits.is_locked(), "nothing is sealed or published meanwhile");
    let fill = check_buffers(store, |_, _| ());
    let check_at = fill.is_time(store.backpressure.write_buffers()).err().unwrap_or(fill.active);
    let sealed = fill.sealed + store.snapshots.holdings.awaited_bytes();
    store.backpressure.set_counted(fill.active, sealed, check_at);
}

/// Whether a sealed buffer is waiting.
pub fn has_sealed(store: &Store) -> bool {
    store.buffered.all().iter().any(|keyspace| !keyspace.view.load().sealed.is_empty())
}
