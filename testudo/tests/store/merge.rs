//! Merge operators: operands are merged at any time and place where they meet their value, each exactly once
//! and in order.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use testudo::{
    Db, DbBuilder, Durability, ErrorKind, Keyspace, KeyspaceOptions, MergeFunction, MergeOperator,
    MergeOperators, VerifyLevel,
};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv};

fn builder(machine: &Arc<MemEnv>) -> DbBuilder {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20)
}

fn appending() -> KeyspaceOptions {
    KeyspaceOptions::default().merge_operator("append")
}

fn text(value: Option<testudo::Slice>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn every_kind_of_read_merges_operands_in_buffers_and_trees() {
    let machine = MemEnv::new(1);
    let db = builder(&machine).open().unwrap();
    let k = db.keyspace("k", appending).unwrap();
    let check = |k: &dyn Fn() -> Vec<(String, String)>, expected: &[(&str, &str)]| {
        let expected: Vec<_> = expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(k(), expected);
    };
    let scan = |read: &Keyspace| -> Vec<(String, String)> {
        let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let forward: Vec<_> = read.iter().unwrap().map(|entry| entry.unwrap().into_pair().unwrap()).collect();
        let mut backward: Vec<_> =
            read.iter().unwrap().rev().map(|entry| entry.unwrap().into_pair().unwrap()).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        for (key, value) in &forward {
            assert_eq!(read.get(key).unwrap().as_deref(), Some(&**value));
        }
        let keys: Vec<_> = forward.iter().map(|(key, _)| key.to_vec()).collect();
        let many: Vec<_> = read.multi_get(&keys).unwrap().into_iter().map(Option::unwrap).collect();
        assert_eq!(many, forward.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>());
        forward.iter().map(|(key, value)| (string(key), string(value))).collect()
    };
    k.insert("over value", "a").unwrap();
    k.insert("over tombstone", "lost").unwrap();
    k.remove("over tombstone").unwrap();
    let mut expected = ["", "", "a"].map(str::to_owned);
    for round in 0..6_u8 {
        for key in ["over nothing", "over tombstone", "over value"] {
            k.merge(key, [b'b' + round]).unwrap();
            k.merge(key, [b'B' + round]).unwrap();
        }
        for value in &mut expected {
            value.push(char::from(b'b' + round));
            value.push(char::from(b'B' + round));
        }
        let pairs = [
            ("over nothing", expected[0].as_str()),
            ("over tombstone", expected[1].as_str()),
            ("over value", expected[2].as_str()),
        ];
        check(&|| scan(&k), &pairs);
        match round {
            0 => {}
            3 => db.compact().unwrap(),
            _ => db.flush().unwrap(),
        }
        check(&|| scan(&k), &pairs);
    }
    let snapshot = db.snapshot().unwrap();
    let before = text(k.get("over value").unwrap()).unwrap();
    k.merge("over value", "!").unwrap();
    k.merge("over value", "?").unwrap();
    assert_eq!(text(snapshot.get(&k, "over value").unwrap()).unwrap(), before);
    assert_eq!(text(k.get("over value").unwrap()).unwrap(), format!("{before}!?"));
    let later = db.snapshot().unwrap();
    k.merge("over value", "…").unwrap();
    k.remove("over nothing").unwrap();
    k.merge("over nothing", "new").unwrap();
    assert_eq!(text(later.get(&k, "over value").unwrap()).unwrap(), format!("{before}!?"));
    assert_eq!(text(k.update("over nothing", |old| old.map(<[u8]>::to_vec)).unwrap()).unwrap(), "new");
    k.compare_and_swap("over nothing", Some(b"new"), Some(b"swapped")).unwrap();
    drop((snapshot, later));
    db.close().unwrap();
    let db = builder(&machine).open().unwrap();
    let k = db.open_keyspace("k").unwrap().unwrap();
    assert_eq!(text(k.get("over value").unwrap()).unwrap(), format!("{before}!?…"));
    assert_eq!(text(k.get("over nothing").unwrap()).unwrap(), "swapped");
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
}

#[test]
fn a_batch_may_hold_several_operands_of_a_key() {
    let machine = MemEnv::new(2);
    let db = builder(&machine).open().unwrap();
    let (k, plain) =
        (db.keyspace("k", appending).unwrap(), db.keyspace("plain", KeyspaceOptions::default).unwrap());
    let mut batch = db.batch();
    batch.merge(&k, "a", "1");
    batch.merge(&k, "a", "2");
    batch.insert(&k, "b", "0");
    batch.merge(&k, "b", "1");
    batch.insert(&plain, "a", "x");
    batch.commit().unwrap();
    let mut refused = db.batch();
    refused.insert(&k, "a", "overwritten");
    refused.merge(&plain, "a", "1");
    assert_eq!(refused.commit().unwrap_err().kind(), ErrorKind::Unsupported);
    db.persist(Durability::Sync).unwrap();
    let db = builder(&machine.crash_image(&CrashPolicy::random(1), 1)).open().unwrap();
    let k = db.open_keyspace("k").unwrap().unwrap();
    assert_eq!(text(k.get("a").unwrap()).unwrap(), "12");
    assert_eq!(text(k.get("b").unwrap()).unwrap(), "01");
}

fn prepending() -> Arc<dyn MergeOperator> {
    Arc::new(MergeFunction::new("prepend", |_: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]| {
        let newest_first = operands.iter().rev().copied().chain(existing);
        Ok(newest_first.collect::<Vec<_>>().concat())
    }))
}

