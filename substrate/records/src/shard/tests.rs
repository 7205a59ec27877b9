//! Which records are carried over or evicted, and that memory accounting is correct.

use testudo_base::checksum::hash_key;

use super::*;
use crate::index::tag_of;

const SEGMENT_BYTES: usize = 4 << 10;

fn shard(segments: u64) -> (Arc<ChunkPool>, Shard) {
    let pool = ChunkPool::new(segments * u64_of(SEGMENT_BYTES));
    let shard = Shard::new(&pool, Spare::new(&pool), SEGMENT_BYTES, 1);
    (pool, shard)
}

fn tag(key: &[u8]) -> u32 {
    tag_of(hash_key(key))
}

fn key(number: u32) -> [u8; 12] {
    let mut key = *b"key/....####";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn insert(shard: &Shard, number: u32) {
    let key = key(number);
    let value = [7; 100];
    let record = Record { tag: tag(&key), keyspace: KeyspaceId(1), flushes: 0, key: &key, value: &value };
    shard.lock().insert(&record, Standing::NEW);
}

/// Whether the record is cached; counts as a use.
fn look(shard: &Shard, number: u32) -> bool {
    let layout = shard.layout_full();
    let found = layout.find(tag(&key(number)), KeyspaceId(1), &key(number));
    if let Some(found) = &found {
        let value = found.segment.value(found.slot.location().place, found.flushes).unwrap();
        assert!(value == [7; 100] || found.flushes > 0 && value == [8; 99]);
        found.bucket.raise(found.way, found.slot);
    }
    found.is_some()
}

#[test]
fn used_records_stay_and_unused_ones_are_evicted() {
    let (_, shard) = shard(12);
    (0..20).for_each(|number| insert(&shard, number));
    for number in 20..5_000 {
        assert!((0..20).filter(|hot| look(&shard, *hot)).count() > 0);
        insert(&shard, number);
    }
    let kept = (0..20).filter(|hot| look(&shard, *hot)).count();
    assert!(kept >= 18, "{kept} of 20 constantly used records were kept");
    let stats = shard.stats();
    assert!(stats.records > 200, "{stats:?}");
    let present = (0..5_000).filter(|number| look(&shard, *number)).count();
    assert_eq!(u64_of(present), stats.records);
}

#[test]
fn record_used_once_survives_a_scan() {
    // Twenty are used once, and never again while ten times the cache is read once or written by a flush.
    let (_, shard) = shard(32);
    (0..20).for_each(|number| insert(&shard, number));
    (0..20).for_each(|number| assert!(look(&shard, number)));
    for number in 20..10_000 {
        insert(&shard, number);
    }
    assert!((0..20).filter(|hot| look(&shard, *hot)).count() >= 18);
}

#[test]
fn record_that_returns_soon_after_eviction_stays() {
    let (_, shard) = shard(32);
    let put = |number: u32| {
        let key = key(number);
        let mut writer = shard.lock();
        let standing = if writer.recall(tag(&key)).is_some() { Standing::RETURNED } else { Standing::NEW };
        let record =
            Record { tag: tag(&key), keyspace: KeyspaceId(1), flushes: 0, key: &key, value: &[7; 100] };
        writer.insert(&record, standing);
    };
    (0..3_000).for_each(put);
    let gone: Vec<u32> = (1_800..2_100).filter(|number| !look(&shard, *number)).collect();
    assert!(gone.len() > 100, "{} were evicted", gone.len());
    gone.iter().take(100).copied().for_each(put);
    (3_000..6_000).for_each(put);
    let stayed = gone.iter().take(100).filter(|number| look(&shard, **number)).count();
    // The table has places for about half of them.
    assert!(stayed > 25, "{stayed} of 100 returned and stayed");
}

#[test]
fn record_of_equal_size_is_replaced_in_place() {
    let (pool, shard) = shard(16);
    (0..200).for_each(|number| insert(&shard, number));
    let used = pool.used_bytes();
    for flushes in 1..50 {
        for number in 0..200 {
            let key = key(number);
            let record =
                Record { tag: tag(&key), keyspace: KeyspaceId(1), flushes, key: &key, value: &[8; 99] };
            let was_there = look(&shard, number);
            assert_eq!(shard.lock().replace(&record), was_there);
            assert_eq!(
                shard.layout().find(tag(&key), KeyspaceId(1), &key).map(|found| found.flushes),
                was_there.then_some(flushes)
            );
        }
    }
    assert_eq!(pool.used_bytes(), used);
    let longer = [8; 120];
    let record =
        Record { tag: tag(&key(1)), keyspace: KeyspaceId(1), flushes: 50, key: &key(1), value: &longer };
    assert!(!shard.lock().replace(&record), "it does not fit there");
}

#[test]
fn full_cache_of_used_records_accepts_new_ones() {
    let (pool, shard) = shard(8);
    for number in 0..3_000 {
        insert(&shard, number);
        assert!(look(&shard, number), "the newest record is cached");
        (0..3).for_each(|_| assert!(look(&shard, number)));
    }
    assert!(pool.used_bytes() <= 9 * u64_of(SEGMENT_BYTES), "limit plus the spare segment");
}

#[test]
fn memory_is_given_up_down_to_the_last_segment() {
    let (pool, shard) = shard(16);
    for number in 0..1_000 {
        insert(&shard, number);
        look(&shard, number);
    }
    let mut before = pool.used_bytes();
    assert!(before > 12 * u64_of(SEGMENT_BYTES));
    for _ in 0..40 {
        shard.lock().give_up_segment();
        assert!(pool.used_bytes() <= before);
        before = pool.used_bytes();
    }
    assert!(before <= 3 * u64_of(SEGMENT_BYTES), "{before}");
    let present = (0..1_000).filter(|number| look(&shard, *number)).count();
    assert_eq!(u64_of(present), shard.stats().records);
    insert(&shard, 1);
    assert!(look(&shard, 1));
}

#[test]
fn reader_keeps_its_segment_alive() {
    let (_, shard) = shard(3);
    insert(&shard, 1);
    let layout = shard.layout_full();
    let found = layout.find(tag(&key(1)), KeyspaceId(1), &key(1)).expect("it was inserted");
    (2..2_000).for_each(|number| insert(&shard, number));
    assert!(!look(&shard, 1));
    assert_eq!(found.segment.value(found.slot.location().place, 0).unwrap(), [7; 100]);
}

#[test]
fn removed_records_leave_no_entries() {
    let (_, shard) = shard(16);
    (0..200).for_each(|number| insert(&shard, number));
    for number in 0..200 {
        let was_there = look(&shard, number);
        assert_eq!(shard.lock().remove(tag(&key(number)), KeyspaceId(1), &key(number)).is_some(), was_there);
        assert!(!look(&shard, number));
    }
    assert_eq!(shard.stats().records, 0);
}

#[test]
fn oversized_records_are_not_cached() {
    let (_, shard) = shard(16);
    let value = vec![1; SEGMENT_BYTES / 8];
    let record = Record { tag: tag(b"k"), keyspace: KeyspaceId(1), flushes: 0, key: b"k", value: &value };
    shard.lock().insert(&record, Standing::NEW);
    assert_eq!(shard.stats().records, 0);
}

#[test]
fn grown_index_releases_the_memory_of_smaller_ones() {
    let pool = ChunkPool::new(64 << 20);
    let shard = Shard::new(&pool, Spare::new(&pool), 256 << 10, 1);
    let index_bytes = || shard.layout_full().index.bytes();
    (0..200_000).for_each(|number| insert(&shard, number));
    assert!(index_bytes() > 1 << 20, "it grew");
    let segments = shard.layout_full().segments.iter().flatten().count();
    let chunks = u64_of(segments) * (256 << 10);
    let ghosts = pool.limit_bytes() / 64;
    let others = pool.total_bytes() - chunks - index_bytes() - ghosts;
    // Indexes that were allocated in small fragments.
    assert!(others < index_bytes() / 3, "{others} bytes apart from segments and index");
}
