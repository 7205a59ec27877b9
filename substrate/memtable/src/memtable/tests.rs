#![expect(clippy::cast_possible_truncation, reason = "numbers in these tests are small")]

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use testudo_base::{Cursor, Entry, Kind, MAX_KEY_BYTES, Seqno, checksum::hash_key, chunks::ChunkPool};

use super::{Memtable, MemtableHint};
use crate::InsertOutcome;

const LATEST: Seqno = Seqno(u64::MAX);

fn new_table() -> Memtable {
    Memtable::new(ChunkPool::new(4 << 20))
}

fn put(table: &Memtable, seqno: u64, key: &[u8], value: &[u8], keep_from: Option<u64>) -> InsertOutcome {
    table.insert(Seqno(seqno), Kind::Value, key, value, keep_from.map(Seqno))
}

/// A stream of reproducible numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        hash_key(&self.0.to_le_bytes()) % bound
    }
}

/// A key of one of several troublesome shapes.
fn odd_key(dice: &mut Dice) -> Vec<u8> {
    let i = dice.below(600);
    match dice.below(6) {
        0 => vec![0; i as usize % 40],
        1 => b"a".repeat(i as usize % 60),
        2 => [&b"a/very/long/common/prefix/"[..], &i.to_be_bytes()].concat(),
        3 => [&b"a/very/long/common/prefix/"[..], &vec![0; i as usize % 20]].concat(),
        4 => hash_key(&i.to_le_bytes()).to_be_bytes().to_vec(),
        _ => format!("user{i:012}").into_bytes(),
    }
}

type Versions = Vec<(u64, Kind, Vec<u8>)>;

/// All versions that were ever inserted.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Versions>);

impl Model {
    fn insert(&mut self, seqno: u64, kind: Kind, key: &[u8], value: &[u8]) {
        self.0.entry(key.to_vec()).or_default().push((seqno, kind, value.to_vec()));
    }

    fn get(versions: &Versions, at: u64) -> Option<(Kind, &[u8])> {
        let newest = versions.iter().filter(|version| version.0 <= at).max_by_key(|version| version.0)?;
        Some((newest.1, &newest.2))
    }

    fn scan(&self, at: u64) -> impl DoubleEndedIterator<Item = (&[u8], Kind, &[u8])> {
        self.0.iter().filter_map(move |(key, versions)| {
            let (kind, value) = Self::get(versions, at)?;
            Some((&**key, kind, value))
        })
    }

    fn compare(&self, table: &Arc<Memtable>, at: u64) {
        for (key, versions) in &self.0 {
            let expected = Self::get(versions, at).map(|(kind, value)| (kind, value.to_vec()));
            assert_eq!(table.get_owned(key, Seqno(at)), expected, "{key:?} at {at}");
        }
        let mut cursor = table.cursor(Seqno(at));
        cursor.seek_first().unwrap();
        for (key, kind, value) in self.scan(at) {
            assert_eq!(cursor.entry(), Some(Entry { key, kind, value }));
            cursor.next().unwrap();
        }
        assert_eq!(cursor.entry(), None);
        cursor.seek_last().unwrap();
        for (key, kind, value) in self.scan(at).rev() {
            assert_eq!(cursor.entry(), Some(Entry { key, kind, value }));
            cursor.prev().unwrap();
        }
        assert_eq!(cursor.entry(), None);
    }

    fn compare_seeks(&self, table: &Arc<Memtable>, dice: &mut Dice, at: u64) {
        let mut cursor = table.cursor(Seqno(at));
        for _ in 0..20 {
            let key = odd_key(dice);
            let range = (Bound::Included(key.clone()), Bound::Unbounded);
            let mut after = self.0.range(range).filter(|(_, versions)| Self::get(versions, at).is_some());
            cursor.seek(&key).unwrap();
            assert_eq!(cursor.entry().map(|entry| entry.key), after.next().map(|(key, _)| &**key));
            let mut before =
                self.0.range(..key.clone()).filter(|(_, versions)| Self::get(versions, at).is_some());
            cursor.seek_before(&key).unwrap();
            assert_eq!(cursor.entry().map(|entry| entry.key), before.next_back().map(|(key, _)| &**key));
        }
    }
}

