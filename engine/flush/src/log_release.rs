//! Shortening the log: segments no longer needed are released, and buffers that pin the log are flushed.
//!
//! **Invariants**
//! - A segment is removed only after a durable edit moves the start of the log past it.

use testudo_base::{Result, Seqno, num::u64_of, planted};
use testudo_storage::Change;
use testudo_store::{Store, memory::log_bounds::log_bound};

use crate::{
    round::{commit_flush::commit_edit, flush_sealed::flush_sealed},
    seal::seal_buffers::{has_sealed, seal_all, seal_older_than},
};

/// Log size above which the log is shortened if it also far exceeds what the write buffers need.
const LOG_BYTES_MIN: u64 = 4 << 20;

/// Slack, in bytes, of a log over the needs of its buffers when a store is opened or closed.
const RENEWED_LOG_BYTES: u64 = 3 << 20;

/// Log size from which segments grow.
const LOG_GROWS_FROM: u64 = 2 << 20;

/// Maximum rounds of already sealed buffers that a log renewal flushes.
const RENEWAL_ROUNDS: u32 = 4;

/// The last seqno that no buffer needs from the log. REQUIRES: the commit lock is held.
fn releasable_seqno(store: &Store) -> Seqno {
    debug_assert!(store.commits.is_locked(), "no commit chooses a buffer meanwhile");
    let mut seqno = store.last_seqno();
    for keyspace in store.buffered.all() {
        for buffer in keyspace.view.load().buffers() {
            if let Some(first) = buffer.first_commit() {
                seqno = seqno.min(Seqno(first.0 - 1));
            }
        }
    }
    seqno
}

/// Releases the log segments that are no longer needed.
pub fn release_log(store: &Store) -> Result<()> {
    let Some(wal) = &store.log.wal else { return Ok(()) };
    let commit = store.commits.lock();
    let seqno = releasable_seqno(store);
    drop(commit);
    let segment = wal.first_needed_segment(seqno);
    if segment > store.manifest.with_state(|state| state.log_segment) {
        // Flushed commits were synced before their flush, those of dropped keyspaces before the drop.
        debug_assert!(wal.durable_seqno() >= seqno, "released commits are durable");
        commit_edit(store, &[Change::LogStart(segment, seqno)])?;
        wal.release_before(segment)?;
    }
    Ok(())
}

/// Flushes all write buffers if the log has more than `most` segments or far exceeds its needs, so that the
/// log starts fresh. Concurrent writes are left in it.
pub fn renew_log(store: &Store, most: u32) -> Result<()> {
    if !is_log_long(store, most) || store.has_failed() || planted!("log-never-renewed") {
        return Ok(());
    }
    for _ in 0..RENEWAL_ROUNDS {
        if !has_sealed(store) {
            break;
        }
        flush_sealed(store)?;
    }
    seal_all(store);
    flush_sealed(store)?;
    release_log(store)
}

/// Bytes of log and data file.
pub fn stored_bytes(store: &Store) -> u64 {
    store.log.wal.as_ref().map_or(0, |wal| wal.live_bytes()) + store.data.space_bytes()
}

/// Size in bytes of a log not much larger than its write buffers. Each synced commit occupies at least a
/// page, so a log of small commits is many times longer.
fn fitting_log_bytes(store: &Store) -> u64 {
    store.backpressure.used() / 2 * 3
}

/// Whether the log far exceeds its needs, or has more segments than `most` plus two for each doubling of its
/// length.
fn is_log_long(store: &Store, most: u32) -> bool {
    let Some(wal) = &store.log.wal else { return false };
    let (segments, bytes) = (wal.segments().len(), wal.live_bytes());
    let grown = 2 * (bytes / LOG_GROWS_FROM).checked_ilog2().unwrap_or(0);
    u64_of(segments) > u64::from(most + grown) || bytes > RENEWED_LOG_BYTES + fitting_log_bytes(store)
}

/// Flushes the buffers that pin the log if it has outgrown its bound or the data it covers; `false` if it has
/// not.
pub fn shorten_log(store: &Store) -> Result<bool> {
    let wal = store.wal()?;
    // The current segment stays in any case.
    let is_fitting = || {
        let segments = wal.segments();
        let others: u64 = segments.iter().rev().skip(1).map(|segment| segment.bytes).sum();
        others <= LOG_BYTES_MIN + fitting_log_bytes(store) + store.data.space_bytes() / 4
    };
    if has_sealed(store) || (wal.live_bytes() <= log_bound(store) && is_fitting()) {
        return Ok(false);
    }
    let commit = store.commits.lock();
    let oldest = releasable_seqno(store);
    let last = wal.last_reserved_seqno();
    drop(commit);
    // Every buffer with commits in the older half of the log.
    seal_older_than(store, Seqno(oldest.0 + (last.0 - oldest.0) / 2 + 1));
    let had_sealed = flush_sealed(store)?;
    if !had_sealed {
        release_log(store)?;
    }
    Ok(had_sealed)
}
