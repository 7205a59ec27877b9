//! Values that commits write once, to value logs: written bytes, durability, and reclaimed space.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Placement, Tree, VerifyLevel};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv, SplitMix};
use testudo_share::some_of;

const VALUE_BYTES: usize = 1_000;

fn open(machine: &Arc<MemEnv>) -> Db {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(4 << 20).open().unwrap()
}

fn hybrid(tree: Tree) -> KeyspaceOptions {
    KeyspaceOptions::default().tree(tree).placement(Placement::hybrid())
}

fn trees() -> [Tree; 4] {
    [Tree::turtle(), Tree::splinter(), Tree::leveled(), Tree::treeline()]
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{:08}", number * 7919 % 1_000_003).into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    format!("{number}/{round}/").into_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn insert(keyspace: &Keyspace, model: &mut Model, numbers: std::ops::Range<u64>, round: u64) {
    for number in numbers {
        let (key, value) = (key(number), value(number, round));
        keyspace.insert(&key, &value).unwrap();
        model.insert(key, value);
    }
}

fn check(keyspace: &Keyspace, model: &Model) {
    for (key, value) in model {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
    let entries = keyspace.iter().unwrap().map(Result::unwrap);
    let entries: Model = entries.map(|e| (e.key().to_vec(), e.value().unwrap().to_vec())).collect();
    assert!(entries == *model);
}

fn verify(db: &Db) {
    let report = db.verify(VerifyLevel::Full).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}

/// Checks the content of a newly opened store.
fn check_opened(machine: &Arc<MemEnv>, model: &Model) {
    let db = open(machine);
    check(&db.open_keyspace("k").unwrap().unwrap(), model);
    verify(&db);
}

#[test]
fn large_values_are_written_once() {
    for tree in some_of(trees(), 4, 3) {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", hybrid(tree)).unwrap();
        let mut model = Model::new();
        insert(&keyspace, &mut model, 0..20_000, 0);
        db.flush().unwrap();
        let stats = db.stats();
        let user_bytes = stats.writes.bytes as f64;
        let written = stats.io.bytes_written as f64;
        assert!(written < 1.45 * user_bytes, "{tree}: {} times", written / user_bytes);
        check(&keyspace, &model);
        verify(&db);
        drop((keyspace, db));
        check_opened(&machine, &model);
    }
}

/// A store whose value logs hold unflushed values; returns everything written.
fn with_value_logs(tree: Tree) -> (Arc<MemEnv>, Db, Keyspace, Model) {
    with_value_logs_of(hybrid(tree))
}

/// Same as `with_value_logs`, for a keyspace with other options.
fn with_value_logs_of(options: KeyspaceOptions) -> (Arc<MemEnv>, Db, Keyspace, Model) {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    let keyspace = db.keyspace("k", options).unwrap();
    let mut model = Model::new();
    insert(&keyspace, &mut model, 0..1_000, 0);
    db.flush().unwrap();
    let before = db.stats().log.value_log_bytes;
    insert(&keyspace, &mut model, 500..1_300, 1);
    assert_eq!(db.stats().log.value_log_bytes - before, 800_000, "all of them must be in the value log");
    (machine, db, keyspace, model)
}

/// Logged medium values: commits write medium values, of a thousand bytes, once.
fn logged_medium(tree: Tree) -> KeyspaceOptions {
    let placement = Placement::by_value_bytes(Some(48), None).unwrap();
    KeyspaceOptions::default().tree(tree).placement(placement.with_logged_medium(true))
}

#[test]
fn logged_medium_values_return_to_their_keys() {
    for tree in some_of(trees(), 4, 2) {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", logged_medium(tree)).unwrap();
        let mut model = Model::new();
        let mut separated = 0;
        for round in 0..8 {
            insert(&keyspace, &mut model, 500 * round..500 * round + 1_000, round);
            db.flush().unwrap();
            let stats = keyspace.stats();
            assert_eq!(stats.values.transient_bytes, stats.values.bytes, "{tree}: {stats:?}");
            separated += stats.values.bytes;
            while db.step().unwrap() {}
            check(&keyspace, &model);
            verify(&db);
        }
        assert!(
            separated > 0 && db.stats().log.value_log_bytes > 3_000_000,
            "{tree}: {separated} bytes separated"
        );
        // Separated values still return under another placement, as other keys push them down.
        keyspace.set_placement(Placement::inline()).unwrap();
        for round in 1..10 {
            insert(&keyspace, &mut model, 5_000 * round..5_000 * round + 5_000, round);
            db.flush().unwrap();
            while db.step().unwrap() {}
        }
        assert_eq!(keyspace.stats().values.bytes, 0, "{tree}");
        check(&keyspace, &model);
        drop(keyspace);
        db.close().unwrap();
        check_opened(&machine, &model);
    }
}

#[test]
fn read_errors_of_values_do_not_truncate_the_log() {
    // One in five covers every tree, with different numbers for each.
    let cases = (0..12).flat_map(|skipped| trees().map(|tree| (skipped, tree)));
    for (skipped_reads, tree) in some_of(cases, 5, 0) {
        let (machine, db, keyspace, model) = with_value_logs(tree);
        db.persist(Durability::Sync).unwrap();
        let machine = machine.crash_image(&CrashPolicy::LOSE_ALL, 1);
        drop((keyspace, db));
        let faulty = FaultyEnv::new(machine.clone());
        let plan = FaultPlan::once(skipped_reads, FaultError::Device).of_class(IoClass::Read);
        faulty.set_plan(Some(plan.on_path("data").for_good()));
        let opened = Db::builder(Path::new("/db")).env(faulty.clone()).memory_bytes(4 << 20).open();
        let error = opened.err().map(|error| error.kind());
        assert!([None, Some(ErrorKind::Io)].contains(&error), "{tree}, {skipped_reads}: {error:?}");
        check_opened(&machine, &model);
    }
}

#[test]
fn unflushed_values_survive_a_close() {
    for tree in trees() {
        let (machine, db, keyspace, mut model) = with_value_logs(tree);
        drop(keyspace);
        db.close().unwrap();
        for round in 0..3 {
            let db = open(&machine);
            let keyspace = db.open_keyspace("k").unwrap().unwrap();
            check(&keyspace, &model);
            insert(&keyspace, &mut model, 2_000 + 10 * round..2_010 + 10 * round, 0);
            verify(&db);
            drop(keyspace);
            db.close().unwrap();
        }
        let db = open(&machine);
        db.flush().unwrap();
        verify(&db);
        check(&db.open_keyspace("k").unwrap().unwrap(), &model);
    }
}

#[test]
fn synced_commits_survive_with_their_values() {
    for options in trees().into_iter().flat_map(|tree| [hybrid(tree), logged_medium(tree)]) {
        let (machine, db, keyspace, model) = with_value_logs_of(options);
        db.persist(Durability::Sync).unwrap();
        keyspace.insert("later", "lost").unwrap();
        let image = machine.crash_image(&CrashPolicy::LOSE_ALL, 1);
        check_opened(&image, &model);
    }
}

#[test]
fn a_commit_counts_only_with_its_values() {
    let tree = Tree::turtle();
    let (machine, db, keyspace, _) = with_value_logs(tree);
    db.persist(Durability::Sync).unwrap();
    let numbers: Vec<u64> = (3_000..3_200).collect();
    for (at, number) in numbers.iter().enumerate() {
        keyspace.insert(key(*number), value(*number, 0)).unwrap();
        if at % 20 == 0 {
            // Writes the log, without a sync.
            db.step().unwrap();
        }
    }
    db.step().unwrap();
    let mut cuts = std::collections::BTreeSet::new();
    for seed in some_of(0..80, 5, 0) {
        let image = machine.crash_image(&CrashPolicy::random(seed), seed);
        let mut survivors = None;
        for opening in 0..3 {
            let db = open(&image);
            let keyspace = db.open_keyspace("k").unwrap().unwrap();
            let has = |number: &u64| match keyspace.get(key(*number)).unwrap() {
                Some(found) => *found == *value(*number, 0),
                None => false,
            };
            let count = numbers.iter().take_while(|number| has(number)).count();
            assert!(numbers[count..].iter().all(|number| !has(number)), "seed {seed}: no prefix");
            assert_eq!(*survivors.get_or_insert(count), count, "seed {seed}, opening {opening}");
            keyspace.insert(format!("opening {opening}"), value(opening, 1)).unwrap();
            for before in 0..=opening {
                assert!(keyspace.contains_key(format!("opening {before}")).unwrap());
            }
            verify(&db);
            drop(keyspace);
            db.close().unwrap();
        }
        cuts.extend(survivors);
    }
    assert!(cuts.len() > 3, "the log ends in several places: {cuts:?}");
}

#[test]
fn recovered_values_are_durable_even_if_only_cached_before() {
    for tree in trees() {
        let (machine, db, _keyspace, model) = with_value_logs(tree);
        db.step().unwrap();
        // The process is killed after a failed sync: written pages look clean, but are not on the device.
        let image = machine.live_image();
        image.fail_sync("/db/data", &CrashPolicy::LOSE_ALL, false, 1).unwrap();
        let db = open(&image);
        check(&db.open_keyspace("k").unwrap().unwrap(), &model);
        let image = image.crash_image(&CrashPolicy::LOSE_ALL, 1);
        check_opened(&image, &model);
    }
}

#[test]
fn a_damaged_value_of_a_synced_commit_is_reported() {
    let (machine, db, keyspace, _) = with_value_logs(Tree::leveled());
    db.persist(Durability::Sync).unwrap();
    drop(keyspace);
    db.close().unwrap();
    let bytes = machine.file_bytes("/db/data").unwrap();
    let pattern = b"/1/1000/1/1000/1/1000";
    let at = bytes.windows(pattern.len()).position(|window| window == pattern).unwrap();
    machine.corrupt("/db/data", u64::try_from(at).unwrap(), 1).unwrap();
    let builder = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(4 << 20);
    let error = builder.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.location().unwrap().0.starts_with("wal-"), "{error}");
}