#[test]
fn memtable_matches_a_model_of_all_versions_at_every_snapshot() {
    for seed in 0..if cfg!(miri) { 1 } else { 12 } {
        let mut dice = Dice(seed << 32);
        let table = Arc::new(new_table());
        let mut model = Model::default();
        let mut snapshots: Vec<u64> = Vec::new();
        let mut seqno = 0;
        for step in 0..if cfg!(miri) { 150 } else { 6000 } {
            seqno += 1;
            let key = odd_key(&mut dice);
            let kind = if dice.below(5) == 0 { Kind::Tombstone } else { Kind::Value };
            let value_bytes = if kind == Kind::Tombstone { 0 } else { dice.below(200) };
            let value = vec![(seqno % 251) as u8; value_bytes as usize];
            model.insert(seqno, kind, &key, &value);
            table.insert(Seqno(seqno), kind, &key, &value, snapshots.iter().max().map(|&at| Seqno(at)));
            if dice.below(100) == 0 {
                snapshots.push(seqno);
            }
            if snapshots.len() > 3 {
                let at = dice.below(4) as usize;
                model.compare_seeks(&table, &mut dice, snapshots[at]);
                // From here on the table may drop versions that only this snapshot could see.
                snapshots.swap_remove(at);
            }
            if step % 1500 == 0 {
                table.check();
            }
        }
        table.check();
        for at in snapshots.into_iter().chain([u64::MAX]) {
            model.compare(&table, at);
        }
        let (mut shown, mut expected) = (Vec::new(), Vec::new());
        table.for_each_version(Seqno(u64::MAX), |kind, seqno, length| shown.push((kind, seqno, length)));
        let mut cursor = table.cursor(Seqno(u64::MAX));
        cursor.seek_first().unwrap();
        while let Some(entry) = cursor.entry() {
            expected.push((entry.kind, cursor.seqno().unwrap(), entry.value.len()));
            cursor.next().unwrap();
        }
        assert_eq!(shown, expected);
        let keys = model.0.len();
        let user_bytes: usize = model.scan(u64::MAX).map(|(key, _, value)| key.len() + value.len()).sum();
        assert_eq!((table.len(), table.user_bytes()), (keys, user_bytes as u64));
        assert_eq!((table.min_seqno(), table.max_seqno()), (Some(Seqno(1)), Some(Seqno(seqno))));
        assert_eq!(table.min_key().as_ref(), model.0.keys().next());
        assert_eq!(table.max_key().as_ref(), model.0.keys().next_back());
    }
}

#[test]
fn late_versions_are_linked_in_seqno_order() {
    let mut dice = Dice(77);
    for _ in 0..200 {
        let table = new_table();
        let mut versions = Versions::new();
        let snapshot = 20;
        let mut seqnos: Vec<u64> = (1..=40).collect();
        while !seqnos.is_empty() {
            let seqno = seqnos.swap_remove(dice.below(seqnos.len() as u64) as usize);
            let value = vec![seqno as u8; dice.below(30) as usize];
            put(&table, seqno, b"key", &value, Some(snapshot));
            versions.push((seqno, Kind::Value, value));
            table.check();
        }
        for at in [1, 7, snapshot, 40, u64::MAX] {
            let expected = Model::get(&versions, at).map(|(kind, value)| (kind, value.to_vec()));
            assert_eq!(table.get_owned(b"key", Seqno(at)), expected);
        }
        assert_eq!(table.newest_seqno(b"key"), Some(Seqno(40)));
    }
}

