//! Frames and their memory: pins of readers, claims of writers.
//!
//! Frames come in groups, whose memory is allocated and freed as a whole. A reader *pins* a frame: it
//! increments the count of its thread's stripe, then checks the frame's state and page, and decrements the
//! count if they do not match. A writer *claims* a frame: it changes the state, then checks the counts of all
//! stripes, and reverts the state if one is not zero. Both use sequentially consistent operations, so at
//! least one of them sees the other (distributed reader-writer locks, as in SplinterDB, section 4). Readers
//! of different stripes share no cache line.
//!
//! | state | page | access to the bytes |
//! |---|---|---|
//! | absent | none | none: there is no memory |
//! | free | none | none |
//! | claimed | any | the claim |
//! | loading, awaited | the one being loaded | the claim; in *awaited* a thread sleeps until the load ends |
//! | readable | the frame's | all pins |
//!
//! **Invariants**
//! - A [`Claim`] is made by a transition from free or readable to claimed. Only one thread succeeds, so a
//!   frame has at most one claim.
//! - A [`PageRef`] was pinned while the frame was readable. No claim of a readable frame succeeds while a
//!   count is not zero.
//! - Page and generation change only under a claim, and never while the frame is readable.
//! - A group's memory is freed only by a thread that holds claims on all of its frames.
#![expect(unsafe_code, reason = "frame bytes are read under a reader count and written under a claim")]

use std::{marker::PhantomData, mem, ptr, ptr::NonNull, slice};

use testudo_base::{
    PAGE_SIZE, RunId,
    num::{u32_of, usize_of},
    planted,
    sync::{
        Mutex,
        atomic::{
            AtomicPtr, AtomicU8, AtomicU16, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, Release, SeqCst},
        },
        scaled,
    },
};
use testudo_env::AlignedBuffer;

/// Frames per group: 256 KiB.
pub(crate) const GROUP_FRAMES: usize = scaled(64, 16);
/// Number of stripes of counts; threads are spread evenly over them.
pub(crate) const STRIPES: usize = scaled(8, 2);
/// Maximum pins of one frame in one stripe: half the range of the count. The other half absorbs increments
/// that are about to be reverted, one per thread.
const PINS_MAX: u16 = 1 << 15;
pub(crate) const NO_PAGE: u64 = u64::MAX;

/// States of a frame.
pub(crate) mod state {
    pub(crate) const ABSENT: u8 = 0;
    pub(crate) const FREE: u8 = 1;
    pub(crate) const CLAIMED: u8 = 2;
    pub(crate) const LOADING: u8 = 3;
    pub(crate) const AWAITED: u8 = 4;
    pub(crate) const READABLE: u8 = 5;
}

#[derive(Debug)]
struct Frame {
    page: AtomicU64,
    generation: AtomicU64,
    /// Records of the page that were requested since it was loaded: a bitmap of 64 bits.
    asked: AtomicU64,
    state: AtomicU8,
    /// State of the replacement policy.
    heat: AtomicU8,
}

/// Counts of one stripe, in cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe([AtomicU16; GROUP_FRAMES]);

/// Adjacent frames that share one allocation.
#[derive(Debug)]
pub(crate) struct Group {
    /// Number of the first frame.
    first: u32,
    frames: [Frame; GROUP_FRAMES],
    stripes: [Stripe; STRIPES],
    base: AtomicPtr<u8>,
    frame_count: AtomicUsize,
    /// Owner of the memory at `base`. Innermost lock.
    memory: Mutex<Option<AlignedBuffer>>,
}

impl Group {
    /// Creates a group without memory, whose frames are numbered from `first`.
    pub(crate) fn new(first: u32) -> Self {
        let frame = || Frame {
            page: AtomicU64::new(NO_PAGE),
            generation: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            state: AtomicU8::new(state::ABSENT),
            heat: AtomicU8::new(0),
        };
        Self {
            first,
            frames: std::array::from_fn(|_| frame()),
            stripes: std::array::from_fn(|_| Stripe(std::array::from_fn(|_| AtomicU16::new(0)))),
            base: AtomicPtr::new(ptr::null_mut()),
            frame_count: AtomicUsize::new(0),
            memory: Mutex::new(None),
        }
    }

    /// Index among the groups.
    pub(crate) fn number(&self) -> usize {
        usize_of(u64::from(self.first)) / GROUP_FRAMES
    }

    /// Number of frames that have memory: the first ones.
    pub(crate) fn frame_count(&self) -> usize {
        self.frame_count.load(Relaxed)
    }

