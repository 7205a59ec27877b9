//! Pages and records under one memory bound, divided by a policy.
//!
//! A read looks up the record, then its page, and reads the page from the device on a miss. Scans use pages
//! alone. A write inserts the record into the record cache without reading the device, as a flush does.
//!
//! **Invariants**
//! - The two caches together never exceed the bound.

use super::{
    pages::{Evicted, FRAME_BYTES, Pages},
    policy::{Admission, Border, Policy},
    records::Records,
    source::Access,
};

/// A moving border leaves at least this fraction (1 / n) of the memory to each side.
const PARTS_LEAST: u64 = 32;
/// Bits of a page's mask; further records share them.
const MASK_BITS: u64 = 64;

/// Sizes of the memory and the data set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) memory_bytes: u64,
    pub(super) records: u64,
    pub(super) records_per_page: u64,
    /// Bytes of a record in the record cache.
    pub(super) record_bytes: u64,
}

/// The two caches.
#[derive(Debug)]
pub(super) struct Memory {
    sizes: Sizes,
    policy: Policy,
    /// Maximum size of the record cache, in bytes.
    records_target: u64,
    pages: Pages,
    records: Records,
}

impl Memory {
    pub(super) fn new(sizes: Sizes, policy: Policy) -> Self {
        let percent = match policy.border {
            Border::Separate(percent) | Border::Fixed(percent) => percent,
            Border::Ghosts { .. } => 45,
        };
        Self {
            sizes,
            policy,
            records_target: sizes.memory_bytes * percent / 100,
            pages: Pages::new(sizes.records.div_ceil(sizes.records_per_page)),
            records: Records::new(sizes.records, sizes.record_bytes, policy.has_probation),
        }
    }

    /// Returns the share of the memory that records hold.
    pub(super) fn record_share(&self) -> f64 {
        self.records.bytes() as f64 / self.sizes.memory_bytes as f64
    }

    /// Serves an access; returns the number of pages read from the device.
    pub(super) fn access(&mut self, access: Access) -> u64 {
        match access {
            Access::Read(record) => self.read(record),
            Access::Scan { first, count } => {
                let last = (first + count.max(1) - 1).min(self.sizes.records - 1);
                let pages = first / self.sizes.records_per_page..=last / self.sizes.records_per_page;
                pages.map(|page| u64::from(self.read_page(page, None))).sum()
            }
            Access::Write(record) => {
                if !self.records.contains(record) {
                    self.cache_record(record);
                }
                0
            }
        }
    }

    fn read(&mut self, record: u64) -> u64 {
        if self.records.touch(record) {
            return 0;
        }
        let page = record / self.sizes.records_per_page;
        let is_from_device = self.read_page(page, Some(record));
        let others = self.pages.asked(page) & !self.bit_of(record);
        let is_admitted = match self.policy.admission {
            Admission::All => true,
            Admission::Sparse(limit) => others.count_ones() < limit,
            Admission::Distilled(_) => false,
        };
        if is_admitted {
            self.cache_record(record);
        }
        u64::from(is_from_device)
    }

    /// Reads a page, for a record or for a scan; returns whether it came from the device.
    fn read_page(&mut self, page: u64, record: Option<u64>) -> bool {
        let asked = record.map_or(0, |record| self.bit_of(record));
        if self.pages.touch(page, asked) {
            return false;
        }
        self.move_border(page, record);
        self.make_space(FRAME_BYTES);
        self.pages.insert(page, asked);
        true
    }

    fn bit_of(&self, record: u64) -> u64 {
        1 << (record % self.sizes.records_per_page % MASK_BITS)
    }

    /// Moves the border for a page that is read from the device.
    fn move_border(&mut self, page: u64, record: Option<u64>) {
        let Border::Ghosts { depth, step } = self.policy.border else { return };
        let last_bytes = self.sizes.memory_bytes / depth;
        let is_recent = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes <= last_bytes);
        let least = self.sizes.memory_bytes / PARTS_LEAST;
        if is_recent(self.pages.bytes_since_eviction(page)) {
            self.records_target = self.records_target.saturating_sub(step).max(least);
        }
        if record.is_some_and(|record| is_recent(self.records.bytes_since_eviction(record))) {
            self.records_target = (self.records_target + step).min(self.sizes.memory_bytes - least);
        }
    }

    /// Caches a record, if the target allows any.
    fn cache_record(&mut self, record: u64) {
        let bytes = self.sizes.record_bytes;
        if self.records_target < bytes {
            return;
        }
        while self.records.bytes() + bytes > self.records_target && self.records.evict() {}
        if !matches!(self.policy.border, Border::Separate(_)) {
            self.make_space(bytes);
        }
        // Evicting a page may have cached the record.
        if !self.records.contains(record) {
            self.records.insert(record);
        }
    }

    /// Evicts until there is space for `bytes` more: records while they exceed their target, else pages.
    fn make_space(&mut self, bytes: u64) {
        if let Border::Separate(_) = self.policy.border {
            let bound = self.sizes.memory_bytes - self.records_target;
            while self.pages.bytes() + bytes > bound && self.evict_page() {}
            return;
        }
        while self.pages.bytes() + self.records.bytes() + bytes > self.sizes.memory_bytes {
            let is_record = self.records.bytes() > self.records_target && self.records.evict();
            if !is_record && !self.evict_page() && !self.records.evict() {
                return;
            }
        }
    }

    /// Evicts a page; returns `false` if there is none.
    fn evict_page(&mut self) -> bool {
        let limit = match self.policy.admission {
            Admission::Distilled(limit) => limit,
            _ => return self.pages.evict(|_| false).is_some(),
        };
        let Some(Evicted { page, asked }) = self.pages.evict(|asked| asked.count_ones() >= limit) else {
            return false;
        };
        let first = page * self.sizes.records_per_page;
        let bits = (0..self.sizes.records_per_page.min(MASK_BITS)).filter(|bit| asked >> bit & 1 == 1);
        for record in bits.map(|bit| first + bit) {
            // They use the space of the evicted page. If their target does not allow them, they are dropped.
            while self.records.bytes() + self.sizes.record_bytes > self.records_target {
                if !self.records.evict() {
                    return true;
                }
            }
            if !self.records.contains(record) {
                self.records.insert(record);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
