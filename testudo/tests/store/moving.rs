//! A keyspace that moves to another tree family while in use: answers, progress, reversals, restarts, full
//! devices, and its drop.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{
    Db, DbBuilder, ErrorKind, Keyspace, KeyspaceOptions, Placement, RepairOptions, SalvageOptions, Tree,
    VerifyLevel, backup::Repository, repair, salvage, stats::MovingStats,
};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, MemEnv, SplitMix};
use testudo_share::some_of;

const TURTLE: Tree = Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(8);
const SPLINTER: Tree = Tree::splinter().with_run_bytes(4 << 10).with_max_pivots(8);
const LEVELED: Tree = Tree::leveled().with_run_bytes(4 << 10).with_growth_factor(4).with_level1_flushes(2);
const KEYS: u32 = 4000;

fn builder(machine: &Arc<MemEnv>) -> DbBuilder {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20)
}

/// All background work on this machine runs in steps, so a test decides how far a keyspace has moved.
fn open(machine: &Arc<MemEnv>) -> (Db, Keyspace) {
    let db = builder(machine).open().unwrap();
    let keyspace = db.keyspace("users", KeyspaceOptions::default().tree(TURTLE)).unwrap();
    (db, keyspace)
}

fn key(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

fn fill(keyspace: &Keyspace, round: u8) {
    (0..KEYS).for_each(|n| keyspace.insert(key(n), [round; 100]).unwrap());
}

fn check(keyspace: &Keyspace, round: u8) {
    for n in (0..KEYS).step_by(7) {
        assert_eq!(keyspace.get(key(n)).unwrap().as_deref(), Some(&[round; 100][..]));
    }
    let values = keyspace.iter().unwrap().map(|entry| entry.unwrap().value().unwrap().to_vec());
    assert_eq!(values.filter(|value| value == &[round; 100]).count(), KEYS as usize);
}

/// Steps until this many thousandths have moved; returns whether it is still moving.
fn move_up_to(db: &Db, keyspace: &Keyspace, thousandths: u64) -> bool {
    for _ in 0..20_000 {
        let MovingStats { from, moved_bytes, left_bytes, .. } = keyspace.stats().moving;
        if from.is_none() || moved_bytes * 1000 >= (moved_bytes + left_bytes).max(1) * thousandths {
            return from.is_some();
        }
        db.step().unwrap();
    }
    panic!("the move never ends");
}

#[test]
fn a_keyspace_moves_back_and_forth_under_writes() {
    let machine = MemEnv::new(1);
    let (db, keyspace) = open(&machine);
    fill(&keyspace, 1);
    db.flush().unwrap();
    let mut round = 1;
    for tree in [LEVELED, SPLINTER, Tree::leveled().with_run_bytes(4 << 10), TURTLE] {
        let before = keyspace.tree();
        let snapshot = db.snapshot().unwrap();
        keyspace.set_tree(tree).unwrap();
        assert_eq!(keyspace.tree(), tree);
        let stats = keyspace.stats();
        assert_eq!((stats.tree.name, stats.moving.from), (tree.to_string(), Some(before.to_string())));
        for thousandths in [100, 400, 700] {
            assert!(move_up_to(&db, &keyspace, thousandths), "the move has already ended");
            check(&keyspace, round);
            round += 1;
            fill(&keyspace, round);
            check(&keyspace, round);
            db.check_invariants().unwrap();
        }
        assert!(!move_up_to(&db, &keyspace, u64::MAX / (1 << 40)));
        check(&keyspace, round);
        assert_eq!(snapshot.get(&keyspace, key(7)).unwrap().as_deref(), Some(&[round - 3; 100][..]));
        let stats = keyspace.stats();
        assert_eq!((stats.tree.name, stats.moving.from), (tree.to_string(), None));
        assert_eq!((stats.moving.moved_bytes, stats.moving.left_bytes), (0, 0));
    }
    drop(keyspace);
    db.close().unwrap();
    let (db, keyspace) = open(&machine);
    assert_eq!(keyspace.tree(), TURTLE);
    check(&keyspace, round);
    db.check_invariants().unwrap();
}

#[test]
fn setting_the_old_tree_reverses_the_move() {
    let machine = MemEnv::new(2);
    for (from, to) in [(TURTLE, LEVELED), (LEVELED, SPLINTER)] {
        let (db, _users) = open(&machine);
        let keyspace = db.keyspace(&from.to_string(), KeyspaceOptions::default().tree(from)).unwrap();
        fill(&keyspace, 1);
        db.flush().unwrap();
        keyspace.set_tree(to).unwrap();
        assert!(move_up_to(&db, &keyspace, 300));
        let before = db.stats().io.data_bytes_written;
        keyspace.set_tree(from).unwrap();
        assert_eq!(keyspace.stats().moving.from, Some(to.to_string()));
        check(&keyspace, 1);
        assert!(!move_up_to(&db, &keyspace, 2000));
        let written = db.stats().io.data_bytes_written - before;
        let all = keyspace.stats().tree.stored_bytes;
        assert!(written < all * 3 / 4, "{written} of {all} bytes were written to go back");
        check(&keyspace, 1);
        // And again, back and forth.
        for tree in [to, from, to] {
            keyspace.set_tree(tree).unwrap();
            move_up_to(&db, &keyspace, 400);
            fill(&keyspace, 2);
            check(&keyspace, 2);
        }
        assert!(!move_up_to(&db, &keyspace, 2000));
        check(&keyspace, 2);
        db.check_invariants().unwrap();
    }
}

/// Between trees of one family nothing moves; a moving keyspace continues with the new settings.
#[test]
fn another_tree_of_the_family_can_be_set_during_a_move() {
    let machine = MemEnv::new(3);
    let (db, keyspace) = open(&machine);
    keyspace.set_tree(LEVELED).unwrap();
    assert_eq!(keyspace.stats().moving.from, None, "nothing needs to move");
    fill(&keyspace, 1);
    db.flush().unwrap();
    keyspace.set_tree(TURTLE).unwrap();
    assert!(move_up_to(&db, &keyspace, 300));
    keyspace.set_tree(SPLINTER).unwrap();
    assert_eq!(keyspace.tree(), SPLINTER);
    assert_eq!(keyspace.stats().moving.from, Some("leveled".to_owned()));
    assert!(!move_up_to(&db, &keyspace, 2000));
    check(&keyspace, 1);
}

#[test]
fn a_move_resumes_after_a_restart_or_a_crash() {
    let machine = MemEnv::new(4);
    let (db, keyspace) = open(&machine);
    fill(&keyspace, 1);
    db.flush().unwrap();
    keyspace.set_tree(LEVELED).unwrap();
    let (mut db, mut keyspace, mut machine) = (db, keyspace, machine);
    for (number, thousandths) in [150, 300, 450, 600].into_iter().enumerate() {
        assert!(move_up_to(&db, &keyspace, thousandths));
        let before = keyspace.stats();
        drop(keyspace);
        if number % 2 == 0 {
            db.close().unwrap();
        } else {
            machine = machine.crash_image(&CrashPolicy::LOSE_ALL, 7);
            drop(db);
        }
        {
            let db = builder(&machine).read_only().open().unwrap();
            let keyspace = db.open_keyspace("users").unwrap().unwrap();
            check(&keyspace, 1);
            assert_eq!(keyspace.tree(), LEVELED);
            assert_eq!(keyspace.set_tree(TURTLE).unwrap_err().kind(), ErrorKind::Unsupported);
            db.check_invariants().unwrap();
        }
        (db, keyspace) = open(&machine);
        let stats = keyspace.stats();
        assert_eq!(stats.moving.from, Some("turtle".to_owned()));
        assert!(stats.moving.moved_bytes >= before.moving.moved_bytes, "the move started over");
        check(&keyspace, 1);
    }
    assert!(!move_up_to(&db, &keyspace, 2000));
    check(&keyspace, 1);
}

#[test]
fn a_keyspace_can_be_dropped_during_a_move() {
    for is_prepared in [false, true] {
        let machine = MemEnv::new(5);
        let (db, keyspace) = open(&machine);
        fill(&keyspace, 1);
        db.flush().unwrap();
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        other.insert("key", "value").unwrap();
        keyspace.set_tree(LEVELED).unwrap();
        assert!(move_up_to(&db, &keyspace, 300));
        if is_prepared {
            db.step().unwrap();
        }
        let snapshot = db.snapshot().unwrap();
        assert!(db.drop_keyspace("users").unwrap());
        for _ in 0..10 {
            db.step().unwrap();
        }
        assert_eq!(snapshot.get(&keyspace, key(1)).unwrap().as_deref(), Some(&[1; 100][..]));
        assert_eq!(keyspace.set_tree(TURTLE).unwrap_err().kind(), ErrorKind::Invalid);
        drop((snapshot, keyspace));
        db.check_invariants().unwrap();
        drop(other);
        db.close().unwrap();
        let (db, again) = open(&machine);
        assert!(again.iter().unwrap().next().is_none());
        assert_eq!(again.stats().moving.from, None);
        db.check_invariants().unwrap();
    }
}

/// Threads of the store do the work.
#[test]
fn a_move_completes_under_concurrent_reads_and_writes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path().join("db")).memory_bytes(1 << 20).open().unwrap();
    let keyspace = db.keyspace("users", KeyspaceOptions::default().tree(TURTLE)).unwrap();
    fill(&keyspace, 1);
    let mut random = SplitMix::new(1);
    let mut values = vec![1_u8; KEYS as usize];
    for tree in some_of([LEVELED, TURTLE, LEVELED, SPLINTER], 3, 0) {
        keyspace.set_tree(tree).unwrap();
        while keyspace.stats().moving.from.is_some() {
            for _ in 0..200 {
                let n = u32::try_from(random.below(u64::from(KEYS))).unwrap();
                let value = &mut values[n as usize];
                assert_eq!(keyspace.get(key(n)).unwrap().as_deref(), Some(&[*value; 100][..]));
                *value = value.wrapping_add(1);
                keyspace.insert(key(n), [*value; 100]).unwrap();
            }
        }
    }
    for (n, value) in (0..KEYS).zip(values) {
        assert_eq!(keyspace.get(key(n)).unwrap().as_deref(), Some(&[value; 100][..]));
    }
    db.check_invariants().unwrap();
}

