//! A full device: acknowledged writes are kept, removals continue from the reserve, and the store resumes by
//! itself once there is room.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Placement, Tree, VerifyLevel};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv, SplitMix};
use testudo_share::some_of;

const MEMORY: u64 = 1 << 20;

fn open(machine: &Arc<MemEnv>) -> testudo::Result<Db> {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(MEMORY).open()
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

/// Fills the device until a write is refused; returns the number of records accepted.
fn fill(machine: &MemEnv, keyspace: &Keyspace) -> u32 {
    machine.space_limit(Some(machine.used_bytes() + (3 << 20)));
    for number in 0.. {
        match keyspace.insert(key(number), [7; 500]) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                return number;
            }
        }
    }
    unreachable!("a device must become full")
}

fn assert_holds(keyspace: &Keyspace, present: std::ops::Range<u32>) {
    let found: Vec<Vec<u8>> = keyspace.iter().unwrap().map(|entry| entry.unwrap().key().to_vec()).collect();
    let expected: Vec<Vec<u8>> = present.map(key).collect();
    assert_eq!(found.len(), expected.len());
    assert_eq!(found, expected);
}

fn machine_with_store() -> (Arc<MemEnv>, Db, Keyspace) {
    let machine = MemEnv::new(5);
    let db = open(&machine).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default).unwrap();
    (machine, db, keyspace)
}

#[test]
fn removals_are_accepted_and_durable_when_inserts_are_refused() {
    let (machine, db, keyspace) = machine_with_store();
    let taken = fill(&machine, &keyspace);
    for number in 0..100 {
        keyspace.remove(key(number)).unwrap();
    }
    assert_eq!(keyspace.insert(b"x", b"y").unwrap_err().kind(), ErrorKind::OutOfSpace);
    let mut mixed = db.batch();
    mixed.remove(&keyspace, key(200));
    mixed.insert(&keyspace, b"x", b"y");
    assert_eq!(mixed.commit().unwrap_err().kind(), ErrorKind::OutOfSpace);
    let mut removals = db.batch().durability(Durability::Sync);
    (100..200).for_each(|number| removals.remove(&keyspace, key(number)));
    removals.commit().unwrap();
    assert_holds(&keyspace, 200..taken);
    let image = machine.crash_image(&CrashPolicy::LOSE_ALL, 9);
    let db = open(&image).unwrap();
    assert_holds(&db.open_keyspace("a").unwrap().unwrap(), 200..taken);
}

#[test]
fn removals_are_accepted_while_full_write_buffers_cannot_be_flushed() {
    let faults = FaultyEnv::new(MemEnv::new(5));
    let db = Db::builder(Path::new("/db")).env(faults.clone()).memory_bytes(MEMORY).open().unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default).unwrap();
    // There is room for the log, but never for a tree.
    faults.set_plan(Some(FaultPlan::once(0, FaultError::NoSpace).on_path("/db/data").for_good()));
    let mut numbers = 0..20_000;
    let refused = numbers.by_ref().filter(|&number| keyspace.insert(key(number), [7; 500]).is_err()).count();
    assert!(refused > 10_000 && db.stats().flush.count == 0);
    for number in 0..20 {
        keyspace.remove(key(number)).unwrap();
    }
    // Removals are refused as well before memory runs out.
    let end = (20..100_000).find_map(|number| keyspace.remove(key(number)).err()).unwrap();
    assert_eq!(end.kind(), ErrorKind::OutOfSpace);
    let stats = db.stats();
    // In addition to the bytes that removals may add there is memory that no buffer uses.
    assert!(stats.memory.memtable_bytes < stats.write_memory.bytes / 16 * 18 + MEMORY / 8, "{stats:?}");
    faults.set_plan(None);
    keyspace.insert(b"x", b"y").unwrap();
    db.flush().unwrap();
    assert_eq!(keyspace.get(key(0)).unwrap(), None);
}