#[test]
fn fitting_value_is_replaced_in_place_without_a_snapshot() {
    let table = new_table();
    assert!(put(&table, 1, b"key", &[1; 100], None).new_key);
    let memory = table.memory_bytes();
    for seqno in 2..1000 {
        let outcome = put(&table, seqno, b"key", &vec![2; (seqno % 100) as usize], None);
        assert!(outcome.replaced_in_place && !outcome.new_key && outcome.memory_bytes_added == 0);
    }
    assert!(table.insert(Seqno(1000), Kind::Tombstone, b"key", b"ignored", None).replaced_in_place);
    assert_eq!(table.get_owned(b"key", LATEST), Some((Kind::Tombstone, vec![])));
    assert_eq!((table.memory_bytes(), table.garbage_bytes(), table.user_bytes()), (memory, 0, 3));
    assert!(!put(&table, 1001, b"key", &[3; 200], None).replaced_in_place);
    assert!(table.garbage_bytes() >= 100);
    assert_eq!(table.get_owned(b"key", LATEST), Some((Kind::Value, vec![3; 200])));
    assert_eq!((table.len(), table.user_bytes()), (1, 203));
}

#[test]
fn only_versions_visible_to_a_snapshot_are_kept() {
    let table = new_table();
    put(&table, 1, b"key", b"one", None);
    assert!(!put(&table, 5, b"key", b"five", Some(3)).replaced_in_place);
    assert!(put(&table, 6, b"key", b"six!", Some(3)).replaced_in_place);
    assert_eq!(table.get_owned(b"key", Seqno(3)), Some((Kind::Value, b"one".to_vec())));
    assert_eq!(table.get_owned(b"key", LATEST), Some((Kind::Value, b"six!".to_vec())));
    assert_eq!(table.get_owned(b"key", Seqno(0)), None);
    assert!(put(&table, 4, b"key", b"late", Some(3)).obsolete);
    assert!(!put(&table, 2, b"key", b"two", Some(3)).obsolete);
    assert_eq!(table.get_owned(b"key", Seqno(3)), Some((Kind::Value, b"two".to_vec())));
    assert_eq!(table.newest_seqno(b"key"), Some(Seqno(6)));
}

#[test]
fn later_insert_with_equal_seqno_wins() {
    let table = new_table();
    for value in [&b"first"[..], b"second, longer", b"third"] {
        put(&table, 1, b"key", value, Some(9));
        assert_eq!(table.get_owned(b"key", LATEST), Some((Kind::Value, value.to_vec())));
        assert_eq!(table.get_owned(b"key", Seqno(0)), None);
    }
}

#[test]
fn threads_with_distinct_keys_lose_no_insert() {
    let table = new_table();
    let added = AtomicU64::new(table.memory_bytes());
    let count = if cfg!(miri) { 60u32 } else { 20_000 };
    let key = |worker: u32, i: u32| format!("{:08x}-{worker}", i.wrapping_mul(0x9e37_79b9)).into_bytes();
    thread::scope(|scope| {
        for worker in 0..4 {
            let (table, added) = (&table, &added);
            scope.spawn(move || {
                for i in 0..count {
                    let outcome = put(table, u64::from(i), &key(worker, i), &i.to_le_bytes(), None);
                    assert!(outcome.new_key);
                    added.fetch_add(outcome.memory_bytes_added as u64, Ordering::Relaxed);
                    assert!(table.get(&key(worker, i / 2), LATEST, |_, _| ()).is_some());
                }
            });
        }
    });
    table.check();
    assert_eq!(table.len(), 4 * count as usize);
    assert_eq!(added.into_inner(), table.memory_bytes());
    for worker in 0..4 {
        for i in 0..count {
            assert_eq!(
                table.get_owned(&key(worker, i), LATEST),
                Some((Kind::Value, i.to_le_bytes().to_vec()))
            );
        }
    }
}

