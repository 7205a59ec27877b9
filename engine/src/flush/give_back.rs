//! Free space of the data file goes back to the file system.
//!
//! **Invariants**
//! - Nothing goes back once the store has failed: pages of an edit that failed count as free, but the edit
//!   may be durable.

use testudo_base::{ErrorKind, Result};

use crate::store::Store;

/// One byte in so many of the data file is left free: what is written next needs space again.
const FREE_PART: u64 = 64;
/// … and so many bytes anyway.
const FREE_BYTES: u64 = 1 << 20;

impl Store {
    /// What was written in vain on a full device goes back to the file system at once: log and manifest may
    /// need it. Nothing goes back when the edit itself failed: it may be durable all the same, and then
    /// refers to what was written.
    pub(crate) fn give_back_what_failed(&self, outcome: &Result<()>) -> Result<()> {
        let is_full = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace);
        if is_full && !self.has_failed() {
            self.data.give_back_space()?;
        }
        Ok(())
    }

    /// Gives space back to the file system if more than a little of that of the file is free. REQUIRES: there
    /// is nothing to do that would take it again soon.
    pub(crate) fn give_back_space(&self) -> Result<()> {
        self.give_up_unused_value_logs(false)?;
        let stats = self.data.space_stats();
        let space_bytes = stats.file_bytes - stats.hole_bytes;
        if stats.free_bytes > (space_bytes / FREE_PART).max(FREE_BYTES) {
            self.give_back_all_space()?;
        }
        Ok(())
    }

    /// The same for a store that is about to be closed.
    pub(crate) fn give_back_at_close(&self) -> Result<()> {
        self.give_up_unused_value_logs(true)?;
        self.give_back_space()?;
        self.keep_value_costs()
    }

    /// Gives all free space back to the file system, unless the store has failed: pages of an edit that
    /// failed count as free, but the edit may be durable. Edits are committed, and fail, under `flush_lock`.
    pub(crate) fn give_back_all_space(&self) -> Result<()> {
        let _flush = self.flush_lock.lock();
        if self.has_failed() { Ok(()) } else { self.data.give_back_space() }
    }
}
