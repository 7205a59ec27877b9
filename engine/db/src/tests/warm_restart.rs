//! Warm restarts: stores on an in-memory machine that are closed and reopened.

use std::{fs, path::Path, time::Duration};

use testudo_base::{num::u64_of, sync::Arc};
use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, FaultyEnv, MemEnv, OpenMode, OpenOptions};
use testudo_options::{Durability, KeyspaceOptions};
use testudo_recovery::warm::{restore::restore_some, write::note_hot_set};
use testudo_store::{directory::HOT_SET_FILE, warm_restart::restore_state::RestoreState};

use crate::{Db, DbBuilder, DbStats, Keyspace, VerifyLevel, maintenance::Stepping as _};

const DIRECTORY: &str = "/db";
const RECORDS: u32 = 20_000;

fn builder(env: &Arc<MemEnv>) -> DbBuilder {
    Db::builder(DIRECTORY).memory_bytes(4 << 20).env(Arc::clone(env) as Arc<dyn Env>)
}

fn key(number: u32) -> [u8; 4] {
    (number.wrapping_mul(2_654_435_761)).to_be_bytes()
}

fn value(number: u32, version: &str) -> Vec<u8> {
    format!("{version} {number} ").repeat(8).into_bytes()
}

/// A closed store of twenty thousand records, all in its tree.
fn loaded() -> Arc<MemEnv> {
    let env = MemEnv::new(1);
    let db = builder(&env).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for number in 0..RECORDS {
        keyspace.insert(key(number), value(number, "old")).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    env
}

fn keyspace(db: &Db) -> Keyspace {
    db.open_keyspace("k").unwrap().unwrap()
}

/// Reads a subset of the records that fits in memory, repeatedly; half of them are neighbors.
fn read_hot(db: &Db) -> DbStats {
    let keyspace = keyspace(db);
    let before = db.stats();
    for round in 0..3 {
        for number in 0..2000 {
            let number = if number % 2 == 0 { number } else { number * 7 % RECORDS };
            assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), value(number, "old"), "round {round}");
        }
    }
    let mut after = db.stats();
    after.io.page_reads -= before.io.page_reads;
    after
}

fn restore(db: &Db) {
    let _ = keyspace(db).get(b"nothing").unwrap();
    while restore_some(db.store()) {}
}

fn hot_set(env: &MemEnv) -> Option<Vec<u8>> {
    env.file_bytes(Path::new(DIRECTORY).join(HOT_SET_FILE)).ok()
}

fn put_hot_set(env: &MemEnv, bytes: &[u8]) {
    let path = Path::new(DIRECTORY).join(HOT_SET_FILE);
    let _ = env.remove_file(&path);
    let file = env.open(&path, OpenOptions { mode: OpenMode::CreateNew, direct: false }).unwrap();
    file.write_at(0, bytes).unwrap();
}

/// A store that was read and then closed.
fn warm() -> Arc<MemEnv> {
    let env = loaded();
    let db = builder(&env).open().unwrap();
    restore(&db);
    read_hot(&db);
    db.close().unwrap();
    env
}

/// Checks the value of every record.
fn check_all(db: &Db, version: impl Fn(u32) -> &'static str) {
    let keyspace = keyspace(db);
    for number in 0..RECORDS {
        assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), value(number, version(number)), "{number}");
    }
}

#[test]
fn warm_restart_cuts_page_reads_to_a_tenth() {
    let env = warm();
    let cold = {
        let db = builder(&env.live_image()).warm_restart(false).open().unwrap();
        assert_eq!(db.stats().restore.state, RestoreState::Nothing);
        read_hot(&db)
    };
    let db = builder(&env).open().unwrap();
    assert_eq!(db.stats().restore.state, RestoreState::Waiting);
    restore(&db);
    let stats = read_hot(&db);
    assert_eq!(stats.restore.state, RestoreState::Done);
    assert!(
        stats.io.page_reads * 10 <= cold.io.page_reads,
        "{} of {}",
        stats.io.page_reads,
        cold.io.page_reads
    );
    assert!(stats.restore.records > 100 && stats.restore.pages > 100, "{stats:?}");
    assert!(stats.restore.record_hits > 100 && stats.restore.page_hits > 10, "{stats:?}");
    assert!(stats.restore.bytes_read > 0);
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
}

