//! Waits of commits on a full device.

use std::path::Path;

use testudo_base::sync::Arc;
use testudo_env::{Env, FaultError, FaultPlan, FaultyEnv, MemEnv};
use testudo_options::KeyspaceOptions;
use testudo_values::Placement;

use crate::{Db, Keyspace};

/// Number of arena ids of a memtable.
const NAMES: u32 = 131_064;

fn open(env: Arc<dyn Env>) -> (Db, Keyspace) {
    let db = Db::builder(Path::new("/db")).env(env).memory_bytes(64 << 20).open().unwrap();
    let options = KeyspaceOptions::default().placement(Placement::inline());
    let keyspace = db.keyspace("k", options).unwrap();
    (db, keyspace)
}

fn value(number: u32) -> Vec<u8> {
    vec![number.to_le_bytes()[0]; 33 << 10]
}

/// Each value of 32 KiB takes a chunk of its own, and so an arena id: under a large budget the ids run out
/// long before the memory is full.
#[test]
fn buffer_short_of_arena_ids_is_sealed_and_the_next_waits_for_its_flush() {
    let (db, keyspace) = open(MemEnv::new(1) as Arc<dyn Env>);
    let mut last = None;
    for number in 0..120_u32 {
        let table = Arc::clone(&keyspace.core.view.load().active.table);
        if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &table)) {
            // As if most ids were used: the rest is enough for a few more values.
            table.use_up_names(NAMES / 2 - 4);
        }
        last = Some(table);
        keyspace.insert(number.to_be_bytes(), value(number)).unwrap();
        let view = keyspace.core.view.load();
        assert!(view.sealed.len() <= 1, "one is sealed at a time");
    }
    assert!(db.stats().flush.count > 5, "{} flushes", db.stats().flush.count);
    for number in 0..120_u32 {
        assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().unwrap(), value(number));
    }
}

#[test]
fn batch_commits_when_the_active_buffer_is_short_of_arena_ids() {
    let (db, keyspace) = open(MemEnv::new(1) as Arc<dyn Env>);
    keyspace.insert("first", "").unwrap();
    keyspace.core.view.load().active.table.use_up_names(NAMES - 64);
    let mut batch = db.batch();
    (0..200_u32).for_each(|number| batch.insert(&keyspace, number.to_be_bytes(), value(number)));
    batch.commit().unwrap();
    assert!(!keyspace.core.view.load().sealed.is_empty());
    for number in 0..200_u32 {
        assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().unwrap(), value(number));
    }
}

#[test]
fn stall_of_a_dropped_keyspace_is_cleared() {
    let faults = FaultyEnv::new(MemEnv::new(1) as Arc<dyn Env>);
    let (db, keyspace) = open(Arc::clone(&faults) as Arc<dyn Env>);
    keyspace.insert("a", "1").unwrap();
    faults.set_plan(Some(FaultPlan::once(0, FaultError::NoSpace).on_path("/db/data").for_good()));
    db.flush().unwrap_err();
    assert!(db.store().health.check_not_stalled().is_err());
    faults.set_plan(None);
    assert!(db.drop_keyspace("k").unwrap());
    db.store().health.check_not_stalled().unwrap();
}
