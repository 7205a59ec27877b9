//! A closed store answers nothing: a later owner may have reused its pages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use testudo::{
    Db, DbBuilder, ErrorKind, Keyspace, KeyspaceOptions, MergeFunction, Result, ScrubOptions, VerifyLevel,
    backup::Repository,
};
use testudo_db::maintenance::Stepping as _;

fn key(n: u64) -> String {
    format!("user{:020}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// With so little memory nearly every read goes to the data file.
fn builder(path: &std::path::Path) -> DbBuilder {
    Db::builder(path).memory_bytes(1 << 20)
}

fn write_all(k: &Keyspace, what: &str) {
    for n in 0..20_000 {
        k.insert(key(n), format!("{what} {n} {}", "x".repeat(100))).unwrap();
    }
}

/// A store whose keyspace `k` holds old values, flushed.
fn store_with_old_values(path: &std::path::Path) -> (Db, Keyspace) {
    let db = builder(path).open().unwrap();
    let k = db.keyspace("k", KeyspaceOptions::default).unwrap();
    write_all(&k, "old");
    db.flush().unwrap();
    (db, k)
}

fn is_closed<T: std::fmt::Debug>(what: &str, answer: Result<T>) {
    let kind = answer.map_err(|error| error.kind());
    assert_eq!(kind.unwrap_err(), ErrorKind::Closed, "{what}");
}

#[test]
fn reads_after_close_fail_even_after_others_wrote_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (db, k) = store_with_old_values(&path);
    let snapshot = db.snapshot().unwrap();
    let shown = snapshot.keyspace(&k).unwrap();
    let (mut fresh, mut forward, mut backward) = (k.iter().unwrap(), k.iter().unwrap(), k.iter().unwrap());
    let mut sought = shown.range(..).unwrap();
    let first = forward.next().unwrap().unwrap();
    backward.next_back().unwrap().unwrap();
    let held = k.get(key(7)).unwrap().unwrap();
    db.clone().close().unwrap();

    let next = builder(&path).open().unwrap();
    let rewritten = next.open_keyspace("k").unwrap().unwrap();
    write_all(&rewritten, "new");
    next.compact().unwrap();

    for n in 0..200 {
        is_closed("get", k.get(key(n)));
        is_closed("contains_key", k.contains_key(key(n)));
        is_closed("snapshot get", snapshot.get(&k, key(n)));
        is_closed("get of a keyspace of a snapshot", shown.get(key(n)));
    }
    is_closed("multi_get", k.multi_get(&[key(1), key(2)]));
    is_closed("multi_get of a snapshot", snapshot.multi_get(&k, &[key(1), key(2)]));
    is_closed("iter", k.iter());
    is_closed("range", k.range(key(1)..key(2)));
    is_closed("prefix", k.prefix("user"));
    is_closed("iter of a snapshot", shown.iter());
    is_closed("approximate_bytes", k.approximate_bytes(key(1)..key(2)));
    is_closed("first", k.first());
    is_closed("last", k.last());
    is_closed("len", k.len());
    is_closed("is_empty", k.is_empty());
    is_closed("contains_prefix", k.contains_prefix("user"));
    is_closed("first of a snapshot", shown.first());
    is_closed("snapshot", db.snapshot());
    is_closed("open_keyspace", db.open_keyspace("k"));
    is_closed("keyspace", db.keyspace("k", KeyspaceOptions::default));
    is_closed("update", k.update(key(1), |_| None));
    is_closed("verify", db.verify(VerifyLevel::Full));
    is_closed("invariants", db.check_invariants());
    is_closed("scrub", db.scrub(ScrubOptions::new()));
    is_closed("checkpoint", db.checkpoint(dir.path().join("copy")));
    is_closed("backup", Repository::at(dir.path().join("backups")).create(&db));
    for (name, iter) in [("fresh", &mut fresh), ("begun", &mut forward)] {
        is_closed(name, iter.next().unwrap());
        assert!(iter.next().is_none() && iter.next_back().is_none(), "{name}: nothing follows an error");
    }
    is_closed("begun from the back", backward.next_back().unwrap());
    is_closed("seek", sought.seek(key(5).as_bytes()));

    // Data already read stays valid.
    assert!(held.starts_with(b"old 7 "));
    assert!(first.value().unwrap().starts_with(b"old "));
    assert!(rewritten.get(key(7)).unwrap().unwrap().starts_with(b"new 7 "));
    assert!(next.verify(VerifyLevel::Full).unwrap().is_valid());
}

#[test]
fn reads_during_close_and_reuse_are_right_or_fail_as_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (db, k) = store_with_old_values(&path);
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let start = |thread| {
            let (k, is_over, reads) = (&k, &is_over, &reads);
            scope.spawn(move || {
                let mut n = thread;
                while !is_over.load(Ordering::Acquire) {
                    n = (n + 7) % 20_000;
                    match k.get(key(n)) {
                        Ok(value) => assert!(value.unwrap().starts_with(format!("old {n} ").as_bytes())),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
                    }
                    for entry in k.iter().into_iter().flatten().take(20) {
                        match entry {
                            Ok(entry) => assert!(entry.value().unwrap().starts_with(b"old ")),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
                        }
                    }
                    reads.fetch_add(1, Ordering::AcqRel);
                }
            })
        };
        let readers: Vec<_> = (0..3).map(start).collect();
        while reads.load(Ordering::Acquire) < 300 {
            // A failed reader fails the test, which would otherwise wait for it forever.
            assert!(!readers.iter().any(|reader| reader.is_finished()), "a reader ended by itself");
            thread::yield_now();
        }
        db.clone().close().unwrap();
        let next = builder(&path).open().unwrap();
        write_all(&next.open_keyspace("k").unwrap().unwrap(), "new");
        next.compact().unwrap();
        is_over.store(true, Ordering::Release);
    });
}

