//! Writes values into a segment, in key order.
//!
//! **Invariants**
//! - Values are numbered in insertion order, from 0.

use testudo_base::{Entry, Kind, Result, RunId, Seqno, ValueReference, num::u32_of, sync::Arc};
use testudo_run::{RunOrigin, RunWriter};
use testudo_storage::DataFile;

use crate::{DeadValues, Segment, SegmentClass};

/// A segment being written.
#[derive(Debug)]
pub struct SegmentWriter {
    id: RunId,
    is_transient: bool,
    newest_seqno: Seqno,
    writer: RunWriter,
    count: u32,
    stored_bytes: u64,
    /// Reused buffer for the next entry.
    bytes: Vec<u8>,
}

impl SegmentWriter {
    /// Starts a segment with the id of `origin`. With `is_transient`, its values will return to their keys at
    /// the bottom of the tree. `expected_bytes` as in [`RunWriter::new`].
    ///
    /// Errors: `OutOfSpace`, `Io`.
    pub fn new(
        data: Arc<DataFile>,
        origin: RunOrigin,
        is_transient: bool,
        expected_bytes: u64,
    ) -> Result<Self> {
        let RunOrigin { id, newest_seqno, .. } = origin;
        let writer = RunWriter::new(data, origin, expected_bytes)?;
        Ok(Self { id, is_transient, newest_seqno, writer, count: 0, stored_bytes: 0, bytes: Vec::new() })
    }

    /// Whether its values will return to their keys.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }

    /// Upper bound of the seqnos of its values.
    pub fn newest_seqno(&self) -> Seqno {
        self.newest_seqno
    }

    /// Key of the last value; empty if there is none.
    pub fn last_key(&self) -> &[u8] {
        self.writer.last_key()
    }

    /// Bytes of values written so far.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Appends a value and returns the reference to it. REQUIRES: its key is greater than all previous ones.
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

    /// Writes the buffered rest. Durable after the data file is synced. REQUIRES: at least one value was
    /// pushed.
    pub fn finish(self) -> Result<Segment> {
        let Self { id, is_transient, writer, count, stored_bytes, .. } = self;
        let class = if is_transient { SegmentClass::Transient } else { SegmentClass::Sorted };
        let (run, dead) = (writer.finish_value_segment()?, DeadValues::none_of(count));
        Ok(Segment { id, class, run, dead, stored_bytes, dead_bytes: 0 })
    }
}
