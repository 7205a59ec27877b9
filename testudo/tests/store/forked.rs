//! Handles of every kind in a forked child of a simulated machine: its disk does not change.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../fork/calls.rs"]
mod calls;

use std::{path::Path, sync::Arc};

use calls::Handles;
use testudo::{Db, Durability, ErrorKind};
use testudo_env::{Env, MemEnv};

fn open(machine: &Arc<MemEnv>) -> testudo::Result<Db> {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20).open()
}

/// Runs `check` for each tree.
fn for_each_tree(check: impl Fn(&Arc<MemEnv>, Db, Handles)) {
    for (_, preset) in testudo::TreePreset::all() {
        let machine = MemEnv::new(7);
        let db = open(&machine).unwrap();
        let handles = Handles::of(&db, preset.tree());
        check(&machine, db, handles);
    }
}

#[test]
fn every_call_of_a_child_fails_without_reaching_the_disk() {
    for_each_tree(|machine, db, handles| {
        let before = (machine.operation_count(), machine.all_files());
        let env: Arc<dyn Env> = machine.clone();
        machine.fork();
        handles.refused(&env, Path::new("/db"), Path::new("/")).unwrap();
        assert_eq!((machine.operation_count(), machine.all_files()), before);
        machine.return_to_parent();
        calls::check(&db, 0);
    });
}

#[test]
fn the_last_handle_of_a_child_releases_nothing() {
    for_each_tree(|machine, db, handles| {
        handles.records.insert("n00000000", calls::value_of(0)).unwrap();
        db.persist(Durability::Sync).unwrap();
        let before = (machine.operation_count(), machine.all_files());
        machine.fork();
        drop((db, handles));
        assert_eq!((machine.operation_count(), machine.all_files()), before);
        machine.return_to_parent();
        assert_eq!(open(machine).unwrap_err().kind(), ErrorKind::Locked, "the parent has the lock");
        calls::check(&open(&machine.live_image()).unwrap(), 1);
    });
}
