//! The durability of a store is that of every write that asks for none, after a power cut.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{Db, Durability, Keyspace, KeyspaceOptions};
use testudo_env::{CrashPolicy, MemEnv};

fn open(machine: &Arc<MemEnv>, durability: Durability) -> Db {
    let builder = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(4 << 20);
    builder.durability(durability).open().unwrap()
}

/// Value of a key in the store that a power cut would leave now; everything that was not synced is lost.
fn after_power_cut(machine: &Arc<MemEnv>, key: &str) -> Option<Vec<u8>> {
    let db = open(&machine.crash_image(&CrashPolicy::LOSE_ALL, 7), Durability::Buffered);
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    keyspace.get(key).unwrap().map(|value| value.to_vec())
}

type Write = fn(&Db, &Keyspace);

/// Writes without a durability of their own, each with the value of `a` after it.
const WRITES: [(&str, Write, Option<&str>); 9] = [
    ("insert", |_, k| k.insert("a", "1").unwrap(), Some("1")),
    ("merge", |_, k| k.merge("a", "2").unwrap(), Some("12")),
    ("update", |_, k| drop(k.update("a", |_| Some(b"3".to_vec())).unwrap()), Some("3")),
    ("compare_and_swap", |_, k| k.compare_and_swap("a", Some(b"3"), Some(b"4")).unwrap(), Some("4")),
    ("remove", |_, k| k.remove("a").unwrap(), None),
    ("insert_reader", |_, k| k.insert_reader("a", 1, &b"5"[..]).unwrap(), Some("5")),
    (
        "batch",
        |db, k| {
            let mut batch = db.batch();
            batch.insert(k, "a", "6");
            batch.commit().unwrap();
        },
        Some("6"),
    ),
    (
        "buffered batch",
        |db, k| {
            let mut batch = db.batch().durability(Durability::Buffered);
            batch.insert(k, "a", "7");
            batch.commit().unwrap();
        },
        Some("7"),
    ),
    // Once more, so that the last write is a single one.
    ("second insert", |_, k| k.insert("a", "8").unwrap(), Some("8")),
];

#[test]
fn a_synced_store_loses_no_acknowledged_write_in_a_power_cut() {
    let machine = MemEnv::new(3);
    let db = open(&machine, Durability::Sync);
    let keyspace = db.keyspace("k", KeyspaceOptions::default().merge_operator("append")).unwrap();
    for (name, write, value) in WRITES {
        write(&db, &keyspace);
        assert_eq!(after_power_cut(&machine, "a").as_deref(), value.map(str::as_bytes), "{name}");
    }
}

#[test]
fn in_a_buffered_store_only_synced_batches_survive_a_power_cut() {
    let machine = MemEnv::new(3);
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default().merge_operator("append")).unwrap();
    for (name, write, _) in WRITES {
        write(&db, &keyspace);
        assert_eq!(after_power_cut(&machine, "a"), None, "{name}");
    }
    let mut batch = db.batch().durability(Durability::Sync);
    batch.insert(&keyspace, "b", "9");
    batch.commit().unwrap();
    assert_eq!(after_power_cut(&machine, "b").as_deref(), Some(&b"9"[..]));
    assert_eq!(
        after_power_cut(&machine, "a").as_deref(),
        Some(&b"8"[..]),
        "writes before it are synced, too"
    );
}