/// Both sides stay valid; the move resumes when there is space.
#[test]
fn a_full_device_pauses_a_move_until_there_is_space() {
    for (from, to) in [(TURTLE, LEVELED), (LEVELED, TURTLE)] {
        let machine = MemEnv::new(8);
        let db = builder(&machine).open().unwrap();
        let keyspace = db.keyspace("users", KeyspaceOptions::default().tree(from)).unwrap();
        fill(&keyspace, 1);
        db.flush().unwrap();
        keyspace.set_tree(to).unwrap();
        assert!(move_up_to(&db, &keyspace, 300));
        machine.space_limit(Some(machine.used_bytes()));
        let mut refused = 0;
        for _ in 0..200 {
            match db.step() {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0 || keyspace.stats().moving.from.is_none(), "the device must be full");
        check(&keyspace, 1);
        db.check_invariants().unwrap();
        machine.space_limit(None);
        let mut steps = 0;
        while keyspace.stats().moving.from.is_some() {
            db.step().unwrap();
            steps += 1;
            assert!(steps < 20_000, "the move never ends");
        }
        fill(&keyspace, 2);
        check(&keyspace, 2);
        db.check_invariants().unwrap();
    }
}

/// Creates a store with a keyspace in mid-move, partly flushed across the border, and partly moved back once.
fn half_moved(from: Tree, to: Tree, turns: bool) -> (Arc<MemEnv>, Db, Keyspace) {
    let machine = MemEnv::new(9);
    let db = builder(&machine).open().unwrap();
    let keyspace = db.keyspace("users", KeyspaceOptions::default().tree(from)).unwrap();
    fill(&keyspace, 1);
    db.flush().unwrap();
    keyspace.set_tree(to).unwrap();
    assert!(move_up_to(&db, &keyspace, 300));
    (0..KEYS).step_by(2).for_each(|n| keyspace.remove(key(n)).unwrap());
    db.flush().unwrap();
    if turns {
        keyspace.set_tree(from).unwrap();
        (0..3).for_each(|_| assert!(db.step().unwrap(), "a portion moves back"));
    }
    fill(&keyspace, 2);
    (KEYS / 2..KEYS).for_each(|n| keyspace.remove(key(n)).unwrap());
    assert!(keyspace.stats().moving.from.is_some(), "the move has already ended");
    (machine, db, keyspace)
}

/// Checks that exactly the first half of the keys is present.
fn check_half(db: &Db) {
    let keyspace = db.open_keyspace("users").unwrap().unwrap();
    let entries: Vec<_> = keyspace.iter().unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len(), KEYS as usize / 2);
    assert!(entries.iter().all(|entry| entry.value().unwrap()[..] == [2; 100]));
    for n in (0..KEYS).step_by(11) {
        assert_eq!(keyspace.get(key(n)).unwrap().is_some(), n < KEYS / 2);
    }
    db.check_invariants().unwrap();
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
}

