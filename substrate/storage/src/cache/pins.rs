//! Frames and their memory: who may read a page, who may write it.
//!
//! Frames come in groups, whose memory is allocated and freed as a whole. A reader *pins* a frame: it counts
//! itself in the stripe of its thread, then looks at the frame's state and page, and takes its count back if
//! they are not what it came for. A writer *claims* a frame: it changes the state, then looks at the counts
//! of all stripes, and takes the state back if there is one. Both do the first before the second in one order
//! that all threads see, so at least one of them notices the other (distributed reader-writer locks, as in
//! SplinterDB, section 4). Readers of different stripes share no line.
//!
//! | state | page | who may touch the bytes |
//! |---|---|---|
//! | absent | none | nobody: there is no memory |
//! | free | none | nobody |
//! | claimed | any | the one claim |
//! | loading, awaited | the one to come | the one claim; in *awaited* somebody sleeps until it comes |
//! | readable | the frame's | all who pinned it |
//!
//! **Invariants**
//! - A [`Claim`] is made by a change from free or readable to claimed, of which one thread succeeds; so a
//!   frame has one claim.
//! - A [`PageRef`] was pinned while the frame was readable; no claim of a readable frame succeeds while a
//!   count is not zero.
//! - Page and generation change under a claim only, and never while readable.
//! - The memory of a group is freed only by who has a claim on each of its frames.
#![expect(unsafe_code, reason = "the bytes of a frame are read under a count and written under a claim")]

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

/// Frames of a group: 256 KiB.
pub(crate) const GROUP_FRAMES: usize = scaled(64, 16);
/// Stripes of counts; threads share them evenly.
pub(crate) const STRIPES: usize = scaled(8, 2);
/// Pins of one frame in one stripe. Half of what the count can hold: no program has as many threads as the
/// other half.
const PINS_MAX: u16 = 1 << 15;
pub(crate) const NO_PAGE: u64 = u64::MAX;

/// What a frame is at the moment.
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
    /// Which of the page's records were asked for since it came: a bit for each, 64 of them.
    asked: AtomicU64,
    state: AtomicU8,
    /// What the replacement knows of it.
    heat: AtomicU8,
}

/// Counts of one stripe: lines that other stripes do not touch.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe([AtomicU16; GROUP_FRAMES]);

/// Neighbouring frames with one piece of memory.
#[derive(Debug)]
pub(crate) struct Group {
    /// Number of the first frame.
    first: u32,
    frames: [Frame; GROUP_FRAMES],
    stripes: [Stripe; STRIPES],
    base: AtomicPtr<u8>,
    frame_count: AtomicUsize,
    /// Owner of what `base` points at. Innermost lock.
    memory: Mutex<Option<AlignedBuffer>>,
}

impl Group {
    /// A group without memory, whose frames are numbered from `first`.
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

    /// Its place among the groups.
    pub(crate) fn number(&self) -> usize {
        usize_of(u64::from(self.first)) / GROUP_FRAMES
    }

    /// Frames that have memory: the first ones.
    pub(crate) fn frame_count(&self) -> usize {
        self.frame_count.load(Relaxed)
    }

    /// The frame at `at`, which must be within the group.
    #[inline]
    pub(crate) fn frame(&self, at: usize) -> FrameRef<'_> {
        FrameRef { group: self, at, frame: &self.frames[at] }
    }

    /// Gives the first `count` frames memory. Panics if the group has some.
    pub(crate) fn provide(&self, count: usize) {
        assert!(count <= GROUP_FRAMES, "a group has so many frames");
        let mut memory = self.memory.lock();
        assert!(memory.is_none(), "the group has memory");
        let buffer = memory.insert(AlignedBuffer::unfilled(count * PAGE_SIZE));
        // The pages stay where they are when the buffer itself is moved.
        self.base.store(buffer.as_mut_ptr(), Release);
        self.frame_count.store(count, Relaxed);
        for frame in &self.frames[..count] {
            frame.state.store(state::FREE, Release);
        }
    }

    /// Frees the group's memory. Panics unless `claims` are those of all its frames.
    pub(crate) fn take_back(&self, claims: Vec<Claim<'_>>) {
        let mut memory = self.memory.lock();
        let is_ours = claims.iter().all(|claim| ptr::eq(claim.frame.group, self));
        assert!(is_ours && claims.len() == self.frame_count(), "all frames are claimed");
        for claim in claims {
            claim.frame.frame.state.store(state::ABSENT, Release);
            mem::forget(claim);
        }
        self.frame_count.store(0, Relaxed);
        self.base.store(ptr::null_mut(), Release);
        *memory = None;
    }
}

