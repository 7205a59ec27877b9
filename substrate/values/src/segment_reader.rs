//! Reads values of a segment in key order, in multi-page reads that bypass the cache.
//!
//! **Invariants**
//! - Lookups in ascending key order take one pass over the pages between the first and the last key.

use testudo_base::{Cursor, Error, Result, ValueReference, sync::Arc};
use testudo_run::{ReadAhead, RunCursor};

use crate::Segment;

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Maximum values skipped one by one before the cursor seeks.
const PASSED_MAX: u32 = 32;

/// A reader of a segment.
#[derive(Debug)]
pub struct SegmentReader {
    segment: Arc<Segment>,
    cursor: RunCursor,
}

impl SegmentReader {
    /// Creates a reader; reads nothing yet.
    pub fn new(segment: Arc<Segment>) -> Self {
        let cursor = RunCursor::new(Arc::clone(segment.run()), ReadAhead::bytes(READ_BYTES));
        Self { segment, cursor }
    }

    /// Returns the value of `key` to which `reference` refers.
    ///
    /// Errors: `Corruption` if it is missing; `Io`.
    pub fn read(&mut self, key: &[u8], reference: &ValueReference) -> Result<&[u8]> {
        let mut left = PASSED_MAX;
        while left > 0 && self.cursor.entry().is_some_and(|entry| entry.key < key) {
            self.cursor.next()?;
            left -= 1;
        }
        if self.cursor.entry().is_none_or(|entry| entry.key != key) {
            self.cursor.seek(key)?;
        }
        let missing = || -> Error { self.segment.damaged("a referenced value is missing") };
        let entry = self.cursor.entry().filter(|entry| entry.key == key).ok_or_else(missing)?;
        self.segment.referred(entry.kind, entry.value, reference)
    }
}
