//! Flushes of the write buffers that pin a long log.
//!
//! **Invariants**
//! - A log that is not longer than its write buffers need is left alone.

use testudo_base::{Result, Seqno, num::u64_of, planted};
use testudo_store::{Store, memory::log_bounds::log_bound};

use crate::{
    log_release::{lock_and_release_log, releasable_seqno},
    round::flush_sealed::flush_sealed,
    seal::seal_buffers::{seal_all, seal_older_than},
};

/// Log size above which the log is shortened if it also far exceeds what the write buffers need.
const LOG_BYTES_MIN: u64 = 4 << 20;

/// Slack, in bytes, of a log over the needs of its buffers when a store is opened or closed.
const RENEWED_LOG_BYTES: u64 = 3 << 20;

/// Log size from which segments grow.
const LOG_GROWS_FROM: u64 = 2 << 20;

/// The log of write buffers is longer than they are by one part in this many: headers, and values that were
/// overwritten in place.
const LOG_EXCESS_PARTS: u64 = 2;

/// A log of up to one part in this many of the stored data is not shortened: flushing small buffers of many
/// keyspaces costs more than it releases.
const DATA_PARTS: u64 = 4;

/// Segments by which a log may grow each time its length doubles: segments grow with it.
const SEGMENTS_OF_DOUBLING: u32 = 2;

/// Buffers with commits in the oldest of this many equal parts of the log are flushed to shorten it.
const LOG_PARTS: u64 = 2;

/// Maximum rounds of already sealed buffers that a log renewal flushes.
const RENEWAL_ROUNDS: u32 = 4;

/// Flushes all write buffers if the log has more than `most` segments or far exceeds its needs, so that the
/// log starts fresh. Concurrent writes are left in it.
pub fn renew_log(store: &Store, most: u32) -> Result<()> {
    if !is_log_long(store, most) || store.has_failed() || planted!("log-never-renewed") {
        return Ok(());
    }
    for _ in 0..RENEWAL_ROUNDS {
        if !store.buffered.has_sealed() {
            break;
        }
        flush_sealed(store)?;
    }
    seal_all(store);
    flush_sealed(store)?;
    lock_and_release_log(store)
}

/// Size in bytes of a log not much larger than its write buffers. Each synced commit occupies at least a
/// page, so a log of small commits is many times longer.
fn fitting_log_bytes(store: &Store) -> u64 {
    store.backpressure.used() / LOG_EXCESS_PARTS * (LOG_EXCESS_PARTS + 1)
}

/// Whether the log far exceeds its needs, or has more segments than `most` plus two for each doubling of its
/// length.
fn is_log_long(store: &Store, most: u32) -> bool {
    let Some(wal) = &store.log.wal else { return false };
    let (segments, bytes) = (wal.segments().len(), wal.live_bytes());
    let grown = SEGMENTS_OF_DOUBLING * (bytes / LOG_GROWS_FROM).checked_ilog2().unwrap_or(0);
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
        others <= LOG_BYTES_MIN + fitting_log_bytes(store) + store.data.space_bytes() / DATA_PARTS
    };
    if store.buffered.has_sealed() || (wal.live_bytes() <= log_bound(store) && is_fitting()) {
        return Ok(false);
    }
    let commit = store.commits.lock();
    let oldest = releasable_seqno(store);
    let last = wal.last_reserved_seqno();
    drop(commit);
    debug_assert!(oldest <= last, "no buffer holds a commit that is not assigned yet");
    seal_older_than(store, Seqno(oldest.0 + (last.0 - oldest.0) / LOG_PARTS + 1));
    let had_sealed = flush_sealed(store)?;
    if !had_sealed {
        lock_and_release_log(store)?;
    }
    Ok(had_sealed)
}
