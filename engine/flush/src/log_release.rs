//! Shortening the log: segments no longer needed are released, and buffers that pin the log are flushed.
//!
//! **Invariants**
//! - A segment is removed only after a durable edit moves the start of the log past it.

use testudo_base::{Result, Seqno};
use testudo_storage::Change;
use testudo_store::Store;

use crate::manifest_edit::commit_edit;

/// The last seqno that no buffer needs from the log. REQUIRES: the commit lock is held.
pub fn releasable_seqno(store: &Store) -> Seqno {
    debug_assert!(store.commits.is_locked(), "no commit chooses a buffer meanwhile");
    let mut seqno = store.last_seqno();
    for keyspace in store.buffered.all() {
        for buffer in keyspace.view.load().buffers() {
            if let Some(first) = buffer.first_commit() {
                debug_assert!(first <= store.last_seqno(), "a buffer holds assigned seqnos");
                seqno = seqno.min(Seqno(first.0 - 1));
            }
        }
    }
    seqno
}

/// As [`release_log`], but takes the flush lock itself.
pub fn lock_and_release_log(store: &Store) -> Result<()> {
    let _flush = store.flush_lock.lock();
    if store.has_failed() { Ok(()) } else { release_log(store) }
}

/// Releases the log segments that are no longer needed. REQUIRES: `flush_lock` is held, so that no other
/// release moves the start of the log further in the meantime.
pub fn release_log(store: &Store) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "one release at a time");
    let Some(wal) = &store.log.wal else { return Ok(()) };
    let log_segment = store.manifest.with_state(|state| state.log_segment);
    // Then no buffer holds a segment, whatever it contains, and none need be visited.
    if wal.first_needed_segment(store.last_seqno()) <= log_segment {
        return Ok(());
    }
    let commit = store.commits.lock();
    let seqno = releasable_seqno(store);
    drop(commit);
    let segment = wal.first_needed_segment(seqno);
    if segment > log_segment {
        // Flushed commits were synced before their flush, those of dropped keyspaces before the drop.
        debug_assert!(wal.durable_seqno() >= seqno, "released commits are durable");
        debug_assert!(
            store.manifest.with_state(|state| state.log_segment < segment && state.log_seqno <= seqno),
            "the start of the log never goes back"
        );
        debug_assert!(wal.durable_seqno() <= store.last_seqno(), "only assigned seqnos are durable");
        commit_edit(store, &[Change::LogStart(segment, seqno)])?;
        wal.release_before(segment)?;
    }
    Ok(())
}

/// Bytes of log and data file.
pub fn stored_bytes(store: &Store) -> u64 {
    store.log.wal.as_ref().map_or(0, |wal| wal.live_bytes()) + store.data.space_bytes()
}
