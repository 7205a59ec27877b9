//! Reads values of a segment in the order of their keys, in pieces of many pages, past the cache.
//!
//! **Invariants**
//! - Who asks for keys in ascending order gets them by one pass over the pages between the first and the
//!   last.

use testudo_base::{Cursor, Error, Result, ValueReference, sync::Arc};
use testudo_run::{ReadAhead, RunCursor};

use crate::Segment;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// So many values are passed one by one before the next one is looked up.
const PASSED_MAX: u32 = 32;

/// A reader of a segment.
#[derive(Debug)]
pub struct SegmentReader {
    segment: Arc<Segment>,
    cursor: RunCursor,
}

impl SegmentReader {
    /// Reads nothing yet.
    pub fn new(segment: Arc<Segment>) -> Self {
        let cursor = RunCursor::new(Arc::clone(segment.run()), ReadAhead::bytes(READ_BYTES));
        Self { segment, cursor }
    }

    /// The value of `key` that `reference` leads to.
    ///
    /// Errors: `Corruption` if it is not there; `Io`.
    pub fn read(&mut self, key: &[u8], reference: &ValueReference) -> Result<&[u8]> {
        let mut left = PASSED_MAX;
        while left > 0 && self.cursor.entry().is_some_and(|entry| entry.key < key) {
            self.cursor.next()?;
            left -= 1;
        }
        if self.cursor.entry().is_none_or(|entry| entry.key != key) {
            self.cursor.seek(key)?;
        }
        let missing = || -> Error { self.segment.damaged("a value is missing that an entry refers to") };
        let entry = self.cursor.entry().filter(|entry| entry.key == key).ok_or_else(missing)?;
        self.segment.referred(entry.kind, entry.value, reference)
    }
}
