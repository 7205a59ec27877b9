//! The page cache: verified pages of the data file, found by page number, read by any number of threads.
//!
//! ```text
//! get   page_map (which frame) -> pins (is it that page? count me) ; replacement (heat)
//! load  load (once for all who want it) -> replacement (whose frame) -> pins (claim)
//!         ; capacity (more frames)
//! ```
//!
//! A look-up that hits costs a handful of loads and one count in a line of the thread's stripe, up and down.
//! Pages are immutable and never dirty, so eviction is forgetting.
//!
//! **Invariants**
//! - A page is in at most one frame that the map leads to; whoever follows the map checks the frame.
//! - Nobody waits for a page in use: eviction, invalidation and shrinking pass it by.
//! - `used_bytes` is the memory that is allocated for pages; it grows only while below the capacity.

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
/// Pages that are used together are kept if they are one of so many parts of the cache at most.
const TOGETHER_PARTS: usize = 8;

/// Frames over all pages of the data file, as many as the capacity allows.
#[derive(Debug)]
pub struct PageCache {
    map: PageMap,
    frames: FrameTable,
    replacement: Replacement,
    free: FreeFrames,
    /// Frames that the cache has in any case.
    own_frames: AtomicUsize,
    borrowed: Borrowed,
    /// Taken before the list of free frames and the memory of a group.
    resizing: Mutex<()>,
    gates: [Padded<Gate>; GATES],
    counters: Counters,
}

impl PageCache {
    /// A cache of at most `capacity_bytes`, at least 16 pages.
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

    /// The page if it is here; this counts as a use.
    #[inline]
    pub fn get(&self, page: u64, generation: RunId) -> Option<PageRef<'_>> {
        self.get_if(page, generation, |_| true)
    }

    /// The page if it is here; this counts as a use if `is_use` says so of the page.
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

    /// Puts a verified page in and returns it; `None` if every frame is in use at the moment, or another
    /// thread is reading the page.
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

    /// Whether so many pages that are used together may come: they are an eighth at most of what the cache
    /// has, or of half of what it could borrow.
    pub fn has_room_for(&self, pages: usize) -> bool {
        let borrowable = self.borrowed.pool().map_or(0, |pool| pool.limit_bytes() / PAGE_BYTES / 2);
        pages <= self.capacity().max(usize_of(borrowable)) / TOGETHER_PARTS
    }

    /// Forgets a page that is about to be reused for something else. Its frame is free at once, unless it is
    /// in use.
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

    /// A frame for a page to come.
    fn take_frame(&self, stripe: usize) -> Option<(Claim<'_>, Option<Set>)> {
        if self.frames.used() == self.capacity() {
            self.borrow();
        }
        if self.frames.used() != self.capacity() {
            self.approach_capacity();
        }
        self.take_existing(stripe).or_else(|| {
            // Another thread may have memory that it has not put on the list yet.
            drop(self.resizing.lock());
            self.take_existing(stripe)
        })
    }

    /// A frame that has memory: a free one, or that of a page which is evicted.
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

    /// Evicts the page of a claimed frame: neither map nor replacement know of it afterwards.
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
            // Only if the map still leads here: the page may have been forgotten, or come anew.
            entry.change(Trace::In(claim.frame().number()), trace);
        }
        count(&self.counters.of(stripe).evictions);
    }

    /// Hits, misses and size.
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
