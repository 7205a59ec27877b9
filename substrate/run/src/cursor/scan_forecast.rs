//! Predicted length of a scan, and of its share in a run: controls read-ahead.
//!
//! A scan with a known number of entries reads them in few large chunks, and nothing beyond them. The share
//! of a run is an estimate at first, from the bytes of all runs in that range, and later what the run has
//! provided so far.
//!
//! **Invariants**
//! - Advisory only: a wrong forecast costs reads, never an entry.
//! - Without a forecast, chunks grow with the length of the scan so far, so that wasted reads stay a fraction
//!   of it.

use testudo_base::{
    num::low64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Limits of a scan, as given by its user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanLimits {
    /// Maximum number of entries requested.
    pub entries: Option<u64>,
    /// Exclusive end of the requested keys.
    pub end: Option<Arc<[u8]>>,
}

/// Limits and progress of a scan, shared by all of its sources.
#[derive(Debug)]
pub struct ScanProgress {
    end: Option<Arc<[u8]>>,
    entries_max: Option<u64>,
    passed: AtomicU64,
}

/// Predicted needs of a scan in one run.
#[derive(Clone, Debug)]
pub struct ScanForecast {
    progress: Arc<ScanProgress>,
    /// Entries of the scan per `pages` pages of the run.
    entries: u64,
    /// Pages that the run is expected to provide per `entries` entries.
    pages: u64,
    /// Whether the scan is certain to continue in this run.
    is_main: bool,
    /// Entries that the scan had passed when the forecast was made, and pages of this run.
    entries_before: u64,
    pages_before: u32,
}

/// Number of pages after which a run's measured share replaces the estimate.
const MEASURED_PAGES: u32 = 4;
/// Maximum pages of a chunk: 256 KiB.
pub(crate) const LAST_CHUNK_PAGES: u32 = 64;
/// Pages of a chunk that needs no lease: 64 KiB.
pub(crate) const FIRST_CHUNK_PAGES: u32 = 16;
/// Minimum pages of a chunk after the first few pages of a scan.
pub(crate) const LEAST_CHUNK_PAGES: u32 = 8;

impl ScanProgress {
    /// Creates the progress of a scan that has not started.
    pub fn new(limits: &ScanLimits) -> Arc<Self> {
        let passed = AtomicU64::new(0);
        Arc::new(Self { end: limits.end.clone(), entries_max: limits.entries, passed })
    }

    /// Returns the progress of the same scan after a new seek.
    pub fn begun_anew(&self) -> Arc<Self> {
        Self::new(&ScanLimits { entries: self.entries_left(), end: self.end.clone() })
    }

    /// Counts one more entry. Called only by the scan's own thread.
    #[inline]
    pub fn count_entry(&self) {
        self.passed.store(self.passed.load(Relaxed) + 1, Relaxed);
    }

    /// Maximum number of remaining entries; `None` if unknown.
    pub fn entries_left(&self) -> Option<u64> {
        self.entries_max.map(|max| max.saturating_sub(self.passed.load(Relaxed)))
    }

    /// Whether the scan has any limit.
    pub fn is_limited(&self) -> bool {
        self.entries_max.is_some() || self.end.is_some()
    }

    /// Key at which the scan ends, if given.
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }
}

impl ScanForecast {
    /// Creates the forecast of a run that provides `pages` per `entries` entries; `is_main`: the scan is
    /// certain to continue in it.
    pub fn new(progress: &Arc<ScanProgress>, pages: u64, entries: u64, is_main: bool) -> Self {
        Self {
            progress: Arc::clone(progress),
            entries,
            pages,
            is_main,
            entries_before: progress.passed.load(Relaxed),
            pages_before: 0,
        }
    }

    /// Sets the number of pages passed before the forecast was made.
    pub(crate) fn begin_after(&mut self, passed_pages: u32) {
        self.pages_before = passed_pages;
    }

    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.progress.end()
    }

    /// Number of pages of the run that the scan would have passed at this density from its start.
    pub(crate) fn pages_alike(&self) -> u32 {
        if self.entries_before == 0 {
            return 0;
        }
        let pages = u128::from(self.entries_before) * u128::from(self.pages);
        u32::try_from(pages / u128::from(self.entries.max(1))).unwrap_or(u32::MAX)
    }

    /// Predicted number of pages that the scan needs from here on, at least one; `None` if unknown, or if the
    /// scan exceeded its limit (after passing deleted entries).
    pub(crate) fn pages_left(&self, passed_pages: u32) -> Option<u32> {
        let left = self.progress.entries_left().filter(|left| *left > 0)?;
        let passed = passed_pages.saturating_sub(self.pages_before);
        let gone = self.progress.passed.load(Relaxed) - self.entries_before;
        // It started within a page, so half a page less was passed.
        let (half_pages, entries) = if passed >= MEASURED_PAGES && gone > 0 {
            (2 * u64::from(passed) - 1, gone)
        } else {
            (self.pages.saturating_mul(2), self.entries)
        };
        // In the source of most entries it is better to read one page too many.
        let halves = if self.is_main && passed == 0 { 2 } else { 1 };
        let entries = u128::from(entries.max(1));
        let doubled = u128::from(left) * u128::from(half_pages) + halves * entries;
        let needed = low64(doubled.div_ceil(2 * entries).max(1));
        Some(u32::try_from(needed).unwrap_or(u32::MAX))
    }
}

/// The next read has this part of the pages passed: at most a quarter of all pages read is then unused.
const PASSED_PARTS: u32 = 3;

/// Number of pages to read at once, given only the length of the scan so far: a third of that after the first
/// few pages. This limits wasted reads, and the number of reads grows only logarithmically with the length.
pub(crate) fn chunk_after(passed_pages: u32) -> u32 {
    match passed_pages {
        0 => 1,
        1 => 2,
        2 | 3 => 4,
        passed => (passed / PASSED_PARTS).clamp(LEAST_CHUNK_PAGES, LAST_CHUNK_PAGES),
    }
}

#[cfg(test)]
mod tests;