#[test]
fn a_store_without_the_operator_keeps_operands_and_names_it() {
    let machine = MemEnv::new(3);
    let db = builder(&machine).merge_operator(prepending()).open().unwrap();
    let k = db.keyspace("k", || KeyspaceOptions::default().merge_operator("prepend")).unwrap();
    k.insert("flushed", "a").unwrap();
    k.insert("plain", "p").unwrap();
    k.merge("nothing", "a").unwrap();
    db.flush().unwrap();
    k.merge("flushed", "b").unwrap();
    k.merge("nothing", "b").unwrap();
    db.flush().unwrap();
    k.merge("flushed", "c").unwrap();
    k.merge("logged", "a").unwrap();
    k.merge("logged", "b").unwrap();
    db.close().unwrap();
    for round in 0..3 {
        let db = builder(&machine).open().unwrap();
        let k = db.open_keyspace("k").unwrap().unwrap();
        let error = k.merge("x", "y").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("\"prepend\""), "{error}");
        for key in ["flushed", "logged"] {
            assert_eq!(k.get(key).unwrap_err().kind(), ErrorKind::Unsupported, "{key}, {round}");
            assert_eq!(k.update(key, |_| None).unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(k.multi_get(&[key]).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        let unread = k.iter().unwrap().filter(|entry| entry.as_ref().unwrap().value().is_err());
        assert!(unread.count() >= 2, "only those entries may fail");
        assert_eq!(text(k.get("plain").unwrap()).unwrap(), "p");
        for number in 0..300_u32 {
            k.insert(format!("other{number:05}"), vec![1; 1000]).unwrap();
        }
        db.compact().unwrap();
        assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
        db.close().unwrap();
    }
    let db = builder(&machine).merge_operator(prepending()).open().unwrap();
    let k = db.open_keyspace("k").unwrap().unwrap();
    for _ in 0..2 {
        assert_eq!(text(k.get("flushed").unwrap()).unwrap(), "cba");
        assert_eq!(text(k.get("nothing").unwrap()).unwrap(), "ba");
        assert_eq!(text(k.get("logged").unwrap()).unwrap(), "ba");
        db.compact().unwrap();
    }
}

#[test]
fn reads_report_a_refused_merge_until_the_key_is_overwritten() {
    let machine = MemEnv::new(4);
    let add = MergeFunction::new("late-add", |key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]| {
        let operators = MergeOperators::default();
        operators.full_merge("", Some("add-u64")).operator()?.merge(key, existing, operands)
    });
    let db = builder(&machine).merge_operator(Arc::new(add)).open().unwrap();
    let unknown = db.keyspace("x", || KeyspaceOptions::default().merge_operator("unheard-of"));
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::Invalid);
    let long = db.keyspace("x", || KeyspaceOptions::default().merge_operator(&"x".repeat(40)));
    assert_eq!(long.unwrap_err().kind(), ErrorKind::Invalid);
    let checking = db.keyspace("c", || KeyspaceOptions::default().merge_operator("add-u64")).unwrap();
    assert_eq!(checking.merge("a", "short").unwrap_err().kind(), ErrorKind::Invalid);
    // An operator without checks detects it when it has to add.
    let k = db.keyspace("k", || KeyspaceOptions::default().merge_operator("late-add")).unwrap();
    assert_eq!(k.options().merge_operator_name(), Some("late-add"));
    k.insert("a", "text").unwrap();
    k.merge("a", 1_u64.to_le_bytes()).unwrap();
    for _ in 0..2 {
        let errors =
            [k.get("a").unwrap_err(), k.iter().unwrap().next().unwrap().unwrap().value().unwrap_err()];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains(r#"keyspace "k": late-add over 1 operands: "#), "{text}");
            assert_eq!(error.key(), Some(&b"a"[..]));
        }
        db.compact().unwrap();
    }
    k.insert("a", 5_u64.to_le_bytes()).unwrap();
    k.merge("a", 1_u64.to_le_bytes()).unwrap();
    assert_eq!(k.get("a").unwrap().unwrap(), 6_u64.to_le_bytes());
    db.compact().unwrap();
    assert_eq!(k.get("a").unwrap().unwrap(), 6_u64.to_le_bytes());
}

