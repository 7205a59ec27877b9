#![expect(unsafe_code, reason = "many writers fill disjoint ranges of one buffer at the same time")]
//! A buffer of log bytes that several writers fill at once, each its own range.
//!
//! A buffer goes round in a circle of owners, each a type of its own: [`EmptyBuffer`] → [`ActiveBuffer`]
//! (hands out ranges) → [`SealedBuffer`] (waits until they are filled, gives the bytes) → empty again.
//!
//! **Invariants**
//! - At any moment a buffer's memory has one owner of these types, besides the [`Claim`]s on it.
//! - The ranges of the claims of one turn are disjoint, because one `ActiveBuffer` hands them out in order.
//! - The sum over `filled` is that of the lengths of the claims dropped in this turn, and the last thing a
//!   claim does to the memory is to add to it. So once it equals the length handed out, nobody but the owner
//!   can reach the memory. It is freed or used anew only then; memory whose claims were leaked is leaked.
//! - Writers that run side by side write to no cache line in common but the ends of their ranges.

use std::{
    cell::{Cell, UnsafeCell},
    fmt,
    ptr::NonNull,
    slice,
};

use crossbeam_utils::CachePadded;
use testudo_base::{
    LargeSlice, PAGE_SIZE,
    sync::{
        Backoff, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        scaled,
    },
};

/// Counters of filled bytes per buffer; threads share them evenly.
const COUNTER_COUNT: usize = scaled(8, 2);

/// Where threads sleep until a buffer is filled, of all buffers of the process: a claim must not touch its
/// buffer after it has counted itself as filled. Rarely used, since a copy takes less than a microsecond.
static GATE: Mutex<()> = Mutex::new(());
static SOME_FILLED: Condvar = Condvar::new();
static SLEEPER_COUNT: AtomicUsize = AtomicUsize::new(0);

static THREAD_COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
thread_local! {
    static COUNTER: Cell<usize> =
        Cell::new(THREAD_COUNT.fetch_add(1, Ordering::Relaxed) % COUNTER_COUNT);
}

#[derive(bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page(UnsafeCell<[u8; PAGE_SIZE]>);

struct Memory {
    pages: LargeSlice<Page>,
    filled: [CachePadded<AtomicUsize>; COUNTER_COUNT],
}

// SAFETY: `pages` is reached only through the range of a live claim, and these are disjoint, or through the
// one owner after all claims of the turn were dropped, which the acquiring loads of `filled` order.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> Box<Self> {
        let pages = LargeSlice::zeroed(bytes.div_ceil(PAGE_SIZE));
        Box::new(Self { pages, filled: Default::default() })
    }

    /// Address of the byte at `offset`. REQUIRES: it is within the buffer, or just at its end.
    #[inline]
    fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.pages.len() * PAGE_SIZE, "within the buffer");
        let base: *mut u8 = self.pages.as_ptr().cast_mut().cast();
        base.wrapping_add(offset)
    }

    fn filled_bytes(&self) -> usize {
        self.filled.iter().map(|counter| counter.load(Ordering::SeqCst)).sum()
    }
}

/// The owner's hand on a buffer, whose claims have another one.
struct OwnedMemory {
    memory: NonNull<Memory>,
    /// Bytes handed out in this turn.
    used: usize,
}

// SAFETY: `Memory` may be shared and sent between threads; the pointer is that of its owner.
unsafe impl Send for OwnedMemory {}

impl OwnedMemory {
    fn new(bytes: usize) -> Self {
        Self { memory: NonNull::from(Box::leak(Memory::new(bytes))), used: 0 }
    }

    fn get(&self) -> &Memory {
        // SAFETY: the memory lives until its owner is dropped, and nobody has a `&mut` to it.
        unsafe { self.memory.as_ref() }
    }

    fn capacity(&self) -> usize {
        self.get().pages.len() * PAGE_SIZE
    }

    fn is_filled(&self) -> bool {
        let filled_bytes = self.get().filled_bytes();
        debug_assert!(filled_bytes <= self.used, "only what was handed out is filled");
        filled_bytes == self.used
    }