#[test]
fn synced_commits_have_their_values_in_the_log() {
    let (machine, db, keyspace, mut model) = with_value_logs(Tree::turtle());
    let before = db.stats().log.value_log_bytes;
    for number in 5_000..5_050 {
        let mut batch = db.batch().durability(Durability::Sync);
        batch.insert(&keyspace, key(number), value(number, 0));
        batch.commit().unwrap();
        model.insert(key(number), value(number, 0));
        insert(&keyspace, &mut model, number + 1_000..number + 1_001, 0);
    }
    assert_eq!(db.stats().log.value_log_bytes - before, 50_000);
    check(&keyspace, &model);
    db.flush().unwrap();
    verify(&db);
    check(&keyspace, &model);
    drop(machine);
}

#[test]
fn value_logs_are_transparent_to_snapshots_copies_and_settings() {
    for tree in trees() {
        let (machine, db, keyspace, mut model) = with_value_logs(tree);
        let (held, snapshot) = (model.clone(), db.snapshot().unwrap());
        db.checkpoint("/copy").unwrap();
        let copy = Db::builder(Path::new("/copy")).env(machine.clone()).memory_bytes(4 << 20).open().unwrap();
        check(&copy.open_keyspace("k").unwrap().unwrap(), &model);
        verify(&copy);
        drop(copy);
        keyspace.set_placement(Placement::inline()).unwrap();
        insert(&keyspace, &mut model, 0..700, 2);
        db.flush().unwrap();
        keyspace.set_placement(Placement::hybrid()).unwrap();
        insert(&keyspace, &mut model, 300..1_000, 3);
        db.flush().unwrap();
        insert(&keyspace, &mut model, 300..1_000, 4);
        db.flush().unwrap();
        check(&keyspace, &model);
        verify(&db);
        for (key, value) in &held {
            assert_eq!(snapshot.get(&keyspace, key).unwrap().as_deref(), Some(value.as_slice()));
        }
        drop(snapshot);
        let other = db.keyspace("other", hybrid(tree)).unwrap();
        insert(&other, &mut Model::new(), 0..1_000, 0);
        db.flush().unwrap();
        insert(&other, &mut Model::new(), 0..1_000, 1);
        drop(other);
        db.drop_keyspace("other").unwrap();
        verify(&db);
        drop(keyspace);
        db.close().unwrap();
        check_opened(&machine, &model);
    }
}

