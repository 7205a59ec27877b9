//! The record cache of the simulation: first in, first out, with reinsertion of records that were used.
//!
//! **Invariants**
//! - A cached record is in the queue exactly once.

use std::collections::VecDeque;

use testudo_base::num::{u64_of, usize_of};

/// Most turns that a record has to its credit: two bits.
const CREDIT_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    is_cached: bool,
    credit: u8,
    /// Evictions of records until it went, itself included; 0 if it never did.
    evicted_at: u64,
}

/// The cache, over records that are numbered from 0.
#[derive(Debug)]
pub(super) struct Records {
    record_bytes: u64,
    records: Vec<Record>,
    queue: VecDeque<u64>,
    evictions: u64,
}

impl Records {
    /// For `count` records, each of which takes `record_bytes` in the cache.
    pub(super) fn new(count: u64, record_bytes: u64) -> Self {
        let records = vec![Record::default(); usize_of(count)];
        Self { record_bytes, records, queue: VecDeque::new(), evictions: 0 }
    }

    /// Memory of all records.
    pub(super) fn bytes(&self) -> u64 {
        u64_of(self.queue.len()) * self.record_bytes
    }

    /// Whether the record is cached.
    pub(super) fn contains(&self, record: u64) -> bool {
        self.records[usize_of(record)].is_cached
    }

    /// The same; that is a use of it.
    pub(super) fn touch(&mut self, record: u64) -> bool {
        let record = &mut self.records[usize_of(record)];
        record.credit = (record.credit + 1).min(CREDIT_MAX);
        record.is_cached
    }

    /// How many bytes of records went since this one did, itself included; `None` if it never went.
    pub(super) fn bytes_since_eviction(&self, record: u64) -> Option<u64> {
        let at = self.records[usize_of(record)].evicted_at;
        (at > 0).then(|| (self.evictions + 1 - at) * self.record_bytes)
    }

    /// Puts a record in. REQUIRES: it is not cached.
    pub(super) fn insert(&mut self, number: u64) {
        let record = &mut self.records[usize_of(number)];
        debug_assert!(!record.is_cached, "once");
        (record.is_cached, record.credit) = (true, 0);
        self.queue.push_back(number);
    }

    /// Takes a record out; `false` if there is none.
    pub(super) fn evict(&mut self) -> bool {
        while let Some(number) = self.queue.pop_front() {
            let record = &mut self.records[usize_of(number)];
            if record.credit == 0 {
                self.evictions += 1;
                (record.is_cached, record.evicted_at) = (false, self.evictions);
                return true;
            }
            record.credit -= 1;
            self.queue.push_back(number);
        }
        false
    }
}

#[cfg(test)]
mod tests;
