//! Writes values into a segment, in the order of their keys.
//!
//! **Invariants**
//! - Values are numbered as they come, from 0.

use testudo_base::{Entry, Kind, Result, RunId, ValueReference, num::u32_of, sync::Arc};
use testudo_run::{RunOrigin, RunWriter};
use testudo_storage::DataFile;

use crate::{DeadValues, Segment};

/// A segment in the making.
#[derive(Debug)]
pub struct SegmentWriter {
    id: RunId,
    writer: RunWriter,
    count: u32,
    stored_bytes: u64,
    /// Kept for the next entry.
    bytes: Vec<u8>,
}

impl SegmentWriter {
    /// Starts a segment, whose id is that of `origin`. `expected_bytes` as in [`RunWriter::new`].
    ///
    /// Errors: `OutOfSpace`, `Io`.
    pub fn new(data: Arc<DataFile>, origin: RunOrigin, expected_bytes: u64) -> Result<Self> {
        let id = origin.id;
        let writer = RunWriter::new(data, origin, expected_bytes)?;
        Ok(Self { id, writer, count: 0, stored_bytes: 0, bytes: Vec::new() })
    }

    /// Bytes of values so far.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Adds a value; what leads to it from now on. REQUIRES: its key is greater than those before.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<ValueReference> {
        let reference = ValueReference { segment: self.id, number: self.count, length: u32_of(value.len()) };
        self.bytes.clear();
        reference.encode(&mut self.bytes);
        self.bytes.extend_from_slice(value);
        self.writer.push(&Entry { key, kind: Kind::Referred, value: &self.bytes })?;
        self.count += 1;
        self.stored_bytes += u64::from(reference.length);
        Ok(reference)
    }

    /// Writes what is left. Durable after the data file is synced. REQUIRES: a value was pushed.
    pub fn finish(self) -> Result<Segment> {
        let run = self.writer.finish_value_segment()?;
        let dead = DeadValues::none_of(self.count);
        Ok(Segment { id: self.id, run, dead, stored_bytes: self.stored_bytes, dead_bytes: 0 })
    }
}
