//! Free space of the data file goes back to the file system.
//!
//! **Invariants**
//! - Nothing goes back once the store has failed: pages of an edit that failed count as free, but the edit
//!   may be durable.

use testudo_base::{Error, Result};
use testudo_store::Store;

use crate::seal::begin_value_log::give_up_unused_value_logs;

/// Free space that stays is one byte in so many of the data file: what is written next needs space again …
const FREE_PART: u64 = 32;

/// So many bytes may stay anyway.
const FREE_BYTES: u64 = 1 << 20;

/// What was written in vain on a full device goes back to the file system at once: log and manifest may
/// need it. Nothing goes back when the edit itself failed: it may be durable all the same, and then
/// refers to what was written.
pub fn give_back_what_failed(store: &Store, outcome: &Result<()>) -> Result<()> {
    let is_full = outcome.as_ref().is_err_and(Error::is_shortage);
    if is_full && !store.has_failed() {
        store.data.give_back_space()?;
    }
    Ok(())
}

/// Gives space back to the file system if a good part of that of the file is free.
pub fn give_back_space(store: &Store) -> Result<()> {
    give_up_unused_value_logs(store, false)?;
    give_back_beyond(store, FREE_PART)
}

/// Gives all free space back if it is more than one byte in `part` of the file.
pub fn give_back_beyond(store: &Store, part: u64) -> Result<()> {
    let stats = store.data.space_stats();
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
        // A full device may have no space to note that there is some. What is not given back stays free.
        Err(error) if error.is_shortage() => Ok(()),
        outcome => outcome,
    }
}
