//! Where each chunk of an arena starts, readable while chunks are added.
//!
//! A chunk has a *window* of the arena's address space to itself, whatever its size; a record is found by the
//! number of its window and its place therein. The table grows by buckets that double in size, so that
//! entries never move and a small arena has a small table.
//!
//! **Invariants**
//! - An entry is set once, before any record in its window becomes known, and never changed.

use std::ptr::{self, NonNull};

use testudo_base::{
    num::{low32, u64_of},
    sync::{
        OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
};

const FIRST_BUCKET_LOG: u32 = 3;
const BUCKETS: usize = 14;
/// Windows that an arena can have.
pub(crate) const WINDOWS_MAX: u32 = ((1 << BUCKETS) - 1) << FIRST_BUCKET_LOG;

#[derive(Debug, Default)]
pub(crate) struct Windows {
    buckets: [OnceLock<Box<[AtomicPtr<u8>]>>; BUCKETS],
}

impl Windows {
    /// The bucket of `window` and the place in it.
    #[inline]
    fn place(window: u32) -> (usize, usize) {
        let shifted = window + (1 << FIRST_BUCKET_LOG);
        let log = shifted.ilog2();
        ((log - FIRST_BUCKET_LOG) as usize, (shifted - (1 << log)) as usize)
    }

    /// The start of `window`. Panics if it is not set, which is a bug of ours.
    #[inline]
    pub(crate) fn start(&self, window: u32) -> NonNull<u8> {
        let (bucket, at) = Self::place(window);
        let bucket = self.buckets[bucket].get().expect("the window has a bucket");
        NonNull::new(bucket[at].load(Ordering::Acquire)).expect("the window has a chunk")
    }

    /// Sets the start of `window`; returns the bytes by which the table grew.
    pub(crate) fn set(&self, window: u32, start: *mut u8) -> u64 {
        let (bucket, at) = Self::place(window);
        let mut grown = 0;
        let entries = self.buckets[bucket].get_or_init(|| {
            let entries: Box<[_]> = (0..1 << (low32(u64_of(bucket)) + FIRST_BUCKET_LOG))
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect();
            grown = u64_of(size_of_val(&*entries));
            entries
        });
        entries[at].store(start, Ordering::Release);
        grown
    }
}
