//! Compaction of a range of keys on demand: contents, space, what is written, concurrent writers, crashes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use testudo::{
    Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, KeyspaceStats, Placement, Snapshot, Tree,
    VerifyLevel,
};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv};
use testudo_share::some_of;

const KEYS: u64 = 2_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(machine: &Arc<MemEnv>) -> Db {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20).open().unwrap()
}

/// All trees with all placements.
fn settings() -> Vec<KeyspaceOptions> {
    let placements = [
        Placement::inline(),
        Placement::separate(),
        Placement::hybrid(),
        Placement::hybrid().with_moving_thresholds(true),
    ];
    let trees = Tree::presets().into_iter().map(|(_, tree)| tree.with_run_bytes(16 << 10));
    trees
        .flat_map(|tree| {
            placements.map(|placement| KeyspaceOptions::default().tree(tree).placement(placement))
        })
        .collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// Values of all classes of size.
fn value(number: u64, round: u64) -> Vec<u8> {
    let length = [20, 150, 150, 900][usize::try_from(number % 4).unwrap()];
    format!("{number}/{round}/").into_bytes().into_iter().cycle().take(length).collect()
}

/// Overwrites some keys, scattered over all of them, and removes others; flushes.
fn change(db: &Db, keyspace: &Keyspace, model: &mut Model, round: u64) {
    for n in (0..KEYS).filter(|n| (n * 7919 + round * 31).is_multiple_of(7)) {
        if (n + round).is_multiple_of(5) {
            keyspace.remove(key(n)).unwrap();
            model.remove(&key(n));
        } else {
            keyspace.insert(key(n), value(n, round)).unwrap();
            model.insert(key(n), value(n, round));
        }
    }
    db.flush().unwrap();
}

fn loaded(machine: &Arc<MemEnv>, options: &KeyspaceOptions) -> (Db, Keyspace, Model) {
    let db = open(machine);
    let keyspace = db.keyspace("k", || *options).unwrap();
    let mut model = Model::new();
    for n in 0..KEYS {
        keyspace.insert(key(n), value(n, 0)).unwrap();
        model.insert(key(n), value(n, 0));
    }
    db.flush().unwrap();
    (1..8).for_each(|round| change(&db, &keyspace, &mut model, round));
    (db, keyspace, model)
}

fn contents(keyspace: &Keyspace) -> Model {
    let pairs = keyspace.iter().unwrap().map(|entry| entry.unwrap().into_pair().unwrap());
    pairs.map(|(key, value)| (key.into_vec(), value.into_vec())).collect()
}

fn contents_at(snapshot: &Snapshot, keyspace: &Keyspace) -> Model {
    let pairs = snapshot.iter(keyspace).unwrap().map(|entry| entry.unwrap().into_pair().unwrap());
    pairs.map(|(key, value)| (key.into_vec(), value.into_vec())).collect()
}

fn check(db: &Db, keyspace: &Keyspace, model: &Model) {
    assert!(contents(keyspace) == *model);
    for n in (0..KEYS).step_by(13) {
        assert_eq!(keyspace.get(key(n)).unwrap().as_deref(), model.get(&key(n)).map(Vec::as_slice));
    }
    let report = db.verify(VerifyLevel::Full).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
    db.check_invariants().unwrap();
}

fn stored_entries(stats: &KeyspaceStats) -> u64 {
    stats.tree.entries - stats.tree.tombstones
}

fn written(db: &Db) -> u64 {
    db.stats().io.data_bytes_written
}

#[test]
fn a_range_is_compacted_in_every_tree_and_placement() {
    for options in some_of(settings(), 3, 0) {
        let machine = MemEnv::new(1);
        let (db, keyspace, mut model) = loaded(&machine, &options);
        let snapshot = db.snapshot().unwrap();
        let before = model.clone();
        change(&db, &keyspace, &mut model, 100);
        // The write buffers have newer keys of the range.
        keyspace.insert(key(KEYS / 2), "buffered").unwrap();
        model.insert(key(KEYS / 2), b"buffered".to_vec());
        let range = || key(KEYS / 4)..key(KEYS / 4 * 3);
        keyspace.compact_range(range()).unwrap();
        assert_eq!(keyspace.stats().memtables.entries, 0, "{options:?}: the write buffers are covered");
        check(&db, &keyspace, &model);
        assert!(contents_at(&snapshot, &keyspace) == before, "{options:?}: the snapshot has changed");
        let bytes = written(&db);
        keyspace.compact_range(range()).unwrap();
        assert_eq!(written(&db), bytes, "{options:?}: the range was compact");
        drop(snapshot);
        // All of the keyspace: only its present entries are left, and a tombstone in an empty run.
        keyspace.compact_range(..).unwrap();
        let stats = keyspace.stats();
        assert_eq!((stats.tree.buffered_runs, stats.tree.buffered_bytes), (0, 0), "{options:?}: {stats:?}");
        if stats.moving.from.is_none() {
            let present = u64::try_from(model.len()).unwrap();
            assert_eq!(stored_entries(&stats), present, "{options:?}: {stats:?}");
            assert!(stats.tree.tombstones <= present / 100, "{options:?}: {stats:?}");
        }
        check(&db, &keyspace, &model);
        let db = {
            db.close().unwrap();
            open(&machine)
        };
        check(&db, &db.open_keyspace("k").unwrap().unwrap(), &model);
    }
}

#[test]
fn removed_ranges_release_their_space() {
    for options in some_of(settings(), 3, 1) {
        let machine = MemEnv::new(2);
        let (db, keyspace, mut model) = loaded(&machine, &options);
        keyspace.compact_range(..).unwrap();
        let before = db.stats().space.live_bytes;
        for n in KEYS / 4..KEYS {
            keyspace.remove(key(n)).unwrap();
            model.remove(&key(n));
        }
        keyspace.compact_range(key(KEYS / 4)..).unwrap();
        let stats = keyspace.stats();
        let present = u64::try_from(model.len()).unwrap();
        assert_eq!(stored_entries(&stats), present, "{options:?}: {stats:?}");
        let is_dead = |bytes: u64| bytes * 2 > stats.values.bytes;
        assert!(stats.values.bytes == 0 || is_dead(stats.values.dead_bytes), "{options:?}: {stats:?}");
        // Ordinary jobs join the empty runs, and collect the garbage that is accounted.
        db.compact().unwrap();
        let live = db.stats().space.live_bytes;
        assert!(live < before / 2, "{options:?}: {live} of {before} bytes");
        check(&db, &keyspace, &model);
    }
}

#[test]
fn nothing_is_written_for_an_empty_range_or_keyspace() {
    for options in some_of(settings(), 3, 2) {
        let machine = MemEnv::new(3);
        let (db, keyspace, _) = loaded(&machine, &options);
        let empty = db.keyspace("empty", || options).unwrap();
        // A buffer without keys of the range is not flushed.
        keyspace.insert("a", "buffered").unwrap();
        let bytes = db.stats().io.bytes_written;
        empty.compact_range(..).unwrap();
        keyspace.compact_range(key(7)..key(7)).unwrap();
        keyspace.compact_range(key(8)..key(7)).unwrap();
        keyspace.compact_range("x".."z").unwrap();
        keyspace.compact_range(..="").unwrap();
        assert_eq!(db.stats().io.bytes_written, bytes, "{options:?}");
        assert_eq!(keyspace.stats().memtables.entries, 1);
    }
}

#[test]
fn a_compaction_ends_and_loses_nothing_under_concurrent_writes() {
    for options in some_of(settings(), 3, 0) {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::builder(dir.path().join("db")).memory_bytes(2 << 20).open().unwrap();
        let keyspace = db.keyspace("k", || options).unwrap();
        let is_over = AtomicBool::new(false);
        for n in 0..KEYS {
            keyspace.insert(key(n), value(n, 0)).unwrap();
        }
        let rounds: Vec<u64> = thread::scope(|scope| {
            let writers = [0, 1].map(|writer| {
                let (keyspace, is_over) = (&keyspace, &is_over);
                scope.spawn(move || {
                    let mut round = 0;
                    while !is_over.load(Ordering::Acquire) || round == 0 {
                        round += 1;
                        for n in (writer..KEYS).step_by(2) {
                            keyspace.insert(key(n), value(n, round)).unwrap();
                        }
                    }
                    round
                })
            });
            for part in 0..3 {
                keyspace.compact_range(key(part * KEYS / 4)..key((part + 2) * KEYS / 4)).unwrap();
            }
            is_over.store(true, Ordering::Release);
            writers.map(|writer| writer.join().unwrap()).to_vec()
        });
        let model: Model =
            (0..KEYS).map(|n| (key(n), value(n, rounds[usize::try_from(n % 2).unwrap()]))).collect();
        assert!(contents(&keyspace) == model, "{options:?}");
        keyspace.compact_range(..).unwrap();
        // A run may stay referred to for keys of which it has no entries.
        let stats = keyspace.stats().tree;
        assert!(stats.buffered_bytes <= 16 && stats.buffered_runs <= 1, "{options:?}: {stats:?}");
        check(&db, &keyspace, &model);
        db.close().unwrap();
    }
}

#[test]
fn power_lost_in_a_compaction_loses_no_synced_write() {
    for (number, options) in some_of(settings(), 3, 1).enumerate() {
        for after in some_of([3, 9, 27, 60, 150], 2, number) {
            let machine = MemEnv::new(after);
            let (db, keyspace, mut model) = loaded(&machine, &options);
            keyspace.insert(key(1), "synced").unwrap();
            model.insert(key(1), b"synced".to_vec());
            db.persist(Durability::Sync).unwrap();
            machine.crash_after(after);
            let outcome = keyspace.compact_range(..);
            for policy in [CrashPolicy::LOSE_ALL, CrashPolicy::KEEP_ALL] {
                let image = machine.crash_image(&policy, after);
                let db = open(&image);
                let keyspace = db.open_keyspace("k").unwrap().unwrap();
                check(&db, &keyspace, &model);
                keyspace.compact_range(..).unwrap();
                check(&db, &keyspace, &model);
            }
            if let Err(error) = outcome {
                assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{error}");
            }
        }
    }
}

#[test]
fn a_compaction_on_a_full_device_loses_nothing_and_goes_on_when_there_is_room() {
    for (number, options) in some_of(settings(), 3, 2).enumerate() {
        let machine = MemEnv::new(9);
        let (db, keyspace, mut model) = loaded(&machine, &options);
        let free = some_of([0, 16 << 10, 128 << 10], 3, number).collect::<Vec<u64>>();
        for free in free {
            change(&db, &keyspace, &mut model, 70 + free);
            machine.space_limit(Some(machine.used_bytes() + free));
            if let Err(error) = keyspace.compact_range(..) {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{options:?}: {error}");
            }
            check(&db, &keyspace, &model);
            machine.space_limit(None);
            keyspace.compact_range(..).unwrap();
            check(&db, &keyspace, &model);
            // A run with replaced pages keeps its covered range, and with it a run that it replaced.
            let (stats, present) = (keyspace.stats(), u64::try_from(model.len()).unwrap());
            assert!((present..present + present / 16).contains(&stored_entries(&stats)), "{stats:?}");
        }
        db.close().unwrap();
    }
}

#[test]
fn a_compaction_in_a_moving_keyspace_covers_both_trees() {
    let families = [(Tree::turtle(), Tree::leveled()), (Tree::treeline(), Tree::splinter())];
    for (from, to) in families {
        let machine = MemEnv::new(5);
        let options = KeyspaceOptions::default().tree(from.with_run_bytes(16 << 10));
        let (db, keyspace, mut model) = loaded(&machine, &options);
        keyspace.set_tree(to.with_run_bytes(16 << 10)).unwrap();
        for _ in 0..12 {
            db.step().unwrap();
        }
        change(&db, &keyspace, &mut model, 50);
        assert!(keyspace.stats().moving.from.is_some(), "the keyspace is moving");
        keyspace.compact_range(..).unwrap();
        assert_eq!(keyspace.stats().tree.buffered_runs, 0, "{:?}", keyspace.outline());
        check(&db, &keyspace, &model);
        db.compact().unwrap();
        check(&db, &keyspace, &model);
    }
}

#[test]
fn compaction_of_a_store_that_cannot_be_written_is_an_error() {
    let machine = MemEnv::new(6);
    let options = settings().swap_remove(0);
    let (db, keyspace, _) = loaded(&machine, &options);
    db.drop_keyspace("k").unwrap();
    assert_eq!(keyspace.compact_range(..).unwrap_err().kind(), ErrorKind::Invalid);
    db.close().unwrap();
    assert_eq!(keyspace.compact_range(..).unwrap_err().kind(), ErrorKind::Closed);
    drop(keyspace);
    let db = open(&machine);
    db.keyspace("k", || options).unwrap().insert("a", "b").unwrap();
    db.close().unwrap();
    let read_only = Db::builder(Path::new("/db")).env(machine.clone()).read_only().open().unwrap();
    let keyspace = read_only.open_keyspace("k").unwrap().unwrap();
    assert_eq!(keyspace.compact_range(..).unwrap_err().kind(), ErrorKind::Unsupported);
    drop(keyspace);
    read_only.close().unwrap();
    let db = open(&machine);
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    keyspace.insert("c", "d").unwrap();
    machine.crash_after(0);
    db.persist(Durability::Sync).unwrap_err();
    assert_eq!(keyspace.compact_range(..).unwrap_err().kind(), ErrorKind::Poisoned);
}

/// Closing ends a compaction in progress.
#[test]
fn closing_cancels_a_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::builder(dir.path().join("db")).memory_bytes(4 << 20).open().unwrap();
    let db = open();
    let tree = Tree::splinter().with_run_bytes(16 << 10);
    let keyspace = db.keyspace("k", || KeyspaceOptions::default().tree(tree)).unwrap();
    for n in 0..40_000_u64 {
        keyspace.insert(key(n.wrapping_mul(0x9e37_79b9) % 1_000_000), [7; 100]).unwrap();
    }
    let outcome = thread::scope(|scope| {
        let compacting = scope.spawn(|| keyspace.compact_range(..));
        db.close().unwrap();
        compacting.join().unwrap()
    });
    if let Err(error) = outcome {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    drop(keyspace);
    let report = open().verify(VerifyLevel::Full).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}
