//! Flushes of the write buffers that pin a long log.
//!
//! **Invariants**
//! - A log that is not longer than its write buffers need is left alone.

use testudo_base::{Result, Seqno, num::u64_of, planted};
use testudo_store::{Store, memory::log_bounds::log_bound};

use crate::{
    log_release::{releasable_seqno, release_log},
    round::flush_sealed::flush_sealed,
    seal::seal_buffers::{has_sealed, seal_all, seal_older_than},
};

/// A log that is longer than this and holds much more than the write buffers need of it is shortened.
const LOG_BYTES_MIN: u64 = 4 << 20;

/// A store is not opened or closed with a log that is longer than this and than its buffers need.
const RENEWED_LOG_BYTES: u64 = 3 << 20;

/// Segments of a shorter log do not grow.
const LOG_GROWS_FROM: u64 = 2 << 20;

/// A renewal of the log flushes so many rounds of buffers that were sealed before.
const RENEWAL_ROUNDS: u32 = 4;

/// Flushes all write buffers if the log has more than `most` segments or is much longer than it needs to
/// be, so that it begins anew; leaves what is written meanwhile.
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

/// Bytes of a log that takes little more than what write buffers hold. Synced commits have a page each,
/// so a log of small ones is many times as long.
fn fitting_log_bytes(store: &Store) -> u64 {
    store.backpressure.used() / 2 * 3
}

/// Whether the log is much longer than it needs to be, or has more segments than `most` and those in
/// which a log grows to its length: two for each doubling.
fn is_log_long(store: &Store, most: u32) -> bool {
    let Some(wal) = &store.log.wal else { return false };
    let (segments, bytes) = (wal.segments().len(), wal.live_bytes());
    let grown = 2 * (bytes / LOG_GROWS_FROM).checked_ilog2().unwrap_or(0);
    u64_of(segments) > u64::from(most + grown) || bytes > RENEWED_LOG_BYTES + fitting_log_bytes(store)
}

/// Flushes what pins the log if it has outgrown its bound or what the store holds; `false` if it has not.
pub fn shorten_log(store: &Store) -> Result<bool> {
    let wal = store.wal()?;
    // The current segment stays, whatever is flushed.
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
    // Everything in the older half of what the log holds.
    seal_older_than(store, Seqno(oldest.0 + (last.0 - oldest.0) / 2 + 1));
    let had_sealed = flush_sealed(store)?;
    if !had_sealed {
        release_log(store)?;
    }
    Ok(had_sealed)
}