#[test]
fn threads_with_shared_keys_end_with_the_highest_seqno() {
    let table = new_table();
    let next = AtomicU64::new(1);
    let rounds = if cfg!(miri) { 100 } else { 40_000 };
    let snapshot = rounds / 2;
    let value = |seqno: u64| vec![(seqno % 251) as u8; 8 + (seqno % 60) as usize];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let seqno = next.fetch_add(1, Ordering::Relaxed);
                    if seqno > rounds {
                        break;
                    }
                    put(&table, seqno, &(seqno % 97).to_be_bytes(), &value(seqno), Some(snapshot));
                }
            });
        }
    });
    table.check();
    for at in [rounds, snapshot] {
        for key in 0..97 {
            let newest = (at.saturating_sub(96).max(1)..=at).find(|seqno| seqno % 97 == key);
            let expected = newest.map(|seqno| (Kind::Value, value(seqno)));
            assert_eq!(table.get_owned(&key.to_be_bytes(), Seqno(at)), expected, "key {key} at {at}");
        }
    }
}

#[test]
fn large_keys_and_values_are_stored_intact() {
    let table = Arc::new(new_table());
    let value = |i: u8, bytes: usize| vec![i; bytes];
    let sizes = [0, 1, 1000, 1 << 20, 10 << 20, (256 << 10) - 30, 256 << 10, 100_000];
    for (i, &bytes) in (0u8..).zip(&sizes) {
        put(&table, 1, &vec![i; MAX_KEY_BYTES], &value(i, bytes), None);
        put(&table, 1, &[i], &value(i, bytes), None);
    }
    for (i, &bytes) in (0u8..).zip(&sizes) {
        for key in [vec![i; MAX_KEY_BYTES], vec![i]] {
            assert_eq!(table.get_owned(&key, LATEST), Some((Kind::Value, value(i, bytes))));
        }
    }
    table.check();
    assert_eq!(table.len(), 16);
}

#[test]
fn ascending_keys_fill_leaves_and_descending_keys_work() {
    let count = 20_000u64;
    let key = |i: u64| format!("event/{i:016}").into_bytes();
    let (up, down) = (new_table(), new_table());
    for i in 0..count {
        put(&up, i, &key(i), b"value", None);
        put(&down, i, &key(count - i), b"value", None);
    }
    up.check();
    down.check();
    assert_eq!((up.len(), down.len()), (count as usize, count as usize));
    let index_bytes = up.memory_bytes() - up.table().unwrap().arena_bytes();
    assert!(index_bytes < count * 17, "{index_bytes} bytes of index");
}

#[test]
fn empty_and_small_memtables_use_little_memory() {
    let table = new_table();
    assert!(table.memory_bytes() < 1 << 10, "{} bytes", table.memory_bytes());
    assert!(table.is_empty() && table.min_seqno().is_none() && table.max_key().is_none());
    assert_eq!(table.bytes_between(None, None), 0);
    for i in 0..10u64 {
        put(&table, i, &i.to_be_bytes(), &[0; 100], None);
    }
    assert!(!table.is_empty() && table.memory_bytes() < 4_352, "{} bytes", table.memory_bytes());
}

#[test]
fn range_estimates_are_exact_to_within_a_leaf() {
    let table = new_table();
    let key = |i: u32| i.to_be_bytes();
    for i in 0..10_000u32 {
        put(&table, 1, &key(i.wrapping_mul(7919) % 10_000), &[0; 96], None);
    }
    let exact = |from: u32, to: u32| u64::from(to.saturating_sub(from)) * 108;
    assert_eq!(table.bytes_between(None, None), exact(0, 10_000));
    let bounds = [0, 1, 99, 1000, 1001, 5000, 9999, 10_000];
    for from in bounds {
        for to in bounds {
            let estimate = table.bytes_between(Some(&key(from)), Some(&key(to)));
            assert!(estimate.abs_diff(exact(from, to)) <= 108 * 4, "{from}..{to}: {estimate}");
        }
    }
}

