//! Transient shortages: threads, descriptors, memory. The store reports them, loses nothing, and resumes by
//! itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions};
use testudo_base::errno::{TREATMENTS, Treatment};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv, RealEnv};

fn number_of(name: &str) -> i32 {
    TREATMENTS.iter().find(|(_, known, _)| *known == name).unwrap().0.raw_os_error()
}

#[test]
fn a_thread_that_cannot_start_fails_the_open_and_releases_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let env = FaultyEnv::new(RealEnv::new());
    let open = || Db::builder(directory.path().join("db")).env(env.clone()).memory_bytes(1 << 20).open();
    for thread in 0.. {
        let fails = FaultPlan::once(thread, FaultError::Number(number_of("EAGAIN"))).of_class(IoClass::Spawn);
        env.set_plan(Some(fails));
        let opened = open();
        if env.failures().is_empty() {
            assert!(thread > 3, "a store must have threads");
            return;
        }
        let error = opened.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Io, true), "{error}");
        env.set_plan(None);
        let db = open().unwrap();
        db.keyspace("a", KeyspaceOptions::default()).unwrap().insert(b"k", b"v").unwrap();
        db.close().unwrap();
    }
}

fn store() -> (Arc<MemEnv>, Arc<FaultyEnv>, Db, Keyspace) {
    let machine = MemEnv::new(4);
    let env = FaultyEnv::new(machine.clone());
    let db = Db::builder(Path::new("/db")).env(env.clone()).memory_bytes(1 << 20).open().unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default).unwrap();
    (machine, env, db, keyspace)
}

fn lacks(env: &FaultyEnv, name: &str, class: IoClass) {
    env.set_plan(Some(FaultPlan::once(0, FaultError::Number(number_of(name))).of_class(class).for_good()));
}

/// For each error number and each class of calls that may return it: writes are refused after a while, and
/// resume once the shortage is over.
#[test]
fn writes_are_refused_only_during_a_shortage() {
    let waits = TREATMENTS.iter().filter(|(_, _, treatment)| *treatment == Treatment::Wait);
    for (name, class) in waits.flat_map(|(_, name, _)| [(*name, IoClass::Create), (*name, IoClass::Allocate)])
    {
        let (machine, env, db, keyspace) = store();
        lacks(&env, name, class);
        let (mut taken, mut refusal) = (0u32, None);
        while refusal.is_none() && taken < 20_000 {
            match keyspace.insert(taken.to_be_bytes(), [5; 300]) {
                Ok(()) => taken += 1,
                Err(error) => refusal = Some(error),
            }
        }
        if let Some(refusal) = refusal {
            assert!(refusal.is_shortage(), "{name}, {class:?}: {refusal:?}");
        }
        let _ = (db.step(), db.flush(), db.step());
        // The refused one may be present: without a file for the log's tail, a write does not survive the
        // process before it is written.
        let found = keyspace.iter().unwrap().map(Result::unwrap).count();
        assert!((taken as usize..=taken as usize + 1).contains(&found), "{found} of {taken}");
        env.set_plan(None);
        for number in taken..taken + 5_000 {
            if keyspace.insert(number.to_be_bytes(), [5; 300]).is_err() {
                // The background detects it.
                while db.step().unwrap() {}
                keyspace.insert(number.to_be_bytes(), [5; 300]).unwrap();
            }
        }
        db.persist(Durability::Sync).unwrap();
        db.flush().unwrap();
        let image = machine.crash_image(&CrashPolicy::LOSE_ALL, 1);
        let db = Db::builder(Path::new("/db")).env(image).memory_bytes(1 << 20).open().unwrap();
        let keyspace = db.keyspace("a", KeyspaceOptions::default).unwrap();
        assert_eq!(keyspace.iter().unwrap().map(Result::unwrap).count(), taken as usize + 5_000);
    }
}

#[test]
fn synced_commits_are_refused_unwritten_while_the_log_is_stalled() {
    let (_machine, env, db, keyspace) = store();
    keyspace.insert(b"a", b"1").unwrap();
    db.persist(Durability::Sync).unwrap();
    lacks(&env, "ENOMEM", IoClass::Write);
    let synced = |key: &[u8]| {
        let mut batch = db.batch().durability(Durability::Sync);
        batch.insert(&keyspace, key, b"2");
        batch.commit()
    };
    // The first commit detects it: it is written, and its error says that it must not simply be retried.
    let first = synced(b"b").unwrap_err();
    assert_eq!((first.kind(), first.is_retryable()), (ErrorKind::Io, false), "{first}");
    let second = synced(b"c").unwrap_err();
    assert_eq!((second.kind(), second.is_retryable()), (ErrorKind::Io, true), "{second}");
    assert_eq!((keyspace.get(b"b").unwrap().is_some(), keyspace.get(b"c").unwrap().is_some()), (true, false));
    env.set_plan(None);
    synced(b"c").unwrap();
    assert_eq!(keyspace.get(b"c").unwrap().as_deref(), Some(&b"2"[..]));
}
