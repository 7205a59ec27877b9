//! Scans over separated values: values are read on access, many at a time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{Db, DbStats, Entry, ErrorKind, Keyspace, KeyspaceOptions, Placement, Tree};
use testudo_env::{MemEnv, SplitMix};

const KEYS: u64 = 2_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(machine: &Arc<MemEnv>) -> Db {
    let builder = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(4 << 20);
    builder.warm_restart(false).open().unwrap()
}

fn trees() -> [Tree; 3] {
    let leaf_bytes = 16 << 10;
    [
        Tree::turtle().with_run_bytes(leaf_bytes).with_max_pivots(8),
        Tree::splinter().with_run_bytes(leaf_bytes).with_max_pivots(8),
        Tree::leveled().with_run_bytes(leaf_bytes).with_growth_factor(4).with_level1_flushes(2),
    ]
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    format!("<{number:05}>").into_bytes().into_iter().cycle().take(1_000).collect()
}

/// Creates, settles and reopens a store whose values are all separated.
fn settled(tree: Tree) -> (Arc<MemEnv>, Db, Keyspace) {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    let options = KeyspaceOptions::default().tree(tree).placement(Placement::separate());
    let keyspace = db.keyspace("k", options).unwrap();
    for number in 0..KEYS {
        // A multiplier coprime to the count visits every number once.
        let number = number * 7_919 % KEYS;
        keyspace.insert(key(number), value(number)).unwrap();
    }
    db.compact().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = open(&machine);
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    (machine, db, keyspace)
}

/// Bytes and reads of the device from `before` to `after`.
fn read_between(before: &DbStats, after: &DbStats) -> (u64, u64) {
    let count = |stats: &DbStats| stats.io.page_reads + stats.io.stream_reads;
    (after.io.bytes_read - before.io.bytes_read, count(after) - count(before))
}

/// Device reads of `scan`.
fn reads_of(db: &Db, scan: impl FnOnce()) -> (u64, u64) {
    let before = db.stats();
    scan();
    read_between(&before, &db.stats())
}

fn check(entry: &Entry) {
    let number = std::str::from_utf8(&entry.key()[4..]).unwrap().parse().unwrap();
    assert_eq!(entry.value().unwrap(), value(number), "{entry:?}");
}

#[test]
fn key_only_scan_reads_no_values() {
    for tree in trees() {
        let (_machine, db, keyspace) = settled(tree);
        let values = KEYS * 1_000;
        let (bytes, _) = reads_of(&db, || {
            assert_eq!(keyspace.iter().unwrap().count(), 2_000);
            assert_eq!(keyspace.iter().unwrap().rev().count(), 2_000);
            assert_eq!(keyspace.range(key(100)..).unwrap().take(1_000).count(), 1_000);
            for entry in keyspace.iter().unwrap() {
                assert_eq!(entry.unwrap().value_len().unwrap(), 1_000);
            }
        });
        assert!(bytes < values / 10, "{tree}: {bytes} bytes read by a key-only scan");
        let (bytes, _) = reads_of(&db, || keyspace.iter().unwrap().for_each(|entry| check(&entry.unwrap())));
        assert!(bytes > values, "{tree}: {bytes} bytes read by a full scan");
    }
}

#[test]
fn scanned_values_are_read_many_at_a_time() {
    for tree in trees() {
        let (_machine, db, keyspace) = settled(tree);
        // Afterwards the pages of the tree are cached.
        assert_eq!(keyspace.iter().unwrap().count(), 2_000);
        let rounds = |scan: &dyn Fn()| reads_of(&db, scan).1;
        let looked = rounds(&|| keyspace.iter().unwrap().for_each(|entry| check(&entry.unwrap())));
        assert!(looked * 4 < KEYS, "{tree}: {looked} reads for all values");
        let collected = rounds(&|| {
            let entries: Vec<Entry> = keyspace.iter().unwrap().map(Result::unwrap).collect();
            entries.iter().for_each(check);
        });
        assert!(collected * 4 < KEYS, "{tree}: {collected} reads for all values, once they are collected");
        let taken = rounds(&|| {
            keyspace.range(key(500)..).unwrap().take(40).for_each(|entry| check(&entry.unwrap()));
        });
        assert!(taken <= 12, "{tree}: {taken} reads for 40 values");
    }
}

#[test]
fn accessing_few_values_reads_few() {
    for tree in trees() {
        let (_machine, db, keyspace) = settled(tree);
        assert_eq!(keyspace.iter().unwrap().count(), 2_000);
        let (bytes, _) = reads_of(&db, || {
            for (number, entry) in keyspace.iter().unwrap().enumerate() {
                if number % 50 == 20 {
                    check(&entry.unwrap());
                }
            }
        });
        // A block of values and its index for each of 40.
        assert!(bytes < 40 * 3 * 4_096, "{tree}: {bytes} bytes read of 40 values");
    }
}

