//! The cache of a store: its shards, its statistics, and giving up memory.
//!
//! **Invariants**
//! - The cache's memory belongs to the pool, which decides how much the cache may have alongside pages.
//! - Statistics are counted on cache lines that few threads share.

use std::sync::atomic::AtomicUsize as Turn;

use crossbeam_utils::CachePadded;
use testudo_base::{
    chunks::{Borrower, CHUNK_BYTES, ChunkPool, Use},
    num::{low32, u64_of, usize_of},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
        scaled,
    },
};

use crate::shard::{Shard, Spare};

/// Memory budget per shard.
const SHARD_BUDGET_BYTES: u64 = 16 << 20;
const SHARDS_MAX: u64 = 16;
/// Small stores have small segments: the whole budget holds at least this many.
const SEGMENTS_MIN: u64 = 64;
const SEGMENT_BYTES_MIN: usize = 4 << 10;
const STRIPES: usize = scaled(16, 1);

/// Statistics of the cache: counts since its creation, and current sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCacheStats {
    /// Lookups that found their record.
    pub hits: u64,
    /// Lookups that did not find their record.
    pub misses: u64,
    /// Records restored from an earlier cache.
    pub restored: u64,
    /// Lookups that found a restored record.
    pub restored_hits: u64,
    /// Records inserted.
    pub inserted: u64,
    /// Records evicted in favor of others.
    pub evicted: u64,
    /// Number of records held.
    pub records: u64,
    /// Bytes of memory: segments and index.
    pub used_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) buffered: AtomicU64,
    pub(crate) restored: AtomicU64,
    pub(crate) restored_hits: AtomicU64,
}

/// Hot records of all keyspaces of a store; see the head of the crate.
#[derive(Debug)]
pub struct RecordCache {
    pool: Arc<ChunkPool>,
    shards: Box<[Shard]>,
    counters: [CachePadded<Counters>; STRIPES],
    /// Next shard to give up memory.
    turn: Turn,
    takes_records: bool,
}

thread_local! {
    /// Index of a thread's counters, assigned round-robin.
    static STRIPE_OF_THREAD: usize = {
        static NEXT: Turn = Turn::new(0);
        NEXT.fetch_add(1, Relaxed) % STRIPES
    };
}

impl RecordCache {
    /// A cache on the spare memory of `pool`, for a store with a total budget of `budget_bytes`.
    pub fn new(pool: &Arc<ChunkPool>, budget_bytes: u64) -> Arc<Self> {
        Self::of(pool, budget_bytes, true)
    }

    /// A cache that accepts no records, so that all of its memory is left to others.
    pub fn without_records(pool: &Arc<ChunkPool>) -> Arc<Self> {
        Self::of(pool, SHARD_BUDGET_BYTES, false)
    }

    fn of(pool: &Arc<ChunkPool>, budget_bytes: u64, takes_records: bool) -> Arc<Self> {
        let shards = (budget_bytes / SHARD_BUDGET_BYTES).clamp(1, SHARDS_MAX);
        let shards = usize_of(1 << shards.ilog2());
        let segment_bytes = usize_of(budget_bytes / SEGMENTS_MIN).clamp(SEGMENT_BYTES_MIN, CHUNK_BYTES);
        let segment_bytes =
            if segment_bytes == CHUNK_BYTES { CHUNK_BYTES } else { 1 << segment_bytes.ilog2() };
        debug_assert!(shards.is_power_of_two(), "a mask selects the shard");
        debug_assert!((SEGMENT_BYTES_MIN..=CHUNK_BYTES).contains(&segment_bytes), "a segment is one chunk");
        let spare = Spare::new(pool);
        let segment_bytes = scaled(segment_bytes, SEGMENT_BYTES_MIN);
        let shard = |_| Shard::new(pool, Arc::clone(&spare), segment_bytes, u64_of(shards));
        let cache = Arc::new(Self {
            pool: Arc::clone(pool),
            shards: (0..shards).map(shard).collect(),
            counters: Default::default(),
            turn: Turn::new(0),
            takes_records,
        });
        let borrower: Arc<dyn Borrower> = Arc::clone(&cache) as _;
        let weak: Weak<dyn Borrower> = Arc::downgrade(&borrower);
        pool.set_borrower(Use::Records, weak);
        cache
    }

    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        debug_assert!(self.shards.len().is_power_of_two(), "a mask selects the shard");
        low32(hash) as usize & (self.shards.len() - 1)
    }

    #[inline]
    pub(crate) fn shard(&self, hash: u64) -> &Shard {
        &self.shards[self.shard_of(hash)]
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(crate) fn pool(&self) -> &ChunkPool {
        &self.pool
    }

    /// Maximum bytes of key and value of a cached record; 0 if none is accepted.
    pub fn record_bytes_max(&self) -> u64 {
        if self.takes_records { u64_of(self.shards[0].record_bytes_max()) } else { 0 }
    }

    pub(crate) fn takes_records(&self) -> bool {
        self.takes_records
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters[STRIPE_OF_THREAD.with(|stripe| *stripe)]
    }

    /// Total reads so far: lookups in the cache, and reads answered by write buffers.
    pub fn reads(&self) -> u64 {
        let of = |counters: &CachePadded<Counters>| {
            counters.hits.load(Relaxed) + counters.misses.load(Relaxed) + counters.buffered.load(Relaxed)
        };
        self.counters.iter().map(of).sum()
    }

    /// Returns the statistics.
    pub fn stats(&self) -> RecordCacheStats {
        let mut stats = RecordCacheStats::default();
        for counters in &self.counters {
            stats.hits += counters.hits.load(Relaxed);
            stats.misses += counters.misses.load(Relaxed);
            stats.restored += counters.restored.load(Relaxed);
            stats.restored_hits += counters.restored_hits.load(Relaxed);
        }
        for shard in self.shards.iter().map(Shard::stats) {
            stats.inserted += shard.inserted;
            stats.evicted += shard.evicted;
            stats.records += shard.records;
            stats.used_bytes += shard.bytes;
        }
        stats
    }
}

impl Borrower for RecordCache {
    fn give_up_chunk(&self) -> bool {
        (0..self.shards.len()).any(|_| {
            let turn = self.turn.fetch_add(1, Relaxed) % self.shards.len();
            self.shards[turn].lock().give_up_segment()
        })
    }
}

/// Mixes the keyspace into the hash of a key.
#[inline]
pub(crate) fn hash_in(keyspace: u32, hash: u64) -> u64 {
    hash ^ u64::from(keyspace).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

const _: () = assert!(CHUNK_BYTES / 8 <= crate::index::SEGMENT_WORDS_MAX && u64_of(CHUNK_BYTES) > 0);

#[cfg(test)]
mod tests;
