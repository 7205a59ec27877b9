//! The whole path on a real disk: write, flush, read, scan, reopen.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use testudo::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Tree, VerifyLevel};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, MemEnv};

fn key(n: u64) -> String {
    format!("user{:020}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn writes_are_read_and_scanned_before_and_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let count = 200_000u64;
    {
        let db = Db::builder(&path).memory_bytes(16 << 20).open().unwrap();
        let users = db.keyspace("users", KeyspaceOptions::default).unwrap();
        for n in 0..count {
            users.insert(key(n), format!("value {n} {}", "x".repeat(80))).unwrap();
        }
        for n in (0..count).step_by(7) {
            users.remove(key(n)).unwrap();
        }
        check(&users, count);
        db.check_invariants().unwrap();
        assert_eq!(Db::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    }
    let db = Db::builder(&path).memory_bytes(16 << 20).open().unwrap();
    let users = db.open_keyspace("users").unwrap().unwrap();
    check(&users, count);
    db.flush().unwrap();
    check(&users, count);
    let report = db.verify(testudo::VerifyLevel::Full).unwrap();
    assert!(report.is_valid(), "{report:?}");
    // A fast verification reports what it did not read.
    assert_eq!(testudo::VerifyLevel::default(), testudo::VerifyLevel::Full);
    let report = db.verify(testudo::VerifyLevel::Fast).unwrap();
    assert!(report.findings.is_empty() && !report.is_valid() && !report.level.not_read().is_empty());
    db.close().unwrap();
    let db = Db::builder(&path).read_only().open().unwrap();
    let users = db.open_keyspace("users").unwrap().unwrap();
    check(&users, count);
    assert_eq!(users.insert("a", "b").unwrap_err().kind(), ErrorKind::Unsupported);
}

fn check(users: &testudo::Keyspace, count: u64) {
    for n in (0..count).step_by(11) {
        let value = users.get(key(n)).unwrap();
        assert_eq!(value.is_some(), n % 7 != 0, "{n}");
        if let Some(value) = value {
            assert!(value.starts_with(format!("value {n} ").as_bytes()));
        }
    }
    let live = count - count.div_ceil(7);
    let forward: Vec<_> = users.iter().unwrap().map(|e| e.unwrap().key().to_vec()).collect();
    assert_eq!(u64::try_from(forward.len()).unwrap(), live);
    assert!(forward.is_sorted());
    let mut backward: Vec<_> = users.iter().unwrap().rev().map(|e| e.unwrap().key().to_vec()).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let keys: Vec<String> = (0..500).map(|n| key(n * 3)).collect();
    let many = users.multi_get(&keys).unwrap();
    for (n, value) in many.iter().enumerate() {
        assert_eq!(value.is_some(), (n * 3) % 7 != 0);
    }
}

#[test]
fn a_snapshot_is_stable_during_writes_and_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path().join("db")).memory_bytes(4 << 20).open().unwrap();
    let a = db.keyspace("a", KeyspaceOptions::default).unwrap();
    let b = db.keyspace("b", KeyspaceOptions::default).unwrap();
    for n in 0..5000u64 {
        a.insert(key(n), "old").unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    for n in 0..50_000u64 {
        let mut batch = db.batch();
        batch.insert(&a, key(n), "new");
        batch.insert(&b, key(n), "new");
        batch.commit().unwrap();
    }
    assert_eq!(snapshot.iter(&a).unwrap().count(), 5000);
    assert_eq!(snapshot.iter(&b).unwrap().count(), 0);
    assert!(snapshot.iter(&a).unwrap().all(|e| e.unwrap().value().unwrap() == *"old"));
    assert_eq!(snapshot.get(&a, key(17)).unwrap().unwrap(), *"old");
    assert_eq!(snapshot.keyspace(&a).unwrap().multi_get(&[key(1), key(9999)]).unwrap()[1], None);
    assert_eq!(a.iter().unwrap().count(), 50_000);
    assert_eq!(b.get(key(49_999)).unwrap().unwrap(), *"new");
}

#[test]
fn synced_writes_survive_a_reopen_and_update_and_swap_are_atomic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    {
        let db = Db::builder(&path).durability(Durability::Sync).open().unwrap();
        let k = db.keyspace("k", KeyspaceOptions::default).unwrap();
        let add = |old: Option<&[u8]>| {
            let old = old.map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
            Some((old + 1).to_le_bytes().to_vec())
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| drop(k.update("counter", add).unwrap())));
            }
        });
        assert_eq!(k.compare_and_swap("x", Some(b"1"), None).unwrap_err().kind(), ErrorKind::Conflict);
        k.compare_and_swap("x", None, Some(b"1")).unwrap();
    }
    let db = Db::open(&path).unwrap();
    let k = db.open_keyspace("k").unwrap().unwrap();
    assert_eq!(k.get("counter").unwrap().unwrap(), 400u64.to_le_bytes());
    assert_eq!(k.get("x").unwrap().unwrap(), *"1");
    assert!(db.drop_keyspace("k").unwrap());
    assert_eq!(k.insert("a", "b").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.keyspace_names(), Vec::<String>::new());
}