#[test]
fn opening_without_reads_neither_restores_nor_rewrites_hot_set() {
    let env = warm();
    let before = hot_set(&env).unwrap();
    let db = builder(&env).open().unwrap();
    assert!(!restore_some(db.store()));
    keyspace(&db).insert(key(1), value(1, "old")).unwrap();
    db.close().unwrap();
    assert!(hot_set(&env).unwrap() == before);
}

#[test]
fn read_only_store_restores_hot_set_but_never_saves_it() {
    let env = warm();
    let before = hot_set(&env).unwrap();
    let cold = read_hot(&builder(&env).read_only().warm_restart(false).open().unwrap());
    assert_eq!(cold.restore.state, RestoreState::Nothing);
    for _ in 0..2 {
        let db = builder(&env).read_only().open().unwrap();
        assert_eq!(db.stats().restore.state, RestoreState::Waiting);
        restore(&db);
        let stats = read_hot(&db);
        assert_eq!(stats.restore.state, RestoreState::Done);
        assert!(
            stats.io.page_reads * 10 <= cold.io.page_reads,
            "{} of {}",
            stats.io.page_reads,
            cold.io.page_reads
        );
        assert!(stats.restore.records > 100 && stats.restore.pages > 100, "{stats:?}");
        db.close().unwrap();
        assert!(hot_set(&env).unwrap() == before);
    }
}

#[test]
fn overwritten_records_are_not_restored() {
    for (is_flushed, is_killed) in [(false, false), (true, false), (false, true), (true, true)] {
        let env = warm();
        let before = hot_set(&env).unwrap();
        let db = builder(&env).open().unwrap();
        for number in 0..1000 {
            keyspace(&db).insert(key(number), value(number, "new")).unwrap();
        }
        db.persist(Durability::Sync).unwrap();
        if is_flushed {
            db.flush().unwrap();
        }
        let env = if is_killed {
            let image = env.crash_image(&CrashPolicy::LOSE_ALL, 1);
            put_hot_set(&image, &before);
            image
        } else {
            db.close().unwrap();
            put_hot_set(&env, &before);
            env
        };
        let db = builder(&env).open().unwrap();
        restore(&db);
        let stats = db.stats();
        assert_eq!(stats.restore.records, 0, "the hot set is from an older opening");
        assert!(stats.restore.pages > 0, "pages still belong to the trees");
        check_all(&db, |number| if number < 1000 { "new" } else { "old" });
    }
}

#[test]
fn records_of_a_diverged_copy_or_another_store_are_not_restored() {
    let env = warm();
    let copy = env.live_image();
    let change = |env: &Arc<MemEnv>, version: &'static str| {
        let db = builder(env).open().unwrap();
        for number in 0..RECORDS {
            keyspace(&db).insert(key(number), value(number, version)).unwrap();
        }
        db.flush().unwrap();
        restore(&db);
        for number in 0..3000 {
            let _ = keyspace(&db).get(key(number)).unwrap();
        }
        db.close().unwrap();
    };
    change(&env, "one");
    change(&copy, "two");
    put_hot_set(&copy, &hot_set(&env).unwrap());
    let db = builder(&copy).open().unwrap();
    restore(&db);
    assert_eq!(db.stats().restore.records, 0);
    check_all(&db, |_| "two");
    db.close().unwrap();

    let other = loaded();
    put_hot_set(&other, &hot_set(&env).unwrap());
    let db = builder(&other).open().unwrap();
    restore(&db);
    assert_eq!((db.stats().restore.records, db.stats().restore.pages), (0, 0));
    check_all(&db, |_| "old");
}

