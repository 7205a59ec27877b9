use testudo_base::{Cursor, Entry, Result, checksum::hash_key, chunks::ChunkPool, sync::Arc};

use super::*;
use crate::RestoredRecord;

const KEYSPACE: KeyspaceId = KeyspaceId(7);

/// A flush without updates: it only starts another state.
struct Nothing;

impl Cursor for Nothing {
    fn seek_first(&mut self) -> Result<()> {
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        Ok(())
    }
    fn seek(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn seek_before(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        Ok(())
    }
    fn entry(&self) -> Option<Entry<'_>> {
        None
    }
}

fn cache(bytes: u64) -> (Arc<ChunkPool>, Arc<RecordCache>) {
    let pool = ChunkPool::new(bytes);
    let cache = RecordCache::new(&pool, bytes);
    (pool, cache)
}

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn collected(cache: &RecordCache, state: &KeyspaceRecords) -> Vec<HotRecord> {
    let mut records = Vec::new();
    cache.each_hot_record(&BTreeMap::from([(state.keyspace(), state.clone())]), |record| {
        records.push(record.clone());
        true
    });
    records
}

fn filled(cache: &Arc<RecordCache>, count: u32) -> KeyspaceRecords {
    let records = KeyspaceRecords::new(cache, KEYSPACE);
    for number in 0..count {
        records.fill(&key(number), hash_key(&key(number)), &[1; 100], 0);
    }
    records
}

#[test]
fn most_used_records_are_exported_first_and_restored() {
    let (_pool, before) = cache(4 << 20);
    let records = filled(&before, 1000);
    for number in 500..510 {
        let _ = records.get(&key(number), hash_key(&key(number)));
    }
    let hot = collected(&before, &records);
    assert!(hot.len() > 800, "{} records", hot.len());
    let used = hot.iter().take_while(|record| record.priority > 0).count();
    let is_used = |record: &HotRecord| (500..510).map(key).any(|used| used == record.key);
    assert!(used > 5 && hot.iter().map(is_used).eq((0..hot.len()).map(|at| at < used)));

    let (_pool, after) = cache(4 << 20);
    let records = KeyspaceRecords::new(&after, KEYSPACE);
    assert!(hot.iter().all(|record| records.restore(record) == RestoredRecord::Done));
    assert_eq!(records.restore(&hot[0]), RestoredRecord::Present);
    let found = |number: &u32| records.get(&key(*number), hash_key(&key(*number))).is_some();
    assert!((500..510).filter(found).count() > 5);
    records.fill(&key(5000), hash_key(&key(5000)), b"new", 0);
    let _ = records.get(&key(5000), hash_key(&key(5000)));
    let stats = after.stats();
    assert_eq!(stats.restored, u64::try_from(hot.len()).unwrap());
    assert_eq!(stats.restored_hits, stats.hits - 1);
}

#[test]
fn later_records_are_not_exported_or_restored_to_older_states() {
    let (_pool, before) = cache(4 << 20);
    let first = filled(&before, 10);
    let second = first.advance(&mut Nothing, false).unwrap();
    assert!(second.is_newest() && !first.is_newest());
    second.fill(&key(77), hash_key(&key(77)), b"later", 0);
    assert_eq!(collected(&before, &first).len(), 10);
    assert_eq!(collected(&before, &second).len(), 11);
    assert_eq!(collected(&before, &KeyspaceRecords::new(&before, KeyspaceId(8))).len(), 0);
    let hot = collected(&before, &second).pop().unwrap();
    assert_eq!(first.restore(&hot), RestoredRecord::Outdated);
}

#[test]
fn restore_uses_only_free_memory() {
    let (_pool, large) = cache(4 << 20);
    let hot = collected(&large, &filled(&large, 10_000));
    let (pool, small) = cache(256 << 10);
    let records = KeyspaceRecords::new(&small, KEYSPACE);
    let done = hot.iter().take_while(|record| records.restore(record) == RestoredRecord::Done).count();
    assert!((200..3000).contains(&done), "{done} records");
    // The index may slightly exceed the limit.
    assert!(pool.total_bytes() <= 264 << 10, "{} bytes", pool.total_bytes());
    // A full bucket of the index evicts a record.
    assert!(small.stats().records > u64::try_from(done / 2).unwrap(), "{:?}", small.stats());
}

#[test]
fn too_long_record_for_a_smaller_cache_is_not_counted() {
    let (_pool, large) = cache(64 << 20);
    let records = KeyspaceRecords::new(&large, KEYSPACE);
    records.fill(&key(1), hash_key(&key(1)), &[1; 6000], 0);
    let hot = collected(&large, &records).pop().unwrap();
    let (_pool, small) = cache(2 << 20);
    let restored = KeyspaceRecords::new(&small, KEYSPACE).restore(&hot);
    assert_eq!(restored, RestoredRecord::TooLong);
    assert_eq!((small.stats().restored, small.stats().inserted), (0, 0));
}

#[test]
fn restored_records_keep_their_age() {
    const COUNT: u32 = 40_000;
    let (_, before) = cache(16 << 20);
    let hot = collected(&before, &filled(&before, COUNT));
    assert!(hot.len() > 30_000, "{}", hot.len());
    let (pool, after) = cache(16 << 20);
    let records = KeyspaceRecords::new(&after, KEYSPACE);
    assert!(hot.iter().all(|record| records.restore(record) == RestoredRecord::Done));
    // Records inserted meanwhile are newer.
    let new = COUNT..COUNT + 1_000;
    new.clone().for_each(|number| records.fill(&key(number), hash_key(&key(number)), &[1; 100], 0));
    pool.set_limit(3 << 20);
    let kept = collected(&after, &records);
    let numbers = || kept.iter().map(|record| u32::from_be_bytes(record.key[..].try_into().unwrap()));
    let of_new = numbers().filter(|number| new.contains(number)).count();
    let of_older_half = numbers().filter(|number| *number < COUNT / 2).count();
    assert!(of_new > 950 && kept.len() > 5_000, "{of_new} new ones of {} remaining", kept.len());
    assert!(of_older_half < kept.len() / 20, "{of_older_half} of the older half, of {}", kept.len());
}
