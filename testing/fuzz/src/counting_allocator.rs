//! The system allocator, with a count of the bytes that each thread holds, so that a target's memory is
//! bounded.
//!
//! **Invariants**
//! - Every call is forwarded unchanged; only counters are added.
//! - The counters are thread-local and allocate nothing.

#![expect(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Global allocator of programs that run targets.
#[derive(Debug)]
pub struct CountingAllocator;

fn grown(bytes: usize) {
    // A thread being torn down has no counters left.
    let _ = LIVE.try_with(|live| {
        live.set(live.get().saturating_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn shrunk(bytes: usize) {
    let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(bytes)));
}

// SAFETY: every method forwards to `System` with the arguments it was given, and counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        shrunk(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        grown(bytes);
        shrunk(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

/// Runs `body`; also returns the peak bytes that this thread held in addition to those before. Always 0
/// unless [`CountingAllocator`] is the program's allocator.
pub fn peak_bytes_of<T>(body: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = body();
    (result, PEAK.get().saturating_sub(before))
}
