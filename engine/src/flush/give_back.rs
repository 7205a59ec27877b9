//! Free space of the data file goes back to the file system.
//!
//! **Invariants**
//! - Nothing goes back once the store has failed: pages of an edit that failed count as free, but the edit
//!   may be durable.

use testudo_base::{Error, Result};

use crate::store::Store;

/// Free space that stays is one byte in so many of the data file: what is written next needs space again …
const FREE_PART: u64 = 32;
/// … and if nothing is written for now.
const FREE_PART_CLOSED: u64 = 64;
/// So many bytes may stay anyway.
const FREE_BYTES: u64 = 1 << 20;

impl Store {
    /// What was written in vain on a full device goes back to the file system at once: log and manifest may
    /// need it. Nothing goes back when the edit itself failed: it may be durable all the same, and then
    /// refers to what was written.
    pub(crate) fn give_back_what_failed(&self, outcome: &Result<()>) -> Result<()> {
        let is_full = outcome.as_ref().is_err_and(Error::is_shortage);
        if is_full && !self.has_failed() {
            self.data.give_back_space()?;
        }
        Ok(())
    }

    /// Gives space back to the file system if a good part of that of the file is free.
    pub(crate) fn give_back_space(&self) -> Result<()> {
        self.give_up_unused_value_logs(false)?;
        self.give_back_beyond(FREE_PART)
    }

    /// Gives all free space back if it is more than one byte in `part` of the file.
    fn give_back_beyond(&self, part: u64) -> Result<()> {
        let stats = self.data.space_stats();
        let space_bytes = stats.file_bytes - stats.hole_bytes;
        if stats.free_bytes > (space_bytes / part).max(FREE_BYTES) {
            self.give_back_all_space()?;
        }
        Ok(())
    }

    /// The same, down to less, for a store that is about to be closed.
    pub(crate) fn give_back_at_close(&self) -> Result<()> {
        self.give_up_unused_value_logs(true)?;
        self.give_back_beyond(FREE_PART_CLOSED)?;
        self.keep_value_costs()
    }

    /// Gives all free space back to the file system, unless the store has failed: pages of an edit that
    /// failed count as free, but the edit may be durable. Edits are committed, and fail, under `flush_lock`.
    pub(crate) fn give_back_all_space(&self) -> Result<()> {
        let _flush = self.flush_lock.lock();
        if self.has_failed() {
            return Ok(());
        }
        match self.data.give_back_space() {
            // A full device may have no space to note that there is some. What is not given back stays free.
            Err(error) if error.is_shortage() => Ok(()),
            outcome => outcome,
        }
    }
}