#[test]
fn a_read_that_fails_due_to_a_concurrent_close_reports_closed() {
    let dir = tempfile::tempdir().unwrap();
    let open: Arc<Mutex<Option<Db>>> = Arc::default();
    // The only user code inside a read stands in for any concurrent event.
    let closer = Arc::clone(&open);
    let refuse = MergeFunction::new("closing", move |_, _, _: &[&[u8]]| {
        if let Some(db) = closer.lock().unwrap().take() {
            db.close().unwrap();
        }
        Err(testudo::Error::new(ErrorKind::Corruption, "a page is not the one that belongs here"))
    });
    let db = builder(&dir.path().join("db")).merge_operator(Arc::new(refuse)).open().unwrap();
    let k = db.keyspace("k", || KeyspaceOptions::default().merge_operator("closing")).unwrap();
    k.merge("a", "1").unwrap();
    assert_eq!(k.get("a").unwrap_err().kind(), ErrorKind::Corruption);
    *open.lock().unwrap() = Some(db);
    is_closed("a read under way", k.get("a"));
}

#[test]
fn reads_of_a_closed_read_only_store_fail() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = builder(&path).open().unwrap();
    db.keyspace("k", KeyspaceOptions::default).unwrap().insert("a", "1").unwrap();
    db.close().unwrap();
    let db = builder(&path).read_only().open().unwrap();
    let k = db.open_keyspace("k").unwrap().unwrap();
    let mut iter = k.iter().unwrap();
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    db.close().unwrap();
    is_closed("get", k.get("a"));
    is_closed("iterator", iter.next().unwrap());
}

/// The log had no commits, so nothing is missing.
#[test]
fn a_store_opens_after_its_empty_log_was_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("db");
    for round in 0..6 {
        let db = builder(&place).open().unwrap();
        assert_eq!(db.keyspace_names().len(), round);
        drop(db.keyspace(&format!("k{round}"), KeyspaceOptions::default).unwrap());
        db.close().unwrap();
        if round % 3 == 2 {
            let files = std::fs::read_dir(&place).unwrap().map(|file| file.unwrap().path());
            let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
            logs.for_each(|path| std::fs::remove_file(path).unwrap());
        }
    }
}