fn cases() -> impl Iterator<Item = (Tree, Tree, bool)> {
    let both = [(TURTLE, LEVELED), (LEVELED, TURTLE)].into_iter();
    both.flat_map(|(from, to)| [false, true].map(|turns| (from, to, turns)))
}

/// Completes the move in a copy.
fn check_copy(machine: &Arc<MemEnv>, directory: &str) {
    let db = Db::builder(Path::new(directory)).env(machine.clone()).memory_bytes(1 << 20);
    let db = db.create(false).open().unwrap();
    check_half(&db);
    let keyspace = db.open_keyspace("users").unwrap().unwrap();
    assert!(!move_up_to(&db, &keyspace, 2000));
    check_half(&db);
}

#[test]
fn copies_of_a_moving_keyspace_are_complete_and_continue() {
    for (from, to, turns) in cases() {
        let (machine, db, _keyspace) = half_moved(from, to, turns);
        check_half(&db);
        db.checkpoint("/checkpoint").unwrap();
        check_copy(&machine, "/checkpoint");
        let repository = Repository::at("/backups").env(machine.clone());
        repository.create(&db).unwrap();
        assert!(repository.verify(None).unwrap().findings.is_empty());
        repository.restore(None, "/restored").unwrap();
        check_copy(&machine, "/restored");
    }
}

