//! Traces of block devices: requests of 21 bytes (seconds u64, bytes u32, 1 for a write u8, block u64) or
//! bare block numbers of 4 bytes; all big-endian. A block is a key of 8 bytes, big-endian as well.
//!
//! **Invariants**
//! - Every operation is a separate batch.

use testudo::{Error, Result};

use super::trace::{Bytes, Operation, read_record};

const REQUEST_BYTES: usize = 21;
/// Size of a block where the trace does not state it.
const ACCESS_BYTES: u64 = 4096;

/// An open trace.
pub(crate) struct BlockTrace {
    bytes: Bytes,
    name: String,
    has_requests: bool,
    records: u64,
}

impl BlockTrace {
    /// Reads requests from `bytes`; error messages use `name`.
    pub(crate) fn requests(bytes: Bytes, name: String) -> Self {
        Self { bytes, name, has_requests: true, records: 0 }
    }

    /// Reads bare block numbers.
    pub(crate) fn accesses(bytes: Bytes, name: String) -> Self {
        Self { bytes, name, has_requests: false, records: 0 }
    }

    /// Appends the next operation to `batch`; returns `false` at the end.
    pub(crate) fn next_batch(&mut self, batch: &mut Vec<Operation>) -> Result<bool> {
        let operation = if self.has_requests { self.next_request()? } else { self.next_access()? };
        let found = operation.is_some();
        batch.extend(operation);
        self.records += 1;
        Ok(found)
    }

    fn next_request(&mut self) -> Result<Option<Operation>> {
        let mut record = [0; REQUEST_BYTES];
        if !self.read(&mut record)? {
            return Ok(None);
        }
        let [_, _, _, _, _, _, _, _, b0, b1, b2, b3, write, key @ ..] = record;
        let (key, bytes) = (key.to_vec(), u64::from(u32::from_be_bytes([b0, b1, b2, b3])));
        match write {
            0 => Ok(Some(Operation::Get { key })),
            1 => Ok(Some(Operation::Put { key, bytes })),
            _ => {
                Err(Error::invalid(format!("{}, record {}: neither read nor write", self.name, self.records)))
            }
        }
    }

    fn next_access(&mut self) -> Result<Option<Operation>> {
        let mut record = [0; 4];
        if !self.read(&mut record)? {
            return Ok(None);
        }
        let key = u64::from(u32::from_be_bytes(record)).to_be_bytes().to_vec();
        Ok(Some(Operation::Fetch { key, bytes: ACCESS_BYTES }))
    }

    fn read(&mut self, record: &mut [u8]) -> Result<bool> {
        read_record(&mut *self.bytes, record)
            .map_err(|error| Error::io(format!("{}, record {}", self.name, self.records), error))
    }
}

#[cfg(test)]
mod tests;
