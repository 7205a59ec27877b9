//! Start addresses of the chunks of an arena, readable while chunks are added.
//!
//! Each chunk has its own *window* of the arena's address space, whatever its size; a record is found by its
//! window id and its offset in the window. The table grows by buckets that double in size, so that entries
//! never move and a small arena has a small table. The first bucket is inline, because a separate lookup
//! would cost another memory latency.
//!
//! **Invariants**
//! - An entry is set once, before any record in its window becomes reachable, and never changed.

use std::ptr::{self, NonNull};

use testudo_base::{
    num::{low32, u64_of},
    sync::{
        OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
};

const FIRST_BUCKET_LOG: u32 = 3;
const FIRST_BUCKET: u32 = 1 << FIRST_BUCKET_LOG;
/// Buckets in addition to the first.
const BUCKETS: usize = 13;
/// Maximum number of windows of an arena.
pub(crate) const WINDOWS_MAX: u32 = ((2 << BUCKETS) - 1) << FIRST_BUCKET_LOG;

#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Windows {
    first: [AtomicPtr<u8>; FIRST_BUCKET as usize],
    buckets: [OnceLock<Box<[AtomicPtr<u8>]>>; BUCKETS],
}

impl Windows {
    /// Bytes of the first bucket, at the start of the table.
    pub(crate) const FIRST_BYTES: usize = size_of::<[AtomicPtr<u8>; FIRST_BUCKET as usize]>();

    /// Returns the bucket of `window`, which is not in the first one, and its index there.
    #[inline]
    fn place(window: u32) -> (usize, usize) {
        let shifted = window + FIRST_BUCKET;
        let log = shifted.ilog2();
        ((log - FIRST_BUCKET_LOG - 1) as usize, (shifted - (1 << log)) as usize)
    }

    /// Returns the start of `window`. Panics if it is not set, which is a bug in the store.
    #[inline]
    pub(crate) fn start(&self, window: u32) -> NonNull<u8> {
        let entry = if window < FIRST_BUCKET {
            &self.first[window as usize]
        } else {
            let (bucket, at) = Self::place(window);
            &self.buckets[bucket].get().expect("the window has a bucket")[at]
        };
        NonNull::new(entry.load(Ordering::Acquire)).expect("the window has a chunk")
    }

    /// Sets the start of `window`; returns the bytes by which the table grew.
    pub(crate) fn set(&self, window: u32, start: *mut u8) -> u64 {
        if window < FIRST_BUCKET {
            self.first[window as usize].store(start, Ordering::Release);
            return 0;
        }
        let (bucket, at) = Self::place(window);
        debug_assert!(window < WINDOWS_MAX && !start.is_null(), "a window of the arena has a chunk");
        let mut grown = 0;
        let entries = self.buckets[bucket].get_or_init(|| {
            let entries: Box<[_]> = (0..FIRST_BUCKET << (low32(u64_of(bucket)) + 1))
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect();
            grown = u64_of(size_of_val(&*entries));
            entries
        });
        entries[at].store(start, Ordering::Release);
        grown
    }
}
