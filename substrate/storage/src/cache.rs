//! The page cache: verified pages of the data file, found by page number, evicted by a clock.
//!
//! A direct map leads from page number to frame without a lock; each frame has its own reader/writer lock,
//! so that holding a page is holding the frame's read lock and eviction is a successful `try_write`.
//!
//! **Invariants**
//! - A frame is found under `page` only while its body says `page`; whoever looks it up checks that again.
//! - Nobody waits for a frame's write lock: eviction and invalidation of a page in use pass it by.
//! - `frames in use × 4 KiB` never exceeds the capacity; memory is allocated frame by frame.

use testudo_base::{
    PAGE_SIZE, RunId,
    num::{u32_of, u64_of, usize_of},
    planted,
    sync::{
        OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{
            AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed,
            Ordering::Release,
        },
        scaled,
    },
};

const NO_PAGE: u64 = u64::MAX;
/// Pages of the data file that one second-level table maps (512 MiB).
const TABLE_PAGES: u64 = u64_of(scaled(1 << 17, 1 << 6));
/// Second-level tables: pages beyond 8 TiB are read, but not cached.
const TABLE_COUNT: u64 = u64_of(scaled(1 << 14, 1 << 4));

#[derive(Debug)]
struct Body {
    page: u64,
    generation: RunId,
    bytes: Option<Box<[u8; PAGE_SIZE]>>,
}

#[derive(Debug)]
struct Frame {
    body: RwLock<Body>,
    /// Turns of the clock that the page survives without being used.
    chances: AtomicU8,
}

/// A page in the cache, kept there while this lives. Dereferences to its 4 KiB.
#[derive(Debug)]
pub struct PageRef<'a>(RwLockReadGuard<'a, Body>);

impl std::ops::Deref for PageRef<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes.as_ref().map_or(&[], |bytes| bytes.as_slice())
    }
}

/// Hits, misses and size of the cache since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// Look-ups that found their page.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Pages evicted to make room.
    pub evictions: u64,
    /// Bytes of pages held.
    pub used_bytes: u64,
    /// Most bytes of pages that may be held.
    pub capacity_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

/// A fixed number of frames over all pages of the data file.
#[derive(Debug)]
pub struct PageCache {
    frames: Box<[Frame]>,
    tables: Box<[OnceLock<Box<[AtomicU32]>>]>,
    hand: AtomicUsize,
    used: AtomicUsize,
    counters: [Counters; 8],
}

impl PageCache {
    /// A cache of at most `capacity_bytes`, at least 16 pages.
    pub fn new(capacity_bytes: u64) -> Self {
        let count = usize_of(capacity_bytes / u64_of(PAGE_SIZE)).max(16);
        let frame = || Frame {
            body: RwLock::new(Body { page: NO_PAGE, generation: RunId(0), bytes: None }),
            chances: AtomicU8::new(0),
        };
        Self {
            frames: (0..count).map(|_| frame()).collect(),
            tables: (0..TABLE_COUNT).map(|_| OnceLock::new()).collect(),
            hand: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            counters: Default::default(),
        }
    }

