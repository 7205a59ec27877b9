//! What a failed write leaves of an open manifest: nothing is written any more, or, where nothing was done,
//! the state that is durable.
//!
//! **Invariants**
//! - The state after a transient failure is that of the records before it, read back from the file.

use testudo_base::{Error, Result};
use testudo_env::read_sparse;

use super::{Log, file_name, replay};

impl Log {
    /// Remembers a failure that lasts.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        if !error.is_transient() {
            self.failure = Some(error.clone());
        }
        error
    }

    /// Brings the state back to what is durable, after an edit changed it that could not be written.
    ///
    /// Errors: `Io`, or `Corruption` if what is found is not what was written.
    pub(super) fn reread(&mut self) -> Result<()> {
        let name = file_name(self.superblock.manifest);
        let bytes = read_sparse(&*self.file, self.end).map_err(|e| Error::io(&name, e))?;
        let found = replay(&bytes, self.seed, &name)?;
        if (found.end, found.last_edit) != (self.end, self.last_edit) {
            return Err(Error::corruption(&name, found.end, "the file is not what was written"));
        }
        self.state = found.state;
        Ok(())
    }
}
