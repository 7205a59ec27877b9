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

/// Seals the largest active buffers if they are due. Only this visits all buffers; all else is counted from
/// there.
pub fn seal_if_full(store: &Store) {
    // Must come first: a commit that finds sealing due from now on requests another check.
    store.backpressure.begin_seal_check();
    if !store.backpressure.may_be_full() {
        return;
    }
    let mut count = count_buffers(store);
    let mut chosen = count.choose(store);
    let mut has_waited = false;
    for (_, keyspace) in &chosen {
        match prepare_value_log(store, keyspace) {
            Ok(has_prepared) => has_waited |= has_prepared,
            // It stops writes and is reported to the next writer.
            Err(_) => return,
        }
    }
    if has_waited {
        // Commits went on meanwhile.
        count = count_buffers(store);
        chosen = count.choose(store);
    }
    let _commit = store.commits.lock();
    for (_, keyspace) in &chosen {
        // Another thread may have sealed one meanwhile.
        if keyspace.view.load().sealed.is_empty() && !keyspace.is_dropped() {
            seal(store, keyspace);
        }
    }
    count.note(store, &chosen);
    recount_sealed(store);
}

/// Active buffers of all keyspaces, counted at once.
struct Count {
    /// Bytes of active buffers, as commits had counted them before.
    before: u64,
    active: u64,
    largest: u64,
    /// Those of which none is sealed.
    candidates: Vec<(u64, Arc<KeyspaceCore>)>,
}

/// Counts the bytes of active buffers.
fn count_buffers(store: &Store) -> Count {
    let before = store.backpressure.active().0;
    let mut count = Count { before, active: 0, largest: 0, candidates: Vec::new() };
    for keyspace in store.buffered.all() {
        let view = keyspace.view.load();
        if view.active.first_commit().is_some() {
            let bytes = view.active.table.memory_bytes();
            count.active += bytes;
            count.largest = bytes.max(count.largest);
            if view.sealed.is_empty() {
                count.candidates.push((bytes, keyspace));
            }
        }
    }
    count
}

impl Count {
    /// Removes the buffers to seal from the candidates; none if sealing is not due.
    fn choose(&mut self, store: &Store) -> Vec<(u64, Arc<KeyspaceCore>)> {
        let fill = Fill { active: self.active, largest: self.largest, sealed: sealed_bytes(store) };
        let write_buffers = store.backpressure.write_buffers();
        if fill.is_time(write_buffers).is_err() {
            return Vec::new();
        }
        let sizes: Vec<u64> = self.candidates.iter().map(|(bytes, _)| *bytes).collect();
        let mut chosen = sealing::choose(&sizes, write_buffers);
        chosen.sort_unstable();
        chosen.into_iter().rev().map(|at| self.candidates.swap_remove(at)).collect()
    }

    /// Stores the bytes of the active buffers after those `chosen` were sealed. Commits that went on while
    /// they were counted have added theirs.
    fn note(&self, store: &Store, chosen: &[(u64, Arc<KeyspaceCore>)]) {
        debug_assert!(store.commits.is_locked(), "nothing is sealed or published meanwhile");
        let since = store.backpressure.active().0.saturating_sub(self.before);
        let sealed: u64 = chosen.iter().map(|(bytes, _)| bytes).sum();
        let active = (self.active + since).saturating_sub(sealed);
        let largest = match chosen.is_empty() {
            true => self.largest,
            false => self.candidates.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0),
        };
        store.backpressure.set_active(active, (largest + since).min(active));
    }
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
            let _ = prepare_value_log(store, &keyspace)?;
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
        store.buffered.note_sealed(keyspace);
    }
}

/// Recounts the bytes of all write buffers. REQUIRES: the commit lock is held.
pub fn recount_buffers(store: &Store) {
    let count = count_buffers(store);
    store.backpressure.set_active(count.active, count.largest);
    recount_sealed(store);
}

/// Recounts the bytes of sealed buffers after some were sealed or flushed. REQUIRES: the commit lock is held.
pub fn recount_sealed(store: &Store) {
    debug_assert!(store.commits.is_locked(), "nothing is sealed or published meanwhile");
    debug_assert!(store.buffered.is_consistent(), "flushes visit all sealed buffers");
    let sealed = sealed_bytes(store);
    let (active, largest) = store.backpressure.active();
    let fill = Fill { active, largest, sealed };
    let check_at = fill.is_time(store.backpressure.write_buffers()).err().unwrap_or(active);
    store.backpressure.set_sealed(sealed + store.snapshots.holdings.awaited_bytes(), check_at);
}

/// Bytes of all sealed buffers.
fn sealed_bytes(store: &Store) -> u64 {
    let of = |keyspace: &Arc<KeyspaceCore>| -> u64 {
        keyspace.view.load().sealed.iter().map(|buffer| buffer.table.memory_bytes()).sum()
    };
    store.buffered.sealed().iter().map(of).sum()
}
