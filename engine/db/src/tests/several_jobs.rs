//! Four jobs of a keyspace in progress, and a change that none of them expects: a drop, another tree, other
//! contents, another memory budget, snapshots. The modules are about the device, panics and released log
//! segments.

mod device;
mod gate;
mod panics;
mod released;

use std::{collections::BTreeMap, path::Path, time::Duration};

use testudo_base::{ErrorKind, Result, sync::Arc};
use testudo_env::{CrashPolicy, Env as _, Execution, MemEnv};
use testudo_flush::jobs::prepare_next;
use testudo_options::{KeyspaceOptions, Tree};
use testudo_values::Placement;

use self::gate::{Calls, Gate, GatedEnv};
use crate::{Db, DbBuilder, Iter, Keyspace, VerifyLevel, maintenance::Stepping as _};

const KEYS: u32 = 6000;
/// Length of a value: several fit into a page, and a few thousand into a memtable.
const VALUE: usize = 100;
/// After this many flushes each of the trees below has several jobs.
const ROUNDS: u32 = 40;

const SPLINTER: Tree = Tree::splinter().with_run_bytes(4 << 10);
const LEVELED: Tree = Tree::leveled().with_run_bytes(4 << 10).with_growth_factor(4).with_level1_flushes(2);
const LSBM: Tree = Tree::lsbm().with_run_bytes(4 << 10).with_growth_factor(4).with_level1_flushes(2);

/// Trees, and the number of jobs that each has at once after [`ROUNDS`].
const TREES: [(Tree, usize); 3] = [(SPLINTER, 4), (LEVELED, 2), (LSBM, 2)];

/// The values that a reader must find, by key: the round that wrote them.
type Values = BTreeMap<u32, u8>;

fn builder(machine: &Arc<MemEnv>) -> DbBuilder {
    Db::builder(Path::new("/db")).env(Arc::clone(machine) as _).memory_bytes(1 << 20)
}

/// Overwrites scattered keys, removes a few, and flushes.
fn write_round(db: &Db, keyspace: &Keyspace, values: &mut Values, round: u32) {
    let value = u8::try_from(round % 250).unwrap();
    for number in 0..100 {
        let key = (round * 100 + number).wrapping_mul(0x9e37_79b1) % KEYS;
        if number % 10 == 0 {
            keyspace.remove(key.to_be_bytes()).unwrap();
            values.remove(&key);
        } else {
            keyspace.insert(key.to_be_bytes(), [value; VALUE]).unwrap();
            values.insert(key, value);
        }
    }
    db.flush().unwrap();
}

/// Creates a keyspace that has jobs to do, and returns its contents. Jobs stay paused.
fn keyspace_with_jobs(db: &Db, name: &str, tree: Tree) -> (Keyspace, Values) {
    db.background().pause();
    let keyspace = db.keyspace(name, KeyspaceOptions::default().tree(tree)).unwrap();
    let mut values = Values::new();
    (0..ROUNDS).for_each(|round| write_round(db, &keyspace, &mut values, round));
    (keyspace, values)
}

/// Prepares jobs until this many are in progress, without installing any.
fn prepare_jobs(db: &Db, count: usize) {
    db.background().resume();
    while db.background().jobs().len() < count {
        assert!(prepare_next(db.store(), |_| false).unwrap(), "{:?}", db.background().jobs());
    }
    assert_eq!(db.store().background.prepared_jobs(), count);
}

/// A store with a keyspace `k`, with this many jobs that are prepared and not installed.
fn busy(machine: &Arc<MemEnv>, tree: Tree, count: usize) -> (Db, Keyspace, Values) {
    let db = builder(machine).open().unwrap();
    let (keyspace, values) = keyspace_with_jobs(&db, "k", tree);
    prepare_jobs(&db, count);
    (db, keyspace, values)
}

/// Opens a store on threads, whose four jobs wait at the gate in their first write or sync.
fn stuck(machine: &Arc<MemEnv>) -> (Db, Keyspace, Values, Arc<Gate>) {
    let gate = Gate::new("data", Calls::OfJobs);
    let env = |execution| GatedEnv::new(Arc::clone(machine) as _, &gate, execution);
    let db = builder(machine).env(env(Execution::Stepped)).open().unwrap();
    let (keyspace, values) = keyspace_with_jobs(&db, "k", SPLINTER);
    drop(keyspace);
    db.close().unwrap();
    gate.shut();
    let db = builder(machine).env(env(Execution::Threads { cores: 4 })).open().unwrap();
    for _ in 0..60_000 {
        if db.background().jobs().len() == 4 {
            let keyspace = db.open_keyspace("k").unwrap().unwrap();
            return (db, keyspace, values, gate);
        }
        machine.sleep(Duration::from_millis(1));
    }
    panic!("four jobs never run: {:?}", db.background().jobs());
}

fn contents(iter: Result<Iter>) -> Values {
    let entry = |entry: Result<crate::Entry>| {
        let entry = entry.unwrap();
        let value = entry.value().unwrap();
        assert!(value.len() == VALUE && value.iter().all(|byte| *byte == value[0]), "{value:?}");
        (u32::from_be_bytes(entry.key().try_into().unwrap()), value[0])
    };
    iter.unwrap().map(entry).collect()
}