#[test]
fn stale_hot_set_after_drop_and_tree_change_is_harmless() {
    let env = warm();
    let db = builder(&env).open().unwrap();
    let before = hot_set(&env).unwrap();
    keyspace(&db).set_tree(testudo_options::Tree::splinter()).unwrap();
    restore(&db);
    check_all(&db, |_| "old");
    db.drop_keyspace("k").unwrap();
    let again = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    again.insert(key(1), value(1, "again")).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    put_hot_set(&env, &before);
    let db = builder(&env).open().unwrap();
    restore(&db);
    assert_eq!(keyspace(&db).get(key(1)).unwrap().unwrap(), value(1, "again"));
    assert_eq!(keyspace(&db).get(key(2)).unwrap(), None);
    assert_eq!(db.stats().restore.records, 0);
}

#[test]
fn keyspace_can_be_dropped_while_its_pages_are_restored() {
    let env = warm();
    let db = builder(&env).open().unwrap();
    let _ = keyspace(&db).get(b"nothing").unwrap();
    for _ in 0..3 {
        restore_some(db.store());
    }
    db.drop_keyspace("k").unwrap();
    while restore_some(db.store()) {}
    db.check_invariants().unwrap();
    let again = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for number in 0..RECORDS {
        again.insert(key(number), value(number, "again")).unwrap();
    }
    db.flush().unwrap();
    check_all(&db, |_| "again");
}

#[test]
fn damaged_hot_set_changes_no_answer() {
    let env = warm();
    let whole = hot_set(&env).unwrap();
    let answers = |bytes: &[u8], what: &str| {
        let image = env.live_image();
        put_hot_set(&image, bytes);
        let db = builder(&image).open().unwrap();
        restore(&db);
        for number in (0..RECORDS).step_by(37) {
            let found = keyspace(&db).get(key(number)).unwrap().unwrap();
            assert_eq!(found, value(number, "old"), "{what}");
        }
        db.stats().restore.state
    };
    assert_eq!(answers(&whole, "whole"), RestoreState::Done);
    let flips = (0..160).chain((160..whole.len()).step_by(whole.len() / 50));
    for at in flips {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x41;
        assert_eq!(answers(&damaged, "flipped"), RestoreState::Damaged, "byte {at}");
    }
    for length in [0, 1, 63, 64, 80, whole.len() / 2, whole.len() - 1] {
        assert_eq!(answers(&whole[..length], "cut"), RestoreState::Damaged, "{length} bytes");
    }
    let mut long = whole.clone();
    long.resize(whole.len() * 100, 7);
    assert_eq!(answers(&long, "a hundred times too large"), RestoreState::Damaged);
}

#[test]
fn smaller_budget_restores_what_fits() {
    let env = warm();
    let db = builder(&env).memory_bytes(1 << 20).open().unwrap();
    restore(&db);
    let stats = db.stats();
    assert_eq!(stats.restore.state, RestoreState::Full);
    assert!(stats.page_cache.used_bytes + stats.record_cache.used_bytes <= 1 << 20, "{stats:?}");
    check_all(&db, |_| "old");
}

#[test]
fn restore_stops_when_restored_pages_are_unused() {
    let env = warm();
    let db = builder(&env).open().unwrap();
    let _ = keyspace(&db).get(b"nothing").unwrap();
    db.store().warm.set_state(RestoreState::Reading);
    // Nothing is restored yet: all of these read the device.
    for number in 0..RECORDS {
        let _ = keyspace(&db).get(key(number)).unwrap();
    }
    while restore_some(db.store()) {}
    assert_eq!(db.stats().restore.state, RestoreState::Unused);
}

