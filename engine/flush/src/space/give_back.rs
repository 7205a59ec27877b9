//! Releases free space of the data file to the file system.
//!
//! **Invariants**
//! - Nothing is released once the store has failed: pages of a failed edit count as free, but that edit may
//!   be durable.

use testudo_base::{Error, Result};
use testudo_store::Store;

use crate::seal::begin_value_log::{UnusedIn, give_up_unused_value_logs};

/// One in this many bytes of the data file may stay free, since the next writes need space again …
const FREE_PART: u64 = 32;

/// Free bytes that may always stay.
const FREE_BYTES: u64 = 1 << 20;

/// Releases the space of a failed attempt on a full device at once: log and manifest may need it. Releases
/// nothing if the edit itself failed: it may be durable, and then refers to these pages.
pub fn give_back_what_failed<T>(store: &Store, outcome: &Result<T>) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "no edit is being committed");
    let is_full = outcome.as_ref().is_err_and(Error::is_shortage);
    if is_full && !store.has_failed() {
        store.data.give_back_space()?;
    }
    Ok(())
}

/// Releases free space to the file system if it is a large enough fraction of the file.
pub fn give_back_space(store: &Store) -> Result<()> {
    give_up_unused_value_logs(store, UnusedIn::IdleKeyspaces)?;
    give_back_beyond(store, FREE_PART)
}

/// Releases all free space if it exceeds one byte in `part` of the file.
pub fn give_back_beyond(store: &Store, part: u64) -> Result<()> {
    let stats = store.data.space_stats();
    debug_assert!(part > 0, "a fraction of the file");
    debug_assert!(stats.hole_bytes <= stats.file_bytes, "holes are in the file");
    let space_bytes = stats.file_bytes - stats.hole_bytes;
    if stats.free_bytes > (space_bytes / part).max(FREE_BYTES) {
        give_back_all_space(store)?;
    }
    Ok(())
}

/// Gives all free space back to the file system, unless the store has failed: pages of an edit that
/// failed count as free, but the edit may be durable. Edits are committed, and fail, under `flush_lock`.
pub fn give_back_all_space(store: &Store) -> Result<()> {
    let _flush = store.flush_lock.lock();
    if store.has_failed() {
        return Ok(());
    }
    match store.data.give_back_space() {
        // A full device may lack the space to record the release. Space that is not released stays free.
        Err(error) if error.is_shortage() => Ok(()),
        outcome => outcome,
    }
}
