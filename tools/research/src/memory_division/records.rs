//! The record cache of the simulation: S3-FIFO, like the page cache, or a clock.
//!
//! A new record is on probation, which is a tenth of the cache, and moves to the main set if it is reused.
//! The main set is a clock with up to three turns of credit. A record that returns before a whole cache size
//! was evicted enters the main set directly. Without probation all records are in the main set.
//!
//! **Invariants**
//! - A cached record is in exactly one of the queues, once.

use std::collections::VecDeque;

use testudo_base::num::{u64_of, usize_of};

/// One in this many records is on probation.
const PROBATION_SHARE: usize = 10;
/// Maximum credit of a record, in turns: two bits.
const CREDIT_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    is_cached: bool,
    credit: u8,
    /// Number of evictions up to that of this record, inclusive; 0 if it was never evicted.
    evicted_at: u64,
}

/// The cache, over records numbered from 0.
#[derive(Debug)]
pub(super) struct Records {
    record_bytes: u64,
    records: Vec<Record>,
    has_probation: bool,
    probation: VecDeque<u64>,
    main: VecDeque<u64>,
    evictions: u64,
}

impl Records {
    /// Creates a cache for `count` records, each of which takes `record_bytes` in the cache.
    pub(super) fn new(count: u64, record_bytes: u64, has_probation: bool) -> Self {
        let records = vec![Record::default(); usize_of(count)];
        let (probation, main) = (VecDeque::new(), VecDeque::new());
        Self { record_bytes, records, has_probation, probation, main, evictions: 0 }
    }

    fn len(&self) -> usize {
        self.probation.len() + self.main.len()
    }

    /// Returns the memory of all records.
    pub(super) fn bytes(&self) -> u64 {
        u64_of(self.len()) * self.record_bytes
    }

    /// Whether the record is cached.
    pub(super) fn contains(&self, record: u64) -> bool {
        self.records[usize_of(record)].is_cached
    }

    /// Returns whether the record is cached, and marks it as used.
    pub(super) fn touch(&mut self, record: u64) -> bool {
        let record = &mut self.records[usize_of(record)];
        record.credit = (record.credit + 1).min(CREDIT_MAX);
        record.is_cached
    }

    /// Returns the bytes of records evicted since this one, inclusive; `None` if it was never evicted.
    pub(super) fn bytes_since_eviction(&self, record: u64) -> Option<u64> {
        let at = self.records[usize_of(record)].evicted_at;
        (at > 0).then(|| (self.evictions + 1 - at) * self.record_bytes)
    }

    /// Inserts a record. REQUIRES: it is not cached.
    pub(super) fn insert(&mut self, number: u64) {
        let returns = self.bytes_since_eviction(number).is_some_and(|bytes| bytes <= self.bytes());
        let queue = if returns || !self.has_probation { &mut self.main } else { &mut self.probation };
        queue.push_back(number);
        let record = &mut self.records[usize_of(number)];
        debug_assert!(!record.is_cached, "once");
        (record.is_cached, record.credit) = (true, 0);
    }

    /// Evicts a record; returns `false` if there is none.
    pub(super) fn evict(&mut self) -> bool {
        loop {
            let is_probation = self.main.is_empty() || self.probation.len() > self.len() / PROBATION_SHARE;
            let queue = if is_probation { &mut self.probation } else { &mut self.main };
            let Some(number) = queue.pop_front() else { return false };
            let record = &mut self.records[usize_of(number)];
            if record.credit == 0 {
                self.evictions += 1;
                (record.is_cached, record.evicted_at) = (false, self.evictions);
                return true;
            }
            record.credit = if is_probation { 0 } else { record.credit - 1 };
            self.main.push_back(number);
        }
    }
}

#[cfg(test)]
mod tests;