    /// Returns the frame at `at`. Panics if `at` is beyond the group.
    #[inline]
    pub(crate) fn frame(&self, at: usize) -> FrameRef<'_> {
        FrameRef { group: self, at, frame: &self.frames[at] }
    }

    /// Allocates memory for the first `count` frames. Panics if the group has memory.
    pub(crate) fn provide(&self, count: usize) {
        assert!(count <= GROUP_FRAMES, "a group has {GROUP_FRAMES} frames");
        let mut memory = self.memory.lock();
        assert!(memory.is_none(), "the group already has memory");
        let buffer = memory.insert(AlignedBuffer::unfilled(count * PAGE_SIZE));
        // The pages keep their address when the buffer is moved.
        self.base.store(buffer.as_mut_ptr(), Release);
        self.frame_count.store(count, Relaxed);
        for frame in &self.frames[..count] {
            frame.state.store(state::FREE, Release);
        }
    }

    /// Frees the group's memory. Panics unless `claims` are the claims of all its frames.
    pub(crate) fn take_back(&self, claims: Vec<Claim<'_>>) {
        let mut memory = self.memory.lock();
        let is_ours = claims.iter().all(|claim| ptr::eq(claim.frame.group, self));
        assert!(is_ours && claims.len() == self.frame_count(), "all frames must be claimed");
        for claim in claims {
            claim.frame.frame.state.store(state::ABSENT, Release);
            mem::forget(claim);
        }
        self.frame_count.store(0, Relaxed);
        self.base.store(ptr::null_mut(), Release);
        *memory = None;
    }
}

/// A frame; its contents may change at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRef<'a> {
    group: &'a Group,
    at: usize,
    frame: &'a Frame,
}

impl<'a> FrameRef<'a> {
    pub(crate) fn number(self) -> u32 {
        self.group.first + u32_of(self.at)
    }

    #[inline]
    pub(crate) fn state(self) -> u8 {
        self.frame.state.load(Relaxed)
    }

    #[inline]
    pub(crate) fn heat(self) -> &'a AtomicU8 {
        &self.frame.heat
    }

    /// Whether it holds this page, or is loading it.
    #[inline]
    pub(crate) fn is_of(self, page: u64, generation: RunId) -> bool {
        self.frame.page.load(Relaxed) == page
            && (self.frame.generation.load(Relaxed) == generation.0 || planted!("stale-page-in-cache"))
    }

    /// Pins the page if the frame holds it and is readable. `stripe` is that of the thread.
    #[inline]
    pub(crate) fn pin(self, stripe: usize, page: u64, generation: RunId) -> Option<PageRef<'a>> {
        let pin = Pin::new(&self.group.stripes[stripe].0[self.at])?;
        // The count first, then the state: see the header of this file.
        if self.frame.state.load(SeqCst) != state::READABLE || !self.is_of(page, generation) {
            return None;
        }
        Some(PageRef { bytes: self.bytes(), asked: &self.frame.asked, pin, lifetime: PhantomData })
    }

    /// Returns the current page and its generation, if the frame is readable.
    pub(crate) fn readable_page(self) -> Option<(u64, RunId)> {
        let page = self.frame.page.load(Relaxed);
        let generation = RunId(self.frame.generation.load(Relaxed));
        (self.state() == state::READABLE && page != NO_PAGE).then_some((page, generation))
    }

    /// Whether any thread has pinned it. Reads all stripes, without an early exit.
    pub(crate) fn is_pinned(self) -> bool {
        self.group.stripes.iter().fold(0, |sum, stripe| sum | stripe.0[self.at].load(SeqCst)) != 0
    }

    /// Claims a page that is not pinned.
    pub(crate) fn claim_page(self) -> Option<Claim<'a>> {
        if self.is_pinned() {
            return None;
        }
        self.frame.state.compare_exchange(state::READABLE, state::CLAIMED, SeqCst, Relaxed).ok()?;
        let claim = Claim { frame: self };
        // The state first, then the counts.
        if self.is_pinned() {
            claim.put_back();
            return None;
        }
        Some(claim)
    }

    /// Claims a free frame. Counts do not matter: a pin of it finds no readable page.
    pub(crate) fn claim_free(self) -> Option<Claim<'a>> {
        self.frame.state.compare_exchange(state::FREE, state::CLAIMED, SeqCst, Relaxed).ok()?;
        Some(Claim { frame: self })
    }

    /// Requests a wake-up at the end of this page's load; `false` if the page is not being loaded.
    pub(crate) fn await_load(self, page: u64, generation: RunId) -> bool {
        if !self.is_of(page, generation) {
            return false;
        }
        match self.frame.state.compare_exchange(state::LOADING, state::AWAITED, SeqCst, SeqCst) {
            Ok(_) | Err(state::AWAITED) => true,
            Err(_) => false,
        }
    }

    /// Address of the frame's bytes. REQUIRES for any access: a pin or a claim; both keep the memory.
    #[inline]
    fn bytes(self) -> *mut u8 {
        // `base` was stored before the state that the pin or claim has read.
        self.group.base.load(Relaxed).wrapping_add(self.at * PAGE_SIZE)
    }
}

/// A counted reader.
#[derive(Debug)]
struct Pin<'a>(&'a AtomicU16);

impl<'a> Pin<'a> {
    #[inline]
    fn new(count: &'a AtomicU16) -> Option<Self> {
        let before = count.fetch_add(1, SeqCst);
        let pin = Self(count);
        (before < PINS_MAX).then_some(pin)
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Release);
        debug_assert!(before > 0, "pin count underflows");
    }
}