#[test]
fn space_of_overwritten_values_is_reclaimed() {
    for tree in trees() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", hybrid(tree)).unwrap();
        let mut model = Model::new();
        for round in 0..8 {
            insert(&keyspace, &mut model, 0..4_000, round);
        }
        db.flush().unwrap();
        db.compact().unwrap();
        check(&keyspace, &model);
        verify(&db);
        let stats = keyspace.stats();
        assert!(stats.values.dead_bytes * 5 < stats.values.bytes, "{tree}: {stats:?}");
        let live_bytes = db.stats().space.live_bytes;
        assert!(live_bytes < 4_000 * 1_000 * 5 / 4, "{tree}: {live_bytes}");
    }
}

/// Only flushing threads run jobs here.
#[test]
fn garbage_values_take_a_bounded_part_at_any_overwrite_rate() {
    for tree in some_of(trees(), 4, 1) {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", hybrid(tree)).unwrap();
        let mut model = Model::new();
        insert(&keyspace, &mut model, 0..4_000, 0);
        db.flush().unwrap();
        let (mut most_dead, mut most_on_disk) = (0.0_f64, 0);
        let mut random = SplitMix::new(5);
        for round in 1..=40 {
            for _ in 0..1_000 {
                let number = random.next_u64() % 4_000;
                insert(&keyspace, &mut model, number..number + 1, round);
            }
            db.flush().unwrap();
            let stats = keyspace.stats();
            most_dead = most_dead.max(stats.values.dead_bytes as f64 / stats.values.bytes.max(1) as f64);
            most_on_disk = most_on_disk.max(db.stats().space.live_bytes);
        }
        assert!(most_dead < 0.7, "{tree}: {most_dead} of all values were garbage");
        assert!(most_on_disk < 4_000 * 1_000 * 6, "{tree}: {most_on_disk} bytes");
        check(&keyspace, &model);
        verify(&db);
    }
}

