//! Values of any length are cached by their size and use, read once, and their space is reclaimed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{Db, Keyspace, KeyspaceOptions, Tree, TreePreset};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{MemEnv, SplitMix};
use testudo_share::some_of;

const KIB: usize = 1 << 10;
const MEMORY_BYTES: u64 = 32 << 20;
/// Bytes of all values of a store, and of those that are read repeatedly.
const ALL_BYTES: usize = 40 << 20;
const HOT_BYTES: usize = 6 << 20;

fn open(machine: &Arc<MemEnv>, memory_bytes: u64) -> Db {
    let builder = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(memory_bytes);
    builder.warm_restart(false).open().unwrap()
}

fn key(number: usize) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

fn value(number: usize, bytes: usize) -> Vec<u8> {
    let mut random = number as u64 * 2 + 1;
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        random = random.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ 0x5bd1_e995;
        value.extend_from_slice(&random.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// Creates, settles and reopens a store with `count` values of `bytes` each.
fn settled(preset: TreePreset, count: usize, bytes: usize) -> (Arc<MemEnv>, Db, Keyspace) {
    settled_within(MEMORY_BYTES, preset, count, bytes)
}

/// Same as `settled`, under another budget.
fn settled_within(
    memory_bytes: u64,
    preset: TreePreset,
    count: usize,
    bytes: usize,
) -> (Arc<MemEnv>, Db, Keyspace) {
    let machine = MemEnv::new(1);
    let db = open(&machine, memory_bytes);
    let keyspace = db.keyspace("k", KeyspaceOptions::default().tree(preset)).unwrap();
    for number in 0..count {
        // A multiplier coprime to the count visits every number once.
        let number = number * 7_919 % count;
        keyspace.insert(key(number), value(number, bytes)).unwrap();
        while db.step().unwrap() {}
    }
    db.compact().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = open(&machine, memory_bytes);
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    (machine, db, keyspace)
}

/// Bytes that `act` reads from the device.
fn read_by(db: &Db, act: impl FnOnce()) -> u64 {
    let before = db.stats().io.bytes_read;
    act();
    db.stats().io.bytes_read - before
}

fn check(keyspace: &Keyspace, number: usize, bytes: usize) {
    assert!(keyspace.get(key(number)).unwrap().unwrap() == value(number, bytes), "value {number}");
}

#[test]
fn repeated_reads_of_values_of_any_length_come_from_memory() {
    for (index, (name, preset)) in TreePreset::all().into_iter().enumerate() {
        let lengths = [4 * KIB, 16 * KIB, 32 * KIB, 40 * KIB, 128 * KIB, 1024 * KIB];
        for bytes in some_of(lengths, 6, index) {
            let (count, hot) = (ALL_BYTES / bytes, HOT_BYTES / bytes);
            let (_machine, db, keyspace) = settled(preset, count, bytes);
            let read_hot = || (0..hot).for_each(|number| check(&keyspace, number * 5, bytes));
            let first = read_by(&db, read_hot);
            assert!(first >= (HOT_BYTES / 8 * 7) as u64, "{name}, {bytes}: {first} bytes of cold values");
            read_by(&db, read_hot);
            let again = read_by(&db, read_hot);
            // Some records are forgotten because their bucket is full.
            assert!(again <= (HOT_BYTES / 4) as u64, "{name}, {bytes}: {again} bytes of hot values");
            // Read every value once, as a scan of all of them: values in use stay cached.
            (0..count).for_each(|number| check(&keyspace, number, bytes));
            let still = read_by(&db, read_hot);
            assert!(still <= (HOT_BYTES / 4) as u64, "{name}, {bytes}: {still} bytes after all were read");
        }
    }
}

#[test]
fn hot_long_values_are_cached_again_after_a_restart() {
    for bytes in [40 * KIB, 128 * KIB] {
        let count = 12 * KIB * KIB / bytes;
        let (machine, db, keyspace) = settled(Tree::splinter().into(), count, bytes);
        drop(keyspace);
        db.close().unwrap();
        let hot = count / 4;
        let read_hot = |keyspace: &Keyspace| (0..hot).for_each(|number| check(keyspace, number * 2, bytes));
        let open = || {
            let builder = Db::builder(Path::new("/db")).env(machine.clone());
            let db = builder.memory_bytes(MEMORY_BYTES).open().unwrap();
            let keyspace = db.open_keyspace("k").unwrap().unwrap();
            (db, keyspace)
        };
        let (db, keyspace) = open();
        (0..3).for_each(|_| read_hot(&keyspace));
        drop(keyspace);
        db.close().unwrap();
        let (db, keyspace) = open();
        check(&keyspace, 0, bytes);
        while db.step().unwrap() {}
        let read = read_by(&db, || read_hot(&keyspace));
        assert!(read <= (hot * bytes / 10) as u64, "{bytes}: {read}");
    }
}

/// Cost of random overwrites.
#[derive(Debug)]
struct Overwriting {
    /// Bytes written to, and read from, the device per byte overwritten.
    written: f64,
    read: f64,
    /// Maximum bytes in use per live value byte.
    space: f64,
}

/// Overwrites random values of a settled store, about twice each before the measurement.
fn overwrite(preset: TreePreset, bytes: usize) -> Overwriting {
    let count = 4 * ALL_BYTES / bytes;
    let (_machine, db, keyspace) = settled_within(MEMORY_BYTES / 4, preset, count, bytes);
    let mut random = SplitMix::new(7);
    let mut version = 0;
    let mut round = |times: usize| {
        let mut most_bytes = 0;
        for _ in 0..times * count {
            version += 1;
            let number = usize::try_from(random.below(count as u64)).unwrap();
            keyspace.insert(key(number), value(version, bytes)).unwrap();
            if version % (KIB * KIB / bytes).max(1) == 0 {
                // A flush, and one or two jobs with two halves each.
                for _ in 0..5 {
                    db.step().unwrap();
                }
                most_bytes = most_bytes.max(keyspace.stats().values.bytes);
            }
        }
        most_bytes
    };
    round(2);
    let before = db.stats();
    let most_bytes = round(2);
    let after = db.stats();
    let user_bytes = (after.writes.bytes - before.writes.bytes) as f64;
    let part = |bytes: u64| bytes as f64 / user_bytes;
    Overwriting {
        written: part(after.io.bytes_written - before.io.bytes_written),
        read: part(after.io.bytes_read - before.io.bytes_read),
        space: most_bytes as f64 / (count * bytes) as f64,
    }
}

#[test]
fn overwriting_long_values_causes_little_io() {
    // Other trees store long values as a leveled tree does.
    let stored_apart = |(name, _): &(&str, _)| !["lsbm", "treeline", "parallax"].contains(name);
    for (name, preset) in some_of(TreePreset::all().into_iter().filter(stored_apart), 3, 0) {
        let overwriting = overwrite(preset, 128 * KIB);
        eprintln!("{name} {overwriting:?}");
        let Overwriting { written, read, space } = overwriting;
        // Garbage waits for jobs, which rarely run in a stepped store.
        assert!(written <= 2.8 && read <= 2.2 && space <= 2.0, "{name}: {overwriting:?}");
    }
}

#[test]
fn a_scan_reads_little_more_than_the_values_it_returns() {
    for (index, (name, preset)) in TreePreset::all().into_iter().enumerate() {
        for bytes in some_of([32 * KIB, 128 * KIB, 1024 * KIB], 3, index) {
            let count = ALL_BYTES / bytes;
            let (_machine, db, keyspace) = settled(preset, count, bytes);
            let shown = count / 3..count / 3 + 10.min(count / 2);
            // Keep only those values out of memory, and no neighbors that scans could read by mistake.
            (0..count).filter(|number| !shown.contains(number)).for_each(|number| {
                check(&keyspace, number, bytes);
            });
            let read = read_by(&db, || {
                let entries = keyspace.range(key(shown.start)..).unwrap();
                for (number, entry) in shown.clone().zip(entries) {
                    let entry = entry.unwrap();
                    assert!(entry.value().unwrap()[..] == value(number, bytes)[..], "{name}, {bytes}");
                }
            });
            let part = read as f64 / (shown.len() * bytes) as f64;
            eprintln!("{name} {bytes} scan {part:.2}");
            // One more page for each, and an index page for some.
            let most = if bytes < 128 * KIB { 1.25 } else { 1.21 };
            assert!(part <= most, "{name}, {bytes}: {part}");
        }
    }
}