/// A pinned page of the cache. Dereferences to its 4 KiB.
#[derive(Debug)]
pub struct PageRef<'a> {
    bytes: *const u8,
    asked: &'a AtomicU64,
    #[expect(dead_code, reason = "dropping it releases the pin")]
    pin: Pin<'a>,
    lifetime: PhantomData<&'a [u8]>,
}

impl PageRef<'_> {
    /// Records a request for the record at `index` of the page. Returns how many other records were requested
    /// since the page was loaded.
    #[inline]
    pub fn ask(&self, index: usize) -> Neighbours {
        let bit = 1_u64 << (index % 64);
        let before = self.asked.load(Relaxed);
        if before & bit == 0 {
            // A concurrent update may be lost: it is a hint.
            self.asked.store(before | bit, Relaxed);
        }
        Neighbours((before & !bit).count_ones())
    }
}

/// Number of other records of a page that were requested while it was cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbours(pub u32);

impl std::ops::Deref for PageRef<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame was readable when it was pinned and still is, because no claim succeeds before
        // `pin` is dropped: its memory is allocated, initialized and not written to.
        unsafe { slice::from_raw_parts(self.bytes, PAGE_SIZE) }
    }
}

/// The right to change a frame. Dropping it frees the frame.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    frame: FrameRef<'a>,
}

impl<'a> Claim<'a> {
    pub(crate) fn frame(&self) -> FrameRef<'a> {
        self.frame
    }

    pub(crate) fn page(&self) -> u64 {
        self.frame.frame.page.load(Relaxed)
    }

    pub(crate) fn generation(&self) -> RunId {
        RunId(self.frame.frame.generation.load(Relaxed))
    }

    /// Bytes of the frame: those of its page, or stale ones.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the claim keeps the memory, which was allocated initialized, and is the only one; `&self`
        // borrows it for reading.
        unsafe { slice::from_raw_parts(self.frame.bytes(), PAGE_SIZE) }
    }

    /// Bytes of the frame, for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = NonNull::new(self.frame.bytes()).expect("a claimed frame must have memory");
        // SAFETY: as above; `&mut self` borrows it for writing, and no reader uses a pin of a frame that is
        // not readable.
        unsafe { slice::from_raw_parts_mut(bytes.as_ptr(), PAGE_SIZE) }
    }

    /// Sets the page that will be loaded into the frame.
    pub(crate) fn start_loading(&mut self, page: u64, generation: RunId) {
        debug_assert!(page != NO_PAGE, "a page is loaded");
        debug_assert_eq!(self.frame.state(), state::CLAIMED, "the claim is held");
        self.frame.frame.page.store(page, Relaxed);
        self.frame.frame.generation.store(generation.0, Relaxed);
        self.frame.frame.asked.store(0, Relaxed);
        self.frame.frame.state.store(state::LOADING, SeqCst);
    }

    /// Copies the request bitmap from the frame whose page moves here.
    pub(crate) fn take_over(&self, from: &Claim<'_>) {
        self.frame.frame.asked.store(from.frame.frame.asked.load(Relaxed), Relaxed);
    }

    /// Aborts the load, but keeps the claim. Returns whether waiters must be woken.
    pub(crate) fn stop_loading(&mut self) -> bool {
        self.frame.frame.page.store(NO_PAGE, Relaxed);
        let before = self.frame.frame.state.swap(state::CLAIMED, SeqCst);
        debug_assert!(matches!(before, state::LOADING | state::AWAITED), "the frame must be loading");
        before == state::AWAITED
    }

    /// Publishes the page, pinned for the caller. Returns whether waiters must be woken.
    pub(crate) fn publish(self, stripe: usize) -> (PageRef<'a>, bool) {
        let FrameRef { group, at, frame } = self.frame;
        let count = &group.stripes[stripe].0[at];
        count.fetch_add(1, SeqCst);
        let pin = Pin(count);
        let before = frame.state.swap(state::READABLE, SeqCst);
        debug_assert!(matches!(before, state::LOADING | state::AWAITED), "the frame must be loading");
        debug_assert!(frame.page.load(Relaxed) != NO_PAGE, "a readable frame has a page");
        let is_awaited = before == state::AWAITED;
        mem::forget(self);
        if planted!("page-unpinned-for-a-moment") {
            count.fetch_sub(1, SeqCst);
            (0..4).for_each(|_| testudo_base::sync::yield_now());
            count.fetch_add(1, SeqCst);
        }
        let page =
            PageRef { bytes: group.frame(at).bytes(), asked: &frame.asked, pin, lifetime: PhantomData };
        (page, is_awaited)
    }

    /// Releases the claim; the page is readable again. REQUIRES: it was readable, and is unchanged.
    pub(crate) fn put_back(self) {
        debug_assert!(self.page() != NO_PAGE, "the frame was readable");
        debug_assert_eq!(self.frame.state(), state::CLAIMED, "the claim is held");
        self.frame.frame.state.store(state::READABLE, SeqCst);
        mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.frame.frame.page.store(NO_PAGE, Relaxed);
        self.frame.frame.state.store(state::FREE, SeqCst);
    }
}

#[cfg(test)]
mod tests;
