//! Stores with a tree family of a newer version are refused and stay unchanged.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo::{
    Db, DbBuilder, ErrorKind, KeyspaceOptions, RepairOptions, Result, SalvageOptions, Tree, TreelineOptions,
    env::{CrashPolicy, Env, MemEnv},
    inspect_store, repair, salvage,
};
use testudo_storage::{Change, Manifest};

fn builder(machine: &Arc<MemEnv>) -> DbBuilder {
    Db::builder("/db").memory_bytes(1 << 20).env(machine.clone())
}

/// A store with two keyspaces that hold something.
fn store() -> (Arc<MemEnv>, Db) {
    let machine = MemEnv::new(1);
    let db = builder(&machine).open().unwrap();
    for name in ["a", "b"] {
        let keyspace = db.keyspace(name, KeyspaceOptions::default()).unwrap();
        (0..100).for_each(|n| keyspace.insert(format!("key{n}"), "value").unwrap());
    }
    db.flush().unwrap();
    db.keyspace("a", KeyspaceOptions::default()).unwrap().insert("later", "in the log").unwrap();
    (machine, db)
}

/// Options as a version after this one may write them.
fn newer_options() -> Vec<u8> {
    [&[250, 3, 0][..], b"abc", &[0]].concat()
}

/// All files but the lock, which says who has it.
fn files(machine: &MemEnv) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = machine.all_files().into_iter().filter(|path| !path.ends_with("LOCK"));
    paths.map(|path| (path.clone(), machine.file_bytes(&path).unwrap())).collect()
}

#[track_caller]
fn assert_refused<T>(outcome: Result<T>) {
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let told = error.to_string();
    assert!(told.contains("manifest") && told.contains("a newer version is needed"), "{told}");
}

/// Both a store that was closed and one that a crash has left.
#[test]
fn a_store_with_a_family_that_is_not_known_is_refused_and_not_touched() {
    let (machine, db) = store();
    let killed = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
    db.close().unwrap();
    for machine in [killed, machine] {
        let manifest = Manifest::open(machine.clone(), Path::new("/db"), true).unwrap();
        let id = manifest.with_state(|state| *state.keyspaces.keys().next_back().unwrap());
        manifest.commit(&[Change::SetOptions(id, newer_options())]).unwrap();
        drop(manifest);
        let before = files(&machine);
        assert_refused(builder(&machine).open());
        assert_refused(builder(&machine).read_only().open());
        let env: Arc<dyn Env> = machine.clone();
        assert_refused(inspect_store(&env, Path::new("/db")));
        for dry_run in [true, false] {
            let options = RepairOptions::new("/db").env(env.clone()).dry_run(dry_run);
            assert_refused(repair(options));
        }
        let options = SalvageOptions::new("/db", "/new").env(env);
        assert_refused(salvage(options));
        assert!(files(&machine) == before, "something was written");
    }
}

#[test]
fn settings_out_of_bounds_are_refused() {
    let (_machine, db) = store();
    for tree in [
        Tree::turtle().with_run_bytes(4095).with_max_pivots(4),
        Tree::turtle().with_run_bytes((1 << 30) + 1).with_max_pivots(4),
        Tree::splinter().with_run_bytes(4096).with_max_pivots(3),
        Tree::splinter().with_run_bytes(4096).with_max_pivots(1025),
        Tree::lsbm().with_retained_percent(0),
    ] {
        let refused = db.keyspace("new", KeyspaceOptions::default().tree(tree));
        assert_eq!(refused.map(drop).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// Of settings that the kind of tree does not have.
#[test]
fn settings_of_another_kind_of_tree_are_refused() {
    let (_machine, db) = store();
    let keyspace = db.keyspace("old", KeyspaceOptions::default()).unwrap();
    for (tree, why) in [
        (Tree::turtle().with_growth_factor(4), "a turtle tree has no growth_factor"),
        (Tree::splinter().with_level1_flushes(2), "a splinter tree has no level1_flushes"),
        (Tree::leveled().with_max_pivots(8), "a leveled tree has no max_pivots"),
        (Tree::treeline().with_retained_percent(10), "a treeline tree has no retained_percent"),
        (Tree::leveled().with_treeline(TreelineOptions::new()), "a leveled tree has no pages to update"),
    ] {
        let refused = db.keyspace("new", KeyspaceOptions::default().tree(tree)).map(drop);
        for error in [refused.unwrap_err(), keyspace.set_tree(tree).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(why), "{error}");
        }
    }
    assert_eq!(keyspace.tree(), Tree::turtle());
}
