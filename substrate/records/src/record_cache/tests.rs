//! Memory that moves to write buffers and back.

use testudo_base::{KeyspaceId, checksum::hash_key};

use super::*;
use crate::KeyspaceRecords;

#[test]
fn write_buffers_reclaim_memory_of_records() {
    let budget = 32 << 20;
    let pool = ChunkPool::new(8 << 20);
    let cache = RecordCache::new(&pool, budget);
    let records = KeyspaceRecords::new(&cache, KeyspaceId(1));
    let fill = || {
        for number in 0..80_000_u32 {
            let key = number.to_be_bytes();
            records.fill(&key, hash_key(&key), &[1; 100], 0);
        }
    };
    fill();
    let full = cache.stats();
    assert!(full.records > 40_000 && full.used_bytes > 7 << 20, "{full:?}");
    assert!(pool.used_bytes() <= (8 << 20) + 2 * u64_of(CHUNK_BYTES));
    let chunks: Vec<_> = (0..24).map(|_| pool.take(CHUNK_BYTES)).collect();
    assert!(pool.used_bytes() <= (8 << 20) + 2 * u64_of(CHUNK_BYTES), "{}", pool.used_bytes());
    assert!(cache.stats().used_bytes < 3 << 20, "{:?}", cache.stats());
    pool.give_back(chunks);
    fill();
    assert!(cache.stats().used_bytes > 7 << 20);
    drop((records, cache));
    assert_eq!(pool.used_bytes(), pool.idle_bytes(), "no memory is leaked");
}
