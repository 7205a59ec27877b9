//! Operands and the maximum value length: refused where the length is known, kept where it was not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{
    Db, DbBuilder, Entry, ErrorKind, Keyspace, KeyspaceOptions, MergeFunction, SalvageOptions, VerifyLevel,
    salvage,
};
use testudo_env::{Env, MemEnv};

const MEMORY: u64 = 1 << 20;
/// Maximum value length under that budget.
const LIMIT: usize = 256 << 10;

fn builder(machine: &Arc<MemEnv>) -> DbBuilder {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(MEMORY)
}

fn appending(db: &Db) -> Keyspace {
    db.keyspace("k", || KeyspaceOptions::default().merge_operator("append")).unwrap()
}

fn length(k: &Keyspace, key: &str) -> usize {
    k.get(key).unwrap().map_or(0, |value| value.len())
}

#[test]
fn operands_in_the_write_buffer_cannot_exceed_the_value_limit() {
    let machine = MemEnv::new(1);
    let db = builder(&machine).open().unwrap();
    let k = appending(&db);
    let mut accepted = 0;
    let error = loop {
        match k.merge("a", [7; 10_000]) {
            Ok(()) => accepted += 10_000,
            Err(error) => break error,
        }
        assert!(accepted <= LIMIT, "{accepted}");
    };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("262144"), "{error}");
    assert_eq!((length(&k, "a"), accepted), (accepted, LIMIT / 10_000 * 10_000));
    // Shorter operands still fit, up to the last byte.
    k.merge("a", vec![7; LIMIT - accepted]).unwrap();
    assert_eq!(k.merge("a", "x").unwrap_err().kind(), ErrorKind::Invalid);

    k.insert("b", vec![7; LIMIT - 10]).unwrap();
    k.merge("b", [7; 10]).unwrap();
    assert_eq!(k.merge("b", [7; 1]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(k.merge("c", vec![7; LIMIT + 1]).unwrap_err().kind(), ErrorKind::Invalid);

    let mut batch = db.batch();
    batch.insert(&k, "d", "unwritten");
    (0..3).for_each(|_| batch.merge(&k, "b", "x"));
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!((length(&k, "b"), k.get("d").unwrap()), (LIMIT, None));

    db.compact().unwrap();
    db.close().unwrap();
    let db = builder(&machine).open().unwrap();
    let k = appending(&db);
    assert_eq!((length(&k, "a"), length(&k, "b")), (LIMIT, LIMIT));
    k.remove("a").unwrap();
    k.merge("a", "anew").unwrap();
    assert_eq!(length(&k, "a"), 4);
}

#[test]
fn operands_of_a_batch_count_together_with_the_buffer() {
    let machine = MemEnv::new(2);
    let db = builder(&machine).open().unwrap();
    let k = appending(&db);
    k.insert("a", vec![1; LIMIT / 2]).unwrap();
    let three_of = |bytes: usize| {
        let mut batch = db.batch();
        (2..5).for_each(|n: u8| batch.merge(&k, "a", vec![n; bytes]));
        batch.insert(&k, "beside", "b");
        batch.commit()
    };
    assert_eq!(three_of(LIMIT / 5).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!((length(&k, "a"), k.get("beside").unwrap()), (LIMIT / 2, None));
    three_of(LIMIT / 6).unwrap();
    let value = k.get("a").unwrap().unwrap();
    assert_eq!(value.len(), LIMIT / 2 + LIMIT / 6 * 3);
    assert!(value.is_sorted() && value.last() == Some(&4));
}

#[test]
fn a_value_growing_across_flushes_stops_at_the_limit() {
    let machine = MemEnv::new(3);
    let db = builder(&machine).open().unwrap();
    let k = appending(&db);
    let mut expected = Vec::new();
    let refused = loop {
        let n = u8::try_from(expected.len() / 20_000).unwrap();
        match k.merge("a", [n; 20_000]) {
            Ok(()) => expected.extend([n; 20_000]),
            Err(error) => break error,
        }
        k.insert(format!("beside {n}"), "b").unwrap();
        db.flush().unwrap();
    };
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(expected.len(), LIMIT / 20_000 * 20_000);
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&*expected));
}

