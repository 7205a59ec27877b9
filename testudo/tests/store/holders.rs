//! Holders during concurrent writes: snapshots, iterators, readers of values.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{Db, KeyspaceOptions, SalvageOptions, salvage};
use testudo_env::{Env, MemEnv};

const MIB: u64 = 1 << 20;

fn open(machine: &Arc<MemEnv>, memory_bytes: u64) -> Db {
    Db::builder("/db").memory_bytes(memory_bytes).env(machine.clone()).open().unwrap()
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

#[test]
fn snapshots_share_the_content_of_flushed_buffers() {
    let db = open(&MemEnv::new(1), 2 * MIB);
    let keyspace = db.keyspace("k", KeyspaceOptions::default).unwrap();
    let mut snapshots = Vec::new();
    let mut written = 0;
    for round in 0..1_000_u64 {
        for at in 0..10 {
            keyspace.insert(key((round * 10 + at) % 1_500), [7; 100]).unwrap();
            written += 108;
        }
        snapshots.push(db.snapshot().unwrap());
    }
    db.flush().unwrap();
    let stats = db.stats();
    let disk = stats.space.live_bytes + stats.space.held_bytes;
    assert!(disk < 8 * written, "{disk} bytes on disk for {written} written and 1,000 snapshots");
}

#[test]
fn iterators_release_flushed_buffers() {
    let db = open(&MemEnv::new(2), 2 * MIB);
    let keyspace = db.keyspace("k", KeyspaceOptions::default).unwrap();
    let mut iterators = Vec::new();
    for round in 0..300_u64 {
        for at in 0..100 {
            keyspace.insert(key((round * 100 + at) % 2_000), round.to_le_bytes().repeat(13)).unwrap();
        }
        let mut iter = keyspace.iter().unwrap();
        let first = iter.next().unwrap().unwrap().into_pair().unwrap();
        iterators.push((iter, first));
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert!(
        stats.memory.memtable_bytes < 2 * MIB,
        "{} bytes of memtables are held",
        stats.memory.memtable_bytes
    );
    let bound = MIB + 300 * (5 << 10);
    assert!(stats.scans.iterator_bytes < bound, "300 iterators take {} bytes", stats.scans.iterator_bytes);
    for (round, (iter, (first, _))) in iterators.into_iter().enumerate() {
        let expected = ((round + 1) * 100).min(2_000);
        let mut last = first;
        let mut count = 1;
        for entry in iter {
            let (key, value) = entry.unwrap().into_pair().unwrap();
            assert!(*key > *last, "keys ascend");
            let written = u64::from_le_bytes(value[..8].try_into().unwrap());
            assert!(written <= round as u64, "iterator {round} shows a later write");
            last = key;
            count += 1;
        }
        assert_eq!(count, expected, "iterator {round}");
    }
}

#[test]
fn buffers_of_a_dropped_keyspace_are_released() {
    let db = open(&MemEnv::new(4), 2 * MIB);
    let other = db.keyspace("other", KeyspaceOptions::default).unwrap();
    let mut held = Vec::new();
    for round in 0..20_u64 {
        let name = format!("dropped {round}");
        let keyspace = db.keyspace(&name, KeyspaceOptions::default).unwrap();
        for number in 0..1_500 {
            keyspace.insert(key(number), round.to_le_bytes().repeat(20)).unwrap();
        }
        let snapshot = db.snapshot().unwrap().keyspace(&keyspace).unwrap();
        let mut iter = snapshot.iter().unwrap();
        iter.next().unwrap().unwrap();
        drop(keyspace);
        assert!(db.drop_keyspace(&name).unwrap());
        held.push((snapshot, iter));
        other.insert(key(round), b"x").unwrap();
        db.flush().unwrap();
    }
    let bytes = db.stats().memory.memtable_bytes;
    assert!(bytes < 2 * MIB, "{bytes} bytes of memtables");
    for (round, (snapshot, iter)) in (0_u64..).zip(held) {
        let value = snapshot.get(key(7)).unwrap().unwrap();
        assert_eq!(*value, *round.to_le_bytes().repeat(20));
        assert_eq!(iter.count(), 1_499);
    }
}

#[test]
fn spilled_snapshot_data_is_not_recovered_as_records() {
    let machine = MemEnv::new(3);
    let db = open(&machine, 2 * MIB);
    let keyspace = db.keyspace("k", KeyspaceOptions::default).unwrap();
    let mut snapshots = Vec::new();
    for round in 0..200_u64 {
        for number in 0..100 {
            keyspace.insert(key(number), round.to_le_bytes().repeat(13)).unwrap();
        }
        snapshots.push(db.snapshot().unwrap());
    }
    db.flush().unwrap();
    assert!(db.stats().space.held_bytes > MIB / 2, "spilled data exists");
    let killed = machine.live_image();
    drop((snapshots, keyspace, db));
    for path in killed.all_files() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("manifest") || name.starts_with("superblock") || name.starts_with("wal") {
            killed.remove_file(&path).unwrap();
        }
    }
    let options = SalvageOptions::new("/db", "/new");
    let options = options.env(killed.clone());
    salvage(options).unwrap();
    let db = Db::builder(Path::new("/new")).env(killed).create(false).open().unwrap();
    assert_eq!(db.keyspace_names(), ["k"], "no keyspace of spilled data");
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), 100, "no spilled records");
}
