//! Entries refused by a merge operator: not written if it can check them, and harmless if it could not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{
    BaseWithOperands, Db, DbBuilder, Entry, ErrorKind, Keyspace, KeyspaceOptions, MergeFunction, Result,
    VerifyLevel,
};
use testudo_env::MemEnv;

fn builder(machine: &Arc<MemEnv>) -> DbBuilder {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20)
}

/// Counts the operands of a key; rejects any `bad` one, but only when it merges.
fn with_late_operator(machine: &Arc<MemEnv>) -> Db {
    let merge = |_: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]| {
        if operands.contains(&&b"bad"[..]) {
            return Err(testudo::Error::new(ErrorKind::Invalid, "a bad operand"));
        }
        Ok([existing.unwrap_or_default(), &*vec![b'.'; operands.len()]].concat())
    };
    builder(machine).merge_operator(Arc::new(MergeFunction::new("late", merge))).open().unwrap()
}

fn late(db: &Db) -> Keyspace {
    db.keyspace("k", || KeyspaceOptions::default().merge_operator("late")).unwrap()
}

fn kind_of<T: std::fmt::Debug>(answer: Result<T>) -> ErrorKind {
    answer.unwrap_err().kind()
}

#[test]
fn operands_a_built_in_operator_rejects_are_not_written() {
    let db = builder(&MemEnv::new(1)).open().unwrap();
    let k = db.keyspace("counts", || KeyspaceOptions::default().merge_operator("add-u64")).unwrap();
    let one = 1_u64.to_le_bytes();
    k.insert("a", one).unwrap();
    let error = k.insert("a", "7").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("counts"), "{error}");
    assert_eq!(error.key(), Some(&b"a"[..]));
    assert_eq!(kind_of(k.merge("a", "7")), ErrorKind::Invalid);
    assert_eq!(kind_of(k.update("a", |_| Some(b"7".to_vec()))), ErrorKind::Invalid);
    assert_eq!(kind_of(k.compare_and_swap("a", Some(&one), Some(b"7"))), ErrorKind::Invalid);
    for is_merge in [false, true] {
        let mut batch = db.batch();
        batch.insert(&k, "b", one);
        if is_merge {
            batch.merge(&k, "a", "7")
        } else {
            batch.insert(&k, "a", "7")
        }
        assert_eq!(kind_of(batch.commit()), ErrorKind::Invalid);
    }
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&one[..]));
    assert_eq!(k.get("b").unwrap(), None);
    k.merge("a", one).unwrap();
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&2_u64.to_le_bytes()[..]));
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
}

#[test]
fn an_unmergeable_entry_stops_no_scan_and_can_be_removed() {
    let machine = MemEnv::new(2);
    let db = with_late_operator(&machine);
    let k = late(&db);
    for key in ["a", "b", "c", "d", "e"] {
        k.insert(key, key).unwrap();
        k.merge(key, "good").unwrap();
    }
    k.merge("b", "bad").unwrap();
    k.merge("new", "bad").unwrap();
    for round in 0..3 {
        assert_eq!(kind_of(k.get("b")), ErrorKind::Invalid);
        assert!(
            k.contains_key("b").unwrap() && k.contains_key("new").unwrap() && !k.contains_key("x").unwrap()
        );
        assert!(db.snapshot().unwrap().keyspace(&k).unwrap().contains_key("b").unwrap());
        let all: Vec<Entry> = k.iter().unwrap().map(Result::unwrap).collect();
        let keys: Vec<_> = all.iter().map(|entry| entry.key().to_vec()).collect();
        assert_eq!(keys, [&b"a"[..], b"b", b"c", b"d", b"e", b"new"]);
        let mut backward: Vec<Entry> = k.iter().unwrap().rev().map(Result::unwrap).collect();
        backward.reverse();
        assert_eq!(backward.iter().map(Entry::key).collect::<Vec<_>>(), keys);
        for entry in &all {
            match entry.key() {
                b"b" | b"new" => {
                    assert_eq!(kind_of(entry.value()), ErrorKind::Invalid);
                    assert_eq!(kind_of(entry.clone().into_pair()), ErrorKind::Invalid);
                    let BaseWithOperands { base, operands } = entry.base_with_operands().unwrap();
                    // Operands merged before the bad one are a value.
                    let known = [base.unwrap_or_default(), &*vec![b'.'; operands.len()]].concat();
                    assert_eq!(operands.last(), Some(&&b"bad"[..]));
                    assert_eq!(known, if entry.key() == b"b" { b"b..".to_vec() } else { b".".to_vec() });
                }
                key => {
                    assert_eq!(*entry.value().unwrap(), [key, b"."].concat());
                    assert_eq!(entry.base_with_operands(), None);
                }
            }
        }
        let report = db.verify(VerifyLevel::Full).unwrap();
        let found: Vec<_> =
            report.findings.iter().map(|found| (found.keyspace.as_deref(), &found.what)).collect();
        assert!(
            found.len() == 2 && found[0].0 == Some("k") && found[0].1.contains("a bad operand"),
            "{found:?}"
        );
        match round {
            0 => db.flush().unwrap(),
            _ => db.compact().unwrap(),
        }
    }
    k.remove("b").unwrap();
    k.insert("new", "whole").unwrap();
    assert_eq!(k.get("b").unwrap(), None);
    assert_eq!(k.get("new").unwrap().as_deref(), Some(&b"whole"[..]));
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
}

#[test]
fn a_keyspace_without_its_operator_is_valid_scannable_and_removable() {
    let machine = MemEnv::new(3);
    let db = with_late_operator(&machine);
    let k = late(&db);
    k.insert("a", "whole").unwrap();
    k.merge("b", "1").unwrap();
    db.flush().unwrap();
    k.merge("b", "2").unwrap();
    drop((k, db));
    let db = builder(&machine).open().unwrap();
    let k = db.open_keyspace("k").unwrap().unwrap();
    assert_eq!(kind_of(k.get("b")), ErrorKind::Unsupported);
    assert!(k.contains_key("b").unwrap());
    let entries: Vec<Entry> = k.iter().unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 2);
    assert_eq!(*entries[0].value().unwrap(), *b"whole");
    assert_eq!(kind_of(entries[1].value()), ErrorKind::Unsupported);
    assert!(!entries[1].base_with_operands().unwrap().operands.is_empty());
    // Without the operator, nothing can be reported as wrong.
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
    k.insert("c", "any value").unwrap();
    k.remove("b").unwrap();
    assert!(!k.contains_key("b").unwrap());
}
