//! Jobs in progress on a device that is full, a thousand times slower than before, or stuck.

use std::time::Duration;

use testudo_base::{ErrorKind, sync::Arc};
use testudo_env::{Env as _, Execution, MemEnv};
use testudo_flush::jobs::{prepare_next, run_job, schedule::Schedule};
use testudo_options::{Durability, KeyspaceOptions, Tree};

use super::{
    KEYS, SPLINTER, VALUE, Values, builder, check, check_after_power_loss, check_at_rest, contents,
    gate::{Calls, Gate, GatedEnv},
    keyspace_with_jobs, prepare_jobs, step, step_until_idle, stuck, write_round,
};
use crate::{Db, Keyspace, VerifyLevel, maintenance::Stepping as _};

/// Capacity of a small device: a store keeps a reserve there in case others fill it.
const CAPACITY: u64 = 64 << 20;

/// A store with two keyspaces and this many prepared jobs of them together.
fn two_busy(machine: &Arc<MemEnv>, count: usize) -> (Db, [(Keyspace, Values); 2]) {
    machine.space_limit(Some(CAPACITY));
    let db = builder(machine).open().unwrap();
    let keyspaces = ["a", "b"].map(|name| keyspace_with_jobs(&db, name, SPLINTER));
    step(&db, 1);
    prepare_jobs(&db, count);
    (db, keyspaces)
}

#[test]
fn the_device_fills_in_the_middle_of_eight_jobs() {
    let mut refused = 0;
    for (prepared, free_bytes) in [(8, 0), (8, 1 << 20), (4, 0), (2, 64 << 10), (0, 16 << 10), (0, 512 << 10)]
    {
        let what = format!("{prepared} jobs, {free_bytes} bytes left");
        let machine = MemEnv::new(1);
        let (db, mut keyspaces) = two_busy(&machine, prepared);
        let snapshot = db.snapshot().unwrap();
        machine.space_limit(Some(machine.used_bytes() + free_bytes));
        // The others begin, and are refused in their middle.
        for _ in prepared..8 {
            match prepare_next(db.store(), |_| false) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{what}: {error}");
                    refused += 1;
                }
            }
        }
        for _ in 0..60 {
            match db.step() {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{what}: {error}");
                    refused += 1;
                }
            }
        }
        for (keyspace, values) in &mut keyspaces {
            check(keyspace, values, &what);
            assert!(contents(snapshot.iter(keyspace)) == *values, "{what}");
            let key = *values.first_key_value().unwrap().0;
            keyspace.remove(key.to_be_bytes()).unwrap();
            values.remove(&key);
        }
        db.check_invariants().unwrap();
        db.persist(Durability::Sync).unwrap();
        machine.space_limit(Some(CAPACITY));
        for (keyspace, values) in &keyspaces {
            check_after_power_loss(&machine, keyspace.name(), values, &what);
        }
        drop(snapshot);
        // With space again all of it continues by itself.
        step_until_idle(&db);
        for (keyspace, values) in &mut keyspaces {
            write_round(&db, keyspace, values, 100);
            check(keyspace, values, &what);
        }
        check_at_rest(&db, &what);
    }
    assert!(refused > 0, "the device must be full");
}

/// The data file has free pages for the output of jobs; only their edits take space, and from the reserve.
#[test]
fn the_first_of_eight_jobs_that_takes_from_the_reserve_ends_the_others() {
    let machine = MemEnv::new(1);
    let (db, keyspaces) = two_busy(&machine, 8);
    // The reserve is small on a large device, which others are not expected to fill at once.
    machine.space_limit(None);
    db.step().unwrap();
    machine.space_limit(Some(machine.used_bytes()));
    db.background().pause();
    assert!(run_job(db.store(), &mut Schedule::default(), |_| false).unwrap());
    let space = db.stats().space;
    assert!(space.reserve_bytes >= 192 << 10, "{space:?}");
    for (keyspace, values) in &keyspaces {
        check(keyspace, values, "full");
    }
    machine.space_limit(Some(CAPACITY));
    db.background().resume();
    step_until_idle(&db);
    check_at_rest(&db, "with space again");
}

