//! Rounds of flushing with more keyspaces than fit in one edit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{ops::Range, sync::Arc};

use testudo::{Db, Durability, KeyspaceOptions, Placement, VerifyLevel};
use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv};

/// More than twice the keyspaces of one edit.
const KEYSPACES: u32 = 1_100;

fn open(env: Arc<dyn Env>) -> Db {
    Db::builder("/db").memory_bytes(32 << 20).env(env).open().unwrap()
}

fn fill(db: &Db) {
    for number in 0..KEYSPACES {
        let keyspace = db.keyspace(&format!("k{number}"), KeyspaceOptions::default).unwrap();
        keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
}

fn check(db: &Db) {
    for number in 0..KEYSPACES {
        let keyspace = db.keyspace(&format!("k{number}"), KeyspaceOptions::default).unwrap();
        assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().unwrap(), [7; 100], "{number}");
    }
}

#[test]
fn a_round_of_many_keyspaces_has_several_edits() {
    let machine = MemEnv::new(1);
    let db = open(machine.clone());
    fill(&db);
    let before = db.stats().flush.count;
    db.flush().unwrap();
    assert_eq!(db.stats().flush.count - before, 3);
    check(&db);
    let image = machine.crash_image(&CrashPolicy::LOSE_ALL, 1);
    check(&open(image));
}

#[test]
fn nothing_is_lost_if_an_edit_within_a_round_fails() {
    for edits_before in 0..3 {
        let machine = MemEnv::new(1);
        let faulty = FaultyEnv::new(machine.clone());
        let db = open(faulty.clone());
        fill(&db);
        db.persist(Durability::Sync).unwrap();
        let plan =
            FaultPlan::once(edits_before, FaultError::Device).of_class(IoClass::Sync).on_path("manifest");
        faulty.set_plan(Some(plan));
        db.flush().unwrap_err();
        assert_eq!(faulty.failures().len(), 1);
        let image = machine.crash_image(&CrashPolicy::LOSE_ALL, 1);
        let reopened = open(image);
        check(&reopened);
        assert!(reopened.verify(VerifyLevel::Full).unwrap().findings.is_empty());
    }
}

/// Values that recovery finds in a value log may only be in caches: a commit must not be durable in some of
/// its keyspaces and lost in others.
#[test]
fn values_recovered_from_value_logs_are_flushed_with_one_edit() {
    let machine = MemEnv::new(1);
    let db = open(machine.clone());
    let large = KeyspaceOptions::default().placement(Placement::hybrid());
    let values = db.keyspace("values", large).unwrap();
    let write = |numbers: Range<u32>| {
        numbers.for_each(|number| values.insert(number.to_be_bytes(), [7; 1_000]).unwrap());
    };
    write(0..1_000);
    db.flush().unwrap();
    let before = db.stats().log.value_log_bytes;
    write(1_000..1_100);
    assert_eq!(db.stats().log.value_log_bytes - before, 100_000);
    fill(&db);
    db.persist(Durability::Sync).unwrap();
    let reopened = open(machine.crash_image(&CrashPolicy::LOSE_ALL, 1));
    assert_eq!(reopened.stats().flush.count, 1);
    check(&reopened);
    assert_eq!(reopened.open_keyspace("values").unwrap().unwrap().iter().unwrap().count(), 1_100);
}

/// Each buffer takes at least a few KiB, and a budget of 1 MiB has little memory for them. With only a few
/// records per flush, writes to thousands of keyspaces would be as slow as syncs of the device.
#[test]
fn rounds_under_a_tiny_budget_flush_many_records_per_sync() {
    let db = Db::builder("/db").memory_bytes(1 << 20).env(MemEnv::new(1)).open().unwrap();
    let names: Vec<String> = (0..4_000).map(|number| format!("k{number}")).collect();
    let keyspaces: Vec<_> =
        names.iter().map(|name| db.keyspace(name, KeyspaceOptions::default).unwrap()).collect();
    let before = db.stats().flush.count;
    for (number, keyspace) in (0u32..).zip(keyspaces.iter().chain(&keyspaces)) {
        keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    let flushes = db.stats().flush.count - before;
    assert!(flushes <= 8_000 / 12, "{flushes} flushes of 8,000 records");
}
