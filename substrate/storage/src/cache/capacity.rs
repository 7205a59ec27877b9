//! The memory of the cache: groups of frames are allocated on demand and freed when the capacity shrinks.
//!
//! The capacity is a part that the cache owns plus a part that it borrows from a memory pool until a use with
//! a higher priority needs it ([`testudo_base::chunks`]).
//!
//! Memory is allocated for 64 frames at once: single aligned pages cost an allocator nearly twice their size.
//!
//! **Invariants**
//! - Groups are allocated and freed under `resizing`; none is allocated beyond the capacity.
//! - A group is freed only when none of its pages is pinned; otherwise later misses retry.
//! - Pages of the main set move to other frames when their group is freed.

use testudo_base::{
    PAGE_SIZE,
    chunks::{Borrower, ChunkPool, Use},
    num::{u64_of, usize_of},
    planted,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
        is_held,
    },
};

use super::{
    PageCache,
    counters::stripe,
    frames::GROUPS_MAX,
    page_map::Trace,
    pins::{Claim, GROUP_FRAMES, Group, state},
    replacement::{Class, main_heat},
};

/// Frames of the smallest cache.
const FRAMES_MIN: usize = 16;
/// Below this pool limit, the cache borrows less than a group at once.
const SMALL_POOL_BYTES: u64 = 8 << 20;

/// Memory that the cache borrows.
#[derive(Debug, Default)]
pub(super) struct Borrowed {
    from: OnceLock<Source>,
    /// Frames borrowed now.
    frames: AtomicUsize,
}

/// The pool to borrow from.
#[derive(Debug)]
struct Source {
    pool: Arc<ChunkPool>,
    /// Frames borrowed at once.
    unit: usize,
}

impl Borrowed {
    pub(super) fn pool(&self) -> Option<&ChunkPool> {
        self.from.get().map(|source| &*source.pool)
    }
}

impl Source {
    fn unit_bytes(&self) -> u64 {
        u64_of(self.unit * PAGE_SIZE)
    }
}

/// Number of frames for a capacity in bytes: whole groups, unless a group would be a large part of it.
pub(super) fn frames_of(capacity_bytes: u64) -> usize {
    let frames = usize_of(capacity_bytes / u64_of(PAGE_SIZE)).clamp(FRAMES_MIN, GROUPS_MAX * GROUP_FRAMES);
    let unit = if frames >= 16 * GROUP_FRAMES { GROUP_FRAMES } else { FRAMES_MIN };
    let frames = if frames < GROUP_FRAMES { frames } else { frames / unit * unit };
    debug_assert!(frames >= FRAMES_MIN, "the smallest cache has frames");
    frames
}

/// Frames without a page. Numbers may be stale: a thread that pops one still has to claim it.
#[derive(Debug, Default)]
pub(super) struct FreeFrames {
    count: AtomicUsize,
    numbers: Mutex<Vec<u32>>,
}

impl FreeFrames {
    pub(super) fn push(&self, number: u32) {
        let mut numbers = self.numbers.lock();
        numbers.push(number);
        self.count.store(numbers.len(), Relaxed);
    }

    pub(super) fn pop(&self) -> Option<u32> {
        if !self.has_some() {
            return None;
        }
        let mut numbers = self.numbers.lock();
        let number = numbers.pop();
        self.count.store(numbers.len(), Relaxed);
        number
    }

    fn has_some(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    fn extend(&self, range: std::ops::Range<u32>) {
        let mut numbers = self.numbers.lock();
        numbers.extend(range.rev());
        self.count.store(numbers.len(), Relaxed);
    }

    fn forget(&self, range: std::ops::Range<u32>) {
        let mut numbers = self.numbers.lock();
        numbers.retain(|number| !range.contains(number));
        self.count.store(numbers.len(), Relaxed);
    }
}

impl PageCache {
    /// Lets the cache borrow from the pool. Only the first call has an effect.
    pub fn borrow_from(self: &Arc<Self>, pool: &Arc<ChunkPool>) {
        let is_small = pool.limit_bytes() < SMALL_POOL_BYTES;
        let unit = if is_small { FRAMES_MIN } else { GROUP_FRAMES };
        debug_assert!(unit > 0 && unit <= GROUP_FRAMES, "a unit is a part of a group");
        if self.borrowed.from.set(Source { pool: Arc::clone(pool), unit }).is_ok() {
            let borrower: Arc<dyn Borrower> = Arc::clone(self) as _;
            let weak: Weak<dyn Borrower> = Arc::downgrade(&borrower);
            pool.set_borrower(Use::Pages, weak);
        }
    }

    /// Sets the bytes of pages that the cache owns (at least 16 pages; above 4 MiB rounded down to 256 KiB).
    /// Memory is allocated on demand. Excess memory is freed before this returns, except for pinned pages,
    /// which are freed later.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.own_frames.store(frames_of(capacity_bytes), Relaxed);
        self.shrink_to_capacity();
    }

