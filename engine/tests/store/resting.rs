//! A keyspace into which nothing comes is compacted, whatever its neighbours do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use testudo::{Db, Keyspace, KeyspaceOptions, Tree};
use testudo_env::{Env, MemEnv};

const SPLINTER: Tree = Tree::Splinter { leaf_bytes: 16 << 10, max_pivots: 16 };

/// Of which all that is due is a part of flushes: its jobs are those of idle time.
const TURTLE: Tree = Tree::Turtle { leaf_bytes: 16 << 10, max_pivots: 16 };

fn open(machine: Arc<MemEnv>) -> (Db, Keyspace, Keyspace) {
    let db = Db::builder(Path::new("/db")).env(machine).memory_bytes(1 << 20).open().unwrap();
    let [resting, busy] = [("resting", SPLINTER), ("busy", TURTLE)]
        .map(|(name, tree)| db.keyspace(name, || KeyspaceOptions::default().tree(tree)).unwrap());
    (db, resting, busy)
}

fn write(keyspace: &Keyspace, round: u32) {
    for n in 0..100_u32 {
        let key = (round * 100 + n).wrapping_mul(0x9e37_79b1) % 3000;
        keyspace.insert(format!("user{key:08}"), [7; 100]).unwrap();
    }
}

/// Leaves a dozen buffers in the tree.
fn put_off(db: &Db, keyspace: &Keyspace) -> u64 {
    for round in 0..60 {
        write(keyspace, round);
        db.flush().unwrap();
    }
    let tiers = keyspace.stats().buffered_runs;
    assert!(tiers > 8, "{tiers}");
    tiers
}

#[test]
fn a_keyspace_rests_beside_one_that_is_always_written() {
    let outcome = || {
        let machine = MemEnv::new(7);
        let (db, resting, busy) = open(machine.clone());
        put_off(&db, &resting);
        let write_and_step = |rounds: Range<u32>| {
            let jobs = db.stats().jobs;
            for round in rounds {
                write(&busy, round);
                if round % 2 == 0 {
                    db.flush().unwrap();
                }
                db.step().unwrap();
            }
            db.stats().jobs - jobs
        };
        let jobs = write_and_step(0..500);
        let tiers = resting.stats().buffered_runs;
        assert!(jobs > 0 && tiers <= 8, "{jobs} jobs, {tiers} tiers");
        let jobs = write_and_step(500..1000);
        assert!(jobs < 250, "{jobs} jobs, although the other one does not rest");
        drop((resting, busy));
        db.check_invariants().unwrap();
        db.close().unwrap();
        (jobs, machine.operation_count(), machine.used_bytes())
    };
    assert_eq!(outcome(), outcome(), "steps are the same each time");
}

#[test]
fn the_flush_thread_compacts_what_rests_while_others_write() {
    let machine = MemEnv::with_threads(7, 2);
    let (db, resting, busy) = open(machine.clone());
    let before = put_off(&db, &resting);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if is_over.load(Relaxed) {
                    break;
                }
                write(&busy, round);
                machine.sleep(Duration::from_millis(5));
            }
        });
        let deadline = machine.monotonic() + Duration::from_secs(600);
        while resting.stats().buffered_runs > before / 2 && machine.monotonic() < deadline {
            machine.sleep(Duration::from_millis(20));
        }
        is_over.store(true, Relaxed);
    });
    let tiers = resting.stats().buffered_runs;
    assert!(tiers <= before / 2, "{before} tiers, {tiers} afterwards");
    drop((resting, busy));
    db.check_invariants().unwrap();
    db.close().unwrap();
}