/// The space of a flush under the tree's rules is unbounded: it could fail permanently on a device with more
/// space than the write buffers need.
#[test]
fn a_flush_without_space_under_the_rules_goes_on_top() {
    // A failed extension is retried with less space, many times. A flush under the rules gives up after as
    // many failures as it requests space, which is more often in a splinter tree. Further failures hit the
    // flush on top, which has to grow into the space released by the first one.
    for (tree, failures) in [(Tree::turtle(), 8..=28), (Tree::splinter(), 12..=28)] {
        for failures in failures.step_by(4) {
            let machine = MemEnv::new(5);
            let faults = FaultyEnv::new(machine.clone());
            let db = Db::builder(Path::new("/db")).env(faults.clone()).memory_bytes(MEMORY).open().unwrap();
            let keyspace = db.keyspace("a", || KeyspaceOptions::default().tree(tree)).unwrap();
            (0..20_000).for_each(|number| keyspace.insert(key(number), [7; 500]).unwrap());
            db.flush().unwrap();
            // Plenty of space; otherwise space would be reserved before the flush.
            machine.space_limit(Some(machine.used_bytes() + (64 << 20)));
            let plan = FaultPlan::once(0, FaultError::NoSpace).of_class(IoClass::Allocate);
            faults.set_plan(Some(plan.on_path("/db/data").times(failures)));
            let calls = faults.call_count(IoClass::Allocate);
            let mut taken = 20_000;
            while faults.call_count(IoClass::Allocate) < calls + failures {
                (0..500).for_each(|number| keyspace.insert(key(taken + number), [8; 500]).unwrap());
                db.flush().unwrap();
                taken += 500;
            }
            faults.set_plan(None);
            // Everything continues, again under the tree's rules.
            (0..100).for_each(|number| keyspace.remove(key(number)).unwrap());
            keyspace.insert(key(taken), b"last").unwrap();
            db.compact().unwrap();
            assert_holds(&keyspace, 100..taken + 1);
            db.check_invariants().unwrap();
        }
    }
}

/// However much of the data file is free: a flush must not leave log and manifest only the reserve.
#[test]
fn a_data_file_filling_the_device_leaves_space_for_log_and_manifest() {
    const RECORDS: u64 = 15_000;
    let machine = MemEnv::new(5);
    let tree = Tree::turtle().with_run_bytes(64 << 10).with_max_pivots(16);
    let options = || KeyspaceOptions::default().tree(tree).placement(Placement::inline());
    let scattered = |number: u64| format!("key{:016x}", SplitMix::new(number).next_u64()).into_bytes();
    let db = open(&machine).unwrap();
    let keyspace = db.keyspace("a", options).unwrap();
    (0..RECORDS).for_each(|number| keyspace.insert(scattered(number), [7; 1_100]).unwrap());
    db.flush().unwrap();
    drop(keyspace);
    db.close().unwrap();
    for free in some_of(((8 << 20) + (1 << 18)..16 << 20).step_by(1 << 19), 10, 0) {
        let machine = machine.crash_image(&CrashPolicy::KEEP_ALL, free);
        machine.space_limit(Some(machine.used_bytes() + free));
        let db = open(&machine).unwrap();
        let keyspace = db.keyspace("a", options).unwrap();
        let mut numbers = RECORDS / 2..;
        let refused = numbers.find_map(|number| keyspace.insert(scattered(number), [8; 1_100]).err());
        assert_eq!(refused.unwrap().kind(), ErrorKind::OutOfSpace);
        db.flush().unwrap();
        for number in 0..RECORDS / 4 {
            keyspace.remove(scattered(number)).unwrap();
            let reserve = machine.file_bytes(Path::new("/db/reserve")).unwrap();
            assert!(reserve.len() >= 256 << 10, "{number}: {} bytes of the reserve remain", reserve.len());
        }
        db.check_invariants().unwrap();
    }
}

