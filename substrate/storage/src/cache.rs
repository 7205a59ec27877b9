//! The page cache: verified pages of the data file, indexed by page number and read concurrently.
//!
//! ```text
//! get   page_map (page -> frame) -> pins (pin the frame, verify its page) ; replacement (heat)
//! load  load (one load per page) -> replacement (victim) -> pins (claim)
//!         ; capacity (more frames)
//! ```
//!
//! A hit costs a few loads, plus one increment and one decrement in a cache line of the thread's stripe.
//! Pages are immutable and never dirty, so eviction only drops them.
//!
//! **Invariants**
//! - The map leads to at most one frame per page. A reader that follows the map verifies the frame's page.
//! - No operation waits for a pinned page: eviction, invalidation and shrinking skip it.
//! - `used_bytes` is the memory allocated for pages; it grows only while below the capacity.

mod capacity;
mod counters;
mod frames;
mod load;
mod page_map;
mod pins;
mod replacement;
mod restore;

use testudo_base::{
    PAGE_BYTES, PAGE_SIZE, RunId,
    num::{u64_of, usize_of},
    planted,
    sync::{Mutex, atomic::AtomicUsize, scaled},
};

use self::{
    capacity::{Borrowed, FreeFrames, frames_of},
    counters::{Counters, Padded, count, stripe},
    frames::FrameTable,
    load::Gate,
    page_map::{PageMap, Trace},
    pins::{Claim, NO_PAGE},
    replacement::{Replacement, Set, touch},
};
pub use self::{
    counters::CacheStats,
    load::{Arrival, Awaited, Loading},
    pins::{Neighbours, PageRef},
    replacement::{Keeping, Priority},
    restore::{HotPage, Restoring},
};

const GATES: usize = scaled(16, 1);
/// Pages that are used together are cached if they fill at most this fraction of the cache (1/n).
const TOGETHER_PARTS: usize = 8;

/// Frames for the pages of the data file, up to the capacity.
#[derive(Debug)]
pub struct PageCache {
    map: PageMap,
    frames: FrameTable,
    replacement: Replacement,
    free: FreeFrames,
    /// Frames that the cache owns; the others are borrowed.
    own_frames: AtomicUsize,
    borrowed: Borrowed,
    /// Lock order: before the free list and a group's memory.
    resizing: Mutex<()>,
    gates: [Padded<Gate>; GATES],
    counters: Counters,
}