#[test]
#[should_panic(expected = "insert into a frozen memtable")]
fn a_frozen_memtable_refuses_inserts() {
    let table = new_table();
    put(&table, 1, b"key", b"value", None);
    table.freeze();
    assert_eq!(table.get_owned(b"key", LATEST), Some((Kind::Value, b"value".to_vec())));
    put(&table, 2, b"key", b"value", None);
}

mod drops;
mod operands;

#[test]
fn for_each_key_visits_all_versions_in_key_order() {
    let table = Memtable::new(ChunkPool::new(0));
    let keys = 0..if cfg!(miri) { 40_u32 } else { 900 };
    for seqno in 1..=3 {
        for key in keys.clone().filter(|key| key % 3 < u32::try_from(seqno).unwrap()) {
            table.insert(Seqno(seqno), Kind::Value, &key.to_be_bytes(), &[7; 9], Some(Seqno(seqno)));
        }
    }
    let mut shown = Vec::new();
    table.for_each_key(|key, versions| {
        shown.push((key.to_vec(), versions.map(|(seqno, ..)| seqno.0).collect::<Vec<_>>()));
        true
    });
    let expected = |key: u32| (key.to_be_bytes().to_vec(), (u64::from(key % 3) + 1..=3).rev().collect());
    assert_eq!(shown, keys.map(expected).collect::<Vec<_>>());
    let mut visits = 0;
    table.for_each_key(|_, _| {
        visits += 1;
        visits < 5
    });
    assert_eq!(visits, 5, "a visit that returns false is the last one");
}

#[test]
fn hint_covers_small_memtables_and_a_single_leaf() {
    let memtable = Memtable::new(ChunkPool::new(1 << 30));
    let hint = MemtableHint::default();
    hint.note(&memtable);
    hint.prefetch();
    assert!(hint.memtable.address().is_null(), "nothing has been written yet");
    let mut insert = |number: u32| {
        memtable.insert(Seqno(u64::from(number) + 1), Kind::Value, &number.to_be_bytes(), b"value", None);
        hint.note(&memtable);
        hint.prefetch();
        [&hint.memtable, &hint.table, &hint.leaf].map(|part| !part.address().is_null())
    };
    assert_eq!(insert(0), [true, true, true]);
    let known: Vec<_> = (1..100_000).map(&mut insert).collect();
    let is_sorted = known.is_sorted_by_key(|known| known.map(|known| !known));
    assert!(is_sorted, "a memtable never shrinks");
    assert!(known.contains(&[true, true, false]), "several leaves");
    assert_eq!(known.last(), Some(&[false, false, false]), "a large one");
}

#[test]
fn a_small_memtable_takes_little_more_than_its_records() {
    // Bytes of memory per hundred bytes of keys and values; before, 205 for 42 records and 202 for 60.
    for (count, most) in [(20, 196), (42, 188), (60, 174), (100, 160), (400, 168)] {
        let pool = ChunkPool::new(u64::MAX);
        let mut dice = Dice(count);
        let tables: Vec<Memtable> = (0..16).map(|_| Memtable::new(Arc::clone(&pool))).collect();
        for table in &tables {
            for seqno in 1..=count {
                let key = format!("user{:020}", dice.below(u64::MAX));
                table.insert(Seqno(seqno), Kind::Value, key.as_bytes(), &[7; 100], None);
            }
        }
        let records = 16 * count * 124;
        let counted: u64 = tables.iter().map(Memtable::memory_bytes).sum();
        assert!(counted * 100 <= records * most, "{count} records: {counted} bytes for {records}");
        // The table itself is charged twice, for the allocator.
        assert!(pool.used_bytes() < counted + 16 * 1024, "{count} records: {} bytes", pool.used_bytes());
        drop(tables);
        assert_eq!(pool.used_bytes() - pool.idle_bytes(), 0, "all memory returns to the pool");
    }
}