    fn wait_until_filled(&self) {
        let backoff = Backoff::new();
        while !backoff.is_completed() {
            if self.is_filled() {
                return;
            }
            backoff.snooze();
        }
        let mut gate = GATE.lock();
        // In the one order of these accesses and those of `Claim::drop`, either the claim sees the sleeper or
        // this sees its bytes.
        SLEEPER_COUNT.fetch_add(1, Ordering::SeqCst);
        while !self.is_filled() {
            SOME_FILLED.wait(&mut gate);
        }
        let before = SLEEPER_COUNT.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "this thread was counted");
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        // Waiting here could be for ever: the claim may be held further up on this very stack.
        if self.is_filled() {
            // SAFETY: it came from a box, all claims of the turn are gone, and this is the only owner.
            drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
        }
    }
}

/// A buffer that nobody uses.
pub(crate) struct EmptyBuffer(OwnedMemory);

impl EmptyBuffer {
    /// Zeroed memory of `bytes`, rounded up to whole pages, at a page's address.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(OwnedMemory::new(bytes))
    }

    /// Its size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Starts a new turn.
    pub(crate) fn activate(mut self) -> ActiveBuffer {
        for counter in &self.0.get().filled {
            counter.store(0, Ordering::Relaxed);
        }
        self.0.used = 0;
        ActiveBuffer { capacity: self.0.capacity(), owned: self.0 }
    }
}

/// A buffer that hands out ranges.
pub(crate) struct ActiveBuffer {
    owned: OwnedMemory,
    capacity: usize,
}

impl ActiveBuffer {
    /// Bytes that were not handed out yet.
    #[inline]
    pub(crate) fn free_bytes(&self) -> usize {
        self.capacity - self.owned.used
    }

    /// Hands out the next `bytes`. REQUIRES: as many are free.
    #[inline]
    pub(crate) fn claim(&mut self, bytes: usize) -> Claim {
        assert!(bytes <= self.free_bytes(), "the buffer has room");
        let start = self.owned.used;
        self.owned.used += bytes;
        Claim { memory: self.owned.memory, start, bytes }
    }

    /// Hands out no more.
    pub(crate) fn seal(self) -> SealedBuffer {
        SealedBuffer(self.owned)
    }
}

/// One writer's range of a buffer; dropping it says that the range is filled.
pub(crate) struct Claim {
    memory: NonNull<Memory>,
    start: usize,
    bytes: usize,
}

// SAFETY: the claim's range belongs to it alone, whichever thread holds it; `Memory` may be shared.
unsafe impl Send for Claim {}
// SAFETY: a shared claim gives access to nothing.
unsafe impl Sync for Claim {}

impl Claim {
    /// The range. What stands in it before it is filled is whatever an earlier turn left.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let address = self.memory().address(self.start);
        // SAFETY: the range lies within the buffer (checked when it was claimed), belongs to this claim
        // alone for as long as it lives, and is borrowed mutably from the claim.
        unsafe { slice::from_raw_parts_mut(address, self.bytes) }
    }

    /// Bytes of the range.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn memory(&self) -> &Memory {
        // SAFETY: the owner does not free the memory before this claim has counted itself as filled, which
        // is done when it is dropped.
        unsafe { self.memory.as_ref() }
    }
}

impl Drop for Claim {
    #[inline]
    fn drop(&mut self) {
        let index = COUNTER.with(Cell::get);
        let counter: *const AtomicUsize = &raw const *self.memory().filled[index];
        // SAFETY: the counter lives until the addition is made; the reference made for the call of
        // `fetch_add` allows that it is freed before the call returns (it has interior mutability).
        unsafe { (*counter).fetch_add(self.bytes, Ordering::SeqCst) };
        // From here on the buffer may be gone.
        if SLEEPER_COUNT.load(Ordering::SeqCst) > 0 {
            drop(GATE.lock());
            SOME_FILLED.notify_all();
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({}..{})", self.start, self.start + self.bytes)
    }
}

/// A buffer that waits to be written.
pub(crate) struct SealedBuffer(OwnedMemory);

impl SealedBuffer {
    /// Waits until all claims are filled and returns the bytes, zeros added up to a whole page.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        self.0.wait_until_filled();
        let padded = self.0.used.next_multiple_of(PAGE_SIZE);
        let address = self.0.get().address(0);
        // SAFETY: the pages lie within the buffer, whose size is a multiple of the page; all claims of the
        // turn were dropped and no other can come, so that this owner, borrowed mutably, is alone.
        let bytes = unsafe { slice::from_raw_parts_mut(address, padded) };
        bytes[self.0.used..].fill(0);
        bytes
    }

    /// Ends the turn.
    pub(crate) fn recycle(self) -> EmptyBuffer {
        self.0.wait_until_filled();
        EmptyBuffer(self.0)
    }
}

#[cfg(test)]
mod tests;
