#![expect(unsafe_code, reason = "many writers fill disjoint ranges of one buffer at the same time")]
//! A buffer of log bytes that several writers fill at once, each its own range.
//!
//! A buffer goes round in a circle of owners, each a type of its own: [`EmptyBuffer`] → [`ActiveBuffer`]
//! (hands out ranges) → [`SealedBuffer`] (waits until they are filled, gives the bytes) → empty again.
//!
//! **Invariants**
//! - At any moment a buffer's memory has one owner of these types, besides the [`Claim`]s on it.
//! - The ranges of the claims of one turn are disjoint, because one `ActiveBuffer` hands them out in order.
//! - `filled` is the sum of the lengths of the claims dropped in this turn; a claim touches its range only
//!   before that. So once it equals the length handed out, nobody but the owner can reach the memory.

use std::{
    cell::UnsafeCell,
    fmt, slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crossbeam_utils::Backoff;
use parking_lot::{Condvar, Mutex};
use testudo_base::PAGE_SIZE;

/// Set in [`Memory::filled`] while somebody sleeps until the claims are dropped.
const IS_AWAITED: usize = 1 << (usize::BITS - 1);

#[repr(C, align(4096))]
struct Page(UnsafeCell<[u8; PAGE_SIZE]>);

struct Memory {
    pages: Box<[Page]>,
    filled: AtomicUsize,
    gate: Mutex<()>,
    all_filled: Condvar,
}

// SAFETY: `pages` is reached only through the range of a live claim, and these are disjoint, or through the
// one owner after all claims of the turn were dropped, which the acquiring load of `filled` orders.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> Arc<Self> {
        let pages = (0..bytes.div_ceil(PAGE_SIZE)).map(|_| Page(UnsafeCell::new([0; PAGE_SIZE]))).collect();
        Arc::new(Self {
            pages,
            filled: AtomicUsize::new(0),
            gate: Mutex::new(()),
            all_filled: Condvar::new(),
        })
    }

    fn capacity(&self) -> usize {
        self.pages.len() * PAGE_SIZE
    }

    /// Address of the byte at `offset`. REQUIRES: it is within the buffer, or just at its end.
    fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.capacity(), "within the buffer");
        let base: *mut u8 = self.pages.as_ptr().cast_mut().cast();
        base.wrapping_add(offset)
    }

    fn wait_until_filled(&self, bytes: usize) {
        // A copy takes less than a microsecond unless its thread lost the processor.
        let backoff = Backoff::new();
        while !backoff.is_completed() {
            if self.filled.load(Ordering::Acquire) & !IS_AWAITED == bytes {
                return;
            }
            backoff.snooze();
        }
        let mut gate = self.gate.lock();
        let mut filled = self.filled.fetch_or(IS_AWAITED, Ordering::AcqRel);
        while filled & !IS_AWAITED != bytes {
            self.all_filled.wait(&mut gate);
            filled = self.filled.load(Ordering::Acquire);
        }
        self.filled.fetch_and(!IS_AWAITED, Ordering::AcqRel);
    }
}

/// A buffer that nobody uses.
pub(crate) struct EmptyBuffer(Arc<Memory>);

impl EmptyBuffer {
    /// Zeroed memory of `bytes`, rounded up to whole pages, at a page's address.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Memory::new(bytes))
    }

    /// Its size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Starts a new turn.
    pub(crate) fn activate(self) -> ActiveBuffer {
        self.0.filled.store(0, Ordering::Relaxed);
        ActiveBuffer { memory: self.0, used: 0 }
    }
}

/// A buffer that hands out ranges.
pub(crate) struct ActiveBuffer {
    memory: Arc<Memory>,
    used: usize,
}

impl ActiveBuffer {
    /// Bytes that were not handed out yet.
    pub(crate) fn free_bytes(&self) -> usize {
        self.memory.capacity() - self.used
    }

    /// Hands out the next `bytes`. REQUIRES: as many are free.
    pub(crate) fn claim(&mut self, bytes: usize) -> Claim {
        assert!(bytes <= self.free_bytes(), "the buffer has room");
        let start = self.used;
        self.used += bytes;
        Claim { memory: Arc::clone(&self.memory), start, bytes }
    }

    /// Hands out no more.
    pub(crate) fn seal(self) -> SealedBuffer {
        SealedBuffer { memory: self.memory, used: self.used }
    }
}

/// One writer's range of a buffer; dropping it says that the range is filled.
pub(crate) struct Claim {
    memory: Arc<Memory>,
    start: usize,
    bytes: usize,
}

impl Claim {
    /// The range. What stands in it before it is filled is whatever an earlier turn left.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let address = self.memory.address(self.start);
        // SAFETY: the range lies within the buffer (checked when it was claimed), belongs to this claim
        // alone for as long as it lives, and is borrowed mutably from the claim.
        unsafe { slice::from_raw_parts_mut(address, self.bytes) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let before = self.memory.filled.fetch_add(self.bytes, Ordering::Release);
        if before & IS_AWAITED != 0 {
            drop(self.memory.gate.lock());
            self.memory.all_filled.notify_all();
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({}..{})", self.start, self.start + self.bytes)
    }
}

/// A buffer that waits to be written.
pub(crate) struct SealedBuffer {
    memory: Arc<Memory>,
    used: usize,
}

impl SealedBuffer {
    /// Waits until all claims are filled and returns the bytes, zeros added up to a whole page.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        self.memory.wait_until_filled(self.used);
        let padded = self.used.next_multiple_of(PAGE_SIZE);
        let address = self.memory.address(0);
        // SAFETY: the pages lie within the buffer, whose size is a multiple of the page; all claims of the
        // turn were dropped and no other can come, so that this owner, borrowed mutably, is alone.
        let bytes = unsafe { slice::from_raw_parts_mut(address, padded) };
        bytes[self.used..].fill(0);
        bytes
    }

    /// Ends the turn.
    pub(crate) fn recycle(self) -> EmptyBuffer {
        self.memory.wait_until_filled(self.used);
        EmptyBuffer(self.memory)
    }
}

#[cfg(test)]
mod tests;
