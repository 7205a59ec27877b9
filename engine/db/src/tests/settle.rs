//! Compaction on demand ends, next to writers and in every tree.

use std::path::Path;

use testudo_base::{num::u64_of, sync::Arc};
use testudo_contract::JobRequest;
use testudo_env::MemEnv;
use testudo_flush::settle::{SHARE_MIN, settle_trees};
use testudo_options::{KeyspaceOptions, Tree};
use testudo_values::Placement;

use crate::{Db, Keyspace, maintenance::Stepping as _};

fn trees() -> Vec<(&'static str, KeyspaceOptions)> {
    let options = || KeyspaceOptions::default().placement(Placement::inline());
    let (leaf_bytes, max_pivots) = (16 << 10, 4);
    let (run_bytes, growth_factor, level1_flushes) = (16 << 10, 2, 1);
    let turtle = Tree::turtle().with_run_bytes(leaf_bytes).with_max_pivots(max_pivots);
    let leveled = Tree::leveled()
        .with_run_bytes(run_bytes)
        .with_growth_factor(growth_factor)
        .with_level1_flushes(level1_flushes);
    let lsbm = Tree::lsbm()
        .with_run_bytes(run_bytes)
        .with_growth_factor(growth_factor)
        .with_level1_flushes(level1_flushes)
        .with_retained_percent(100);
    vec![
        ("turtle", options().tree(turtle)),
        ("splinter", options().tree(Tree::splinter().with_run_bytes(leaf_bytes).with_max_pivots(max_pivots))),
        ("leveled", options().tree(leveled)),
        ("lsbm", options().tree(lsbm)),
        (
            "treeline",
            options().tree(
                Tree::treeline()
                    .with_run_bytes(run_bytes)
                    .with_growth_factor(growth_factor)
                    .with_level1_flushes(level1_flushes),
            ),
        ),
        ("turtle, separated values", options().tree(turtle).placement(Placement::separate())),
        ("leveled, separated values", options().tree(leveled).placement(Placement::separate())),
    ]
}

fn open(options: KeyspaceOptions) -> (Db, Keyspace) {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(3)).memory_bytes(1 << 20).open().unwrap();
    let keyspace = db.keyspace("k", || options).unwrap();
    (db, keyspace)
}

/// Writes entries across the whole key range and flushes them.
fn write(db: &Db, keyspace: &Keyspace, round: u64) {
    for number in 0..200_u64 {
        let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round).to_be_bytes();
        keyspace.insert(key, vec![7; 200]).unwrap();
    }
    db.flush().unwrap();
}

/// A writer that flushes after each job creates more work than is done.
#[test]
fn settle_ends_despite_a_concurrent_writer_on_every_tree() {
    for (name, options) in trees() {
        let (db, keyspace) = open(options);
        for round in 0..40 {
            write(&db, &keyspace, round);
        }
        let mut jobs = 0;
        let between = || {
            jobs += 1;
            assert!(jobs < 2 * SHARE_MIN, "{name}: settle does not end");
            write(&db, &keyspace, 100 + jobs);
        };
        settle_trees(db.store(), between).unwrap();
        db.check_invariants().unwrap();
    }
}

#[test]
fn settle_without_writers_leaves_no_job() {
    for (name, options) in trees() {
        let (db, keyspace) = open(options);
        for round in 0..40 {
            write(&db, &keyspace, round);
        }
        db.compact().unwrap();
        let tree = Arc::clone(&keyspace.core.view.load().tree);
        assert!(
            tree.pick_job(&JobRequest::only(true)).is_none(),
            "{name}: {:?}",
            tree.pick_job(&JobRequest::only(true))
        );
        assert_eq!(u64_of(keyspace.iter().unwrap().count()), 40 * 200);
    }
}

/// Writes to a second keyspace create no work for the first.
#[test]
fn idle_keyspace_settles_fully_while_another_is_written() {
    let (name, options) = trees().swap_remove(1);
    let (db, resting) = open(options);
    let busy = db.keyspace("busy", || options).unwrap();
    for round in 0..40 {
        write(&db, &resting, round);
        write(&db, &busy, round);
    }
    let mut jobs = 0;
    let between = || {
        jobs += 1;
        assert!(jobs < 4 * SHARE_MIN, "{name}: settle does not end");
        write(&db, &busy, 100 + jobs);
    };
    settle_trees(db.store(), between).unwrap();
    let tree = Arc::clone(&resting.core.view.load().tree);
    assert!(tree.pick_job(&JobRequest::only(true)).is_none(), "{:?}", tree.pick_job(&JobRequest::only(true)));
}
