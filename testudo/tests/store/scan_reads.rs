//! Device reads of a scan, as shown by the statistics for users.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use testudo::{Db, DbStats, KeyspaceOptions, Tree};
use testudo_env::{Env, MemEnv};

const RECORDS: u32 = 60_000;
/// Bytes of a key and its value.
const RECORD_BYTES: u64 = 124;
const SCANS: u32 = 20;

fn key(number: u32) -> [u8; 24] {
    let mut key = [b'k'; 24];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

/// Device reads and bytes read from `before` to `after`.
fn reads(before: &DbStats, after: &DbStats) -> (u64, u64) {
    let count = |stats: &DbStats| stats.io.page_reads + stats.io.stream_reads;
    (count(after) - count(before), after.io.bytes_read - before.io.bytes_read)
}

/// A store of records inside their tree, with few of them in memory.
fn loaded(tree: &str) -> (Db, testudo::Keyspace) {
    let env: Arc<dyn Env> = MemEnv::new(1);
    let open = || Db::builder("/db").memory_bytes(2 << 20).warm_restart(false).env(Arc::clone(&env)).open();
    let db = open().unwrap();
    let tree: Tree = tree.parse().unwrap();
    let k = db.keyspace("k", KeyspaceOptions::default().tree(tree)).unwrap();
    for number in 0..RECORDS {
        // A multiplier coprime to the count visits every number once.
        k.insert(key(number.wrapping_mul(48_271) % RECORDS), [b'v'; 100]).unwrap();
    }
    db.compact().unwrap();
    drop(k);
    db.close().unwrap();
    let db = open().unwrap();
    let k = db.open_keyspace("k").unwrap().unwrap();
    (db, k)
}

/// Scans of `count` records each, spread over the keys.
fn scan(k: &testudo::Keyspace, count: u32, entries: impl Fn(u32) -> Box<dyn Iterator<Item = u32>>) {
    for number in 0..SCANS {
        let start = number * ((RECORDS - count) / SCANS);
        assert!(entries(start).eq(start..start + count), "a scan from {start}");
        // Other reads take over the cache meanwhile.
        for other in 0..RECORDS / 500 {
            assert!(k.get(key(other * 499 + number)).unwrap().is_some());
        }
    }
}

fn number_of(entry: testudo::Result<testudo::Entry>) -> u32 {
    u32::from_be_bytes(entry.unwrap().key()[..4].try_into().unwrap())
}

#[test]
fn a_scan_of_a_thousand_records_reads_little_more_in_few_reads() {
    const COUNT: u32 = 1_000;
    for tree in ["turtle", "splinter", "leveled"] {
        let (db, k) = loaded(tree);
        // Cost of the point reads between the scans.
        let measure = |entries: &dyn Fn(u32) -> Box<dyn Iterator<Item = u32>>| {
            let nothing = |start: u32| -> Box<dyn Iterator<Item = u32>> { Box::new(start..start + COUNT) };
            scan(&k, COUNT, nothing);
            let first = db.stats();
            scan(&k, COUNT, nothing);
            let second = db.stats();
            scan(&k, COUNT, entries);
            let third = db.stats();
            let (others, all) = (reads(&first, &second), reads(&second, &third));
            (all.0.saturating_sub(others.0), all.1.saturating_sub(others.1))
        };
        let (taken_reads, taken_bytes) =
            measure(&|start| Box::new(k.range(key(start)..).unwrap().take(1_000).map(number_of)));
        let (open_reads, open_bytes) = measure(&|start| {
            let mut left = COUNT;
            let mut entries = k.range(key(start)..).unwrap();
            Box::new(std::iter::from_fn(move || {
                left = left.checked_sub(1)?;
                entries.next().map(number_of)
            }))
        });
        let returned = u64::from(COUNT * SCANS) * RECORD_BYTES;
        let what = format!(
            "{tree}: {taken_reads} reads and {taken_bytes} bytes, {open_reads} and {open_bytes} where the \
             limit was unknown, for {returned}"
        );
        assert!(taken_bytes * 10 <= returned * 13, "{what}");
        assert!(open_bytes * 10 <= returned * 16, "{what}");
        assert!(taken_reads * 10 <= open_reads * 6, "{what}");
        assert!(taken_reads <= u64::from(SCANS) * 6, "{what}");
    }
}
