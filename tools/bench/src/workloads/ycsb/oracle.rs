//! Expected version of every record, in four bits per record.
//!
//! Each record has a version, counted modulo 16. Writers of a record are serialized. A reader notes the
//! version before and after its read; the version it read must be in between or be the one being written.
//!
//! **Invariants**
//! - A version is incremented only after the store acknowledged the write, under the lock of the record's
//!   stripe.
//! - Records below [`Oracle::acknowledged`] exist; those from [`Oracle::reserved`] on do not.
//! - Lock order: a stripe, then nothing; `late_inserts` on its own.

use std::{
    collections::BTreeSet,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use testudo_base::num::usize_of;

use super::values::VERSIONS;

/// Records whose versions are allocated together (512 KiB).
const CHUNK_RECORDS: u64 = 1 << 20;
const VERSIONS_PER_WORD: u64 = 16;
const STRIPES: u64 = 1024;
/// Writes of a stripe during one read after which the version order is ambiguous.
const WRITES_SURE: u64 = 8;

/// Maximum number of records of an oracle.
pub(crate) const RECORDS_MAX: u64 = 4096 * CHUNK_RECORDS;

#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    turn: Mutex<()>,
    writes: AtomicU64,
}

/// Versions of all records.
pub(crate) struct Oracle {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
    stripes: Box<[Stripe]>,
    reserved: AtomicU64,
    acknowledged: AtomicU64,
    /// Acknowledged inserts above an unacknowledged one.
    late_inserts: Mutex<BTreeSet<u64>>,
}

/// State of a record before a read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    version: u8,
    writes: u64,
}

/// Exclusive right to write a record.
pub(crate) struct Turn<'a> {
    oracle: &'a Oracle,
    record: u64,
    current: u8,
    _guard: MutexGuard<'a, ()>,
}

impl Oracle {
    /// Creates an oracle of `records` records, all at version 0.
    pub(crate) fn new(records: u64) -> Self {
        Self {
            chunks: (0..RECORDS_MAX / CHUNK_RECORDS).map(|_| OnceLock::new()).collect(),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            reserved: AtomicU64::new(records),
            acknowledged: AtomicU64::new(records),
            late_inserts: Mutex::default(),
        }
    }

    /// Returns the end of the records that are guaranteed to exist.
    #[inline]
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// Returns the end of the records that may exist.
    #[inline]
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Reserves the number of a new record, to be inserted at version 0.
    pub(crate) fn reserve_insert(&self) -> u64 {
        self.reserved.fetch_add(1, Ordering::AcqRel)
    }

    /// Records that the store acknowledged the insert of a reserved `record`.
    pub(crate) fn acknowledge_insert(&self, record: u64) {
        let mut late = self.late_inserts.lock();
        late.insert(record);
        let mut next = self.acknowledged.load(Ordering::Relaxed);
        while late.remove(&next) {
            next += 1;
        }
        self.acknowledged.store(next, Ordering::Release);
    }

    /// Sets the number of existing records, as found by a full scan.
    pub(crate) fn assume_records(&self, records: u64) {
        self.reserved.store(records, Ordering::Release);
        self.acknowledged.store(records, Ordering::Release);
    }

    /// Sets the version of `record`, as found by a read. REQUIRES: no concurrent writes of the record.
    pub(crate) fn assume_version(&self, record: u64, version: u8) {
        self.set_version(record, self.version(record), version);
    }

    /// Returns the versions of all existing records, sixteen per word. REQUIRES: no concurrent writes.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        let words = 0..self.acknowledged().div_ceil(VERSIONS_PER_WORD);
        words.map(|word| self.word(word * VERSIONS_PER_WORD).load(Ordering::Acquire))
    }

    /// Sets the versions of all existing records to those of `next`, in the format of [`Oracle::words`].
    pub(crate) fn assume_words<E>(
        &self,
        mut next: impl FnMut() -> std::result::Result<u64, E>,
    ) -> std::result::Result<(), E> {
        for word in 0..self.acknowledged().div_ceil(VERSIONS_PER_WORD) {
            self.word(word * VERSIONS_PER_WORD).store(next()?, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the last acknowledged version.
    #[inline]
    pub(crate) fn version(&self, record: u64) -> u8 {
        let word = self.word(record).load(Ordering::Acquire);
        ((word >> shift_of(record)) & 0xf) as u8
    }

    /// Returns the state of `record` before a read.
    #[inline]
    pub(crate) fn look(&self, record: u64) -> Sight {
        let writes = self.stripe(record).writes.load(Ordering::Acquire);
        Sight { version: self.version(record), writes }
    }

    /// Whether a read that began at `before` and has just ended may have returned `version`.
    #[inline]
    pub(crate) fn admits(&self, record: u64, before: Sight, version: u8) -> bool {
        let after = self.version(record);
        let writes = self.stripe(record).writes.load(Ordering::Acquire);
        if writes - before.writes >= WRITES_SURE {
            return true;
        }
        distance(before.version, version) <= distance(before.version, after) + 1
    }

    /// Waits for exclusive write access to `record` and the other records of its stripe.
    #[inline]
    pub(crate) fn turn(&self, record: u64) -> Turn<'_> {
        let guard = self.stripe(record).turn.lock();
        Turn { oracle: self, record, current: self.version(record), _guard: guard }
    }

    fn set_version(&self, record: u64, old: u8, new: u8) {
        let change = u64::from(old ^ new) << shift_of(record);
        self.word(record).fetch_xor(change, Ordering::Release);
    }

    fn stripe(&self, record: u64) -> &Stripe {
        &self.stripes[usize_of(record % STRIPES)]
    }

    fn word(&self, record: u64) -> &AtomicU64 {
        let chunk = self.chunks[usize_of(record / CHUNK_RECORDS)]
            .get_or_init(|| (0..CHUNK_RECORDS / VERSIONS_PER_WORD).map(|_| AtomicU64::new(0)).collect());
        &chunk[usize_of(record % CHUNK_RECORDS / VERSIONS_PER_WORD)]
    }
}

impl Turn<'_> {
    /// Returns the current version of the record.
    pub(crate) fn current(&self) -> u8 {
        self.current
    }

    /// Returns the version to write.
    pub(crate) fn next(&self) -> u8 {
        (self.current + 1) % VERSIONS
    }

    /// Records that the store acknowledged the write.
    pub(crate) fn acknowledge(self) {
        self.oracle.set_version(self.record, self.current, self.next());
        self.oracle.stripe(self.record).writes.fetch_add(1, Ordering::Release);
    }
}

/// Returns the number of increments from one version to another.
fn distance(from: u8, to: u8) -> u8 {
    to.wrapping_sub(from) % VERSIONS
}

fn shift_of(record: u64) -> u64 {
    record % VERSIONS_PER_WORD * 4
}

#[cfg(test)]
mod tests;
