//! Large values that move between value segments and their keys, driven by the costs of scans and
//! merges.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{Db, Durability, Keyspace, KeyspaceOptions, Placement, Tree, VerifyLevel, stats::ValueStats};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv};
use testudo_share::some_of;

const KEYS: u64 = 2_000;
const VALUE_BYTES: usize = 1_000;

fn open(machine: &Arc<MemEnv>) -> Db {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20).open().unwrap()
}

fn trees() -> [Tree; 5] {
    let (leaf_bytes, run_bytes) = (16 << 10, 16 << 10);
    [
        Tree::turtle().with_run_bytes(leaf_bytes).with_max_pivots(8),
        Tree::splinter().with_run_bytes(leaf_bytes).with_max_pivots(8),
        Tree::leveled().with_run_bytes(run_bytes).with_growth_factor(4).with_level1_flushes(2),
        Tree::lsbm()
            .with_run_bytes(run_bytes)
            .with_growth_factor(4)
            .with_level1_flushes(2)
            .with_retained_percent(10),
        Tree::treeline().with_run_bytes(run_bytes).with_growth_factor(4).with_level1_flushes(2),
    ]
}

fn automatic(tree: Tree) -> KeyspaceOptions {
    KeyspaceOptions::default().tree(tree).placement(Placement::hybrid().with_moving_thresholds(true))
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{:08}", number * 7919 % 1_000_003).into_bytes()
}

/// Every fourth value is small.
fn value(number: u64, round: u64) -> Vec<u8> {
    let length = if number.is_multiple_of(4) { 20 } else { VALUE_BYTES };
    format!("{number}/{round}/").into_bytes().into_iter().cycle().take(length).collect()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn insert(keyspace: &Keyspace, model: &mut Model, numbers: impl Iterator<Item = u64>, round: u64) {
    for number in numbers {
        let (key, value) = (key(number), value(number, round));
        keyspace.insert(&key, &value).unwrap();
        model.insert(key, value);
    }
}

fn scanned(keyspace: &Keyspace) -> Model {
    let entries = keyspace.iter().unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.key().to_vec(), entry.value().unwrap().to_vec())).collect()
}