/// Checks the contents by a scan and by lookups.
fn check(keyspace: &Keyspace, values: &Values, what: &str) {
    assert!(contents(keyspace.iter()) == *values, "{what}");
    for key in (0..KEYS).step_by(37) {
        let found = keyspace.get(key.to_be_bytes()).unwrap().map(|value| value[0]);
        assert_eq!(found.as_ref(), values.get(&key), "{what}: key {key}");
    }
}

fn step(db: &Db, count: usize) {
    for _ in 0..count {
        db.step().unwrap();
    }
}

fn step_until_idle(db: &Db) {
    for _ in 0..20_000 {
        if !db.step().unwrap() {
            return;
        }
    }
    panic!("background work never ends");
}

/// Completes all work, and checks that the structure is sound, and that no job holds space any more.
fn check_at_rest(db: &Db, what: &str) {
    step_until_idle(db);
    db.compact().unwrap();
    assert!(db.background().jobs().is_empty(), "{what}: {:?}", db.background().jobs());
    db.check_invariants().unwrap();
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, [], "{what}");
    let space = db.stats().space;
    assert_eq!(space.held_bytes, 0, "{what}: {space:?}");
    // Small gaps stay in the file.
    assert!(space.data_file_bytes <= space.live_bytes * 2 + (1 << 20), "{what}: {space:?}");
}

/// Checks that a power loss at this moment leaves exactly these contents. All writes were flushed.
fn check_after_power_loss(machine: &MemEnv, keyspace: &str, values: &Values, what: &str) {
    let db = builder(&machine.crash_image(&CrashPolicy::LOSE_ALL, 7)).open().unwrap();
    check(&db.open_keyspace(keyspace).unwrap().unwrap(), values, what);
    check_at_rest(&db, what);
}

#[test]
fn jobs_in_progress_end_in_any_order_and_none_is_overtaken() {
    for (tree, count) in TREES {
        let what = tree.to_string();
        let machine = MemEnv::new(1);
        let (db, keyspace, values) = busy(&machine, tree, count);
        let before = db.stats().jobs;
        db.background().pause();
        step_until_idle(&db);
        let jobs = db.stats().jobs;
        let installed = usize::try_from(jobs.count - before.count).unwrap();
        assert_eq!((installed, jobs.overtaken), (count, before.overtaken), "{what}");
        check(&keyspace, &values, &what);
        check_after_power_loss(&machine, "k", &values, &what);
        check_at_rest(&db, &what);
    }
}

#[test]
fn a_keyspace_with_four_jobs_is_dropped_and_created_again() {
    for (tree, count) in TREES {
        let what = tree.to_string();
        let machine = MemEnv::new(1);
        let (db, keyspace, values) = busy(&machine, tree, count);
        let snapshot = db.snapshot().unwrap();
        assert!(db.drop_keyspace("k").unwrap());
        assert_eq!(keyspace.insert("key", "value").unwrap_err().kind(), ErrorKind::Invalid);
        // Its successor has the same name, and jobs of its own.
        let (successor, mut new_values) = keyspace_with_jobs(&db, "k", tree);
        for round in 0..3 {
            write_round(&db, &successor, &mut new_values, 100 + round);
        }
        assert!(contents(snapshot.iter(&keyspace)) == values, "{what}");
        check_after_power_loss(&machine, "k", &new_values, &what);
        db.background().resume();
        step_until_idle(&db);
        check(&successor, &new_values, &what);
        assert!(contents(snapshot.iter(&keyspace)) == values, "{what}");
        drop((keyspace, snapshot));
        check_at_rest(&db, &what);
        // Nothing is left of the first one.
        assert!(db.drop_keyspace("k").unwrap());
        drop(successor);
        check_at_rest(&db, &what);
        assert!(db.stats().space.live_bytes < 64 << 10, "{what}: {:?}", db.stats().space);
    }
}

#[test]
fn a_keyspace_with_four_jobs_is_emptied() {
    for (tree, count) in TREES {
        let what = tree.to_string();
        let machine = MemEnv::new(1);
        let (db, keyspace, mut values) = busy(&machine, tree, count);
        let snapshot = db.snapshot().unwrap();
        let mut batch = db.batch();
        values.keys().for_each(|key| batch.remove(&keyspace, key.to_be_bytes()));
        batch.commit().unwrap();
        db.flush().unwrap();
        assert!(keyspace.iter().unwrap().next().is_none(), "{what}");
        check_after_power_loss(&machine, "k", &Values::new(), &what);
        step_until_idle(&db);
        assert!(keyspace.iter().unwrap().next().is_none(), "{what}: a job returned entries");
        assert!(contents(snapshot.iter(&keyspace)) == values, "{what}");
        drop(snapshot);
        check_at_rest(&db, &what);
        assert!(db.stats().space.live_bytes < 64 << 10, "{what}: {:?}", db.stats().space);
        values.clear();
        write_round(&db, &keyspace, &mut values, 1);
        check(&keyspace, &values, &what);
    }
}