#[test]
fn a_hot_counter_takes_little_memory_and_a_long_list_is_read_back_whole() {
    let machine = MemEnv::new(5);
    let db = builder(&machine).open().unwrap();
    let counters = db.keyspace("c", || KeyspaceOptions::default().merge_operator("add-u64")).unwrap();
    let lists = db.keyspace("l", appending).unwrap();
    for number in 0..20_000_u64 {
        counters.merge("hot", number.to_le_bytes()).unwrap();
    }
    assert!(counters.stats().memtables.bytes < 64 << 10, "{:?}", counters.stats().memtables.bytes);
    for number in 0..5_000_u32 {
        lists.merge("hot", number.to_be_bytes()).unwrap();
        if number % 1_700 == 0 {
            db.flush().unwrap();
        }
    }
    let list: Vec<u8> = (0..5_000_u32).flat_map(u32::to_be_bytes).collect();
    assert_eq!(lists.get("hot").unwrap().unwrap(), list);
    assert_eq!(counters.get("hot").unwrap().unwrap(), (20_000_u64 * 19_999 / 2).to_le_bytes());
}

/// Commits of one thread: its number of commits as a value, and increments of its own counter and of a shared
/// one.
fn count(db: &Db, k: &Keyspace, writer: usize, from: u64, done: &AtomicBool, acknowledged: &AtomicU64) {
    let fillers = db.open_keyspace("fillers").unwrap().unwrap();
    for version in from.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let mut batch = db.batch();
        batch.insert(k, format!("version {writer}"), version.to_le_bytes());
        batch.merge(k, format!("own {writer}"), 1_u64.to_le_bytes());
        batch.merge(k, "all", 1_u64.to_le_bytes());
        batch.merge(k, format!("many {}", version % 20), 1_u64.to_le_bytes());
        batch.insert(&fillers, format!("filler {}", version % 500), vec![7; 900]);
        let durability = if version.is_multiple_of(4) { Durability::Sync } else { Durability::Buffered };
        batch.durability(durability).commit().unwrap();
        if durability == Durability::Sync {
            acknowledged.store(version, Ordering::Release);
        }
    }
}

#[test]
fn counters_incremented_by_two_threads_with_crashes_are_exact() {
    const ROUNDS: u64 = 12;
    const WRITERS: usize = 2;
    let mut machine = MemEnv::with_threads(6, 2);
    let mut versions = [0; WRITERS];
    for round in 0..ROUNDS {
        let db = builder(&machine).open().unwrap();
        let k = db.keyspace("k", || KeyspaceOptions::default().merge_operator("add-u64")).unwrap();
        db.keyspace("fillers", KeyspaceOptions::default()).unwrap();
        let number = |key: &str| -> u64 {
            k.get(key).unwrap().map_or(0, |value| u64::from_le_bytes((*value).try_into().unwrap()))
        };
        for (writer, known) in versions.iter_mut().enumerate() {
            let version = number(&format!("version {writer}"));
            assert!(version >= *known, "round {round}: a synced commit is lost");
            *known = version;
            assert_eq!(number(&format!("own {writer}")), version, "round {round}, writer {writer}");
        }
        let sum: u64 = versions.iter().sum();
        assert_eq!(number("all"), sum, "round {round}");
        assert_eq!((0..20).map(|n| number(&format!("many {n}"))).sum::<u64>(), sum, "round {round}");
        db.check_invariants().unwrap();
        let done = AtomicBool::new(false);
        let acknowledged = versions.map(AtomicU64::new);
        let image = thread::scope(|scope| {
            let start = |(writer, acknowledged): (usize, _)| {
                let (db, k, done, from) = (&db, &k, &done, versions[writer] + 1);
                scope.spawn(move || count(db, k, writer, from, done, acknowledged))
            };
            let writers: Vec<_> = (0..WRITERS).zip(&acknowledged).map(start).collect();
            // Some rounds end within the first flushes, others after many.
            let wanted = 40 + round * 97 % 700;
            while acknowledged.iter().map(|count| count.load(Ordering::Acquire)).sum::<u64>() < sum + wanted {
                // A failed writer fails the test, which would otherwise wait for it forever.
                assert!(!writers.iter().any(|writer| writer.is_finished()), "a writer ended by itself");
                thread::yield_now();
            }
            versions = [0, 1].map(|writer: usize| acknowledged[writer].load(Ordering::Acquire));
            let image = machine.crash_image(&CrashPolicy::random(round), round);
            done.store(true, Ordering::Relaxed);
            image
        });
        drop((k, db));
        machine = image;
    }
    assert!(versions.iter().sum::<u64>() > ROUNDS);
}