    /// Number of frames that may have memory now.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.own_frames.load(Relaxed) + self.borrowed.frames.load(Relaxed)
    }

    fn shrink_to_capacity(&self) {
        let _resizing = self.resizing.lock();
        for number in (0..self.frames.positions() / GROUP_FRAMES).rev() {
            if self.frames.used() <= self.capacity() {
                return;
            }
            self.shrink_by(number);
        }
    }

    /// Borrows one unit of frames if the pool allows it. REQUIRES: `resizing` is not held.
    pub(super) fn borrow(&self) {
        let Some(source) = self.borrowed.from.get() else { return };
        if !self.free.has_some() && source.pool.borrow(source.unit_bytes()) {
            self.borrowed.frames.fetch_add(source.unit, Relaxed);
        }
    }

    /// Takes one step towards the capacity on behalf of a caller that needs a frame.
    pub(super) fn approach_capacity(&self) {
        if self.frames.used() > self.capacity() {
            let Some(_resizing) = self.resizing.try_lock() else { return };
            for number in (0..self.frames.positions() / GROUP_FRAMES).rev() {
                if self.shrink_by(number) {
                    return;
                }
            }
        } else if !self.free.has_some() {
            let _resizing = self.resizing.lock();
            let missing = self.capacity().saturating_sub(self.frames.used());
            if missing > 0 && !self.free.has_some() {
                self.free.extend(self.frames.add(missing.min(GROUP_FRAMES)));
            }
        }
    }

    /// Frees a group if memory exceeds the capacity and no page is pinned. REQUIRES: `resizing` is held.
    fn shrink_by(&self, number: usize) -> bool {
        debug_assert!(is_held(&self.resizing), "`resizing` must be held");
        let excess = self.frames.used().saturating_sub(self.capacity());
        let Some(group) = self.frames.group(number) else { return false };
        if excess == 0 || group.frame_count() == 0 {
            return false;
        }
        let Some(claims) = self.claim_all(group) else { return false };
        let first = group.frame(0).number();
        self.free.forget(first..first + testudo_base::num::u32_of(GROUP_FRAMES));
        debug_assert_eq!(claims.len(), group.frame_count(), "all frames of the group are claimed");
        for claim in &claims {
            self.move_or_evict(claim);
        }
        self.frames.remove(group, claims);
        true
    }

    /// Moves a page of the main set to another frame; evicts any other.
    fn move_or_evict(&self, claim: &Claim<'_>) {
        let heat = main_heat(claim).unwrap_or(0);
        let entry = self.map.entry(claim.page());
        if heat > 0
            && let Some(entry) = entry
            && let Some((mut target, _)) = self.take_existing(stripe())
        {
            target.start_loading(claim.page(), claim.generation());
            target.bytes_mut().copy_from_slice(claim.bytes());
            target.take_over(claim);
            let (from, to) = (claim.frame().number(), target.frame().number());
            if entry.change(Trace::In(from), Trace::In(to)) {
                self.replacement.untrack(claim);
                drop(self.show(target, Class::Kept(heat)));
                return;
            }
            self.give_up(target);
        }
        self.evict(claim, stripe());
    }

    /// Claims every frame of a group, or none.
    fn claim_all<'a>(&self, group: &'a Group) -> Option<Vec<Claim<'a>>> {
        let frames = || (0..group.frame_count()).map(|at| group.frame(at));
        let is_idle = |frame: super::pins::FrameRef<'_>| {
            frame.state() == state::FREE || (frame.state() == state::READABLE && !frame.is_pinned())
        };
        if !frames().all(is_idle) {
            return None;
        }
        let mut pages = Vec::with_capacity(group.frame_count());
        let mut empty = Vec::new();
        for frame in frames() {
            if let Some(claim) = frame.claim_page() {
                pages.push(claim);
            } else if let Some(claim) = frame.claim_free() {
                empty.push(claim);
            } else {
                pages.into_iter().for_each(Claim::put_back);
                // A thread that popped one of these meanwhile failed to claim it and dropped the number.
                empty.into_iter().for_each(|claim| self.release_unused_frame(claim));
                return None;
            }
        }
        pages.append(&mut empty);
        Some(pages)
    }
}

impl Borrower for PageCache {
    /// Pinned pages may keep some of the memory a little longer.
    fn give_up_chunk(&self) -> bool {
        let Some(source) = self.borrowed.from.get() else { return false };
        let less = |frames: usize| frames.checked_sub(source.unit);
        if self.borrowed.frames.fetch_update(Relaxed, Relaxed, less).is_err() {
            return false;
        }
        if !planted!("pages-kept-from-writers") {
            self.shrink_to_capacity();
        }
        source.pool.end_borrowing(source.unit_bytes());
        true
    }
}

#[cfg(test)]
mod tests;
