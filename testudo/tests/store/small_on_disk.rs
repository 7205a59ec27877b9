//! A small store is small on the device: its log, its data file and its reserve grow with its content. Runs
//! on a real file system, by length and by allocated space.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, os::unix::fs::MetadataExt, path::Path, time::Duration};

use testudo::{
    Db, Durability, Keyspace, KeyspaceOptions,
    env::{Env, RealEnv},
};

const MIB: u64 = 1 << 20;
/// Maximum of the lengths and the allocated bytes of all files.
fn bytes_on_disk(directory: &Path) -> u64 {
    let files = files_of(directory);
    let lengths: u64 = files.iter().map(|(_, length, _)| length).sum();
    lengths.max(files.iter().map(|(_, _, allocated)| allocated).sum())
}

/// Name, length and allocated bytes of each file; an open store may remove one meanwhile.
fn files_of(directory: &Path) -> Vec<(String, u64, u64)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let described = entries.filter_map(|entry| {
        let file = entry.metadata().ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), file.len(), file.blocks() * 512))
    });
    described.collect()
}

fn assert_at_most(directory: &Path, most: u64, when: &str) {
    let bytes = bytes_on_disk(directory);
    assert!(bytes <= most, "{when}: {bytes} bytes: {:?}", files_of(directory));
}

fn open(directory: &Path, durability: Durability) -> (Db, Keyspace) {
    let db = Db::builder(directory).durability(durability).open().unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default).unwrap();
    (db, keyspace)
}

fn key(number: usize) -> Vec<u8> {
    format!("key{:020}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

/// Writes `records` records and closes. Soon the files have at most `most` bytes while the store is open: the
/// flush thread may wait for a processor while records are written.
fn fill(directory: &Path, durability: Durability, records: usize, value_bytes: usize, most: u64) {
    let (db, keyspace) = open(directory, durability);
    for number in 0..records {
        keyspace.insert(key(number), vec![7; value_bytes]).unwrap();
        if number % (records / 100) == 0 {
            assert_soon_at_most(directory, most, number);
        }
    }
    assert_soon_at_most(directory, most, records);
    drop(keyspace);
    db.close().unwrap();
}

fn assert_soon_at_most(directory: &Path, most: u64, records: usize) {
    let machine = RealEnv::new();
    let deadline = machine.monotonic() + Duration::from_secs(20);
    while bytes_on_disk(directory) > most && machine.monotonic() < deadline {
        machine.sleep(Duration::from_millis(5));
    }
    assert_at_most(directory, most, &format!("open with {records} records"));
}

/// Reopens what [`fill`] wrote.
fn check(directory: &Path, records: usize, open_max: u64, closed_max: u64) {
    let (db, keyspace) = open(directory, Durability::Buffered);
    assert_at_most(directory, open_max, "reopened");
    assert_eq!(keyspace.iter().unwrap().count(), records);
    drop(keyspace);
    db.close().unwrap();
    assert_at_most(directory, closed_max, "closed again");
}

#[test]
fn one_record_takes_at_most_one_mebibyte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (db, keyspace) = open(path, Durability::Sync);
    assert_at_most(path, MIB, "empty");
    keyspace.insert(b"key", b"value").unwrap();
    assert_at_most(path, MIB, "one record");
    drop(keyspace);
    db.close().unwrap();
    assert_at_most(path, MIB, "closed");
    let (db, keyspace) = open(path, Durability::Buffered);
    assert_eq!(keyspace.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_at_most(path, MIB, "reopened");
    keyspace.insert(b"other", b"value").unwrap();
    db.flush().unwrap();
    assert_at_most(path, MIB, "flushed");
    drop(keyspace);
    db.close().unwrap();
    assert_at_most(path, MIB, "closed again");
}

#[test]
fn a_hundred_synced_records_take_at_most_one_and_a_half_mebibytes() {
    let directory = tempfile::tempdir().unwrap();
    let (db, keyspace) = open(directory.path(), Durability::Sync);
    for number in 0..100 {
        keyspace.insert(key(number), [1; 100]).unwrap();
    }
    assert_at_most(directory.path(), MIB / 2 * 3, "open");
    drop(keyspace);
    db.close().unwrap();
    assert_at_most(directory.path(), MIB, "closed");
}

#[test]
fn twelve_megabytes_take_at_most_forty_mebibytes_and_twenty_closed() {
    let directory = tempfile::tempdir().unwrap();
    // 12 MB of keys and values.
    fill(directory.path(), Durability::Buffered, 97_561, 100, 40 * MIB);
    assert_at_most(directory.path(), 20 * MIB, "closed");
    check(directory.path(), 97_561, 40 * MIB, 20 * MIB);
}

#[test]
fn a_log_of_synced_records_is_shortened_as_it_grows() {
    let directory = tempfile::tempdir().unwrap();
    // Each takes a page of the log: 31 MiB of log for 4 MB.
    fill(directory.path(), Durability::Sync, 8_000, 500, 20 * MIB);
    // The data file may be twice as long as its content; a log segment of up to 3 MiB and a reserve of 1 MiB
    // add to it.
    assert_at_most(directory.path(), 13 * MIB, "closed");
    check(directory.path(), 8_000, 20 * MIB, 13 * MIB);
}