    /// The page if it is here. `chances` is how many turns of the clock this use is worth.
    #[inline]
    pub fn get(&self, page: u64, generation: RunId, chances: u8) -> Option<PageRef<'_>> {
        let found = self.look_up(page, generation);
        let counters = &self.counters[usize_of(page % 8)];
        match &found {
            Some((_, frame)) => {
                if frame.chances.load(Relaxed) < chances {
                    frame.chances.store(chances, Relaxed);
                }
                counters.hits.fetch_add(1, Relaxed);
            }
            None => {
                counters.misses.fetch_add(1, Relaxed);
            }
        }
        found.map(|(page, _)| page)
    }

    fn look_up(&self, page: u64, generation: RunId) -> Option<(PageRef<'_>, &Frame)> {
        let slot = self.slot(page)?.load(Acquire);
        let frame = &self.frames[usize_of(u64::from(slot)).checked_sub(1)?];
        let body = frame.body.read();
        let is_current = body.generation == generation || planted!("stale-page-in-cache");
        (body.page == page && is_current).then_some((PageRef(body), frame))
    }

    /// Puts a verified page in and returns it; `None` if every frame is in use at the moment.
    pub fn insert(&self, page: u64, generation: RunId, bytes: &[u8], chances: u8) -> Option<PageRef<'_>> {
        if let Some((found, _)) = self.look_up(page, generation) {
            return Some(found);
        }
        let slot = self.make_slot(page)?;
        let (index, mut body) = self.claim_frame()?;
        let frame_bytes = body.bytes.get_or_insert_with(|| Box::new([0; PAGE_SIZE]));
        frame_bytes.copy_from_slice(bytes);
        body.page = page;
        body.generation = generation;
        self.frames[index].chances.store(chances, Relaxed);
        slot.store(u32_of(index + 1), Release);
        if planted!("page-unpinned-for-a-moment") {
            drop(body);
            return Some(PageRef(self.frames[index].body.read()));
        }
        Some(PageRef(RwLockWriteGuard::downgrade(body)))
    }

    /// Forgets a page that is about to be reused for something else.
    pub fn forget(&self, page: u64) {
        if let Some(slot) = self.slot(page)
            && !planted!("stale-page-in-cache")
        {
            slot.store(0, Release);
        }
    }

    fn slot(&self, page: u64) -> Option<&AtomicU32> {
        let table = self.tables.get(usize_of(page / TABLE_PAGES))?.get()?;
        table.get(usize_of(page % TABLE_PAGES))
    }

    fn make_slot(&self, page: u64) -> Option<&AtomicU32> {
        let table = self.tables.get(usize_of(page / TABLE_PAGES))?;
        let table = table.get_or_init(|| (0..TABLE_PAGES).map(|_| AtomicU32::new(0)).collect());
        table.get(usize_of(page % TABLE_PAGES))
    }

    fn claim_frame(&self) -> Option<(usize, RwLockWriteGuard<'_, Body>)> {
        let count = self.frames.len();
        if self.used.load(Relaxed) < count {
            let fresh = self.used.fetch_add(1, Relaxed);
            if fresh < count {
                return Some((fresh, self.frames[fresh].body.write()));
            }
            self.used.store(count, Relaxed);
        }
        for _ in 0..count * 5 {
            let index = self.hand.fetch_add(1, Relaxed) % count;
            let frame = &self.frames[index];
            let chances = frame.chances.load(Relaxed);
            if chances > 0 {
                frame.chances.store(chances - 1, Relaxed);
                continue;
            }
            let Some(mut body) = frame.body.try_write() else { continue };
            if body.page != NO_PAGE {
                if let Some(slot) = self.slot(body.page) {
                    // Only if the map still leads here: the page may have been put into another frame.
                    let _ = slot.compare_exchange(u32_of(index + 1), 0, Release, Relaxed);
                }
                body.page = NO_PAGE;
                self.counters[index % 8].evictions.fetch_add(1, Relaxed);
            }
            return Some((index, body));
        }
        None
    }

    /// Hits, misses and size.
    pub fn stats(&self) -> CacheStats {
        let page_bytes = u64_of(PAGE_SIZE);
        let mut stats = CacheStats {
            used_bytes: u64_of(self.used.load(Relaxed).min(self.frames.len())) * page_bytes,
            capacity_bytes: u64_of(self.frames.len()) * page_bytes,
            ..CacheStats::default()
        };
        for counters in &self.counters {
            stats.hits += counters.hits.load(Relaxed);
            stats.misses += counters.misses.load(Relaxed);
            stats.evictions += counters.evictions.load(Relaxed);
        }
        stats
    }
}

#[cfg(test)]
mod tests;