/// Large values are separated: in segments and value logs of many MiB each.
#[test]
fn removals_free_space_of_separated_values() {
    const RECORDS: u64 = 20_000;
    let scattered = |number: u64| format!("key{:016x}", SplitMix::new(number).next_u64()).into_bytes();
    let value = |number: u64, round: u64| -> Vec<u8> {
        format!("{number}/{round}/").into_bytes().into_iter().cycle().take(1_100).collect()
    };
    let open = |machine: &Arc<MemEnv>| {
        Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(16 << 20).open().unwrap()
    };
    let trees = [Tree::turtle(), Tree::splinter(), Tree::leveled(), Tree::lsbm(), Tree::treeline()];
    for (index, tree) in some_of(trees.into_iter().enumerate(), 2, 0) {
        let machine = MemEnv::new(5);
        let db = open(&machine);
        let placement = Placement::by_value_bytes(None, Some(588)).unwrap().with_moving_thresholds(true);
        let options = KeyspaceOptions::default().tree(tree).placement(placement);
        let keyspace = db.keyspace("a", options).unwrap();
        (0..RECORDS).for_each(|number| keyspace.insert(scattered(number), value(number, 0)).unwrap());
        db.flush().unwrap();
        let separated = keyspace.stats().values.bytes;
        assert!(separated > RECORDS * 1_100 / 4, "{tree}: {separated} bytes are separated");
        drop(keyspace);
        db.close().unwrap();
        for free in some_of([2 << 20, 12 << 20, 24 << 20], 3, index) {
            let machine = machine.crash_image(&CrashPolicy::KEEP_ALL, free);
            machine.space_limit(Some(machine.used_bytes() + free));
            let db = open(&machine);
            let keyspace = db.open_keyspace("a").unwrap().unwrap();
            let mut values: Vec<_> = (0..RECORDS).map(|number| Some(value(number, 0))).collect();
            let mut random = SplitMix::new(free);
            let refused = (1..).find_map(|round| {
                let number = random.next_u64() % RECORDS;
                let value = value(number, round);
                let refused = keyspace.insert(scattered(number), &value).err();
                values[usize::try_from(number).unwrap()] = Some(value).filter(|_| refused.is_none());
                refused.map(|error| (number, error))
            });
            let (number, error) = refused.unwrap();
            assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
            values[usize::try_from(number).unwrap()] =
                keyspace.get(scattered(number)).unwrap().map(|v| v.to_vec());
            for number in 0..RECORDS / 2 {
                keyspace.remove(scattered(number)).unwrap();
                values[usize::try_from(number).unwrap()] = None;
            }
            // An eighth is inserted again, for which background work reclaims space.
            for number in 0..RECORDS / 8 {
                let again = value(number, 0);
                let mut inserted = keyspace.insert(scattered(number), &again);
                if inserted.is_err() {
                    while matches!(db.step(), Ok(true)) {}
                    inserted = keyspace.insert(scattered(number), &again);
                }
                assert!(inserted.is_ok(), "{tree}, {free} free, {number}: {inserted:?}");
                values[usize::try_from(number).unwrap()] = Some(again);
            }
            for (number, expected) in (0..).zip(&values) {
                assert!(keyspace.get(scattered(number)).unwrap().as_deref() == expected.as_deref());
            }
            let report = db.verify(VerifyLevel::Full).unwrap();
            assert!(report.is_valid(), "{tree}, {free} free: {:?}", report.findings);
        }
    }
}

#[test]
fn a_store_on_a_full_device_closes_opens_and_reads() {
    let (machine, db, keyspace) = machine_with_store();
    let taken = fill(&machine, &keyspace);
    drop(keyspace);
    db.close().unwrap();
    // No free space at all, even if closing has freed some.
    machine.space_limit(Some(machine.used_bytes()));
    let db = open(&machine).unwrap();
    let keyspace = db.open_keyspace("a").unwrap().unwrap();
    assert_holds(&keyspace, 0..taken);
    assert_eq!(keyspace.insert(b"x", b"y").unwrap_err().kind(), ErrorKind::OutOfSpace);
    keyspace.remove(key(0)).unwrap();
    assert_holds(&keyspace, 1..taken);
}

