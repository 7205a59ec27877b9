//! What must be true of each record, handed from one process to the next.
//!
//! Reading the store would tell it too, but would leave the caches warm of everything.
//!
//! Two integers of 8 bytes, the records that the load left and those that exist, then the versions, 4 bits
//! each. All little-endian.
//!
//! **Invariants**
//! - Written when no one uses the oracle, read before anyone does.

use std::{
    io::{BufReader, BufWriter, Read, Write},
    path::Path,
};

use testudo::{Error, Result};

use super::oracle::Oracle;
use crate::report::output::create_file;

pub(crate) const NAME: &str = "versions";

/// Writes what `oracle` knows; the load left `loaded` records.
pub(crate) fn write(file: &Path, loaded: u64, oracle: &Oracle) -> Result<()> {
    let failed = |error| Error::io(file.display().to_string(), error);
    let mut sink = BufWriter::new(create_file(file)?);
    let numbers = [loaded, oracle.acknowledged()];
    for word in numbers.into_iter().chain(oracle.words()) {
        sink.write_all(&word.to_le_bytes()).map_err(failed)?;
    }
    sink.flush().map_err(failed)
}

/// Tells `oracle` what `file` says, and gives the records that the load left.
pub(crate) fn read(file: &Path, oracle: &Oracle) -> Result<u64> {
    let failed = |error| Error::io(file.display().to_string(), error);
    #[expect(clippy::disallowed_methods, reason = "a file of this tool, not the store's")]
    let mut source = BufReader::new(std::fs::File::open(file).map_err(failed)?);
    let mut next = || {
        let mut bytes = [0; 8];
        source.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes)).map_err(failed)
    };
    let (loaded, records) = (next()?, next()?);
    oracle.assume_records(records);
    oracle.assume_words(next)?;
    Ok(loaded)
}

#[cfg(test)]
mod tests;
