use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use testudo_base::{Cursor, Kind, OwnedEntry, Seqno, chunks::ChunkPool};

use crate::Memtable;

const LATEST: Seqno = Seqno(u64::MAX);

fn key(i: u32) -> Vec<u8> {
    [&b"common/prefix/"[..], &i.to_be_bytes()].concat()
}

fn table(keys: impl Iterator<Item = u32>) -> Arc<Memtable> {
    let table = Memtable::new(ChunkPool::new(0));
    for i in keys {
        table.insert(Seqno(1), Kind::Value, &key(i), &i.to_le_bytes(), None);
    }
    Arc::new(table)
}

fn current(cursor: &impl Cursor) -> Option<Vec<u8>> {
    cursor.entry().map(|entry| entry.key.to_vec())
}

#[test]
fn new_cursor_and_cursor_past_the_end_are_unpositioned() {
    let table = table(0..10);
    let mut cursor = table.cursor(LATEST);
    assert_eq!(cursor.entry(), None);
    cursor.next().unwrap();
    assert_eq!(cursor.entry(), None);
    cursor.seek_last().unwrap();
    cursor.next().unwrap();
    assert_eq!(cursor.entry(), None);
    cursor.seek_first().unwrap();
    cursor.prev().unwrap();
    assert_eq!(cursor.entry(), None);
    let empty = Arc::new(Memtable::new(ChunkPool::new(0)));
    let mut cursor = empty.cursor(LATEST);
    cursor.seek_first().unwrap();
    assert_eq!(cursor.entry(), None);
    cursor.seek_last().unwrap();
    assert_eq!(cursor.entry(), None);
}

#[test]
fn cursor_reverses_direction_anywhere() {
    let count = if cfg!(miri) { 60 } else { 700 };
    let table = table(0..count);
    let mut cursor = table.cursor(LATEST);
    for start in (0..count).step_by(37) {
        cursor.seek(&key(start)).unwrap();
        for steps in [1, 7, 70] {
            for _ in 0..steps {
                if current(&cursor).is_some_and(|at| at < key(count - 1)) {
                    cursor.next().unwrap();
                }
            }
            let reached = (start + steps).min(count - 1);
            assert_eq!(current(&cursor), Some(key(reached)));
            for _ in start..reached {
                cursor.prev().unwrap();
            }
            assert_eq!(current(&cursor), Some(key(start)));
        }
    }
}

#[test]
fn seeks_find_the_neighbors_of_absent_keys() {
    let table = table((0..900).map(|i| i * 2));
    let mut cursor = table.cursor(LATEST);
    for i in 0..900 {
        cursor.seek(&key(i * 2 + 1)).unwrap();
        assert_eq!(current(&cursor), (i < 899).then(|| key(i * 2 + 2)));
        cursor.seek_before(&key(i * 2 + 1)).unwrap();
        assert_eq!(current(&cursor), Some(key(i * 2)));
        cursor.seek_before(&key(i * 2)).unwrap();
        assert_eq!(current(&cursor), (i > 0).then(|| key(i * 2 - 2)));
    }
}

#[test]
fn entries_without_a_visible_version_are_skipped() {
    let table = Memtable::new(ChunkPool::new(0));
    for i in 0..3000 {
        let seqno = if i % 1000 == 500 { Seqno(1) } else { Seqno(9) };
        table.insert(seqno, Kind::Value, &key(i), b"", None);
    }
    let mut cursor = Arc::new(table).cursor(Seqno(5));
    let mut seen = Vec::new();
    cursor.seek_first().unwrap();
    while let Some(at) = current(&cursor) {
        seen.push(at);
        cursor.next().unwrap();
    }
    assert_eq!(seen, [key(500), key(1500), key(2500)]);
    cursor.seek_last().unwrap();
    while let Some(at) = current(&cursor) {
        assert_eq!(Some(at), seen.pop());
        cursor.prev().unwrap();
    }
    assert!(seen.is_empty());
}

#[test]
fn huge_values_are_copied_one_at_a_time() {
    let table = Memtable::new(ChunkPool::new(0));
    let value = vec![1; 3 << 20];
    for i in 0..4 {
        table.insert(Seqno(1), Kind::Value, &key(i), &value, None);
    }
    let mut cursor = Arc::new(table).cursor(LATEST);
    cursor.seek_first().unwrap();
    for i in 0..4 {
        assert_eq!(cursor.scan.batch.spans.len(), 1);
        assert_eq!(
            cursor.entry().map(|entry| (entry.key.to_vec(), entry.value.len())),
            Some((key(i), 3 << 20))
        );
        cursor.next().unwrap();
    }
    assert_eq!(cursor.entry(), None);
}

#[test]
fn snapshot_is_stable_during_concurrent_inserts_and_splits() {
    let snapshot = Seqno(1);
    let table = table((0..2000).map(|i| i * 10));
    let scan = |backward: bool| {
        let mut cursor = table.cursor(snapshot);
        let mut seen: Vec<OwnedEntry> = Vec::new();
        if backward {
            cursor.seek_last().unwrap()
        } else {
            cursor.seek_first().unwrap()
        }
        while let Some(entry) = cursor.entry() {
            seen.push(entry.to_owned());
            if backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
        }
        if backward {
            seen.reverse();
        }
        seen
    };
    let expected = scan(false);
    assert_eq!(expected.len(), 2000);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 0..20_000 {
                let kind = if i % 3 == 0 { Kind::Tombstone } else { Kind::Value };
                let at = i * 7919 % 20_000;
                table.insert(Seqno(2 + u64::from(i)), kind, &key(at), b"newer", Some(snapshot));
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert_eq!(scan(false), expected);
            assert_eq!(scan(true), expected);
        }
        writer.join().unwrap();
    });
    assert_eq!(scan(false), expected);
    table.check();
}

#[test]
fn a_cursor_to_the_end_has_the_same_entries_and_allocates_once() {
    let table = table((0..50).rev());
    let (mut whole, mut plain) = (table.cursor_to_end(LATEST), table.cursor(LATEST));
    whole.seek_first().unwrap();
    plain.seek_first().unwrap();
    let memory_bytes = whole.memory_bytes();
    while plain.entry().is_some() {
        assert_eq!(current(&whole), current(&plain));
        whole.next().unwrap();
        plain.next().unwrap();
    }
    assert_eq!(current(&whole), None);
    assert!(whole.memory_bytes() <= memory_bytes + key(0).len(), "a key of space for the next batch");
    assert!(memory_bytes > 50 * (key(0).len() + 4), "all entries are in the first batch");
}