/// Value logs reserve space ahead for three buffers, but less where buffers are large relative to the data.
/// Nor do buffers with long values wait until memory is full.
#[test]
fn large_buffers_reserve_little_space_ahead() {
    let machine = MemEnv::new(1);
    let db = Db::builder(Path::new("/db")).env(machine).memory_bytes(128 << 20).open().unwrap();
    let keyspace = db.keyspace("k", hybrid(Tree::turtle())).unwrap();
    let (mut bytes, mut most_ahead) = (0, 0);
    for round in 0..90 {
        for number in 0..1_000 {
            keyspace.insert(key(round * 1_000 + number), vec![b'v'; 4_000]).unwrap();
        }
        bytes += 4_000_000_u64;
        while db.step().unwrap() {}
        // Value logs started before the first flush reserve as much as the buffers hold.
        if db.stats().flush.count > 3 {
            most_ahead = most_ahead.max(db.stats().space.disk_bytes.saturating_sub(bytes));
        }
    }
    assert!(db.stats().flush.count > 10, "{} flushes", db.stats().flush.count);
    assert!(most_ahead < 64 << 20, "{most_ahead} bytes in addition to the values");
}

#[test]
fn a_batch_longer_than_a_value_log_is_complete() {
    let machine = MemEnv::new(1);
    let db = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(128 << 20).open().unwrap();
    let keyspace = db.keyspace("k", hybrid(Tree::turtle())).unwrap();
    let put = |batch: &mut testudo::Batch, number| batch.insert(&keyspace, key(number), vec![b'v'; 4_000]);
    for round in 0..40 {
        let mut batch = db.batch();
        // Most batches are small; every tenth has 20 MB. Value logs have 16 MiB.
        let count = if round % 10 == 9 { 5_000 } else { 500 };
        (0..count).for_each(|number| put(&mut batch, round * 5_000 + number));
        batch.commit().unwrap();
        while db.step().unwrap() {}
    }
    assert!(db.stats().log.value_log_bytes > 80_000_000, "{}", db.stats().log.value_log_bytes);
    assert_eq!(keyspace.iter().unwrap().map(Result::unwrap).count(), 36 * 500 + 4 * 5_000);
    verify(&db);
}

/// Recovery of batches with many values, the last of which the device loses: the log ends before the batch,
/// and the value log is not read again for each missing value.
#[test]
fn a_torn_batch_is_read_once() {
    let (machine, db, keyspace, _) = with_value_logs(Tree::turtle());
    db.persist(Durability::Sync).unwrap();
    let mut batch = db.batch();
    for number in 3_000..3_100 {
        batch.insert(&keyspace, key(number), value(number, 0));
    }
    batch.commit().unwrap();
    db.step().unwrap();
    let mut torn = 0;
    for seed in 0..40 {
        let image = machine.crash_image(&CrashPolicy::random(seed), seed);
        let db = open(&image);
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        let found = (3_000..3_100).filter(|number| keyspace.contains_key(key(*number)).unwrap()).count();
        assert!(found == 0 || found == 100, "seed {seed}: a partial batch");
        torn += usize::from(found == 0);
        verify(&db);
    }
    assert!(torn > 3, "{torn}");
}

