//! Switching the tree of a keyspace in use: invalid settings, unchanged content, durability.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use testudo::{Db, ErrorKind, Keyspace, KeyspaceOptions, Tree};
use testudo_db::maintenance::Stepping as _;

const TURTLE: Tree = Tree::turtle().with_run_bytes(16 << 10).with_max_pivots(8);
const SPLINTER: Tree = Tree::splinter().with_run_bytes(16 << 10).with_max_pivots(8);
const KEYS: u32 = 3000;

fn open(dir: &tempfile::TempDir) -> (Db, Keyspace) {
    let db = Db::builder(dir.path().join("db")).memory_bytes(1 << 20).open().unwrap();
    let keyspace = db.keyspace("users", || KeyspaceOptions::default().tree(TURTLE)).unwrap();
    (db, keyspace)
}

fn key(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

fn fill(keyspace: &Keyspace, round: u8) {
    (0..KEYS).for_each(|n| keyspace.insert(key(n), [round; 200]).unwrap());
}

fn check(keyspace: &Keyspace, round: u8) {
    for n in 0..KEYS {
        assert_eq!(keyspace.get(key(n)).unwrap().as_deref(), Some(&[round; 200][..]));
    }
    assert_eq!(keyspace.iter().unwrap().count(), KEYS as usize);
}

#[test]
fn invalid_settings_are_refused_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (db, keyspace) = open(&dir);
    for tree in [
        Tree::splinter().with_run_bytes(1).with_max_pivots(8),
        Tree::splinter().with_run_bytes(4096).with_max_pivots(3),
        Tree::turtle().with_run_bytes(2 << 30).with_max_pivots(8),
    ] {
        assert_eq!(keyspace.set_tree(tree).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(keyspace.tree(), TURTLE);
    db.drop_keyspace("users").unwrap();
    assert_eq!(keyspace.set_tree(SPLINTER).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_read_only_store_keeps_its_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (db, keyspace) = open(&dir);
    drop(keyspace);
    db.close().unwrap();
    let db = Db::builder(dir.path().join("db")).memory_bytes(1 << 20).read_only().open().unwrap();
    let keyspace = db.open_keyspace("users").unwrap().unwrap();
    assert_eq!(keyspace.set_tree(SPLINTER).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(keyspace.tree(), TURTLE);
}

#[test]
fn a_new_tree_and_its_content_survive_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let mut round = 0;
    for (kind, tree) in
        [(Tree::splinter(), SPLINTER), (TURTLE, TURTLE), (SPLINTER, SPLINTER), (Tree::turtle(), TURTLE)]
    {
        let (db, keyspace) = open(&dir);
        let snapshot = db.snapshot().unwrap();
        let before = (round > 0).then_some(round);
        round += 1;
        fill(&keyspace, round);
        keyspace.set_tree(kind).unwrap();
        assert_eq!(keyspace.tree(), tree, "sizes stay");
        assert_eq!(keyspace.stats().tree.name, tree.to_string());
        check(&keyspace, round);
        round += 1;
        fill(&keyspace, round);
        db.flush().unwrap();
        check(&keyspace, round);
        let old = snapshot.get(&keyspace, key(7)).unwrap();
        assert_eq!(old.as_deref(), before.map(|round| [round; 200]).as_ref().map(|value| &value[..]));
        drop((snapshot, keyspace));
        db.check_invariants().unwrap();
        db.close().unwrap();
        let (_db, keyspace) = open(&dir);
        assert_eq!(keyspace.tree(), tree);
        check(&keyspace, round);
    }
}

#[test]
fn writers_and_readers_continue_while_the_tree_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (db, keyspace) = open(&dir);
    fill(&keyspace, 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (2..12).for_each(|round| fill(&keyspace, round)));
        let reader = scope.spawn(|| {
            let mut newest = vec![0; KEYS as usize];
            while !is_over.load(Relaxed) {
                for n in (0..KEYS).step_by(13) {
                    let value = keyspace.get(key(n)).unwrap().unwrap();
                    assert!(value[0] >= newest[n as usize], "a key went back");
                    newest[n as usize] = value[0];
                }
            }
        });
        for number in 0.. {
            keyspace.set_tree([SPLINTER, TURTLE][number % 2]).unwrap();
            if writer.is_finished() {
                break;
            }
        }
        is_over.store(true, Relaxed);
        writer.join().unwrap();
        reader.join().unwrap();
    });
    check(&keyspace, 11);
    db.compact().unwrap();
    check(&keyspace, 11);
    db.check_invariants().unwrap();
}
