//! Values that every operation writes, with one copy for each of a few stripes of threads.
//!
//! A cache line written by two processors bounces between them, at a hundred nanoseconds or more each time. A
//! value that is mostly added to and rarely read has a line per stripe instead.
//!
//! **Invariants**
//! - No two copies share a cache line, or the pair of lines that processors fetch together.

use crossbeam_utils::CachePadded;

use crate::sync::{
    atomic::{AtomicU64, Ordering::Relaxed},
    scaled, thread_local,
};

/// Number of copies of a striped value.
pub const STRIPES: usize = scaled(16, 2);

thread_local! {
    /// The stripe of a thread, assigned round-robin.
    static STRIPE: usize = {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % STRIPES
    };
}

/// The stripe of this thread.
#[inline]
pub fn stripe() -> usize {
    STRIPE.with(|stripe| *stripe)
}

/// A value with one copy per stripe.
#[derive(Debug)]
pub struct Striped<T>(Box<[CachePadded<T>]>);

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| CachePadded::default()).collect())
    }
}

impl<T> Striped<T> {
    /// The copy of this thread's stripe.
    #[inline]
    pub fn own(&self) -> &T {
        debug_assert_eq!(self.0.len(), STRIPES, "a copy per stripe");
        &self.0[stripe()]
    }

    /// All copies.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|copy| &**copy)
    }
}

/// A counter that every operation adds to.
#[derive(Debug, Default)]
pub struct StripedCount(Striped<AtomicU64>);

impl StripedCount {
    /// Adds `count`; returns the previous count of this stripe.
    #[inline]
    pub fn add(&self, count: u64) -> u64 {
        self.0.own().fetch_add(count, Relaxed)
    }

    /// The sum over all stripes. Repeated calls of one thread never return less than before.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|count| count.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_of_any_thread_is_lost() {
        let count = StripedCount::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| _ = count.add(3)));
            }
        });
        assert_eq!(count.sum(), 12_000);
    }

    #[test]
    fn copies_do_not_share_a_pair_of_cache_lines() {
        let striped = Striped::<AtomicU64>::default();
        let mut addresses: Vec<usize> = striped.iter().map(|copy| std::ptr::from_ref(copy).addr()).collect();
        addresses.sort_unstable();
        assert_eq!(addresses.len(), STRIPES);
        assert!(addresses.windows(2).all(|pair| pair[1] / 128 > pair[0] / 128));
    }
}