/// Each call takes 100 ms, as if each page were on a tape.
#[test]
fn a_device_that_becomes_a_thousand_times_slower_changes_no_job() {
    let mut ends = Vec::new();
    for micros in [100, 100_000] {
        let machine = MemEnv::new(1);
        let gate = Gate::new("data", Calls::All);
        let env = GatedEnv::new(Arc::clone(&machine) as _, &gate, Execution::Stepped);
        let db = builder(&machine).env(env).open().unwrap();
        gate.set_call_time(Duration::from_micros(100));
        let (keyspace, mut values) = keyspace_with_jobs(&db, "k", SPLINTER);
        prepare_jobs(&db, 4);
        gate.set_call_time(Duration::from_micros(micros));
        let began = machine.monotonic();
        for round in 100..110 {
            write_round(&db, &keyspace, &mut values, round);
            step(&db, 4);
        }
        check(&keyspace, &values, "slow");
        let took = machine.monotonic() - began;
        gate.set_call_time(Duration::from_micros(100));
        check_after_power_loss(&machine, "k", &values, "slow");
        check_at_rest(&db, "slow");
        check(&keyspace, &values, "slow");
        ends.push((took, db.stats().jobs.count, db.stats().io.data_bytes_written));
    }
    let [(fast, jobs, bytes), (slow, slow_jobs, slow_bytes)] = ends[..] else { panic!("two devices") };
    // As much slower as the device, and no writer is delayed any further.
    assert!(slow > fast * 500 && slow <= fast * 1000, "{fast:?} and {slow:?}");
    assert_eq!((jobs, bytes), (slow_jobs, slow_bytes), "choices depend on the device");
}

#[test]
fn reads_and_writes_continue_while_four_jobs_wait_for_the_device() {
    let (db, keyspace, mut values, gate) = stuck(&MemEnv::with_threads(1, 4));
    let snapshot = db.snapshot().unwrap();
    check(&keyspace, &values, "stuck");
    for key in 0..50_u32 {
        keyspace.insert(key.to_be_bytes(), [7; VALUE]).unwrap();
    }
    db.persist(Durability::Sync).unwrap();
    // Other keyspaces are created, flushed, dropped, and this one gets another tree, which takes the lock
    // that jobs need to be installed.
    let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
    other.insert("key", "value").unwrap();
    keyspace.set_tree(Tree::turtle()).unwrap();
    keyspace.set_tree(Tree::leveled()).unwrap();
    assert!(db.drop_keyspace("other").unwrap());
    assert!(contents(snapshot.iter(&keyspace)) == values);
    assert_eq!(db.background().jobs().len(), 4, "the jobs still wait");
    gate.open(0);
    values.extend((0..50).map(|key| (key, 7)));
    check(&keyspace, &values, "moving");
    drop((snapshot, other));
    db.compact().unwrap();
    check(&keyspace, &values, "moved");
    db.check_invariants().unwrap();
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
}

#[test]
fn the_device_fills_while_four_jobs_write_on_threads() {
    let machine = MemEnv::with_threads(1, 4);
    machine.space_limit(Some(CAPACITY));
    let (db, keyspace, mut values, gate) = stuck(&machine);
    let snapshot = db.snapshot().unwrap();
    let before = values.clone();
    machine.space_limit(Some(machine.used_bytes()));
    gate.open(0);
    let refusal = (0..1_000_000_u32).find_map(|number| {
        let key = number % KEYS;
        let outcome = keyspace.insert(key.to_be_bytes(), [9; VALUE]);
        outcome.err().or_else(|| values.insert(key, 9).and(None))
    });
    assert_eq!(refusal.unwrap().kind(), ErrorKind::OutOfSpace);
    // Removals are still accepted.
    (0..100_u32).for_each(|key| keyspace.remove(key.to_be_bytes()).unwrap());
    values.retain(|key, _| *key >= 100);
    check(&keyspace, &values, "full");
    assert!(contents(snapshot.iter(&keyspace)) == before);
    drop(snapshot);
    machine.space_limit(Some(CAPACITY));
    // The store notices the space by itself.
    while let Err(error) = keyspace.insert(1_u32.to_be_bytes(), [3; VALUE]) {
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        machine.sleep(Duration::from_millis(1));
    }
    values.insert(1, 3);
    db.compact().unwrap();
    check(&keyspace, &values, "with space again");
    db.check_invariants().unwrap();
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    assert_eq!(db.stats().space.held_bytes, 0);
}

#[test]
fn a_keyspace_is_dropped_while_four_jobs_of_it_write() {
    let (db, keyspace, values, gate) = stuck(&MemEnv::with_threads(1, 4));
    let snapshot = db.snapshot().unwrap();
    assert!(db.drop_keyspace("k").unwrap());
    let successor = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    successor.insert("key", "value").unwrap();
    assert!(contents(snapshot.iter(&keyspace)) == values);
    assert_eq!(db.background().jobs().len(), 4, "the jobs still wait");
    gate.open(0);
    while !db.background().jobs().is_empty() {
        db.flush().unwrap();
    }
    assert!(contents(snapshot.iter(&keyspace)) == values);
    drop((snapshot, keyspace));
    db.compact().unwrap();
    db.check_invariants().unwrap();
    assert_eq!(successor.iter().unwrap().count(), 1);
    let space = db.stats().space;
    assert!(space.held_bytes == 0 && space.live_bytes < 64 << 10, "{space:?}");
}
