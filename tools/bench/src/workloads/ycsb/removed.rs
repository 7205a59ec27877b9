//! Set of removed records, one bit each.
//!
//! **Invariants**
//! - A bit is changed only by the thread that holds the record's turn, or is the only writer of the record.
//! - The bits of a chunk are allocated when its first record is removed.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use testudo_base::num::usize_of;

use super::oracle::RECORDS_MAX;

/// Records whose bits are allocated together (128 KiB).
const CHUNK_RECORDS: u64 = 1 << 20;
const RECORDS_PER_WORD: u64 = 64;

/// A set of records.
pub(crate) struct Removed {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
    count: AtomicU64,
}

impl Removed {
    /// Creates an empty set.
    pub(crate) fn new() -> Self {
        let chunks = (0..RECORDS_MAX / CHUNK_RECORDS).map(|_| OnceLock::new()).collect();
        Self { chunks, count: AtomicU64::new(0) }
    }

    /// Returns the number of removed records.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Whether `record` is removed.
    #[inline]
    pub(crate) fn contains(&self, record: u64) -> bool {
        let chunk = self.chunks[usize_of(record / CHUNK_RECORDS)].get();
        chunk.is_some_and(|chunk| chunk[word_of(record)].load(Relaxed) & bit_of(record) != 0)
    }

    /// Marks `record` as removed.
    pub(crate) fn add(&self, record: u64) {
        let chunk = self.chunks[usize_of(record / CHUNK_RECORDS)]
            .get_or_init(|| (0..CHUNK_RECORDS / RECORDS_PER_WORD).map(|_| AtomicU64::new(0)).collect());
        let bit = bit_of(record);
        if chunk[word_of(record)].fetch_or(bit, Relaxed) & bit == 0 {
            self.count.fetch_add(1, Relaxed);
        }
    }

    /// Marks `record` as present again, if it was removed.
    #[inline]
    pub(crate) fn take_back(&self, record: u64) {
        let Some(chunk) = self.chunks[usize_of(record / CHUNK_RECORDS)].get() else { return };
        let bit = bit_of(record);
        if chunk[word_of(record)].fetch_and(!bit, Relaxed) & bit != 0 {
            self.count.fetch_sub(1, Relaxed);
        }
    }
}

fn word_of(record: u64) -> usize {
    usize_of(record % CHUNK_RECORDS / RECORDS_PER_WORD)
}

fn bit_of(record: u64) -> u64 {
    1 << (record % RECORDS_PER_WORD)
}

#[cfg(test)]
mod tests;