#[test]
fn an_oversized_value_found_by_a_flush_is_kept_but_stops_growing() {
    let machine = MemEnv::new(6);
    let db = builder(&machine).open().unwrap();
    let k = appending(&db);
    let mut expected = vec![1; LIMIT - 10];
    k.insert("a", &expected).unwrap();
    db.compact().unwrap();
    drop((k, db));
    // No write buffer has the value, and it was written before the opening: its length is unknown.
    let db = builder(&machine).open().unwrap();
    let k = appending(&db);
    k.merge("a", [2; 60_000]).unwrap();
    expected.extend([2; 60_000]);
    db.flush().unwrap();
    for settled in [false, true] {
        assert_eq!(k.get("a").unwrap().as_deref(), Some(&*expected), "no part of it may be lost");
        assert_eq!(k.merge("a", "x").unwrap_err().kind(), ErrorKind::Invalid, "the length is known now");
        if !settled {
            db.compact().unwrap();
        }
    }
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
    let scanned = k.prefix("a").unwrap().next().unwrap().and_then(Entry::into_pair).unwrap().1;
    assert_eq!(*scanned, *expected);

    // It is an ordinary value, and can be truncated.
    assert_eq!(k.update("a", |old| old.map(<[u8]>::to_vec)).unwrap_err().kind(), ErrorKind::Invalid);
    k.update("a", |old| old.map(|old| old[..10].to_vec())).unwrap();
    k.merge("a", "more").unwrap();
    assert_eq!(length(&k, "a"), 14);
}

#[test]
fn operands_with_short_results_are_always_accepted() {
    let machine = MemEnv::new(4);
    let newest = |_: &[u8], _: Option<&[u8]>, operands: &[&[u8]]| Ok(operands[operands.len() - 1].to_vec());
    let open = || builder(&machine).merge_operator(Arc::new(MergeFunction::new("newest", newest))).open();
    let db = open().unwrap();
    let k = db.keyspace("k", || KeyspaceOptions::default().merge_operator("newest")).unwrap();
    for n in 0..3_000_u32 {
        let mut operand = vec![0; 1000];
        operand[..4].copy_from_slice(&n.to_le_bytes());
        k.merge("a", &operand).unwrap();
        if n % 1000 == 999 {
            db.flush().unwrap();
        }
    }
    assert_eq!(k.get("a").unwrap().unwrap()[..4], 2_999_u32.to_le_bytes());
    drop((k, db));
    assert_eq!(open().unwrap().open_keyspace("k").unwrap().unwrap().get("a").unwrap().unwrap().len(), 1000);
}

#[test]
fn a_value_of_a_larger_budget_works_under_a_smaller_one() {
    let machine = MemEnv::new(5);
    let large = builder(&machine).memory_bytes(16 << 20).open().unwrap();
    let k = appending(&large);
    k.insert("long", vec![1; 3 << 20]).unwrap();
    k.insert("other", "o").unwrap();
    large.flush().unwrap();
    k.merge("long", vec![2; 100_000]).unwrap();
    k.insert("late", vec![3; 1 << 20]).unwrap();
    large.close().unwrap();
    let db = builder(&machine).open().unwrap();
    let k = appending(&db);
    let whole = (3 << 20) + 100_000;
    assert_eq!((length(&k, "long"), length(&k, "late")), (whole, 1 << 20));
    assert_eq!(k.merge("long", "x").unwrap_err().kind(), ErrorKind::Invalid);
    db.flush().unwrap();
    assert_eq!(length(&k, "long"), whole);
    db.close().unwrap();

    let env: Arc<dyn Env> = machine.clone();
    let options = SalvageOptions::new("/db", "/saved").env(env).memory_bytes(MEMORY);
    let report = salvage(options).unwrap();
    assert_eq!(report.keyspaces[0].records, 3);
    let db = Db::builder(Path::new("/saved")).env(machine).memory_bytes(MEMORY).open().unwrap();
    let k = appending(&db);
    assert_eq!((length(&k, "long"), length(&k, "late"), length(&k, "other")), (whole, 1 << 20, 1));
}
