//! Queues: an end is found without a walk over all tombstones there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use testudo::{Db, Keyspace, KeyspaceOptions};
use testudo_env::MemEnv;

fn open() -> (Db, Keyspace) {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).memory_bytes(8 << 20).open().unwrap();
    let queue = db.keyspace("queue", KeyspaceOptions::default).unwrap();
    (db, queue)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn first(queue: &Keyspace) -> Option<u32> {
    let first = queue.iter().unwrap().next()?.unwrap();
    Some(u32::from_be_bytes(first.key().try_into().unwrap()))
}

/// Tombstones that `look` passes.
fn passed(db: &Db, look: impl FnOnce()) -> u64 {
    let before = db.stats().scans.tombstones_passed;
    look();
    db.stats().scans.tombstones_passed - before
}

/// Opens a queue with `removed` removed entries at its front, half of them flushed.
fn with_removed(removed: u32) -> (Db, Keyspace) {
    let (db, queue) = open();
    for number in 0..removed + 10 {
        queue.insert(key(number), "job").unwrap();
    }
    for number in 0..removed {
        queue.remove(key(number)).unwrap();
        if number == removed / 2 {
            db.flush().unwrap();
        }
    }
    (db, queue)
}

#[test]
fn a_second_read_passes_no_tombstones() {
    let (db, queue) = with_removed(1000);
    assert!(passed(&db, || assert_eq!(first(&queue), Some(1000))) >= 500);
    assert_eq!(passed(&db, || assert_eq!(first(&queue), Some(1000))), 0);
    queue.remove(key(1000)).unwrap();
    assert_eq!(passed(&db, || assert_eq!(first(&queue), Some(1001))), 1);
    assert!(db.stats().scans.gap_bytes > 0);
}

#[test]
fn a_range_and_a_seek_pass_no_tombstones() {
    let (db, queue) = with_removed(1000);
    assert_eq!(first(&queue), Some(1000));
    let looks = || {
        assert!(queue.range(&key(17)[..]..&key(900)[..]).unwrap().next().is_none());
        assert!(queue.range(&key(17)[..]..&key(900)[..]).unwrap().next_back().is_none());
        let mut iter = queue.iter().unwrap();
        iter.seek(&key(400)).unwrap();
        assert_eq!(iter.next().unwrap().unwrap().key(), key(1000));
        iter.seek(&key(3)).unwrap();
        assert_eq!(iter.next().unwrap().unwrap().key(), key(1000));
        assert_eq!(iter.rev().count(), 9);
    };
    assert_eq!(passed(&db, looks), 0);
}

#[test]
fn an_older_snapshot_sees_entries_hidden_by_a_gap() {
    let (db, queue) = with_removed(100);
    let before = db.snapshot().unwrap();
    for number in 100..105 {
        queue.remove(key(number)).unwrap();
    }
    assert_eq!(first(&queue), Some(105));
    assert_eq!(before.iter(&queue).unwrap().next().unwrap().unwrap().key(), key(100));
    assert_eq!(before.iter(&queue).unwrap().count(), 10);
    assert_eq!(first(&queue), Some(105));
    db.flush().unwrap();
    assert_eq!(before.iter(&queue).unwrap().next().unwrap().unwrap().key(), key(100));
}

#[test]
fn entries_written_into_a_gap_are_visible() {
    let (db, queue) = with_removed(1000);
    assert_eq!(first(&queue), Some(1000));
    let mut early = queue.iter().unwrap();
    queue.insert(key(500), "again").unwrap();
    assert_eq!(early.next().unwrap().unwrap().key(), key(1000));
    assert_eq!(passed(&db, || assert_eq!(first(&queue), Some(500))), 0);
    let mut batch = db.batch();
    batch.insert(&queue, key(20), "again");
    batch.remove(&queue, key(500));
    batch.commit().unwrap();
    assert_eq!(first(&queue), Some(20));
    queue.remove(key(20)).unwrap();
    assert!(passed(&db, || assert_eq!(first(&queue), Some(1000))) <= 2);
}

/// The scan begins before the write, and reaches its place afterwards.
#[test]
fn a_scan_records_no_gap_over_later_writes() {
    for flushes in [false, true] {
        let (db, queue) = with_removed(1000);
        let mut early = queue.iter().unwrap();
        queue.insert(key(500), "again").unwrap();
        if flushes {
            db.flush().unwrap();
        }
        assert_eq!(early.next().unwrap().unwrap().key(), key(1000));
        assert_eq!(first(&queue), Some(500), "flushed: {flushes}");
    }
}

#[test]
fn an_empty_queue_is_detected_immediately() {
    let (db, queue) = with_removed(1000);
    for number in 1000..1010 {
        queue.remove(key(number)).unwrap();
    }
    assert_eq!(first(&queue), None);
    let looks = || {
        assert_eq!(first(&queue), None);
        assert!(queue.iter().unwrap().next_back().is_none());
        assert!(queue.prefix([0]).unwrap().next().is_none());
    };
    assert_eq!(passed(&db, looks), 0);
    queue.insert(key(7), "job").unwrap();
    assert_eq!(first(&queue), Some(7));
}