#[test]
fn dropping_a_keyspace_frees_space_for_writes() {
    let (machine, db, keyspace) = machine_with_store();
    let other = db.keyspace("b", KeyspaceOptions::default).unwrap();
    fill(&machine, &keyspace);
    assert_eq!(other.insert(b"x", b"y").unwrap_err().kind(), ErrorKind::OutOfSpace);
    drop(keyspace);
    assert!(db.drop_keyspace("a").unwrap());
    for _ in 0..10 {
        let _ = db.step();
    }
    other.insert(b"x", b"y").unwrap();
    let stats = db.stats();
    assert_eq!(stats.space.reserve_bytes, stats.space.whole_reserve_bytes);
}

#[test]
fn writes_resume_once_there_is_room() {
    let (machine, db, keyspace) = machine_with_store();
    let taken = fill(&machine, &keyspace);
    assert!(db.stats().space.reserve_bytes < db.stats().space.whole_reserve_bytes);
    machine.space_limit(None);
    for number in taken..taken + 5000 {
        keyspace.insert(key(number), [7; 500]).unwrap();
    }
    db.flush().unwrap();
    db.check_invariants().unwrap();
    assert_holds(&keyspace, 0..taken + 5000);
}

#[test]
fn a_store_on_a_full_device_survives_repeated_crashes() {
    let (mut machine, db, keyspace) = machine_with_store();
    let taken = fill(&machine, &keyspace);
    db.persist(Durability::Sync).unwrap();
    let mut limit = machine.used_bytes();
    let mut open_store = (db, keyspace);
    let mut removed = 0;
    for round in 0..30u32 {
        let policy = CrashPolicy { keep_percent: 50, ..CrashPolicy::LOSE_ALL };
        machine = machine.crash_image(&policy, round.into());
        // Truncated data may be back after the crash, as on a device that had room after all.
        limit = limit.max(machine.used_bytes());
        machine.space_limit(Some(limit));
        let db = open(&machine).unwrap();
        let keyspace = db.open_keyspace("a").unwrap().unwrap();
        assert_holds(&keyspace, removed..taken);
        let mut removal = db.batch().durability(Durability::Sync);
        removal.remove(&keyspace, key(removed));
        match removal.commit() {
            Ok(()) => removed += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfSpace),
        }
        // Dropped only after its machine has crashed.
        open_store = (db, keyspace);
    }
    drop(open_store);
    assert!(removed > 10, "only {removed} removals were accepted");
}

