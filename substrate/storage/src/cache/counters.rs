//! Counters of the cache, striped by thread.
//!
//! **Invariants**
//! - No lookup writes to a cache line that threads of other stripes write to, except for the page's heat when
//!   that changes.

use testudo_base::sync::{
    atomic::{AtomicU64, Ordering, Ordering::Relaxed},
    thread_local,
};

use super::pins::STRIPES;

/// A value padded to its own cache lines, including the adjacent line that processors prefetch.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

thread_local! {
    /// Stripe of the thread; assigned round-robin.
    static STRIPE: usize = {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

/// Returns the stripe of this thread.
#[inline]
pub(crate) fn stripe() -> usize {
    STRIPE.with(|stripe| *stripe)
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) ghost_hits: AtomicU64,
    pub(crate) shared_loads: AtomicU64,
    pub(crate) restored: AtomicU64,
    pub(crate) restored_hits: AtomicU64,
    pub(crate) warmed: AtomicU64,
}

/// Hits, misses and size of the cache since its creation.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// Lookups that found their page.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Pages evicted for others.
    pub evictions: u64,
    /// Loads of data pages that a cache larger by an eighth would have saved.
    pub ghost_hits: u64,
    /// Waits for a page that another thread was reading.
    pub shared_loads: u64,
    /// Pages restored from the hot set of an earlier cache.
    pub restored: u64,
    /// Restored pages that were used; each counts once.
    pub restored_hits: u64,
    /// Pages inserted by merges because they replace pages that queries used.
    pub warmed: u64,
    /// Bytes of memory allocated for pages.
    pub used_bytes: u64,
    /// Maximum of `used_bytes`.
    pub capacity_bytes: u64,
    /// Bytes of tables, not included in `used_bytes`.
    pub metadata_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Counters([Padded<Counts>; STRIPES]);

impl Counters {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Padded::default()))
    }

    #[inline]
    pub(crate) fn of(&self, stripe: usize) -> &Counts {
        &self.0[stripe].0
    }

    /// Adds the sums over all stripes to `stats`.
    pub(crate) fn add_to(&self, stats: &mut CacheStats) {
        for Padded(counts) in &self.0 {
            stats.hits += counts.hits.load(Relaxed);
            stats.misses += counts.misses.load(Relaxed);
            stats.evictions += counts.evictions.load(Relaxed);
            stats.ghost_hits += counts.ghost_hits.load(Relaxed);
            stats.shared_loads += counts.shared_loads.load(Relaxed);
            stats.restored += counts.restored.load(Relaxed);
            stats.restored_hits += counts.restored_hits.load(Relaxed);
            stats.warmed += counts.warmed.load(Relaxed);
        }
    }
}

/// Increments a counter.
#[inline]
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
