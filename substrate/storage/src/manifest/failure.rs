//! Failures of manifest writes: a permanent one blocks all further writes, after a transient one the durable
//! state is reread.
//!
//! **Invariants**
//! - After a transient failure, the state is that of the durable records, reread from the file.

use testudo_base::{Error, Result};
use testudo_env::read_sparse;

use super::{Log, file_name, replay};

impl Log {
    /// Records a permanent failure; returns the error.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        if !error.is_transient() {
            self.failure = Some(error.clone());
        }
        error
    }

    /// Restores the durable state after an edit changed it in memory but could not be written.
    ///
    /// Errors: `Io`; `Corruption` if the file does not match what was written.
    pub(super) fn reread(&mut self) -> Result<()> {
        let name = file_name(self.superblock.manifest);
        let bytes = read_sparse(&*self.file, self.end).map_err(|e| Error::io(&name, e))?;
        let found = replay(&bytes, self.seed, &name)?;
        if (found.end, found.last_edit) != (self.end, self.last_edit) {
            return Err(Error::corruption(&name, found.end, "the file does not match what was written"));
        }
        self.state = found.state;
        Ok(())
    }
}
