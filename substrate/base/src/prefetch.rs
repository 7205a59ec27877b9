//! Loading cache lines ahead of their use, so that several waits for memory become one.
//!
//! An address is a hint and nothing is read through it: one that has nothing at it any more costs a little
//! time. On other processors than x86-64, and under Miri, nothing happens.
#![expect(unsafe_code, reason = "instructions that load cache lines ahead")]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Starts loading so many cache lines.
#[inline]
pub fn prefetch<const LINES: usize>(start: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..LINES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is a hint, which does nothing where there is no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE_BYTES).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = start;
}

/// As [`prefetch`], and takes the lines away from other processors: for what will be written.
#[inline]
pub fn prefetch_to_write<const LINES: usize>(start: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..LINES {
        let address = start.wrapping_add(line * LINE_BYTES);
        // SAFETY: prefetching is a hint, which does nothing where there is no memory; processors that do not
        // know this one take it for a `nop`. The intrinsic becomes an ordinary prefetch unless the whole
        // build is for processors that have it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = start;
}

/// Where something lay that is likely to be asked for again. Threads may change it at any time.
///
/// It changes nothing but the speed, so it is no meeting point of threads in the sense of [`crate::sync`].
#[derive(Debug, Default)]
pub struct AddressHint(AtomicUsize);

impl AddressHint {
    /// It lies there now; null if it is not to be loaded ahead any more.
    #[inline]
    pub fn note(&self, address: *const u8) {
        let address = address.addr();
        // Whoever notes the same again and again changes nothing that others read.
        if self.0.load(Relaxed) != address {
            self.0.store(address, Relaxed);
        }
    }

    /// What was noted last; null if nothing was.
    #[inline]
    pub fn address(&self) -> *const u8 {
        std::ptr::without_provenance(self.0.load(Relaxed))
    }

    /// As [`prefetch`]; nothing, if nothing is known.
    #[inline]
    pub fn prefetch<const LINES: usize>(&self) {
        if !self.address().is_null() {
            prefetch::<LINES>(self.address());
        }
    }

    /// As [`prefetch_to_write`]; nothing, if nothing is known.
    #[inline]
    pub fn prefetch_to_write<const LINES: usize>(&self) {
        if !self.address().is_null() {
            prefetch_to_write::<LINES>(self.address());
        }
    }
}