fn check(db: &Db, keyspace: &Keyspace, model: &Model) {
    for (key, value) in model {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
    let report = db.verify(VerifyLevel::Full).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
    db.check_invariants().unwrap();
}

fn are_with_keys(keyspace: &Keyspace) -> bool {
    keyspace.stats().values.large_with_keys
}

/// A keyspace loaded with separated values.
fn loaded(machine: &Arc<MemEnv>, options: KeyspaceOptions) -> (Db, Keyspace, Model) {
    let db = open(machine);
    let keyspace = db.keyspace("k", options).unwrap();
    let mut model = Model::new();
    insert(&keyspace, &mut model, 0..KEYS, 0);
    db.flush().unwrap();
    let values = keyspace.stats().values;
    assert!(values.segments > 0 && values.bytes > KEYS * 600, "{} bytes are separated", values.bytes);
    (db, keyspace, model)
}

/// Scans until the values start to move.
fn scan_until_they_move(db: &Db, keyspace: &Keyspace, model: &Model) {
    for _ in 0..20 {
        assert!(scanned(keyspace) == *model);
        db.step().unwrap();
        if are_with_keys(keyspace) {
            return;
        }
    }
    panic!("scans trigger nothing: {:?}", keyspace.stats());
}

/// Steps until the move is complete.
fn arrive(db: &Db, keyspace: &Keyspace) {
    for _ in 0..20_000 {
        if keyspace.stats().moving.from.is_none() {
            return;
        }
        db.step().unwrap();
    }
    panic!("the move never ends");
}

#[test]
fn scanned_values_return_to_keys_and_overwritten_ones_move_out() {
    for tree in trees() {
        let machine = MemEnv::new(1);
        let (db, keyspace, mut model) = loaded(&machine, automatic(tree));
        check(&db, &keyspace, &model);
        assert!(!are_with_keys(&keyspace), "{tree}: gets must move nothing");
        let snapshot = db.snapshot().unwrap();
        let before = model.clone();
        scan_until_they_move(&db, &keyspace, &model);
        insert(&keyspace, &mut model, (0..KEYS).step_by(5), 1);
        arrive(&db, &keyspace);
        assert!(are_with_keys(&keyspace));
        let ValueStats { large_excess_bytes, large_limit_bytes, .. } = keyspace.stats().values;
        assert!(
            large_excess_bytes * 8 <= large_limit_bytes,
            "{tree}: the writes of a move must not count for moving back: {large_excess_bytes} of \
             {large_limit_bytes}"
        );
        db.flush().unwrap();
        db.compact().unwrap();
        let stats = keyspace.stats();
        assert!(stats.values.bytes - stats.values.transient_bytes == 0, "{tree}: {stats:?}");
        assert!(scanned(&keyspace) == model, "{tree}");
        check(&db, &keyspace, &model);
        let entries = snapshot.range(&keyspace, ..).unwrap().map(Result::unwrap);
        let kept: Model = entries.map(|e| (e.key().to_vec(), e.value().unwrap().to_vec())).collect();
        assert!(kept == before, "{tree}");
        drop(snapshot);
        assert_eq!(keyspace.options(), automatic(tree), "users must see their own options");
        // No more scans.
        for round in 2..40 {
            insert(&keyspace, &mut model, (0..KEYS).step_by(3), round);
            db.flush().unwrap();
            db.step().unwrap();
            if !are_with_keys(&keyspace) {
                break;
            }
        }
        assert!(!are_with_keys(&keyspace), "{tree}: merges trigger nothing: {:?}", keyspace.stats());
        insert(&keyspace, &mut model, 0..KEYS, 50);
        db.flush().unwrap();
        db.compact().unwrap();
        let stats = keyspace.stats();
        assert!(stats.values.bytes > stats.values.transient_bytes, "{tree}: {stats:?}");
        check(&db, &keyspace, &model);
        assert!(scanned(&keyspace) == model, "{tree}");
    }
}

#[test]
fn values_of_fixed_placements_are_not_moved() {
    for placement in [Placement::hybrid(), Placement::separate()] {
        let machine = MemEnv::new(1);
        let options = KeyspaceOptions::default().tree(Tree::turtle()).placement(placement);
        let (db, keyspace, model) = loaded(&machine, options);
        for _ in 0..10 {
            assert!(scanned(&keyspace) == model);
            db.step().unwrap();
        }
        let stats = keyspace.stats();
        assert_eq!((stats.values.large_with_keys, stats.values.large_limit_bytes), (false, 0));
    }
}

/// Values that return to their keys in any case, and values that take a page read in any case, stay in place.
#[test]
fn medium_and_long_values_are_not_moved() {
    for length in [150, 9_000] {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", automatic(Tree::leveled().with_run_bytes(16 << 10))).unwrap();
        for number in 0..1_000 {
            keyspace.insert(key(number), vec![7; length]).unwrap();
            if number % 100 == 0 {
                db.flush().unwrap();
            }
        }
        db.flush().unwrap();
        assert!(keyspace.stats().values.bytes > 0, "{length}: some are separated");
        for _ in 0..20 {
            assert_eq!(scanned(&keyspace).len(), 1_000);
            assert_eq!(
                keyspace.iter().unwrap().rev().map(|e| e.unwrap().value().unwrap().len()).max(),
                Some(length)
            );
            db.step().unwrap();
        }
        let stats = keyspace.stats();
        assert_eq!((stats.values.large_with_keys, stats.values.large_limit_bytes), (false, 0), "{length}");
    }
}

/// Key-only scans, and scans of values in memory, cost nothing.
#[test]
fn scans_that_read_no_values_from_the_device_move_nothing() {
    let machine = MemEnv::new(1);
    let (db, keyspace, _) = loaded(&machine, automatic(Tree::leveled().with_run_bytes(16 << 10)));
    for _ in 0..20 {
        assert!(keyspace.iter().unwrap().map(|entry| entry.unwrap().key().len()).sum::<usize>() > 0);
        db.step().unwrap();
    }
    assert_eq!(keyspace.stats().values.large_excess_bytes, 0);
    let few = || keyspace.range(key(1)..).unwrap().take(3).map(|e| e.unwrap().value().unwrap().len()).sum();
    let _: usize = few();
    let paid = keyspace.stats().values.large_excess_bytes;
    for _ in 0..20 {
        let _: usize = few();
    }
    assert_eq!(keyspace.stats().values.large_excess_bytes, paid, "cached values must cost nothing");
    assert!(!are_with_keys(&keyspace));
}

/// Stores that are only opened for a short time, as by a command line, reach a decision as well.
#[test]
fn accumulated_costs_persist_across_a_close() {
    let machine = MemEnv::new(1);
    let (db, keyspace, model) = loaded(&machine, automatic(Tree::leveled().with_run_bytes(16 << 10)));
    let ValueStats { large_excess_bytes, large_limit_bytes, .. } = keyspace.stats().values;
    // Two device bytes per value byte, and one read of the values that commits have written.
    assert!(large_limit_bytes > KEYS * 1_500, "{large_limit_bytes}");
    assert_eq!(large_excess_bytes, 0);
    drop((db, keyspace));
    for _ in 0..40 {
        let db = open(&machine);
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        let paid = keyspace.stats().values.large_excess_bytes;
        let fifth = keyspace.iter().unwrap().take(400).map(|e| e.unwrap().value().unwrap().len());
        assert!(fifth.sum::<usize>() > 0);
        assert!(keyspace.stats().values.large_excess_bytes >= paid);
        db.step().unwrap();
        if are_with_keys(&keyspace) {
            arrive(&db, &keyspace);
            assert!(scanned(&keyspace) == model);
            assert_eq!(keyspace.stats().values.segments, 0);
            return;
        }
        keyspace.set_tree(Tree::lsbm()).unwrap();
        assert!(keyspace.stats().values.large_excess_bytes > paid, "other settings must keep the costs");
    }
    panic!("the values never move");
}

#[test]
fn a_crash_during_a_move_loses_nothing_and_the_move_resumes() {
    for (index, tree) in trees().into_iter().enumerate() {
        for moment in some_of([1, 2, 3, 5, 8, 13], 6, index) {
            let machine = MemEnv::new(moment);
            let (db, keyspace, mut model) = loaded(&machine, automatic(tree));
            scan_until_they_move(&db, &keyspace, &model);
            for _ in 0..moment {
                db.step().unwrap();
            }
            insert(&keyspace, &mut model, (0..KEYS).step_by(3), 1);
            db.persist(Durability::Sync).unwrap();
            for policy in [CrashPolicy::LOSE_ALL, CrashPolicy::KEEP_ALL] {
                let image = machine.crash_image(&policy, moment);
                let db = open(&image);
                let keyspace = db.open_keyspace("k").unwrap().unwrap();
                assert!(are_with_keys(&keyspace), "{tree}: the decision must hold");
                check(&db, &keyspace, &model);
                arrive(&db, &keyspace);
                db.compact().unwrap();
                check(&db, &keyspace, &model);
                assert!(scanned(&keyspace) == model, "{tree}");
            }
        }
    }
}

#[test]
fn setting_another_placement_ends_a_move() {
    for tree in trees() {
        let machine = MemEnv::new(1);
        let (db, keyspace, mut model) = loaded(&machine, automatic(tree));
        scan_until_they_move(&db, &keyspace, &model);
        db.step().unwrap();
        keyspace.set_placement(Placement::hybrid().with_moving_thresholds(true)).unwrap();
        assert!(are_with_keys(&keyspace), "{tree}: this is already its state");
        keyspace.set_placement(Placement::hybrid()).unwrap();
        assert!(!are_with_keys(&keyspace));
        insert(&keyspace, &mut model, (0..KEYS).step_by(2), 1);
        db.flush().unwrap();
        arrive(&db, &keyspace);
        check(&db, &keyspace, &model);
        assert!(keyspace.stats().values.bytes > 0);
    }
}

/// A change of the tree never waits for the store's own moves.
#[test]
fn another_tree_can_be_set_during_a_move() {
    for tree in trees() {
        let machine = MemEnv::new(1);
        let (db, keyspace, mut model) = loaded(&machine, automatic(tree));
        scan_until_they_move(&db, &keyspace, &model);
        for _ in 0..3 {
            db.step().unwrap();
        }
        insert(&keyspace, &mut model, (0..KEYS).step_by(4), 1);
        assert_eq!(keyspace.stats().moving.from, Some(tree.to_string()));
        for other in [trees()[0], trees()[2], trees()[4], trees()[1]] {
            keyspace.set_tree(other).unwrap();
            assert_eq!(keyspace.tree().to_string(), other.to_string());
            assert!(are_with_keys(&keyspace));
            check(&db, &keyspace, &model);
            db.step().unwrap();
        }
        arrive(&db, &keyspace);
        check(&db, &keyspace, &model);
        // Some values were left behind where it reversed. They return once scans have paid enough for them;
        // the cost of a scan depends on their places and the caches: 20 to some hundred scans. It is nothing
        // if they stay in the cache, from which other reads evict them.
        let others = db.keyspace("others", || KeyspaceOptions::default().placement(Placement::inline()));
        let others = others.unwrap();
        let key_of = |number: u64| number.to_be_bytes();
        (0..1_000).for_each(|number| others.insert(key_of(number), [7; 1_000]).unwrap());
        let has_strays = || {
            let stats = keyspace.stats();
            stats.values.bytes > stats.values.transient_bytes
        };
        for round in 0..1_000 {
            if round >= 20 && !has_strays() {
                break;
            }
            assert!(scanned(&keyspace) == model, "{tree}");
            (0..1_000).for_each(|number| assert!(others.get(key_of(number)).unwrap().is_some()));
            db.flush().unwrap();
            db.step().unwrap();
            arrive(&db, &keyspace);
        }
        db.compact().unwrap();
        let stats = keyspace.stats();
        assert_eq!(stats.values.bytes, stats.values.transient_bytes, "{tree}: they must return");
        check(&db, &keyspace, &model);
        assert!(scanned(&keyspace) == model, "{tree}");
    }
}

/// Separate segments pay off only for large keyspaces and flushes of many values.
#[test]
fn small_keyspaces_and_small_flushes_leave_values_with_their_keys() {
    for tree in trees() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let placement = Placement::by_value_bytes(None, Some(588)).unwrap().with_moving_thresholds(true);
        let options = KeyspaceOptions::default().tree(tree).placement(placement);
        let keyspace = db.keyspace("k", options).unwrap();
        let mut model = Model::new();
        // Less than two segments, of four runs each.
        insert(&keyspace, &mut model, 0..100, 0);
        db.flush().unwrap();
        db.compact().unwrap();
        assert_eq!(keyspace.stats().values.segments, 0, "{tree}: a small keyspace needs no segments");
        insert(&keyspace, &mut model, 100..KEYS, 0);
        db.flush().unwrap();
        db.compact().unwrap();
        let segments = keyspace.stats().values.segments;
        assert!(segments > 0, "{tree}: a large keyspace needs segments");
        for number in 0..20 {
            insert(&keyspace, &mut model, KEYS + 2 * number..KEYS + 2 * number + 2, 0);
            db.flush().unwrap();
        }
        let of_merges = keyspace.stats().values.segments - segments;
        assert!(of_merges < 10, "{tree}: {of_merges} segments for 20 flushes of two values");
        check(&db, &keyspace, &model);
        assert!(scanned(&keyspace) == model, "{tree}");
    }
}

#[test]
fn separated_values_move_to_another_tree_as_references() {
    for tree in trees() {
        let machine = MemEnv::new(1);
        let (db, keyspace, model) = loaded(&machine, automatic(tree));
        let other = if tree == trees()[0] { trees()[2] } else { trees()[0] };
        keyspace.set_tree(other).unwrap();
        arrive(&db, &keyspace);
        check(&db, &keyspace, &model);
        assert!(keyspace.stats().values.bytes > KEYS * 600, "{tree}: they must stay separated");
        assert!(scanned(&keyspace) == model, "{tree}");
    }
}
