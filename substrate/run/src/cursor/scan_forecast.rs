//! How far a scan goes, as far as that is known, and what a run will give of it: what is read ahead by.
//!
//! A scan that says how many entries it is for reads them in few large pieces and nothing beyond them. What
//! one run holds of them is an estimate at first, by the bytes that all runs have around there, and then what
//! the run has given so far.
//!
//! **Invariants**
//! - Advice only: a wrong one costs reads, never an entry.
//! - Without a forecast pieces grow with what a scan has passed, so that what is read in vain stays a part of
//!   that.

use testudo_base::{
    num::low64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// How far a scan goes, as far as its user has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanLimits {
    /// At most so many entries will be asked for.
    pub entries: Option<u64>,
    /// None from this key on will be.
    pub end: Option<Arc<[u8]>>,
}

/// A scan's limits and how far it has come: what all of its sources know.
#[derive(Debug)]
pub struct ScanProgress {
    end: Option<Arc<[u8]>>,
    entries_max: Option<u64>,
    passed: AtomicU64,
}

/// What a scan will need of one run.
#[derive(Clone, Debug)]
pub struct ScanForecast {
    progress: Arc<ScanProgress>,
    /// Of each so many entries of the scan…
    entries: u64,
    /// …the run is expected to have these pages.
    pages: u64,
    /// Where the scan goes on in this run, if anywhere.
    is_main: bool,
    /// Entries that the scan had passed when this was said, and pages of this run.
    entries_before: u64,
    pages_before: u32,
}

/// A run has shown what it gives of a scan when it has given so many pages.
const MEASURED_PAGES: u32 = 4;
/// Pages of one piece at most: 256 KiB.
pub(crate) const LAST_PIECE_PAGES: u32 = 64;
/// Pages of a piece that needs no lease: 64 KiB.
pub(crate) const FIRST_PIECE_PAGES: u32 = 16;
/// The least piece of a scan that has passed a few pages.
pub(crate) const LEAST_PIECE_PAGES: u32 = 8;

impl ScanProgress {
    /// A scan that has not begun.
    pub fn new(limits: &ScanLimits) -> Arc<Self> {
        let passed = AtomicU64::new(0);
        Arc::new(Self { end: limits.end.clone(), entries_max: limits.entries, passed })
    }

    /// The same scan, where it is sought to another place.
    pub fn begun_anew(&self) -> Arc<Self> {
        Self::new(&ScanLimits { entries: self.entries_left(), end: self.end.clone() })
    }

    /// The scan has gone one entry on. Only its own thread says so.
    #[inline]
    pub fn count_entry(&self) {
        self.passed.store(self.passed.load(Relaxed) + 1, Relaxed);
    }

    /// Entries still to come at most; `None` if there is no telling.
    pub fn entries_left(&self) -> Option<u64> {
        self.entries_max.map(|max| max.saturating_sub(self.passed.load(Relaxed)))
    }

    /// Whether anything is known of where it ends.
    pub fn is_limited(&self) -> bool {
        self.entries_max.is_some() || self.end.is_some()
    }

    /// The key at which the scan ends, if one was given.
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }
}

impl ScanForecast {
    /// For a run of which `pages` of each `entries` entries are; `is_main`: the scan is sure to go on in it.
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

    /// The run was open before and has passed so many pages.
    pub(crate) fn begin_after(&mut self, passed_pages: u32) {
        self.pages_before = passed_pages;
    }

    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.progress.end()
    }

    /// Pages that the scan would have passed of the run, had it always been as it is here.
    pub(crate) fn pages_alike(&self) -> u32 {
        if self.entries_before == 0 {
            return 0;
        }
        let pages = u128::from(self.entries_before) * u128::from(self.pages);
        u32::try_from(pages / u128::from(self.entries.max(1))).unwrap_or(u32::MAX)
    }

    /// Pages that the scan will need of the run from here on, at least one; `None` if there is no telling,
    /// or if the scan goes on further than it was to (it has passed deleted entries).
    pub(crate) fn pages_left(&self, passed_pages: u32) -> Option<u32> {
        let left = self.progress.entries_left().filter(|left| *left > 0)?;
        let passed = passed_pages.saturating_sub(self.pages_before);
        let gone = self.progress.passed.load(Relaxed) - self.entries_before;
        // It began somewhere within a page: what was passed is half a page less.
        let (half_pages, entries) = if passed >= MEASURED_PAGES && gone > 0 {
            (2 * u64::from(passed) - 1, gone)
        } else {
            (self.pages.saturating_mul(2), self.entries)
        };
        // Where most entries come from it is better to read one page too many.
        let halves = if self.is_main && passed == 0 { 2 } else { 1 };
        let entries = u128::from(entries.max(1));
        let doubled = u128::from(left) * u128::from(half_pages) + halves * entries;
        let needed = low64(doubled.div_ceil(2 * entries).max(1));
        Some(u32::try_from(needed).unwrap_or(u32::MAX))
    }
}

/// Pages worth reading at once where nothing is known but what the scan has passed. Beyond the first few
/// pages a third of that: so little is read in vain, and the number of reads grows with the logarithm of the
/// length only.
pub(crate) fn piece_after(passed_pages: u32) -> u32 {
    match passed_pages {
        0 => 1,
        1 => 2,
        2 | 3 => 4,
        passed => (passed / 3).clamp(LEAST_PIECE_PAGES, LAST_PIECE_PAGES),
    }
}

#[cfg(test)]
mod tests;