/// A frame; what it holds may change at any time.
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

    /// Whether it holds this page, or is about to.
    #[inline]
    pub(crate) fn is_of(self, page: u64, generation: RunId) -> bool {
        self.frame.page.load(Relaxed) == page
            && (self.frame.generation.load(Relaxed) == generation.0 || planted!("stale-page-in-cache"))
    }

    /// Pins the page if it is this one and readable. `stripe` is that of the thread.
    #[inline]
    pub(crate) fn pin(self, stripe: usize, page: u64, generation: RunId) -> Option<PageRef<'a>> {
        let pin = Pin::new(&self.group.stripes[stripe].0[self.at])?;
        // The count first, then the state: see the head of this file.
        if self.frame.state.load(SeqCst) != state::READABLE || !self.is_of(page, generation) {
            return None;
        }
        Some(PageRef { bytes: self.bytes(), asked: &self.frame.asked, pin, lifetime: PhantomData })
    }

    /// The page and its generation at this moment, if it is readable.
    pub(crate) fn readable_page(self) -> Option<(u64, RunId)> {
        let page = self.frame.page.load(Relaxed);
        let generation = RunId(self.frame.generation.load(Relaxed));
        (self.state() == state::READABLE && page != NO_PAGE).then_some((page, generation))
    }

    /// Whether some thread has counted itself. All stripes are looked at, also after one that is not zero.
    pub(crate) fn is_pinned(self) -> bool {
        self.group.stripes.iter().fold(0, |sum, stripe| sum | stripe.0[self.at].load(SeqCst)) != 0
    }

    /// Claims a page that nobody reads.
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

    /// Claims a frame that holds nothing. Counts do not matter: who pins it finds nothing readable.
    pub(crate) fn claim_free(self) -> Option<Claim<'a>> {
        self.frame.state.compare_exchange(state::FREE, state::CLAIMED, SeqCst, Relaxed).ok()?;
        Some(Claim { frame: self })
    }

    /// Asks to be woken when the load of this page ends; `false` if it is not loading.
    pub(crate) fn await_load(self, page: u64, generation: RunId) -> bool {
        if !self.is_of(page, generation) {
            return false;
        }
        match self.frame.state.compare_exchange(state::LOADING, state::AWAITED, SeqCst, SeqCst) {
            Ok(_) | Err(state::AWAITED) => true,
            Err(_) => false,
        }
    }

    /// Where the frame's bytes are. REQUIRES for any use: a pin or a claim, both of which keep the memory.
    #[inline]
    fn bytes(self) -> *mut u8 {
        // The state that a pin or claim has seen was stored after the base.
        self.group.base.load(Relaxed).wrapping_add(self.at * PAGE_SIZE)
    }
}

/// One reader, counted.
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
        debug_assert!(before > 0, "the reader is counted");
    }
}

/// A page in the cache, kept there while this lives. Dereferences to its 4 KiB.
#[derive(Debug)]
pub struct PageRef<'a> {
    bytes: *const u8,
    asked: &'a AtomicU64,
    #[expect(dead_code, reason = "its drop ends the pin")]
    pin: Pin<'a>,
    lifetime: PhantomData<&'a [u8]>,
}

impl PageRef<'_> {
    /// Notes that the record at `index` of the page is asked for. How many others were since the page came.
    #[inline]
    pub fn ask(&self, index: usize) -> Neighbours {
        let bit = 1_u64 << (index % 64);
        let before = self.asked.load(Relaxed);
        if before & bit == 0 {
            // What another thread notes at the same time may be lost: it is a hint.
            self.asked.store(before | bit, Relaxed);
        }
        Neighbours((before & !bit).count_ones())
    }
}

/// How many other records of a page were asked for while it was in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbours(pub u32);

impl std::ops::Deref for PageRef<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame was readable when it was pinned and still is, because no claim succeeds before
        // `pin` is dropped: its memory is there, initialised and not written to.
        unsafe { slice::from_raw_parts(self.bytes, PAGE_SIZE) }
    }
}

/// The right to change a frame. Dropped, it leaves the frame free.
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

    /// The frame's bytes: those of its page, or of an older one.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the claim keeps the memory, which was allocated initialised, and is the only one; `&self`
        // lends it out for reading.
        unsafe { slice::from_raw_parts(self.frame.bytes(), PAGE_SIZE) }
    }

    /// The frame's bytes, to be overwritten.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = NonNull::new(self.frame.bytes()).expect("a claimed frame has memory");
        // SAFETY: as above; `&mut self` lends it out for writing, and nobody has pinned it: pins of a frame
        // that is not readable are never used.
        unsafe { slice::from_raw_parts_mut(bytes.as_ptr(), PAGE_SIZE) }
    }

    /// Says which page the frame is to hold.
    pub(crate) fn start_loading(&mut self, page: u64, generation: RunId) {
        self.frame.frame.page.store(page, Relaxed);
        self.frame.frame.generation.store(generation.0, Relaxed);
        self.frame.frame.asked.store(0, Relaxed);
        self.frame.frame.state.store(state::LOADING, SeqCst);
    }

    /// What was asked of the page in the frame of `from`, from where it moves here.
    pub(crate) fn take_over(&self, from: &Claim<'_>) {
        self.frame.frame.asked.store(from.frame.frame.asked.load(Relaxed), Relaxed);
    }

    /// Gives the loading up, but not the frame; whether somebody must be woken.
    pub(crate) fn stop_loading(&mut self) -> bool {
        self.frame.frame.page.store(NO_PAGE, Relaxed);
        let before = self.frame.frame.state.swap(state::CLAIMED, SeqCst);
        debug_assert!(matches!(before, state::LOADING | state::AWAITED), "it was loading");
        before == state::AWAITED
    }

    /// Lets everybody read the page, the caller first; whether somebody must be woken.
    pub(crate) fn publish(self, stripe: usize) -> (PageRef<'a>, bool) {
        let FrameRef { group, at, frame } = self.frame;
        let count = &group.stripes[stripe].0[at];
        count.fetch_add(1, SeqCst);
        let pin = Pin(count);
        let before = frame.state.swap(state::READABLE, SeqCst);
        debug_assert!(matches!(before, state::LOADING | state::AWAITED), "it was loading");
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

    /// Gives the claim up; the page is readable again. REQUIRES: it was, and nothing of it was changed.
    pub(crate) fn put_back(self) {
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