#[test]
fn a_moving_keyspace_is_repaired_and_salvaged_with_and_without_a_manifest() {
    for (from, to, turns) in cases() {
        let (machine, db, keyspace) = half_moved(from, to, turns);
        drop(keyspace);
        db.close().unwrap();
        let env: Arc<dyn Env> = machine.clone();
        let options = RepairOptions::new("/db").env(env.clone());
        let report = repair(options).unwrap();
        assert!(report.findings.is_empty(), "{report:?}");
        let manifest = |path: &&std::path::PathBuf| path.to_string_lossy().starts_with("/db/manifest-");
        for (has_manifest, target) in [(true, "/with"), (false, "/without")] {
            if !has_manifest {
                let paths = machine.all_files();
                machine.remove_file(paths.iter().find(manifest).unwrap()).unwrap();
            }
            let options = SalvageOptions::new("/db", target).env(env.clone());
            salvage(options).unwrap();
            let db = Db::builder(target).env(machine.clone()).memory_bytes(1 << 20).create(false);
            check_half(&db.open().unwrap());
        }
    }
}

#[test]
fn repeatedly_reversed_moves_still_complete() {
    let machine = MemEnv::new(1);
    let (db, _) = open(&machine);
    for (name, tree, other) in [("up", TURTLE, LEVELED), ("down", LEVELED, TURTLE)] {
        let keyspace = db.keyspace(name, KeyspaceOptions::default().tree(tree)).unwrap();
        fill(&keyspace, 1);
        db.flush().unwrap();
        for turns in [3, 4, 5] {
            for turn in 0..turns {
                keyspace.set_tree(if turn % 2 == 0 { other } else { tree }).unwrap();
            }
            // A flush may add data to the part that is dropped, before it is dropped.
            fill(&keyspace, 2);
            db.flush().unwrap();
            assert!(!move_up_to(&db, &keyspace, 1001), "the move must end");
            check(&keyspace, 2);
            assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
            keyspace.set_tree(tree).unwrap();
            assert!(!move_up_to(&db, &keyspace, 1001), "the move back must end");
        }
    }
}