#[test]
fn too_little_memory_for_recovery_loses_nothing() {
    let (machine, db, keyspace, mut model) = with_value_logs(Tree::turtle());
    let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
    let mut of_other = Model::new();
    db.persist(Durability::Sync).unwrap();
    insert(&other, &mut of_other, 0..100, 0);
    insert(&keyspace, &mut model, 4_000..4_010, 0);
    insert(&other, &mut of_other, 100..800, 0);
    db.step().unwrap();
    drop((keyspace, other));
    // The process is killed after a failed sync of the data, and restarts with less memory; then power is
    // lost.
    let image = machine.live_image();
    image.fail_sync("/db/data", &CrashPolicy::LOSE_ALL, false, 1).unwrap();
    let lost = open(&image.crash_image(&CrashPolicy::LOSE_ALL, 1));
    let lost = lost.open_keyspace("k").unwrap().unwrap();
    assert!(!lost.contains_key(key(4_000)).unwrap(), "its value must not be on the device");
    for operations in (0..4_000).step_by(7) {
        let image = image.live_image();
        image.crash_after(operations);
        let builder = Db::builder(Path::new("/db")).env(image.clone()).memory_bytes(1 << 20);
        let is_open = builder.open().is_ok_and(|db| db.stats().flush.count > 1);
        let image = image.crash_image(&CrashPolicy::LOSE_ALL, operations);
        let builder = Db::builder(Path::new("/db")).env(image).memory_bytes(1 << 20);
        let db = builder.open().unwrap_or_else(|error| panic!("after {operations}: {error}"));
        if is_open {
            check(&db.open_keyspace("k").unwrap().unwrap(), &model);
            check(&db.open_keyspace("other").unwrap().unwrap(), &of_other);
            return;
        }
    }
    panic!("the store never opened");
}

#[test]
fn a_dropped_keyspace_holds_no_reserved_value_space() {
    for tree in trees() {
        let (_, db, keyspace, model) = with_value_logs(tree);
        let stored = keyspace.stats().tree.stored_bytes;
        assert!(db.drop_keyspace("k").unwrap());
        let held = db.stats().space.held_bytes;
        assert!(held <= stored + (64 << 10), "{tree}: {held} bytes are held, and its tree has {stored}");
        check(&keyspace, &model);
    }
}

/// Such a segment would have few pages, and every small flush would create one.
#[test]
fn a_value_log_with_few_values_gets_no_segment() {
    for tree in some_of(trees(), 4, 0) {
        let machine = MemEnv::new(1);
        let db = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(32 << 20).open().unwrap();
        let placement = Placement::by_value_bytes(None, Some(588)).unwrap().with_moving_thresholds(true);
        let options = KeyspaceOptions::default().tree(tree).placement(placement);
        let keyspace = db.keyspace("k", options).unwrap();
        let mut model = Model::new();
        for round in 0..12 {
            insert(&keyspace, &mut model, round * 3_000..(round + 1) * 3_000, 0);
            db.flush().unwrap();
        }
        let before = keyspace.stats();
        assert!(before.values.segments > 0, "{tree}: {before:?}");
        for round in 1..4 {
            let logged = db.stats().log.value_log_bytes;
            insert(&keyspace, &mut model, 0..20, round);
            assert_eq!(db.stats().log.value_log_bytes > logged, round == 1, "{tree}, {round}");
            db.flush().unwrap();
            assert_eq!(keyspace.stats().values.segments, before.values.segments, "{tree}, {round}");
        }
        check(&keyspace, &model);
        verify(&db);
        drop(keyspace);
        db.close().unwrap();
        check(&open(&machine).open_keyspace("k").unwrap().unwrap(), &model);
    }
}

#[test]
fn a_small_keyspace_starts_no_value_log() {
    for tree in trees() {
        let db = open(&MemEnv::new(1));
        let keyspace = db.keyspace("k", || KeyspaceOptions::default().tree(tree)).unwrap();
        let mut model = Model::new();
        for round in 0..8 {
            insert(&keyspace, &mut model, 0..1_000, round);
            db.flush().unwrap();
        }
        assert_eq!(db.stats().log.value_log_bytes, 0, "{tree}");
        check(&keyspace, &model);
    }
}
