//! Jobs concurrent with other work: creations, drops, pauses, limits of their rate.

use std::{path::Path, sync::mpsc, thread, time::Duration};

use testudo_base::sync::Arc;
use testudo_env::{MemEnv, RealEnv};
use testudo_options::{KeyspaceOptions, Tree};

use crate::{Db, Keyspace, VerifyLevel, maintenance::Stepping as _};

fn small_trees() -> [Tree; 3] {
    let small = |tree: Tree| tree.with_run_bytes(16 << 10);
    [small(Tree::splinter()).with_max_pivots(16), small(Tree::leveled()), small(Tree::lsbm())]
}

/// Overwrites a thirtieth of 3,000 records, scattered, and flushes them.
fn write(db: &Db, keyspace: &Keyspace, round: u32) {
    for number in 0..100_u32 {
        let key = (round * 100 + number).wrapping_mul(0x9e37_79b1) % 3000;
        keyspace.insert(key.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
}

/// Writes until `is_due` holds after a few steps.
fn write_until(db: &Db, keyspace: &Keyspace, is_due: impl Fn() -> bool) {
    for round in 0..400 {
        write(db, keyspace, round);
        for _ in 0..3 {
            if is_due() {
                return;
            }
            db.step().unwrap();
        }
    }
    panic!("nothing is due after 400 flushes");
}

fn stepped(tree: Tree) -> (Db, Keyspace) {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).memory_bytes(1 << 20).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default().tree(tree)).unwrap();
    (db, keyspace)
}

#[test]
fn creating_a_keyspace_does_not_wait_for_a_flush() {
    let directory = std::env::temp_dir().join(format!("testudo-create-during-{}", std::process::id()));
    let db = Db::builder(&directory).temporary().env(RealEnv::new()).open().unwrap();
    let flush = db.store().flush_lock.lock();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let keyspace = db.keyspace("new", KeyspaceOptions::default()).unwrap();
            keyspace.insert("key", "value").unwrap();
            sender.send(()).unwrap();
        });
        let created = receiver.recv_timeout(Duration::from_secs(60));
        drop(flush);
        assert!(created.is_ok(), "a flush was waited for");
    });
    assert!(db.open_keyspace("new").unwrap().is_some_and(|new| new.get("key").unwrap().is_some()));
    db.close().unwrap();
}

#[test]
fn a_keyspace_is_dropped_between_the_halves_of_its_jobs() {
    for tree in small_trees() {
        let (db, keyspace) = stepped(tree);
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        other.insert("key", "value").unwrap();
        write_until(&db, &keyspace, || db.store().background.prepared_jobs() > 0);
        assert!(db.drop_keyspace("k").unwrap());
        let jobs = db.stats().jobs.count;
        while db.step().unwrap() {}
        assert_eq!(db.store().background.prepared_jobs(), 0);
        assert_eq!(db.stats().jobs.count, jobs, "{tree:?}: no job of a dropped keyspace is installed");
        db.check_invariants().unwrap();
        drop(keyspace);
        db.flush().unwrap();
        assert!(db.verify(VerifyLevel::Full).unwrap().findings.is_empty());
        assert_eq!(other.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

#[test]
fn paused_jobs_begin_after_resuming() {
    for tree in small_trees() {
        let (db, keyspace) = stepped(tree);
        db.background().pause();
        (0..40).for_each(|round| write(&db, &keyspace, round));
        // Jobs that flushes waited for.
        let jobs = db.stats().jobs.count;
        for _ in 0..100 {
            db.step().unwrap();
        }
        assert!(db.background().jobs().is_empty() && db.stats().jobs.is_paused);
        assert_eq!(db.stats().jobs.count, jobs, "{tree:?}");
        db.background().resume();
        write_until(&db, &keyspace, || !db.background().jobs().is_empty());
        let [job, ..] = &db.background().jobs()[..] else { panic!("{tree:?}: a job is in progress") };
        assert!(job.keyspace == "k" && job.done_bytes <= job.total_bytes && job.total_bytes <= job.bytes_max);
    }
}

#[test]
fn a_limited_rate_delays_jobs_but_not_those_of_compact() {
    let env = MemEnv::new(1);
    let builder = Db::builder(Path::new("/db")).env(Arc::clone(&env) as _).memory_bytes(1 << 20);
    let db = builder.job_bytes_per_second(1 << 10).open().unwrap();
    let [tree, ..] = small_trees();
    let keyspace = db.keyspace("k", KeyspaceOptions::default().tree(tree)).unwrap();
    assert_eq!(db.background().bytes_per_second(), Some(1 << 10));
    write_until(&db, &keyspace, || db.stats().jobs.bytes > 0);
    (0..40).for_each(|round| write(&db, &keyspace, round));
    let delayed = db.stats().jobs;
    for _ in 0..200 {
        db.step().unwrap();
    }
    assert!(db.stats().jobs.count <= delayed.count + 1, "{delayed:?}");
    db.compact().unwrap();
    assert!(db.stats().jobs.bytes > delayed.bytes, "{delayed:?}");
}

#[test]
fn several_jobs_of_a_keyspace_are_in_progress_at_once() {
    let [splinter, ..] = small_trees();
    let (db, keyspace) = stepped(splinter);
    let mut most = 0;
    for round in 0..120 {
        write(&db, &keyspace, round);
        for _ in 0..6 {
            db.step().unwrap();
            most = most.max(db.background().jobs().len());
        }
    }
    assert!(most >= 2, "{most} at once");
    while db.step().unwrap() {}
    db.check_invariants().unwrap();
    assert!(db.verify(VerifyLevel::Full).unwrap().findings.is_empty());
}
