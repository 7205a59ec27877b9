//! Loading cache lines ahead of their use, so that several memory stalls overlap.
//!
//! An address is a hint and is never dereferenced: a stale one costs only a little time. Does nothing under
//! Miri and on processors other than x86-64.
#![expect(unsafe_code, reason = "prefetch instructions")]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Starts loading `LINES` cache lines.
#[inline]
pub fn prefetch<const LINES: usize>(start: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..LINES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is a hint, which does nothing for unmapped addresses.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE_BYTES).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = start;
}

/// Like [`prefetch`], but takes the lines away from other processors: for memory that will be written.
#[inline]
pub fn prefetch_to_write<const LINES: usize>(start: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..LINES {
        let address = start.wrapping_add(line * LINE_BYTES);
        // SAFETY: prefetching is a hint, which does nothing for unmapped addresses; processors without this
        // instruction execute it as a `nop`. The intrinsic becomes an ordinary prefetch unless the whole
        // build targets processors that have it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = start;
}

/// Last known address of data that is likely to be requested again. Threads may change it at any time.
///
/// It affects only speed, so it is no scheduling point in the sense of [`crate::sync`].
#[derive(Debug, Default)]
pub struct AddressHint(AtomicUsize);

impl AddressHint {
    /// Records the address; null if the data should no longer be prefetched.
    #[inline]
    pub fn note(&self, address: *const u8) {
        let address = address.addr();
        // Recording an unchanged address must not invalidate the cache line of readers.
        if self.0.load(Relaxed) != address {
            self.0.store(address, Relaxed);
        }
    }

    /// The last recorded address; null if there is none.
    #[inline]
    pub fn address(&self) -> *const u8 {
        std::ptr::without_provenance(self.0.load(Relaxed))
    }

    /// Like [`prefetch`]; does nothing without an address.
    #[inline]
    pub fn prefetch<const LINES: usize>(&self) {
        if !self.address().is_null() {
            prefetch::<LINES>(self.address());
        }
    }

    /// Like [`prefetch_to_write`]; does nothing without an address.
    #[inline]
    pub fn prefetch_to_write<const LINES: usize>(&self) {
        if !self.address().is_null() {
            prefetch_to_write::<LINES>(self.address());
        }
    }
}
