//! The function of an update runs under the lock of its key: it may read; its writes are refused immediately.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Barrier,
    thread,
};

use testudo::{Db, ErrorKind, KeyspaceOptions, Result};
use testudo_env::MemEnv;

fn open(seed: u64) -> Db {
    Db::builder(Path::new("/db")).env(MemEnv::new(seed)).memory_bytes(1 << 20).open().unwrap()
}

fn is_refused<T: std::fmt::Debug>(what: &str, answer: Result<T>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
    assert!(error.to_string().contains("users"), "{what}: {error}");
    assert_eq!(error.key(), Some(&b"counted"[..]), "{what}");
}

#[test]
fn writes_inside_an_update_are_refused_and_reads_succeed() {
    let db = open(1);
    let counters = || KeyspaceOptions::default().merge_operator("append");
    let (users, other) = (db.keyspace("users", counters).unwrap(), db.keyspace("other", counters).unwrap());
    users.insert("counted", "1").unwrap();
    let elsewhere = open(2).keyspace("k", KeyspaceOptions::default).unwrap();
    let new = users.update("counted", |old| {
        assert_eq!(old, Some(&b"1"[..]));
        is_refused("insert of the key", users.insert("counted", "x"));
        is_refused("insert of another key", users.insert("another", "x"));
        is_refused("insert elsewhere", other.insert("a", "x"));
        is_refused("remove", users.remove("counted"));
        is_refused("merge", users.merge("counted", "x"));
        is_refused("update", users.update("counted", |_| None));
        is_refused("swap", users.compare_and_swap("another", None, Some(b"x")));
        let mut batch = db.batch();
        batch.insert(&other, "a", "x");
        is_refused("batch", batch.commit());
        assert_eq!(users.get("counted").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(users.iter().unwrap().count(), 1);
        assert_eq!(db.snapshot().unwrap().get(&users, "counted").unwrap().as_deref(), Some(&b"1"[..]));
        elsewhere.insert("a", "another store").unwrap();
        Some(b"2".to_vec())
    });
    assert_eq!(new.unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(other.iter().unwrap().count(), 0);
    users.insert("another", "x").unwrap();
    users.update("another", |_| Some(b"y".to_vec())).unwrap();
}

#[test]
fn a_panicking_function_releases_the_key() {
    let db = open(1);
    let users = db.keyspace("users", KeyspaceOptions::default).unwrap();
    let update = || users.update("counted", |_| panic!("the user's own"));
    assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
    users.insert("counted", "1").unwrap();
    assert_eq!(users.update("counted", |old| old.map(<[u8]>::to_vec)).unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn other_threads_can_write_during_an_update() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path().join("db")).memory_bytes(1 << 20).open().unwrap();
    let users = db.keyspace("users", KeyspaceOptions::default).unwrap();
    // A key's lock depends on its bytes alone; these two keys have different locks.
    let (begun, written) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            users.insert("another", "x").unwrap();
            written.wait();
        });
        users.update("counted", |_| {
            begun.wait();
            written.wait();
            Some(b"1".to_vec())
        })
    })
    .unwrap();
    assert_eq!(users.get("counted").unwrap().as_deref(), Some(&b"1"[..]));
}