#[test]
fn large_keys_and_values_are_stored_and_limits_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path().join("db")).memory_bytes(64 << 20).open().unwrap();
    let k = db.keyspace("k", KeyspaceOptions::default).unwrap();
    let big = vec![7u8; 12 << 20];
    let long_key = vec![b'k'; 64 << 10];
    k.insert("big", &big).unwrap();
    k.insert(&long_key, vec![1u8; 5000]).unwrap();
    k.insert("", "").unwrap();
    for _ in 0..2 {
        assert_eq!(k.get("big").unwrap().unwrap(), big);
        assert_eq!(k.get(&long_key).unwrap().unwrap(), vec![1u8; 5000]);
        assert_eq!(k.get("").unwrap().unwrap(), *"");
        assert_eq!(k.iter().unwrap().count(), 3);
        db.flush().unwrap();
    }
    assert_eq!(k.insert(vec![0u8; (64 << 10) + 1], "").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(k.insert("x", vec![0u8; 17 << 20]).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_thousand_keyspaces_are_created_in_few_writes_and_durable() {
    let names: Vec<String> = (0..1000).map(|n| format!("tenant-{n:04}")).collect();
    let machine = MemEnv::new(1);
    let open = |machine: &Arc<MemEnv>| {
        let env: Arc<dyn Env> = Arc::clone(machine) as Arc<dyn Env>;
        Db::builder("/db").env(env).memory_bytes(64 << 20).open().unwrap()
    };
    let db = open(&machine);
    let old = db.keyspace("tenant-0007", KeyspaceOptions::default).unwrap();
    old.insert("a", "1").unwrap();
    let before = machine.operation_count();
    let keyspaces = db.keyspaces(names.iter().map(String::as_str), KeyspaceOptions::default).unwrap();
    let operations = machine.operation_count() - before;
    assert!(operations < 50, "{operations} operations");
    assert!(keyspaces.iter().map(Keyspace::name).eq(names.iter()));
    assert_eq!(keyspaces[7].get("a").unwrap().as_deref(), Some(&b"1"[..]));
    keyspaces[999].insert("b", "2").unwrap();
    let after_power_loss = machine.crash_image(&CrashPolicy::LOSE_ALL, 1);
    let db = open(&after_power_loss);
    assert!(db.keyspace_names() == names, "all of them must exist");
    assert_eq!(
        db.open_keyspace("tenant-0007").unwrap().unwrap().get("a").unwrap().as_deref(),
        Some(&b"1"[..])
    );
}

#[test]
fn one_invalid_name_prevents_creating_any_keyspace_of_a_group() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    let outcome = db.keyspaces(["a", "", "b"], KeyspaceOptions::default);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(db.keyspace_names().is_empty());
    let twice = db.keyspaces(["a", "b", "a"], KeyspaceOptions::default).unwrap();
    twice[0].insert("k", "v").unwrap();
    assert_eq!(twice[2].get("k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(db.keyspace_names(), ["a", "b"]);
}

/// Cuts of flushes create fences between keys, which must not be longer than a key may be.
#[test]
fn longest_keys_that_differ_only_at_the_end_survive_a_reopen() {
    let key = |number: u64| [&[b'k'; (64 << 10) - 8][..], &number.to_be_bytes()].concat();
    for (name, tree) in Tree::presets() {
        let machine = MemEnv::new(1);
        let open = || {
            let env: Arc<dyn Env> = Arc::clone(&machine) as Arc<dyn Env>;
            Db::builder("/db").env(env).memory_bytes(64 << 20).open().unwrap()
        };
        let db = open();
        let keyspace = db.keyspace("long", || KeyspaceOptions::default().tree(tree)).unwrap();
        for round in 0..3 {
            for number in (0..450).filter(|number| number % 3 == round) {
                keyspace.insert(key(number << 40), number.to_be_bytes()).unwrap();
            }
            db.flush().unwrap();
        }
        drop(keyspace);
        db.close().unwrap();
        let db = open();
        let keyspace = db.open_keyspace("long").unwrap().unwrap();
        assert_eq!(keyspace.iter().unwrap().count(), 450, "{name}");
        assert!(db.verify(VerifyLevel::Full).unwrap().is_valid(), "{name}");
    }
}
