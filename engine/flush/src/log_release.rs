//! Shortening the log: segments no longer needed are released, and buffers that pin the log are flushed.
//!
//! **Invariants**
//! - A segment is released, and then removed, only after a durable edit moves the start of the log past it.
//! - Files of one release at most wait for a job thread.
//! - The edit of a flush also moves the start of the log: there is no second edit.

use std::collections::BTreeMap;

use testudo_base::{KeyspaceId, Result, Seqno, planted, sync::Arc};
use testudo_storage::Change;
use testudo_store::{Store, keyspace::WriteBuffer};

use crate::{manifest_edit::commit_edit, round::flushed::Flushed};

/// A start of the log: the first segment that is needed, and the last seqno before it that no buffer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    segment: u64,
    seqno: Seqno,
}

impl LogStart {
    /// The change that states it.
    pub fn change(self) -> Change {
        Change::LogStart(self.segment, self.seqno)
    }
}

/// The last seqno that no buffer needs from the log. REQUIRES: the commit lock is held.
pub fn releasable_seqno(store: &Store) -> Seqno {
    releasable_without(store, |_, _| false)
}

/// Same if the buffers for which `is_flushed` are in their trees. REQUIRES: the commit lock is held.
fn releasable_without(store: &Store, is_flushed: impl Fn(KeyspaceId, &Arc<WriteBuffer>) -> bool) -> Seqno {
    debug_assert!(store.commits.is_locked(), "no commit chooses a buffer meanwhile");
    let mut seqno = store.last_seqno();
    for keyspace in store.buffered.all() {
        for buffer in keyspace.view.load().buffers().filter(|buffer| !is_flushed(keyspace.id, buffer)) {
            if let Some(first) = buffer.first_commit() {
                debug_assert!(first <= store.last_seqno(), "a buffer holds assigned seqnos");
                seqno = seqno.min(Seqno(first.0 - 1));
            }
        }
    }
    seqno
}

/// The start of the log once these buffers are in their trees, if it moves. REQUIRES: `flush_lock` is held
/// until the start is durable, so that no other release moves it further in the meantime.
pub fn log_start_without(store: &Store, flushed: &[Flushed]) -> Option<LogStart> {
    debug_assert!(store.is_flush_locked(), "one release at a time");
    let wal = store.log.wal.as_ref()?;
    let log_segment = store.manifest.with_state(|state| state.log_segment);
    // Then no buffer holds a segment, whatever it contains, and none need be visited.
    if wal.first_needed_segment(store.last_seqno()) <= log_segment {
        return None;
    }
    let buffers: BTreeMap<KeyspaceId, &Arc<WriteBuffer>> =
        flushed.iter().map(|flushed| (flushed.keyspace.id, &flushed.buffer)).collect();
    debug_assert_eq!(buffers.len(), flushed.len(), "a round takes one buffer of a keyspace");
    let commit = store.commits.lock();
    let seqno = releasable_without(store, |id, buffer| {
        buffers.get(&id).is_some_and(|flushed| Arc::ptr_eq(flushed, buffer))
    });
    drop(commit);
    let segment = wal.first_needed_segment(seqno);
    if segment <= log_segment {
        return None;
    }
    // Flushed commits were synced before their flush, those of dropped keyspaces before the drop.
    debug_assert!(wal.durable_seqno() >= seqno, "released commits are durable");
    debug_assert!(
        store.manifest.with_state(|state| state.log_segment < segment && state.log_seqno <= seqno),
        "the start of the log never goes back"
    );
    debug_assert!(wal.durable_seqno() <= store.last_seqno(), "only assigned seqnos are durable");
    Some(LogStart { segment, seqno })
}

/// Releases the segments before a start of the log; their files remain. Files that earlier releases have left
/// are removed: the job threads had no time for them. REQUIRES: the start is durable.
///
/// Errors: as [`remove_released`].
pub fn release_segments(store: &Store, start: LogStart) -> Result<()> {
    debug_assert!(
        store.manifest.with_state(|state| state.log_segment >= start.segment),
        "a segment is released after the edit that no longer needs it"
    );
    let outcome = remove_released(store).map(drop);
    if let Some(wal) = &store.log.wal {
        wal.release_before(start.segment);
    }
    outcome
}

/// Releases the log segments that are no longer needed, and removes their files.
pub fn lock_and_release_log(store: &Store) -> Result<()> {
    let flush = store.flush_lock.lock();
    if store.has_failed() {
        return Ok(());
    }
    if let Some(start) = log_start_without(store, &[]) {
        commit_edit(store, &[start.change()])?;
        release_segments(store, start)?;
    }
    drop(flush);
    remove_released(store).map(drop)
}

/// Leaves the files of released segments to a job thread, so that the next round begins at once. Removes them
/// if no job thread may do so soon, or if the device is nearly full.
///
/// Errors: as [`remove_released`].
pub fn leave_released(store: &Store) -> Result<()> {
    let has_space = !store.nearly_full.is_on() && !store.space.is_short();
    let may_leave = !store.background.is_stepped && !store.health.is_closing();
    if !(may_leave && has_space) || planted!("removal-awaited-by-flush") {
        return remove_released(store).map(drop);
    }
    store.background.job_wakeup.wake();
    Ok(())
}

/// Removes the files of released segments; `false` if there are none, or some remain for lack of a resource.
///
/// Errors: those of files; they also poison the store.
pub fn remove_released(store: &Store) -> Result<bool> {
    let Some(wal) = &store.log.wal else { return Ok(false) };
    match wal.remove_released() {
        // A later call removes them. The flush has succeeded: retried, it would be applied again.
        Err(error) if error.is_transient() => Ok(false),
        outcome => outcome.inspect_err(|error| store.poison(error)),
    }
}

/// Bytes of log and data file.
pub fn stored_bytes(store: &Store) -> u64 {
    store.log.wal.as_ref().map_or(0, |wal| wal.live_bytes()) + store.data.space_bytes()
}
