//! Expected state of the records, passed from one process to the next.
//!
//! Reading the store would yield the same, but would warm up all caches.
//!
//! Format: two integers of 8 bytes (number of records after the load, and of existing records), then the
//! versions, 4 bits each. All little-endian.
//!
//! **Invariants**
//! - The file is written after the last use of the oracle and read before the first.

use std::{
    io::{BufReader, BufWriter, Read, Write},
    path::Path,
};

use testudo::{Error, Result};

use super::oracle::Oracle;
use crate::report::output::create_file;

pub(crate) const NAME: &str = "versions";

/// Writes the state of `oracle`; the load left `loaded` records.
pub(crate) fn write(file: &Path, loaded: u64, oracle: &Oracle) -> Result<()> {
    let failed = |error| Error::io(file.display().to_string(), error);
    let mut sink = BufWriter::new(create_file(file)?);
    let numbers = [loaded, oracle.acknowledged()];
    for word in numbers.into_iter().chain(oracle.words()) {
        sink.write_all(&word.to_le_bytes()).map_err(failed)?;
    }
    sink.flush().map_err(failed)
}

/// Loads `file` into `oracle`; returns the number of records that the load left.
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