#[test]
fn close_succeeds_if_saving_the_hot_set_fails() {
    for error in [FaultError::NoSpace, FaultError::Device] {
        let env = loaded();
        let calls = {
            let image = env.live_image();
            let faulty = FaultyEnv::new(Arc::clone(&image) as Arc<dyn Env>);
            let db = builder(&image).env(Arc::clone(&faulty) as Arc<dyn Env>).open().unwrap();
            read_hot(&db);
            let calls = faulty.total_call_count();
            note_hot_set(db.store());
            (calls, faulty.total_call_count())
        };
        assert!(calls.1 > calls.0, "the hot set is written");
        for failing in 0..calls.1 - calls.0 {
            let image = env.live_image();
            let faulty = FaultyEnv::new(Arc::clone(&image) as Arc<dyn Env>);
            let db = builder(&image).env(Arc::clone(&faulty) as Arc<dyn Env>).open().unwrap();
            read_hot(&db);
            faulty.set_plan(Some(FaultPlan::once(failing, error)));
            note_hot_set(db.store());
            faulty.set_plan(None);
            db.close().unwrap();
            let db = builder(&image).open().unwrap();
            restore(&db);
            read_hot(&db);
        }
    }
}

#[test]
fn hot_set_io_is_counted_in_device_bytes() {
    let env = warm();
    let file_bytes = u64_of(hot_set(&env).unwrap().len());
    let db = builder(&env).open().unwrap();
    restore(&db);
    let read = db.stats();
    let of_data_file = read.io.page_read_bytes + read.io.stream_read_bytes;
    assert_eq!(read.io.bytes_read, of_data_file + file_bytes, "{read:?}");

    read_hot(&db);
    note_hot_set(db.store());
    let stats = db.stats();
    let noted = u64_of(hot_set(&env).unwrap().len());
    assert_eq!(stats.io.hot_set_bytes_written, noted, "{stats:?}");
    let others = stats.io.wal_bytes_written + stats.io.data_bytes_written + stats.io.manifest_bytes_written;
    assert_eq!(stats.io.bytes_written, others + noted);
}

#[test]
fn directory_in_place_of_hot_set_is_left_alone() {
    let env = loaded();
    let path = Path::new(DIRECTORY).join(HOT_SET_FILE);
    let _ = env.remove_file(&path);
    env.create_dir(&path).unwrap();
    for _ in 0..2 {
        let db = builder(&env).open().unwrap();
        assert_eq!(db.stats().restore.state, RestoreState::Failed);
        read_hot(&db);
        db.close().unwrap();
    }
    let names: Vec<_> = env.list_dir(Path::new(DIRECTORY)).unwrap();
    assert!(names.iter().all(|entry| entry.name != "hot-set.new"));
}

#[test]
fn background_threads_restore_the_hot_set_on_a_real_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let open = || Db::builder(&path).memory_bytes(8 << 20).open().unwrap();
    let db = open();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for number in 0..RECORDS {
        keyspace.insert(key(number), value(number, "old")).unwrap();
    }
    db.compact().unwrap();
    read_hot(&db);
    drop(keyspace);
    db.close().unwrap();
    let noted = fs::metadata(path.join(HOT_SET_FILE)).unwrap().len();
    assert!(noted > 0);
    let beside = |db: &Db| {
        let stats = db.stats();
        stats.space.disk_bytes
            - stats.space.data_file_bytes
            - stats.space.wal_live_bytes
            - stats.space.manifest_bytes
    };
    let cold = Db::builder(&path).memory_bytes(8 << 20).warm_restart(false).open().unwrap();
    let without = beside(&cold);
    cold.close().unwrap();
    let db = open();
    assert_eq!(beside(&db) - without, noted, "`disk_bytes` includes the hot set");
    let clock = testudo_env::RealEnv::new();
    let began = clock.monotonic();
    // Concurrent reads may fill the caches first, or be so fast that the restored data seems unused.
    let ends = [RestoreState::Done, RestoreState::Full, RestoreState::Unused];
    while !ends.contains(&db.stats().restore.state) {
        read_hot(&db);
        assert!(clock.monotonic().saturating_sub(began) < Duration::from_secs(60), "{:?}", db.stats());
    }
    assert!(db.stats().restore.pages + db.stats().restore.records > 0, "{:?}", db.stats());
    check_all(&db, |_| "old");
}
