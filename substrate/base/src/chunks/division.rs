//! The border between single records and pages in the memory that both can use.
//!
//! Each cache remembers what it evicted last. What was evicted within the last eighth of that memory counts
//! here ([`Division::ghost_bytes`]): a read of the device for such a record or page is one that so much more
//! memory would have saved, so it moves the border a step towards the cache that forgot. Where both gain the
//! same from the next byte, the border stays (ARC, Megiddo and Modha, FAST 2003, over bytes in place of
//! pages).
//!
//! Nothing is moved when the border moves: whoever needs memory next and has less than its part gets it from
//! the other.
//!
//! **Invariants**
//! - The border is a part of the memory that there is, so it holds whatever write buffers have at the moment.

use crate::{
    num::low64,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const WHOLE_LOG: u32 = 24;
/// The border is counted in so many parts of the memory: where it is at first, and how far it can go.
const WHOLE: u64 = 1 << WHOLE_LOG;
const FIRST: u64 = WHOLE / 2;
const LEAST: u64 = WHOLE / 32;
/// What a read that would have been saved moves: so many bytes (decision 0037), or one of so many parts of
/// the memory, if that is more: a border that moves by 8 KiB takes too long in a large one (decision 0054).
const STEP_BYTES: u64 = 8 << 10;
const STEP_PARTS: u64 = 4096;

/// Who has how much of the memory that records and pages can both use, and who should.
#[derive(Debug)]
pub struct Division {
    record_bytes: AtomicU64,
    page_bytes: AtomicU64,
    missed_records: AtomicU64,
    missed_pages: AtomicU64,
    /// The part of records, of [`WHOLE`].
    border: AtomicU64,
}

impl Default for Division {
    fn default() -> Self {
        Self {
            record_bytes: 0.into(),
            page_bytes: 0.into(),
            missed_records: 0.into(),
            missed_pages: 0.into(),
            border: FIRST.into(),
        }
    }
}

impl Division {
    /// One of this many parts of the memory is what evicted records or pages count up to.
    pub const GHOST_PARTS: u16 = 8;

    /// Bytes of segments of records.
    fn record_bytes(&self) -> u64 {
        self.record_bytes.load(Relaxed)
    }

    /// Bytes that pages have borrowed.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes.load(Relaxed)
    }

    /// The record cache has taken or given back a segment.
    pub fn records_grew(&self, bytes: u64) {
        self.record_bytes.fetch_add(bytes, Relaxed);
    }

    /// See [`Division::records_grew`].
    pub fn records_shrank(&self, bytes: u64) {
        let before = self.record_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "segments of records are counted");
    }

    pub(super) fn pages_grew(&self, bytes: u64) {
        self.page_bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn pages_shrank(&self, bytes: u64) {
        let before = self.page_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "what pages borrowed is counted");
    }

    /// What was evicted within so many bytes of evictions says where the border should be, where all may have
    /// `limit_bytes`.
    pub fn ghost_bytes(limit_bytes: u64) -> u64 {
        limit_bytes / u64::from(Self::GHOST_PARTS)
    }

    /// The device was read for a record that was evicted a short while ago.
    pub fn record_was_missed(&self, limit_bytes: u64) {
        self.missed_records.fetch_add(1, Relaxed);
        let border = self.border.load(Relaxed).saturating_add(step(limit_bytes)).min(WHOLE - LEAST);
        self.border.store(border, Relaxed);
    }

    /// The same for a page.
    pub fn page_was_missed(&self, limit_bytes: u64) {
        self.missed_pages.fetch_add(1, Relaxed);
        let border = self.border.load(Relaxed).saturating_sub(step(limit_bytes)).max(LEAST);
        self.border.store(border, Relaxed);
    }

    /// How often the device was read for a record that was evicted a short while ago.
    pub fn missed_records(&self) -> u64 {
        self.missed_records.load(Relaxed)
    }

    /// The same for pages.
    pub fn missed_pages(&self) -> u64 {
        self.missed_pages.load(Relaxed)
    }

    /// Where the border is: the part of records, in units that [`Division::set_border`] takes.
    pub fn border(&self) -> u64 {
        self.border.load(Relaxed)
    }

    /// Puts the border where an earlier store of these keys had it. What is out of bounds is brought within.
    pub fn set_border(&self, border: u64) {
        self.border.store(border.clamp(LEAST, WHOLE - LEAST), Relaxed);
    }

    /// What records should have of the memory that they and pages have now.
    pub fn record_due_bytes(&self) -> u64 {
        let both = u128::from(self.record_bytes() + self.page_bytes());
        low64((both * u128::from(self.border.load(Relaxed))) >> WHOLE_LOG)
    }

    /// Whether records have less than their part even with `bytes` more.
    pub(super) fn are_records_due(&self, bytes: u64) -> bool {
        self.record_bytes() + bytes <= self.record_due_bytes()
    }

    /// Whether pages have less than theirs even with `bytes` more.
    pub(super) fn are_pages_due(&self, bytes: u64) -> bool {
        self.record_bytes() >= self.record_due_bytes() + bytes
    }

    pub(super) fn have_records_more(&self) -> bool {
        self.record_bytes() > self.record_due_bytes()
    }
}

/// A step, in parts of the memory.
fn step(limit_bytes: u64) -> u64 {
    (STEP_BYTES * WHOLE / limit_bytes.max(1)).max(WHOLE / STEP_PARTS)
}

#[cfg(test)]
mod tests;
