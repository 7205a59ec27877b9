//! The border between single records and pages in the memory that both can use.
//!
//! Each cache remembers its last evictions. Those within the last eighth of that memory count here
//! ([`Division::ghost_bytes`]): that much more memory would have saved a device read for such a record or
//! page. So the read moves the border a step towards the cache that evicted it. If both gain the same from
//! the next byte, the border stays (ARC, Megiddo and Modha, FAST 2003, over bytes in place of pages).
//!
//! Moving the border moves no memory: the next user that needs memory and is below its share gets it from the
//! other one.
//!
//! **Invariants**
//! - The border is a fraction of the available memory, so it holds whatever write buffers use at the moment.

use crate::{
    num::low64,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const WHOLE_LOG: u32 = 24;
/// Units of the border, as parts of the memory; its initial value, and the minimum for either side.
const WHOLE: u64 = 1 << WHOLE_LOG;
const FIRST: u64 = WHOLE / 2;
const LEAST: u64 = WHOLE / 32;
/// Step per read that would have been saved: this many bytes (decision 0037), or the memory divided by this,
/// whichever is larger. With 8 KiB steps the border moves too slowly in a large memory (decision 0054).
const STEP_BYTES: u64 = 8 << 10;
const STEP_PARTS: u64 = 4096;

/// Actual and target sizes of records and pages in the memory that both can use.
#[derive(Debug)]
pub struct Division {
    record_bytes: AtomicU64,
    page_bytes: AtomicU64,
    missed_records: AtomicU64,
    missed_pages: AtomicU64,
    /// Share of records, in units of [`WHOLE`].
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
    /// Evictions count within the memory divided by this.
    pub const GHOST_PARTS: u16 = 8;

    /// Bytes of segments of records.
    fn record_bytes(&self) -> u64 {
        self.record_bytes.load(Relaxed)
    }

    /// Bytes that pages have borrowed.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes.load(Relaxed)
    }

    /// Records that the record cache has taken a segment.
    pub fn records_grew(&self, bytes: u64) {
        self.record_bytes.fetch_add(bytes, Relaxed);
    }

    /// Records that the record cache has returned a segment.
    pub fn records_shrank(&self, bytes: u64) {
        let before = self.record_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "segments of records are counted");
    }

    pub(super) fn pages_grew(&self, bytes: u64) {
        self.page_bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn pages_shrank(&self, bytes: u64) {
        let before = self.page_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "bytes borrowed by pages are counted");
    }

    /// Evictions within this many bytes adjust the border, where both may use `limit_bytes` together.
    pub fn ghost_bytes(limit_bytes: u64) -> u64 {
        limit_bytes / u64::from(Self::GHOST_PARTS)
    }

    /// Records a device read for a record that was recently evicted.
    pub fn record_was_missed(&self, limit_bytes: u64) {
        self.missed_records.fetch_add(1, Relaxed);
        let border = self.border.load(Relaxed).saturating_add(step(limit_bytes)).min(WHOLE - LEAST);
        debug_assert!(border >= LEAST, "both sides keep their minimum");
        self.border.store(border, Relaxed);
    }

    /// Records a device read for a page that was recently evicted.
    pub fn page_was_missed(&self, limit_bytes: u64) {
        self.missed_pages.fetch_add(1, Relaxed);
        let border = self.border.load(Relaxed).saturating_sub(step(limit_bytes)).max(LEAST);
        debug_assert!(border <= WHOLE - LEAST, "both sides keep their minimum");
        self.border.store(border, Relaxed);
    }

    /// Number of device reads for recently evicted records.
    pub fn missed_records(&self) -> u64 {
        self.missed_records.load(Relaxed)
    }

    /// Number of device reads for recently evicted pages.
    pub fn missed_pages(&self) -> u64 {
        self.missed_pages.load(Relaxed)
    }

    /// Position of the border: the share of records, in the units of [`Division::set_border`].
    pub fn border(&self) -> u64 {
        self.border.load(Relaxed)
    }

    /// Sets the border to that of an earlier opening. Values out of bounds are clamped.
    pub fn set_border(&self, border: u64) {
        self.border.store(border.clamp(LEAST, WHOLE - LEAST), Relaxed);
    }

    /// Bytes due to records, of the memory that they and pages have now.
    pub fn record_due_bytes(&self) -> u64 {
        let both = u128::from(self.record_bytes() + self.page_bytes());
        let due = (both * u128::from(self.border.load(Relaxed))) >> WHOLE_LOG;
        debug_assert!(due <= both, "a share is a part of the whole");
        low64(due)
    }

    /// Whether records are below their share even with `bytes` more.
    pub(super) fn are_records_due(&self, bytes: u64) -> bool {
        self.record_bytes() + bytes <= self.record_due_bytes()
    }

    /// Whether pages are below their share even with `bytes` more.
    pub(super) fn are_pages_due(&self, bytes: u64) -> bool {
        self.record_bytes() >= self.record_due_bytes() + bytes
    }

    pub(super) fn have_records_more(&self) -> bool {
        self.record_bytes() > self.record_due_bytes()
    }
}

/// Returns the step, in units of [`WHOLE`].
fn step(limit_bytes: u64) -> u64 {
    (STEP_BYTES * WHOLE / limit_bytes.max(1)).max(WHOLE / STEP_PARTS)
}

#[cfg(test)]
mod tests;