/// An update may remove, so it starts where an insert would be refused. Its writes count as well.
#[test]
fn an_update_takes_no_more_space_than_an_insert() {
    let (machine, db, keyspace) = machine_with_store();
    let taken = fill(&machine, &keyspace);
    let long = vec![8; 200 << 10];
    for number in 0..200 {
        let error = keyspace.update(key(taken + number), |_| Some(long.clone())).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        let error = keyspace.compare_and_swap(key(0), Some(&[7; 500]), Some(&long)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    }
    let error = keyspace.compare_and_swap(key(0), Some(b"another"), Some(&long)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(keyspace.get(key(taken)).unwrap(), None);
    // Updates that remove are accepted, and free space.
    keyspace.compare_and_swap(key(0), Some(&[7; 500]), None).unwrap();
    (1..taken).for_each(|number| assert_eq!(keyspace.update(key(number), |_| None).unwrap(), None));
    while db.step().unwrap() {}
    keyspace.update(key(0), |old| old.is_none().then(|| long.clone())).unwrap();
    assert_eq!(keyspace.get(key(0)).unwrap().as_deref(), Some(&long[..]));
    assert_holds(&keyspace, 0..1);
    db.close().unwrap();
}

/// Where an insert waits for buffers to be flushed, an update does as well, and its function is called again.
#[test]
fn an_update_that_waited_for_space_sees_the_current_value() {
    let (machine, db, keyspace) = machine_with_store();
    for number in 0..2_000 {
        keyspace.insert(key(number), [7; 500]).unwrap();
    }
    db.flush().unwrap();
    machine.space_limit(Some(machine.used_bytes() + (6 << 20)));
    let mut calls = 0_u32;
    for number in 0..200 {
        let updated = keyspace.update(key(number), |old| {
            calls += 1;
            Some([old.unwrap(), &[1; 3000]].concat())
        });
        assert_eq!(updated.unwrap().unwrap().len(), 3500);
    }
    assert!(calls > 200, "{calls}");
    for number in 0..200 {
        assert_eq!(keyspace.get(key(number)).unwrap().unwrap().len(), 3500);
    }
}

#[test]
fn no_space_to_record_free_space_is_not_a_failure() {
    let machine = MemEnv::new(5);
    let faults = FaultyEnv::new(machine.clone());
    let db = Db::builder(Path::new("/db")).env(faults.clone()).memory_bytes(MEMORY).open().unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default).unwrap();
    for round in 0..3 {
        (0..8_000).for_each(|number| keyspace.insert(key(number), [round; 500]).unwrap());
        db.flush().unwrap();
    }
    let plan = FaultPlan::once(0, FaultError::NoSpace).of_class(IoClass::PunchHole).on_path("/db/data");
    faults.set_plan(Some(plan.for_good()));
    (0..8_000).for_each(|number| keyspace.remove(key(number)).unwrap());
    db.compact().unwrap();
    assert!(faults.call_count(IoClass::PunchHole) > 0);
    faults.set_plan(None);
    keyspace.insert("k", "v").unwrap();
    db.compact().unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), 1);
}

/// Another program takes all free space of the device at once.
#[test]
fn a_device_filled_by_others_takes_every_removal() {
    const RECORDS: u32 = 100_000;
    let trees = [Tree::turtle(), Tree::splinter(), Tree::leveled(), Tree::lsbm(), Tree::treeline()];
    for (index, tree) in trees.into_iter().enumerate() {
        for budget in some_of([1_u64 << 20, 8 << 20, 64 << 20], 3, index) {
            for (free, is_reopened) in some_of([(0, false), (0, true), (1 << 20, true)], 3, index) {
                let name = format!("{tree:?}, {budget}, {free} free, reopened: {is_reopened}");
                let machine = MemEnv::new(5);
                machine.space_limit(Some(128 << 20));
                let open = || {
                    let db = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(budget).open();
                    let db = db.unwrap_or_else(|error| panic!("{name}: {error}"));
                    let keyspace = db.keyspace("a", || KeyspaceOptions::default().tree(tree)).unwrap();
                    (db, keyspace)
                };
                let (mut db, mut keyspace) = open();
                for number in 0..RECORDS {
                    keyspace.insert(key(number), [7; 200]).unwrap();
                    if number % 500 == 0 {
                        let _ = db.step().unwrap();
                    }
                }
                let fill = || machine.space_limit(Some(machine.used_bytes() + free));
                if is_reopened {
                    drop(keyspace);
                    db.close().unwrap();
                    fill();
                    (db, keyspace) = open();
                } else {
                    fill();
                }
                let _ = keyspace.insert(b"x", [0; 100_000]);
                for number in 0..RECORDS {
                    if let Err(error) = keyspace.remove(key(number)) {
                        panic!("{name}: removal {number}: {error}, {:?}", db.stats());
                    }
                }
                keyspace.remove(b"x").unwrap();
                keyspace.insert(b"y", b"z").unwrap_or_else(|error| panic!("{name}: {error}"));
                db.compact().unwrap();
                db.check_invariants().unwrap();
                assert_eq!(keyspace.iter().unwrap().count(), 1, "{name}");
            }
        }
    }
}
