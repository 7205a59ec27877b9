//! The direct map from page number to frame, without locks or hashing.
//!
//! One word per page of the data file holds its frame or, for an evicted data page, the time of its eviction.
//! A recently evicted page is admitted to the main set, without a separate ghost table.
//!
//! **Invariants**
//! - An entry is a hint: a reader that follows it verifies the page of the frame.

use testudo_base::{
    num::{u64_of, usize_of},
    sync::{
        OnceLock, SharedSlice,
        atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst},
        scaled, zeroed_words,
    },
};

/// Pages of the data file per second-level table (512 MiB).
const TABLE_PAGES: u64 = u64_of(scaled(1 << 17, 1 << 6));
/// Number of second-level tables: pages beyond 8 TiB are readable, but not cached.
const TABLE_COUNT: u64 = u64_of(scaled(1 << 14, 1 << 4));
/// Flag of an evicted page's entry; the other bits are its eviction time.
const GONE: u32 = 1 << 31;

/// State of a page in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Not in the map.
    Unknown,
    /// Cached in this frame, or being loaded into it.
    In(u32),
    /// Evicted at this time of the eviction clock.
    Gone(u32),
}

impl Trace {
    #[inline]
    fn of(word: u32) -> Self {
        match word {
            0 => Self::Unknown,
            word if word & GONE != 0 => Self::Gone(word & !GONE),
            word => Self::In(word - 1),
        }
    }

    #[inline]
    fn word(self) -> u32 {
        debug_assert!(
            !matches!(self, Self::In(frame) if frame + 1 >= GONE),
            "frame numbers leave the flag free"
        );
        match self {
            Self::Unknown => 0,
            Self::In(frame) => frame + 1,
            Self::Gone(clock) => clock | GONE,
        }
    }
}

/// Evictions between two readings of the eviction clock; `then` comes from the map.
pub(crate) fn age(now: u32, then: u32) -> u32 {
    now.wrapping_sub(then) & !GONE
}

/// Entry of one page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a>(&'a AtomicU32);

impl Entry<'_> {
    #[inline]
    pub(crate) fn get(self) -> Trace {
        Trace::of(self.0.load(Acquire))
    }

    /// Changes the entry if it still is `from`.
    pub(crate) fn change(self, from: Trace, to: Trace) -> bool {
        self.0.compare_exchange(from.word(), to.word(), SeqCst, Relaxed).is_ok()
    }

    /// Clears the entry; returns its previous state.
    pub(crate) fn clear(self) -> Trace {
        Trace::of(self.0.swap(0, SeqCst))
    }
}

#[derive(Debug)]
pub(crate) struct PageMap {
    tables: Box<[OnceLock<SharedSlice<AtomicU32>>]>,
    /// Number of tables allocated.
    made: AtomicU64,
}

impl PageMap {
    pub(crate) fn new() -> Self {
        Self { tables: (0..TABLE_COUNT).map(|_| OnceLock::new()).collect(), made: AtomicU64::new(0) }
    }

    /// Returns the entry of `page`, if its table is allocated.
    #[inline]
    pub(crate) fn entry(&self, page: u64) -> Option<Entry<'_>> {
        let table = self.tables.get(usize_of(page / TABLE_PAGES))?.get()?;
        table.get(usize_of(page % TABLE_PAGES)).map(Entry)
    }

    /// Returns the entry of `page`, allocating its table; `None` for pages that are not cached.
    pub(crate) fn make_entry(&self, page: u64) -> Option<Entry<'_>> {
        let table = self.tables.get(usize_of(page / TABLE_PAGES))?;
        if table.get().is_none() && table.set(zeroed_words(usize_of(TABLE_PAGES))).is_ok() {
            self.made.fetch_add(1, Relaxed);
        }
        let table = table.get()?;
        table.get(usize_of(page % TABLE_PAGES)).map(Entry)
    }

    /// Bytes of the map.
    pub(crate) fn bytes(&self) -> u64 {
        let table_bytes = TABLE_PAGES * u64_of(size_of::<AtomicU32>());
        self.made.load(Relaxed) * table_bytes + u64_of(size_of_val(&*self.tables))
    }
}

#[cfg(test)]
mod tests;
