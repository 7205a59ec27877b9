//! The memory budget of an open store: invalid settings, and the effect of changes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use testudo::{Db, ErrorKind, Keyspace, KeyspaceOptions};
use testudo_db::maintenance::Stepping as _;
use testudo_env::MemEnv;

const MEMORY: u64 = 8 << 20;

fn open(dir: &tempfile::TempDir) -> (Db, Keyspace) {
    let db = Db::builder(dir.path().join("db")).memory_bytes(MEMORY).open().unwrap();
    let keyspace = db.keyspace("users", KeyspaceOptions::default).unwrap();
    (db, keyspace)
}

fn fill(keyspace: &Keyspace, from: u64, count: u64) {
    for n in from..from + count {
        keyspace.insert(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), [7; 100]).unwrap();
    }
}

#[test]
fn shares_and_budgets_out_of_bounds_are_refused_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (db, keyspace) = open(&dir);
    for share in [-0.01, 0.91, f64::NAN] {
        assert_eq!(db.memory().set_write_share(share).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(keyspace.set_write_share(Some(share)).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(db.memory().set_total(1 << 19).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!((db.memory().total(), db.memory().write_share()), (MEMORY, 0.45));
    assert_eq!(keyspace.write_share(), None);
}

#[test]
fn a_change_shows_in_the_statistics_immediately() {
    let dir = tempfile::tempdir().unwrap();
    let (db, _) = open(&dir);
    db.memory().set_write_share(0.75).unwrap();
    let stats = db.stats();
    assert_eq!((stats.memory.budget_bytes, stats.write_memory.bytes), (MEMORY, MEMORY / 4 * 3));
    assert_eq!(stats.write_memory.flush_distance_bytes, MEMORY / 8 * 3);
    db.memory().set_total(4 * MEMORY).unwrap();
    assert_eq!(db.stats().write_memory.bytes, 3 * MEMORY);
}

/// Reads records that are far apart, most of them for the first time.
fn read(keyspace: &Keyspace, count: u64) {
    for n in (0..count).step_by(8) {
        keyspace.get(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).unwrap().unwrap();
    }
}

/// On an in-memory machine without threads, so nothing else affects the memory held.
#[test]
fn caches_use_idle_write_memory_and_return_it() {
    let db = Db::builder("/db").memory_bytes(MEMORY).env(MemEnv::new(1)).open().unwrap();
    let keyspace = db.keyspace("users", KeyspaceOptions::default).unwrap();
    let count = 100_000;
    fill(&keyspace, 0, count);
    db.flush().unwrap();
    read(&keyspace, count);
    let before = db.stats();
    let caches = before.page_cache.used_bytes + before.record_cache.used_bytes;
    assert!(caches > MEMORY / 2, "idle memory must be used: {before:?}");
    db.memory().set_write_share(0.8).unwrap();
    let mut least = caches;
    for round in 1..40 {
        fill(&keyspace, count * round, count / 50);
        let stats = db.stats();
        let all = stats.page_cache.used_bytes + stats.record_cache.used_bytes + stats.memory.memtable_bytes;
        assert!(all <= MEMORY, "{all} bytes in caches and write buffers: {stats:?}");
        assert!(stats.page_cache.used_bytes <= stats.page_cache.capacity_bytes, "{stats:?}");
        least = least.min(stats.page_cache.used_bytes + stats.record_cache.used_bytes);
    }
    assert!(least < caches / 3 * 2, "writes must get memory back: {least} of {caches}");
    db.flush().unwrap();
    read(&keyspace, count);
    let after = db.stats();
    assert!(after.page_cache.used_bytes + after.record_cache.used_bytes > MEMORY / 5 * 2, "{after:?}");
}

/// On an in-memory machine without threads, so nothing else affects the governor.
#[test]
fn write_memory_follows_the_work_unless_a_share_is_set() {
    let db = Db::builder("/db").memory_bytes(MEMORY).env(MemEnv::new(1)).open().unwrap();
    let keyspace = db.keyspace("users", KeyspaceOptions::default).unwrap();
    // The active write buffer then has more than readers will leave it.
    let count = 160_000;
    assert!(db.memory().is_auto());
    fill(&keyspace, 0, count);
    let loaded = db.stats();
    assert!(db.memory().write_share() > 0.7, "a write-only workload must get nearly all: {loaded:?}");
    assert!(loaded.write_memory.changes > 0 && loaded.write_memory.seen_bytes > 0, "{loaded:?}");
    assert_eq!(loaded.write_memory.seen_misses, 0, "{loaded:?}");
    assert!(loaded.write_memory.wanted_bytes > MEMORY / 10 * 7, "{loaded:?}");
    for _ in 0..4 {
        read(&keyspace, count);
        while db.step().unwrap() {}
    }
    let read_only = db.stats();
    assert!(db.memory().write_share() < 0.2, "readers must get most: {read_only:?}");
    assert!(read_only.write_memory.seen_misses > 0, "{read_only:?}");
    assert!(read_only.flush.count > loaded.flush.count, "write buffers must be flushed for them");
    assert!(read_only.memory.memtable_bytes < MEMORY / 8, "{read_only:?}");
    let caches = read_only.page_cache.used_bytes + read_only.record_cache.used_bytes;
    assert!(caches > MEMORY / 2, "{read_only:?}");

    db.memory().set_write_share(0.3).unwrap();
    assert!(!db.memory().is_auto());
    fill(&keyspace, count, count);
    assert_eq!(
        (db.memory().write_share(), db.stats().write_memory.is_auto),
        (0.3, false),
        "an explicit share must stay"
    );
    db.memory().auto();
    fill(&keyspace, 2 * count, count);
    assert!(db.memory().is_auto() && db.memory().write_share() > 0.7, "{:?}", db.stats());
    db.memory().set_total(MEMORY / 2).unwrap();
    fill(&keyspace, 3 * count, count);
    assert!(
        db.stats().write_memory.bytes <= MEMORY / 8 * 3,
        "an explicit share is a part of the current budget: {:?}",
        db.stats()
    );
    db.check_invariants().unwrap();
}

#[test]
fn batches_follow_the_share_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (db, keyspace) = open(&dir);
    let count = 40_000;
    let mut flushes = Vec::new();
    for (round, share) in (0..).zip([0.45, 0.05, 0.9, 0.0]) {
        db.memory().set_write_share(share).unwrap();
        let before = db.stats().flush.count;
        fill(&keyspace, round * count, count);
        db.flush().unwrap();
        flushes.push(db.stats().flush.count - before);
    }
    assert!(flushes[1] > 2 * flushes[0] && flushes[3] > 2 * flushes[2], "{flushes:?}");
    assert!(flushes[2] <= flushes[0], "{flushes:?}");
    db.check_invariants().unwrap();
    drop((db, keyspace));
    let (_db, keyspace) = open(&dir);
    assert_eq!(u64::try_from(keyspace.iter().unwrap().count()).unwrap(), 4 * count);
}

#[test]
fn a_keyspace_with_its_own_share_leaves_the_rest_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let (db, keyspace) = open(&dir);
    let other = db.keyspace("other", KeyspaceOptions::default).unwrap();
    keyspace.set_write_share(Some(0.04)).unwrap();
    assert_eq!(keyspace.write_share(), Some(0.04));
    fill(&other, 0, 3_000);
    let written = db.stats().flush.count;
    fill(&keyspace, 0, 30_000);
    assert!(db.stats().flush.count > written, "the small share must be flushed");
    assert_eq!(other.stats().memtables.entries, 3_000, "the other keyspace must not be flushed");
    keyspace.set_write_share(None).unwrap();
    assert_eq!(keyspace.write_share(), None);
}
