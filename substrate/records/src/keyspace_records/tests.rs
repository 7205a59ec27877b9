//! Readers of old and new states, compared with a model of every state.

use std::collections::BTreeMap;

use testudo_base::{Entry, OwnedEntry, checksum::hash_key, chunks::ChunkPool};

use super::*;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Updates in the form that a flush provides.
struct Updates {
    entries: Vec<OwnedEntry>,
    at: Option<usize>,
}

impl Cursor for Updates {
    fn seek_first(&mut self) -> Result<()> {
        self.at = Some(0);
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        unreachable!("a flush moves forward only")
    }
    fn seek(&mut self, _: &[u8]) -> Result<()> {
        unreachable!("a flush moves forward only")
    }
    fn seek_before(&mut self, _: &[u8]) -> Result<()> {
        unreachable!("a flush moves forward only")
    }
    fn next(&mut self) -> Result<()> {
        self.at = self.at.map(|at| at + 1);
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        unreachable!("a flush moves forward only")
    }
    fn entry(&self) -> Option<Entry<'_>> {
        let OwnedEntry { key, kind, value } = self.entries.get(self.at?)?;
        Some(Entry { key, kind: *kind, value })
    }
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % count
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

fn flush(random: &mut Random, state: &mut State, epoch: usize) -> Updates {
    let mut changed: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    for _ in 0..random.below(60) {
        let value = format!("{epoch}{}", ".".repeat(usize::try_from(random.below(90)).unwrap()));
        let value = (random.below(4) > 0).then(|| value.into_bytes());
        changed.insert(key(random.below(400)), value);
    }
    for (key, value) in &changed {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
    let entry = |(key, value): (Vec<u8>, Option<Vec<u8>>)| OwnedEntry {
        key,
        kind: if value.is_some() { Kind::Value } else { Kind::Tombstone },
        value: value.unwrap_or_default(),
    };
    Updates { entries: changed.into_iter().map(entry).collect(), at: None }
}

/// One run: states are created, and readers of all states read and fill.
fn run(seed: u64, limit_bytes: u64) -> u64 {
    let mut random = Random(seed);
    let pool = ChunkPool::new(limit_bytes);
    let cache = RecordCache::new(&pool, 1 << 20);
    // Two keyspaces with the same keys; each has its states, and old ones stay in use.
    let mut histories: Vec<Vec<(State, KeyspaceRecords)>> =
        (1..3).map(|id| vec![(State::new(), KeyspaceRecords::new(&cache, KeyspaceId(id)))]).collect();
    for _ in 0..4_000 {
        let history = &mut histories[usize::try_from(random.below(2)).unwrap()];
        if random.below(60) == 0 {
            let (mut state, records) = history.last().unwrap().clone();
            let mut updates = flush(&mut random, &mut state, history.len());
            let next = records.advance(&mut updates, random.below(3) == 0).unwrap();
            history.push((state, next));
        }
        if random.below(300) == 0 {
            drop(pool.take(16 << 10));
        }
        let back = if random.below(3) == 0 { random.below(6) } else { 0 };
        let at = history.len() - 1 - usize::try_from(back).unwrap().min(history.len() - 1);
        let (state, records) = &history[at];
        let key = key(random.below(400));
        match records.get(&key, hash_key(&key)) {
            Some(value) => assert_eq!(Some(&value), state.get(&key), "seed {seed}"),
            None => {
                if let Some(value) = state.get(&key) {
                    records.fill(&key, hash_key(&key), value, 0);
                }
            }
        }
    }
    let stats = cache.stats();
    assert!(stats.misses > 0);
    stats.hits
}

#[test]
fn readers_of_every_state_match_the_model() {
    let mut hits = 0;
    for seed in 0..40 {
        hits += run(seed, 1 << 20);
        hits += run(seed, 20 << 10);
    }
    assert!(hits > 40_000, "{hits} hits");
}

#[test]
fn fill_from_an_older_state_is_refused() {
    let cache = RecordCache::new(&ChunkPool::new(1 << 20), 1 << 20);
    let old = KeyspaceRecords::new(&cache, KeyspaceId(1));
    let entry = OwnedEntry { key: b"k".to_vec(), kind: Kind::Value, value: b"new".to_vec() };
    let new = old.advance(&mut Updates { entries: vec![entry], at: None }, false).unwrap();
    old.fill(b"k", hash_key(b"k"), b"old", 0);
    assert_eq!(new.get(b"k", hash_key(b"k")), None);
    new.fill(b"k", hash_key(b"k"), b"new", 0);
    assert_eq!(new.get(b"k", hash_key(b"k")), Some(b"new".to_vec()));
    assert_eq!(old.get(b"k", hash_key(b"k")), None, "too new for the old state");
}

#[test]
fn flush_replaces_hot_records_and_admits_cold_ones_on_request() {
    let cache = RecordCache::new(&ChunkPool::new(1 << 20), 1 << 20);
    let old = KeyspaceRecords::new(&cache, KeyspaceId(1));
    old.fill(b"hot", hash_key(b"hot"), b"1", 0);
    let entry = |key: &[u8]| OwnedEntry { key: key.to_vec(), kind: Kind::Value, value: b"2".to_vec() };
    let updates = || Updates { entries: vec![entry(b"cold"), entry(b"hot")], at: None };
    let next = old.advance(&mut updates(), false).unwrap();
    assert_eq!(next.get(b"hot", hash_key(b"hot")), Some(b"2".to_vec()));
    assert_eq!(next.get(b"cold", hash_key(b"cold")), None);
    let last = next.advance(&mut updates(), true).unwrap();
    assert_eq!(last.get(b"cold", hash_key(b"cold")), Some(b"2".to_vec()));
}

#[test]
fn disabled_cache_accepts_no_records_and_no_memory() {
    let pool = ChunkPool::new(1 << 20);
    let cache = RecordCache::without_records(&pool);
    let index_bytes = cache.stats().used_bytes;
    let records = KeyspaceRecords::new(&cache, KeyspaceId(1));
    records.fill(b"read", hash_key(b"read"), b"1", 0);
    let hot = HotRecord { keyspace: KeyspaceId(1), key: b"hot".to_vec(), value: b"1".to_vec(), priority: 0 };
    assert!(matches!(records.restore(&hot), RestoredRecord::Full));
    let entry = OwnedEntry { key: b"written".to_vec(), kind: Kind::Value, value: b"2".to_vec() };
    let next = records.advance(&mut Updates { entries: vec![entry], at: None }, true).unwrap();
    for key in [&b"read"[..], b"hot", b"written"] {
        assert_eq!(next.get(key, hash_key(key)), None);
    }
    let stats = cache.stats();
    assert_eq!((stats.records, stats.used_bytes), (0, index_bytes), "{stats:?}");
}
