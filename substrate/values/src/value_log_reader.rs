//! Reads the values of a value log, for recovery.
//!
//! **Invariants**
//! - It returns only appended values: missing, torn or foreign pages have no values.
//! - A value whose read fails is not reported as missing.
//! - Lookups in approximate order of numbers take one pass.

use std::collections::VecDeque;

use testudo_base::{Error, Result, StoreId, ValueReference, sync::Arc};
use testudo_env::{File, WatchedReads};
use testudo_run::LenientCursor;
use testudo_storage::DATA_FILE;

use crate::ValueLogRecord;

/// Maximum bytes of skipped values kept for later lookups, except for the last one: commits are slightly out
/// of order relative to their values.
const PASSED_BYTES: usize = 4 << 20;

/// A reader of one value log.
pub struct ValueLogReader {
    file: Arc<WatchedReads>,
    store: StoreId,
    record: ValueLogRecord,
    cursor: LenientCursor,
    /// Values skipped by the cursor and not yet requested, by number.
    passed: VecDeque<(ValueReference, Vec<u8>)>,
    passed_bytes: usize,
    /// Greatest number that the cursor has passed.
    last_passed: Option<u32>,
}

impl ValueLogReader {
    /// Creates a reader; reads nothing yet.
    pub fn new(file: Arc<dyn File>, store: StoreId, record: ValueLogRecord) -> Self {
        let file = Arc::new(WatchedReads::new(file));
        let cursor = LenientCursor::new(Arc::<WatchedReads>::clone(&file), store, &record.as_run());
        Self { file, store, record, cursor, passed: VecDeque::new(), passed_bytes: 0, last_passed: None }
    }

    /// Returns the value of `reference`, if it exists.
    ///
    /// Errors: `Io` if the value may exist but cannot be read now.
    pub fn read(&mut self, reference: &ValueReference) -> Result<Option<Vec<u8>>> {
        let value = self.find(reference);
        // An earlier lookup may have skipped over its failed read.
        let failure = value.is_none().then(|| self.file.take_failure()).flatten();
        failure.map_or(Ok(value), |failure| Err(Error::io(DATA_FILE, failure)))
    }

    fn find(&mut self, reference: &ValueReference) -> Option<Vec<u8>> {
        let lies_ahead = self.last_passed.is_none_or(|last| reference.number > last);
        let read = self.read_on(reference);
        if read.is_some() || lies_ahead {
            return read;
        }
        // It was requested before, is far out of order, or does not exist.
        let file = Arc::<WatchedReads>::clone(&self.file);
        self.cursor = LenientCursor::new(file, self.store, &self.record.as_run());
        self.passed.clear();
        self.passed_bytes = 0;
        self.last_passed = None;
        self.read_on(reference)
    }

    /// Returns the value if it is among the kept ones or ahead of the cursor.
    fn read_on(&mut self, reference: &ValueReference) -> Option<Vec<u8>> {
        if let Ok(at) = self.passed.binary_search_by_key(&reference.number, |(passed, _)| passed.number) {
            let (stated, value) = self.passed.remove(at)?;
            self.passed_bytes -= value.len();
            return Some(value).filter(|_| stated == *reference);
        }
        loop {
            // The cursor is at the first entry not yet passed, or at none.
            if let Some(entry) = self.cursor.entry() {
                let (stated, value) = ValueReference::split_referred(entry.value).ok()?;
                if stated.number > reference.number {
                    return None;
                }
                let value = value.to_vec();
                self.cursor.advance();
                self.last_passed = Some(stated.number);
                if stated.number == reference.number {
                    return Some(value).filter(|_| stated == *reference);
                }
                self.keep(stated, value);
            } else {
                self.cursor.advance();
                self.cursor.entry()?;
            }
        }
    }

    fn keep(&mut self, reference: ValueReference, value: Vec<u8>) {
        self.passed_bytes += value.len();
        self.passed.push_back((reference, value));
        while self.passed.len() > 1 && self.passed_bytes > PASSED_BYTES {
            let oldest = self.passed.pop_front();
            self.passed_bytes -= oldest.map_or(0, |(_, value)| value.len());
        }
    }
}

impl std::fmt::Debug for ValueLogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueLogReader({})", self.record.id)
    }
}