#[test]
fn no_values_are_read_beyond_the_end_of_a_range() {
    for tree in trees() {
        let (_machine, db, keyspace) = settled(tree);
        assert_eq!(keyspace.iter().unwrap().count(), 2_000);
        let (bytes, _) = reads_of(&db, || {
            for start in (0..KEYS - 100).step_by(100) {
                let entries = keyspace.range(key(start)..key(start + 3)).unwrap();
                let seen: Vec<Entry> = entries.map(Result::unwrap).collect();
                assert_eq!(seen.len(), 3);
                seen.iter().for_each(check);
            }
        });
        // Values in key order take at most two blocks, with an index page each.
        assert!(bytes < 19 * 9 * 4_096, "{tree}: {bytes} bytes read of 57 values");
    }
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_of_its_entry_only() {
    for tree in trees() {
        let (machine, db, keyspace) = settled(tree);
        drop(keyspace);
        db.close().unwrap();
        let bytes = machine.file_bytes("/db/data").unwrap();
        let pattern = b"<00077><00077>";
        let at = bytes.windows(pattern.len()).position(|window| window == pattern).unwrap();
        machine.corrupt("/db/data", u64::try_from(at).unwrap(), 1).unwrap();
        let db = open(&machine);
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        let (mut shown, mut failed) = (0, Vec::new());
        for entry in keyspace.iter().unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.value_len().unwrap(), 1_000);
            match entry.value() {
                Ok(_) => {
                    check(&entry);
                    shown += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    assert!(entry.base_with_operands().is_none());
                    assert_eq!(entry, entry.clone());
                    failed.push(entry.key().to_vec());
                }
            }
        }
        // Values of its block fail as well.
        assert!(failed.contains(&key(77)) && failed.len() <= 5, "{failed:?}");
        assert_eq!(shown + failed.len(), 2_000, "{tree}");
    }
}

#[test]
fn an_entry_keeps_its_value_after_its_key_changes() {
    for tree in trees() {
        let (_machine, db, keyspace) = settled(tree);
        let mut entries = keyspace.range(key(10)..).unwrap();
        let held: Vec<Entry> = entries.by_ref().step_by(50).map(Result::unwrap).collect();
        drop(entries);
        for round in 0..3 {
            for number in 0..KEYS {
                keyspace.insert(key(number), [round; 2_000]).unwrap();
            }
            db.compact().unwrap();
        }
        held.iter().for_each(check);
        let first = held[0].clone();
        let (of_clone, of_entry) = (first.into_pair().unwrap(), held[0].clone().into_pair().unwrap());
        assert_eq!(of_clone, of_entry);
        let late = keyspace.iter().unwrap().next().unwrap().unwrap();
        drop(keyspace);
        db.close().unwrap();
        assert_eq!(late.value().unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// Overwrites, operands and removals on top of separated values, some still in memory.
fn mixed(db: &Db, tree: Tree, random: &mut SplitMix) -> (Keyspace, Model) {
    let options = KeyspaceOptions::default().tree(tree).placement(Placement::separate());
    let keyspace = db.keyspace("k", options.merge_operator("append")).unwrap();
    let mut model = Model::new();
    for round in 0..8 {
        for _ in 0..400 {
            let key = key(random.below(600));
            match random.below(10) {
                0..=6 => {
                    let length = usize::try_from(random.below(1_500)).unwrap();
                    let value = vec![b'a' + round; length];
                    keyspace.insert(&key, &value).unwrap();
                    model.insert(key, value);
                }
                7 => {
                    keyspace.remove(&key).unwrap();
                    model.remove(&key);
                }
                _ => {
                    keyspace.merge(&key, b"+").unwrap();
                    model.entry(key).or_default().push(b'+');
                }
            }
        }
        if round < 7 {
            db.flush().unwrap();
        }
    }
    (keyspace, model)
}

#[test]
fn a_double_ended_scan_with_seeks_matches_the_model() {
    for (seed, tree) in (1..).zip(trees()) {
        let mut random = SplitMix::new(seed);
        let db = open(&MemEnv::new(1));
        let (keyspace, model) = mixed(&db, tree, &mut random);
        for _ in 0..80 {
            let (low, high) = (random.below(600), random.below(700));
            let mut entries = keyspace.range(key(low)..key(high)).unwrap();
            let in_range = || model.range(key(low)..key(high).max(key(low)));
            let mut left: Vec<_> = in_range().map(|(key, value)| (key.clone(), value.clone())).collect();
            let mut behind: Vec<_> = left.clone();
            let looks = random.percent(50);
            for _ in 0..random.below(150) {
                if random.percent(3) {
                    let sought = key(random.below(700));
                    entries.seek(&sought).unwrap();
                    left = behind.iter().filter(|(key, _)| *key >= sought).cloned().collect();
                    continue;
                }
                let (found, expected) = match random.percent(85) {
                    true => (entries.next(), (!left.is_empty()).then(|| left.remove(0))),
                    false => {
                        let expected = left.pop();
                        if let Some((key, _)) = &expected {
                            behind.retain(|(other, _)| other < key);
                        }
                        (entries.next_back(), expected)
                    }
                };
                let found = found.map(Result::unwrap);
                assert_eq!(found.as_ref().map(Entry::key), expected.as_ref().map(|(key, _)| &key[..]));
                if let (Some(found), Some((_, value))) = (found, &expected)
                    && (looks || random.percent(20))
                {
                    assert_eq!(found.value_len().unwrap(), value.len() as u64);
                    assert_eq!(found.value().unwrap(), *value);
                }
            }
        }
    }
}