/// A value whose length depends only on key and round: small, medium and large.
fn of_some_length(n: u32, round: u8) -> Vec<u8> {
    let lengths = [20, 90, 300, 700, 2500];
    vec![round; lengths[(n as usize + usize::from(round)) % lengths.len()]]
}

fn write_lengths(keyspace: &Keyspace, keys: impl Iterator<Item = u32>, round: u8, rounds: &mut [u8]) {
    for n in keys {
        if round > 1 && n % 5 == 3 {
            keyspace.remove(key(n)).unwrap();
            rounds[n as usize] = 0;
        } else {
            keyspace.insert(key(n), of_some_length(n, round)).unwrap();
            rounds[n as usize] = round;
        }
    }
}

/// Checks every value, and that values counted as garbage are exactly the unreferenced ones.
fn check_lengths(db: &Db, keyspace: &Keyspace, rounds: &[u8], what: &str) {
    for (n, &round) in (0u32..).zip(rounds) {
        let expected = (round > 0).then(|| of_some_length(n, round));
        assert_eq!(keyspace.get(key(n)).unwrap().as_deref(), expected.as_deref(), "{what}: key {n}");
    }
    let live = rounds.iter().filter(|round| **round > 0).count();
    let values: Vec<_> = keyspace.iter().unwrap().map(|entry| entry.unwrap().value().unwrap()).collect();
    assert_eq!(values.len(), live, "{what}");
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, [], "{what}");
}

#[test]
fn separated_values_stay_separated_while_their_keyspace_moves() {
    const COUNT: u32 = 2500;
    let medium = Placement::by_value_bytes(Some(32), None).unwrap();
    let mut on_its_way = 0;
    for placement in [Placement::separate(), Placement::hybrid(), medium] {
        for (tree, other) in [(TURTLE, LEVELED), (LEVELED, SPLINTER)] {
            let machine = MemEnv::new(1);
            let what = format!("{placement:?}, {tree} to {other}");
            let (mut db, _users) = open(&machine);
            let options = KeyspaceOptions::default().tree(tree).placement(placement);
            let mut keyspace = db.keyspace("values", options).unwrap();
            let mut rounds = vec![0; COUNT as usize];
            for round in 1..4 {
                write_lengths(
                    &keyspace,
                    (0..COUNT).filter(|n| n % 3 < 4 - u32::from(round)),
                    round,
                    &mut rounds,
                );
                db.flush().unwrap();
            }
            assert!(keyspace.stats().values.segments > 0, "{what}");
            keyspace.set_tree(other).unwrap();
            for (round, thousandths) in [(4, 100), (5, 300)] {
                // Everything except the values may move in one portion.
                on_its_way += u32::from(move_up_to(&db, &keyspace, thousandths));
                check_lengths(&db, &keyspace, &rounds, &what);
                write_lengths(&keyspace, (0..COUNT).step_by(4), round, &mut rounds);
                db.flush().unwrap();
                check_lengths(&db, &keyspace, &rounds, &what);
                drop(keyspace);
                db.close().unwrap();
                db = builder(&machine).open().unwrap();
                keyspace = db.open_keyspace("values").unwrap().unwrap();
            }
            // Back with another placement, and forth again.
            keyspace.set_tree(tree).unwrap();
            keyspace.set_placement(Placement::inline()).unwrap();
            move_up_to(&db, &keyspace, 700);
            write_lengths(&keyspace, (0..COUNT).step_by(7), 6, &mut rounds);
            check_lengths(&db, &keyspace, &rounds, &what);
            keyspace.set_placement(placement).unwrap();
            keyspace.set_tree(other).unwrap();
            assert!(!move_up_to(&db, &keyspace, 1001), "{what}: the move must end");
            assert_eq!(keyspace.stats().moving.from, None);
            check_lengths(&db, &keyspace, &rounds, &what);
            db.compact().unwrap();
            check_lengths(&db, &keyspace, &rounds, &what);
        }
    }
    assert!(on_its_way >= 6, "{on_its_way} times");
}
