//! Iterators that are moved while they are read from both ends.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, ops::Bound, path::Path, sync::Arc};

use testudo::{Db, ErrorKind, Iter, Keyspace, KeyspaceOptions};
use testudo_env::{FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv, SplitMix};

fn letters(db: &Db) -> Keyspace {
    let k = db.keyspace("k", KeyspaceOptions::default).unwrap();
    for letter in ["a", "b", "c", "d", "e", "f"] {
        k.insert(letter, "").unwrap();
    }
    k
}

fn open(seed: u64) -> Db {
    Db::builder(Path::new("/db")).env(MemEnv::new(seed)).memory_bytes(1 << 20).open().unwrap()
}

fn text(iter: impl Iterator<Item = testudo::Result<testudo::Entry>>) -> String {
    iter.map(|entry| String::from_utf8(entry.unwrap().key().to_vec()).unwrap()).collect()
}

#[test]
fn the_range_left_by_a_seek_is_read_from_both_ends() {
    let db = open(1);
    let k = letters(&db);
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        let sought = |key: &str| {
            let mut iter = k.iter().unwrap();
            iter.seek(key.as_bytes()).unwrap();
            iter
        };
        assert_eq!(text(sought("d").rev()), "fed");
        assert_eq!(text(sought("cc").rev()), "fed");
        assert_eq!(text(sought("d")), "def");
        assert_eq!(text(sought("g").rev()), "");

        // Back over entries that the front has returned; entries returned from the back are gone.
        let mut iter = sought("d");
        assert_eq!(text(iter.by_ref().take(2)), "de");
        assert_eq!(text(iter.by_ref().rev()), "f");
        iter.seek(b"b").unwrap();
        assert_eq!(text(iter.by_ref().rev().take(2)), "ed");
        iter.seek(b"").unwrap();
        assert_eq!(text(iter.by_ref().take(1)), "a");
        assert_eq!(text(iter.rev()), "cb");

        // A seek never leaves the range.
        let mut iter = k.range("b".."e").unwrap();
        iter.seek(b"a").unwrap();
        assert_eq!(text(iter.by_ref().rev()), "dcb");
        iter.seek(b"f").unwrap();
        assert!(iter.next_back().is_none() && iter.next().is_none());
    }
}

/// Expected behavior of an iterator over `keys`.
struct Expected {
    keys: Vec<Vec<u8>>,
    front: usize,
    back: usize,
}

impl Expected {
    fn seek(&mut self, key: &[u8]) {
        self.front = self.keys.partition_point(|known| &**known < key);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        (self.front < self.back).then(|| {
            self.front += 1;
            self.keys[self.front - 1].clone()
        })
    }

    fn next_back(&mut self) -> Option<Vec<u8>> {
        (self.front < self.back).then(|| {
            self.back -= 1;
            self.keys[self.back].clone()
        })
    }
}

fn key_of(random: &mut SplitMix) -> Vec<u8> {
    format!("{:03}", random.below(400)).into_bytes()
}

#[test]
fn any_sequence_of_steps_and_seeks_matches_a_sorted_list() {
    let mut random = SplitMix::new(5);
    let db = open(2);
    let k = db.keyspace("k", KeyspaceOptions::default).unwrap();
    let mut live = BTreeSet::new();
    for round in 0..40 {
        // Values and tombstones, in the tree and in the write buffer.
        for _ in 0..40 {
            let key = key_of(&mut random);
            if random.percent(30) {
                k.remove(&key).unwrap();
                live.remove(&key);
            } else {
                k.insert(&key, "v").unwrap();
                live.insert(key);
            }
        }
        if round % 3 == 0 {
            db.flush().unwrap();
        }
        for _ in 0..30 {
            let (low, high) = (key_of(&mut random), key_of(&mut random));
            let range = (Bound::Included(low.min(high.clone())), Bound::Excluded(high));
            let mut iter: Iter = k.range(range.clone()).unwrap();
            let keys: Vec<_> =
                live.iter().filter(|key| std::ops::RangeBounds::contains(&range, *key)).cloned().collect();
            let back = keys.len();
            let mut expected = Expected { keys, front: 0, back };
            for _ in 0..random.below(30) {
                let key =
                    |step: Option<testudo::Result<testudo::Entry>>| step.map(|e| e.unwrap().key().to_vec());
                match random.below(5) {
                    0 => {
                        let key = key_of(&mut random);
                        iter.seek(&key).unwrap();
                        expected.seek(&key);
                    }
                    1 | 2 => assert_eq!(key(iter.next()), expected.next()),
                    _ => assert_eq!(key(iter.next_back()), expected.next_back()),
                }
            }
        }
    }
}

#[test]
fn an_iterator_that_failed_at_its_back_resumes_after_a_seek() {
    let machine = MemEnv::new(3);
    let faulty = FaultyEnv::new(machine);
    let builder = Db::builder(Path::new("/db")).env(Arc::clone(&faulty) as Arc<_>).memory_bytes(1 << 20);
    let db = builder.open().unwrap();
    let k = db.keyspace("k", KeyspaceOptions::default).unwrap();
    for n in 0..30_000_u32 {
        k.insert(format!("{n:06}"), [7; 100]).unwrap();
    }
    db.compact().unwrap();
    let mut iter = k.iter().unwrap();
    let taken = iter.by_ref().rev().take(100).count();
    assert_eq!(taken, 100);
    faulty.set_plan(Some(FaultPlan::once(0, FaultError::Device).of_class(IoClass::Read).for_good()));
    let failed = iter.by_ref().rev().find_map(std::result::Result::err).unwrap();
    assert_eq!(failed.kind(), ErrorKind::Io);
    assert!(iter.next().is_none() && iter.next_back().is_none());
    faulty.set_plan(None);
    iter.seek(b"").unwrap();
    let mut left: Vec<_> = iter.rev().map(|entry| entry.unwrap().key().to_vec()).collect();
    left.reverse();
    assert!(left.is_sorted() && left.first().unwrap() == b"000000");
    let last: usize = String::from_utf8(left.last().unwrap().clone()).unwrap().parse().unwrap();
    assert_eq!(last + 1, left.len());
    assert!(last <= 29_899, "returned entries must not be repeated: {last}");
}