impl PageCache {
    /// Creates a cache of at most `capacity_bytes`, but at least 16 pages.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            map: PageMap::new(),
            frames: FrameTable::default(),
            replacement: Replacement::new(),
            free: FreeFrames::default(),
            own_frames: AtomicUsize::new(frames_of(capacity_bytes)),
            borrowed: Borrowed::default(),
            resizing: Mutex::new(()),
            gates: Default::default(),
            counters: Counters::new(),
        }
    }

    /// Returns the page if it is cached; this counts as a use.
    #[inline]
    pub fn get(&self, page: u64, generation: RunId) -> Option<PageRef<'_>> {
        self.get_if(page, generation, |_| true)
    }

    /// Returns the page if it is cached; this counts as a use if `is_use` returns `true` for the page.
    #[inline]
    pub fn get_if(
        &self,
        page: u64,
        generation: RunId,
        is_use: impl FnOnce(&PageRef<'_>) -> bool,
    ) -> Option<PageRef<'_>> {
        let stripe = stripe();
        let counts = self.counters.of(stripe);
        if let Some(entry) = self.map.entry(page)
            && let Trace::In(number) = entry.get()
            && let Some(frame) = self.frames.frame(number)
            && let Some(found) = frame.pin(stripe, page, generation)
        {
            if is_use(&found) && touch(frame.heat()) {
                count(&counts.restored_hits);
            }
            count(&counts.hits);
            return Some(found);
        }
        count(&counts.misses);
        None
    }

    /// Inserts a verified page and returns it; `None` if every frame is pinned, or if another thread is
    /// loading the page.
    pub fn insert(
        &self,
        page: u64,
        generation: RunId,
        bytes: &[u8],
        priority: Priority,
    ) -> Option<PageRef<'_>> {
        match self.begin_load(page, generation, priority) {
            Arrival::Present(found) => Some(found),
            Arrival::Load(mut loading) => {
                loading.bytes().copy_from_slice(bytes);
                Some(loading.finish())
            }
            Arrival::Elsewhere(_) | Arrival::Refused => None,
        }
    }

    /// Whether `pages` that are used together fit: at most an eighth of the capacity, or of half of the
    /// borrowable memory.
    pub fn has_room_for(&self, pages: usize) -> bool {
        let borrowable = self.borrowed.pool().map_or(0, |pool| pool.limit_bytes() / PAGE_BYTES / 2);
        pages <= self.capacity().max(usize_of(borrowable)) / TOGETHER_PARTS
    }

    /// Drops a page whose place is about to be reused. Its frame is free at once, unless it is pinned.
    pub fn forget(&self, page: u64) {
        let Some(entry) = self.map.entry(page) else { return };
        if entry.get() == Trace::Unknown || planted!("stale-page-in-cache") {
            return;
        }
        if let Trace::In(number) = entry.clear()
            && let Some(claim) = self.frames.frame(number).and_then(|frame| frame.claim_page())
        {
            if claim.page() != page {
                return claim.put_back();
            }
            self.replacement.untrack(&claim);
            self.release_unused_frame(claim);
        }
    }

    /// Claims a frame for a page that will be loaded.
    fn take_frame(&self, stripe: usize) -> Option<(Claim<'_>, Option<Set>)> {
        if self.frames.used() == self.capacity() {
            self.borrow();
        }
        if self.frames.used() != self.capacity() {
            self.approach_capacity();
        }
        self.take_existing(stripe).or_else(|| {
            // Another thread may have allocated memory that is not on the free list yet.
            drop(self.resizing.lock());
            self.take_existing(stripe)
        })
    }

    /// Claims a frame that has memory: a free one, or the one of a victim, which is evicted.
    fn take_existing(&self, stripe: usize) -> Option<(Claim<'_>, Option<Set>)> {
        while let Some(number) = self.free.pop() {
            if let Some(claim) = self.frames.frame(number).and_then(|frame| frame.claim_free()) {
                return Some((claim, None));
            }
        }
        let (claim, set) = self.replacement.claim_victim(&self.frames, stripe)?;
        self.evict(&claim, stripe);
        Some((claim, Some(set)))
    }

    /// Evicts the page of a claimed frame from map and replacement.
    fn evict(&self, claim: &Claim<'_>, stripe: usize) {
        let is_remembered = self.replacement.untrack(claim);
        if claim.page() == NO_PAGE {
            return;
        }
        if let Some(entry) = self.map.entry(claim.page()) {
            let trace = if is_remembered {
                Trace::Gone(self.replacement.tick_eviction_clock())
            } else {
                Trace::Unknown
            };
            // Only if the map still points here: the page may have been dropped or loaded again meanwhile.
            entry.change(Trace::In(claim.frame().number()), trace);
        }
        count(&self.counters.of(stripe).evictions);
    }

    /// Returns hits, misses and sizes.
    pub fn stats(&self) -> CacheStats {
        let page_bytes = u64_of(PAGE_SIZE);
        let mut stats = CacheStats {
            used_bytes: u64_of(self.frames.used()) * page_bytes,
            capacity_bytes: u64_of(self.capacity()) * page_bytes,
            metadata_bytes: self.frames.table_bytes() + self.map.bytes(),
            ..CacheStats::default()
        };
        self.counters.add_to(&mut stats);
        stats
    }
}

#[cfg(test)]
mod tests;