#[test]
fn a_keyspace_with_four_jobs_moves_to_another_tree() {
    for (tree, count) in TREES {
        for next in [Tree::turtle(), Tree::splinter(), Tree::leveled(), Tree::treeline()] {
            let what = format!("{tree} to {next}");
            let machine = MemEnv::new(1);
            let (db, keyspace, mut values) = busy(&machine, tree, count);
            let (snapshot, before) = (db.snapshot().unwrap(), values.clone());
            keyspace.set_tree(next).unwrap();
            check_after_power_loss(&machine, "k", &values, &what);
            // The jobs end during the move, and it is reversed in the middle of others.
            for (round, tree) in [(100, None), (101, Some(tree)), (102, Some(next))] {
                tree.iter().for_each(|tree| keyspace.set_tree(*tree).unwrap());
                step(&db, 6);
                write_round(&db, &keyspace, &mut values, round);
                check(&keyspace, &values, &what);
                db.check_invariants().unwrap();
                assert!(contents(snapshot.iter(&keyspace)) == before, "{what}");
            }
            drop(snapshot);
            check_at_rest(&db, &what);
            check(&keyspace, &values, &what);
            assert_eq!(keyspace.stats().moving.from, None, "{what}: the move has ended");
        }
    }
}

#[test]
fn a_keyspace_with_four_jobs_separates_its_values() {
    for (tree, count) in TREES {
        let what = tree.to_string();
        let machine = MemEnv::new(1);
        let (db, keyspace, mut values) = busy(&machine, tree, count);
        for (round, placement) in (100..).zip([Placement::separate(), Placement::inline()]) {
            keyspace.set_placement(placement).unwrap();
            write_round(&db, &keyspace, &mut values, round);
            step(&db, 6);
            write_round(&db, &keyspace, &mut values, round + 10);
            check(&keyspace, &values, &what);
        }
        check_after_power_loss(&machine, "k", &values, &what);
        check_at_rest(&db, &what);
        check(&keyspace, &values, &what);
    }
}

#[test]
fn the_memory_budget_is_cut_to_a_tenth_while_four_jobs_run() {
    for (tree, count) in TREES {
        let what = tree.to_string();
        let machine = MemEnv::new(1);
        let db = builder(&machine).memory_bytes(10 << 20).open().unwrap();
        let (keyspace, mut values) = keyspace_with_jobs(&db, "k", tree);
        prepare_jobs(&db, count);
        // Fills the caches, and memtables by more than the next budget.
        check(&keyspace, &values, &what);
        let filler = db.keyspace("filler", KeyspaceOptions::default()).unwrap();
        (0..2000_u32).for_each(|key| filler.insert(key.to_be_bytes(), [1; 1000]).unwrap());
        db.memory().set_total(1 << 20).unwrap();
        for round in 0..10 {
            write_round(&db, &keyspace, &mut values, 100 + round);
            db.step().unwrap();
            check(&keyspace, &values, &what);
            let stats = db.stats();
            let used =
                stats.memory.memtable_bytes + stats.page_cache.used_bytes + stats.record_cache.used_bytes;
            assert!(used <= 1 << 20, "{what}: {used} bytes");
        }
        assert_eq!(filler.iter().unwrap().count(), 2000);
        check_after_power_loss(&machine, "k", &values, &what);
        check_at_rest(&db, &what);
        check(&keyspace, &values, &what);
    }
}

#[test]
fn snapshots_are_held_over_everything_that_happens_to_four_jobs() {
    for (tree, count) in TREES {
        let what = tree.to_string();
        let machine = MemEnv::new(1);
        let (db, keyspace, mut values) = busy(&machine, tree, count);
        let mut held = vec![(db.snapshot().unwrap(), values.clone())];
        let mut round = 100;
        let changes: [&dyn Fn(); 7] = [
            &|| step(&db, 1),
            &|| keyspace.set_tree(Tree::leveled()).unwrap(),
            &|| step_until_idle(&db),
            &|| keyspace.set_tree(Tree::splinter()).unwrap(),
            &|| keyspace.set_placement(Placement::separate()).unwrap(),
            &|| db.compact().unwrap(),
            &|| assert!(db.drop_keyspace("k").unwrap()),
        ];
        for (number, change) in changes.iter().enumerate() {
            change();
            if number + 1 < changes.len() {
                for _ in 0..4 {
                    write_round(&db, &keyspace, &mut values, round);
                    round += 1;
                    step(&db, 1);
                }
                check(&keyspace, &values, &what);
                held.push((db.snapshot().unwrap(), values.clone()));
            }
            for (snapshot, values) in &held {
                assert!(contents(snapshot.iter(&keyspace)) == *values, "{what}: after change {number}");
            }
            db.check_invariants().unwrap();
        }
        step_until_idle(&db);
        while let Some((snapshot, values)) = held.pop() {
            assert!(contents(snapshot.iter(&keyspace)) == values, "{what}");
        }
        drop(keyspace);
        check_at_rest(&db, &what);
        assert!(db.stats().space.live_bytes < 64 << 10, "{what}: {:?}", db.stats().space);
    }
}
