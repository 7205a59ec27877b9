//! Values of any length, written and read in pieces, with little memory.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

use testudo::{
    Db, Entry, ErrorKind, Keyspace, KeyspaceOptions, Placement, ReadView, SalvageOptions, Tree, VerifyLevel,
    backup::Repository, salvage,
};
use testudo_env::MemEnv;

const MEMORY: u64 = 4 << 20;
const PIECE: u64 = 64 << 10;

fn open_at(machine: &Arc<MemEnv>, directory: &str) -> Db {
    let builder = Db::builder(Path::new(directory)).env(machine.clone()).memory_bytes(MEMORY);
    builder.warm_restart(false).open().unwrap()
}

fn open(machine: &Arc<MemEnv>) -> Db {
    open_at(machine, "/db")
}

#[test]
fn an_unreadable_value_can_be_overwritten() {
    for options in options() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", options).unwrap();
        let old = b"<the old value>".repeat(20);
        keyspace.insert("key", &old).unwrap();
        db.flush().unwrap();
        drop(keyspace);
        db.close().unwrap();
        let bytes = machine.file_bytes("/db/data").unwrap();
        let places = bytes.windows(30).enumerate().filter(|(_, window)| *window == &old[..30]);
        let places: Vec<usize> = places.map(|(at, _)| at).collect();
        assert!(!places.is_empty(), "the value must be in the file");
        places.into_iter().for_each(|at| machine.corrupt("/db/data", at as u64, 1).unwrap());
        let db = open(&machine);
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        assert_eq!(keyspace.get("key").unwrap_err().kind(), ErrorKind::Corruption);
        keyspace.insert_reader("key", 3 * PIECE, made(1, 3 * PIECE)).unwrap();
        let mut found = Vec::new();
        keyspace.get_reader("key").unwrap().unwrap().read_to_end(&mut found).unwrap();
        let mut expected = Vec::new();
        made(1, 3 * PIECE).read_to_end(&mut expected).unwrap();
        assert!(found == expected);
    }
}

fn options() -> Vec<KeyspaceOptions> {
    let plain = KeyspaceOptions::default();
    vec![
        plain.tree(Tree::turtle()),
        plain.tree(Tree::splinter()).placement(Placement::hybrid()),
        plain.tree(Tree::leveled()).placement(Placement::separate()),
        plain.tree(Tree::treeline()),
    ]
}

/// A value of `length` bytes, generated as it is read; different for each seed.
struct Made {
    seed: u64,
    at: u64,
    length: u64,
}

fn made(seed: u64, length: u64) -> Made {
    Made { seed, at: 0, length }
}

impl Read for Made {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Odd lengths, so that reads do not end at piece boundaries.
        let count = into.len().min(usize::try_from(self.length - self.at).unwrap()).min(10_007);
        for byte in &mut into[..count] {
            *byte = (self.at.wrapping_mul(self.seed * 2 + 3) >> 5).to_le_bytes()[0];
            self.at += 1;
        }
        Ok(count)
    }
}

fn put(keyspace: &Keyspace, key: &str, seed: u64, length: u64) {
    keyspace.insert_reader(key, length, made(seed, length)).unwrap();
}

/// Compares the output of two readers, with little memory.
fn assert_gives(mut reader: impl Read, seed: u64, length: u64) {
    let mut expected = made(seed, length);
    let (mut found, mut wanted) = (vec![0; 30_000], vec![0; 30_000]);
    let mut at = 0;
    loop {
        let count = reader.read(&mut found).unwrap();
        expected.read_exact(&mut wanted[..count]).unwrap();
        assert!(found[..count] == wanted[..count], "from byte {at} on");
        at += count as u64;
        if count == 0 {
            assert_eq!(at, length);
            return;
        }
    }
}

fn check(view: &dyn ReadView, key: &str, seed: u64, length: u64) {
    let reader = view.get_reader(key.as_bytes()).unwrap().unwrap();
    assert_eq!(reader.value_len(), length);
    assert_gives(reader, seed, length);
    let mut entries = view.prefix(key.as_bytes()).unwrap();
    let entry = entries.next().unwrap().unwrap();
    assert_eq!((entry.key(), entry.value_len().unwrap()), (key.as_bytes(), length));
    assert_gives(entry.reader().unwrap(), seed, length);
    let mut whole = Vec::new();
    made(seed, length).read_to_end(&mut whole).unwrap();
    let answers = [
        view.get(key.as_bytes()).map(Option::unwrap),
        view.multi_get(&[key.as_bytes()]).map(|mut answers| answers.pop().unwrap().unwrap()),
        entry.value(),
        entry.into_pair().map(|(_, value)| value),
        view.iter().unwrap().rev().map(Result::unwrap).find(|e| e.key() == key.as_bytes()).unwrap().value(),
    ];
    for answer in answers {
        match answer {
            Ok(value) => assert!(value == whole && length <= MEMORY / 4, "{length}"),
            Err(error) => {
                assert!(length > MEMORY / 4, "{error}");
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.to_string().contains("get_reader"), "{error}");
            }
        }
    }
    assert!(view.contains_key(key.as_bytes()).unwrap());
}

fn verify(db: &Db) {
    let report = db.verify(VerifyLevel::Full).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}

/// Bytes that runs and memtables hold, once the store is idle.
fn rested_bytes(db: &Db) -> u64 {
    for _ in 0..4 {
        db.compact().unwrap();
    }
    db.stats().space.live_bytes
}

#[test]
fn values_of_any_length_are_read_back_in_every_tree() {
    let lengths = [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 1 << 20, (1 << 20) + 1, 5 << 20];
    for options in options() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", options).unwrap();
        for (seed, length) in (1..).zip(lengths) {
            put(&keyspace, &format!("key-{seed}"), seed, length);
        }
        let check_all = |keyspace: &Keyspace| {
            for (seed, length) in (1..).zip(lengths) {
                check(keyspace, &format!("key-{seed}"), seed, length);
            }
            assert_eq!(keyspace.iter().unwrap().count(), lengths.len());
        };
        check_all(&keyspace);
        db.flush().unwrap();
        check_all(&keyspace);
        verify(&db);
        db.compact().unwrap();
        check_all(&keyspace);
        drop(keyspace);
        db.close().unwrap();
        let db = open(&machine);
        assert_eq!(db.keyspace_names(), ["k"]);
        check_all(&db.open_keyspace("k").unwrap().unwrap());
        verify(&db);
    }
}

#[test]
fn a_value_longer_than_the_memory_budget_takes_little_memory() {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let length = 5 * MEMORY + 77;
    put(&keyspace, "long", 3, length);
    let stats = db.stats();
    assert!(stats.memory.memtable_bytes <= MEMORY, "{stats:?}");
    assert_gives(keyspace.get_reader("long").unwrap().unwrap(), 3, length);
    let error = keyspace.insert("whole", vec![0; usize::try_from(MEMORY / 4 + 1).unwrap()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = keyspace.insert_reader("k", 1 << 32, io::repeat(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    db.flush().unwrap();
    let mut reader = keyspace.get_reader("long").unwrap().unwrap();
    for at in [0, PIECE - 1, PIECE, 3 * MEMORY + 5, length - 1] {
        assert_eq!(reader.seek(SeekFrom::Start(at)).unwrap(), at);
        let (mut found, mut wanted) = ([0], made(3, length));
        wanted.at = at;
        let mut expected = [0];
        wanted.read_exact(&mut expected).unwrap();
        reader.read_exact(&mut found).unwrap();
        assert_eq!(found, expected, "at {at}");
    }
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    assert_eq!(reader.seek(SeekFrom::End(5)).unwrap(), length + 5);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    assert!(reader.seek(SeekFrom::Current(-(i64::MAX))).is_err());
}

/// Fails after some bytes.
struct Failing(Made);

impl Read for Failing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => Err(io::Error::other("unplugged")),
            count => Ok(count),
        }
    }
}

#[test]
fn a_reader_that_fails_or_has_a_wrong_length_changes_nothing() {
    for options in options() {
        let db = open(&MemEnv::new(1));
        let keyspace = db.keyspace("k", options).unwrap();
        keyspace.insert("old", "value").unwrap();
        let before = rested_bytes(&db);
        let length = 2 << 20;
        for (short, key) in [(length - 1, "new"), (length / 2, "old"), (0, "old"), (7, "new")] {
            let error = keyspace.insert_reader(key, length, Failing(made(1, short))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("unplugged"), "{error}");
            let error = keyspace.insert_reader(key, length, made(1, short)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        for (length, given) in [(length, length + 1), (10, 11), (0, 1), (10, 9)] {
            let error = keyspace.insert_reader("old", length, made(1, given)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        assert_eq!(keyspace.get("old").unwrap().unwrap(), "value");
        assert!(keyspace.get("new").unwrap().is_none() && keyspace.get_reader("new").unwrap().is_none());
        assert_eq!(keyspace.iter().unwrap().count(), 1);
        let after = rested_bytes(&db);
        assert!(after < before + (256 << 10), "{before} bytes, then {after}");
        verify(&db);
    }
}

#[test]
fn space_of_overwritten_removed_or_dropped_values_is_reclaimed() {
    let length = 3 << 20;
    for options in options() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", options).unwrap();
        let other = db.keyspace("other", options).unwrap();
        for round in 0..4 {
            put(&keyspace, "again", round, length);
            put(&keyspace, "overwritten", round, length);
            put(&keyspace, "removed", round, length);
        }
        put(&other, "dropped", 9, length);
        keyspace.insert("overwritten", "short").unwrap();
        keyspace.remove("removed").unwrap();
        drop(other);
        db.drop_keyspace("other").unwrap();
        let rested = rested_bytes(&db);
        assert!(rested > length && rested < 2 * length, "{rested}");
        check(&keyspace, "again", 3, length);
        assert_eq!(keyspace.get("overwritten").unwrap().unwrap(), "short");
        assert!(!keyspace.contains_key("removed").unwrap());
        verify(&db);
        drop(keyspace);
        db.close().unwrap();
        let db = open(&machine);
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        check(&keyspace, "again", 3, length);
        keyspace.remove("again").unwrap();
        assert!(rested_bytes(&db) < 256 << 10);
        put(&keyspace, "again", 5, length);
        check(&keyspace, "again", 5, length);
    }
}

#[test]
fn snapshots_readers_and_entries_keep_their_value() {
    let length = 2 << 20;
    for options in options() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", options).unwrap();
        put(&keyspace, "key", 1, length);
        db.flush().unwrap();
        let snapshot = db.snapshot().unwrap();
        let reader = keyspace.get_reader("key").unwrap().unwrap();
        let entry: Entry = keyspace.iter().unwrap().next().unwrap().unwrap();
        let empty = db.keyspace("empty", options).unwrap();
        for round in 2..6 {
            put(&keyspace, "key", round, length);
            rested_bytes(&db);
        }
        keyspace.remove("key").unwrap();
        rested_bytes(&db);
        check(&snapshot.keyspace(&keyspace).unwrap(), "key", 1, length);
        assert!(snapshot.keyspace(&empty).is_err());
        assert_gives(reader, 1, length);
        assert_gives(entry.reader().unwrap(), 1, length);
        assert_eq!(keyspace.get("key").unwrap(), None);
        drop((snapshot, entry));
        put(&keyspace, "key", 7, length);
        assert!(rested_bytes(&db) < 2 * length);
        check(&keyspace, "key", 7, length);
        verify(&db);
    }
}

#[test]
fn operands_and_updates_change_a_value_in_pieces_or_leave_it() {
    let limit = MEMORY / 4;
    for options in options() {
        let db = open(&MemEnv::new(1));
        let keyspace = db.keyspace("k", options.merge_operator("append")).unwrap();
        for (key, length) in [("short", 2 * PIECE), ("long", limit + 1)] {
            put(&keyspace, key, 4, length);
            for is_flushed in [false, true] {
                let outcome = keyspace.merge(key, b"+");
                if key == "short" {
                    outcome.unwrap();
                    assert_eq!(keyspace.get(key).unwrap().unwrap().last(), Some(&b'+'));
                    put(&keyspace, key, 4, length);
                } else {
                    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
                    let mut batch = db.batch();
                    batch.insert(&keyspace, "beside", "");
                    batch.merge(&keyspace, key, b"+");
                    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::Invalid);
                    assert!(!keyspace.contains_key("beside").unwrap());
                    assert_eq!(keyspace.update(key, |_| None).unwrap_err().kind(), ErrorKind::Invalid);
                }
                check(&keyspace, key, 4, length);
                if !is_flushed {
                    db.flush().unwrap();
                }
            }
        }
        let old = keyspace.get("short").unwrap().unwrap();
        keyspace.compare_and_swap("short", Some(&old), Some(b"new")).unwrap();
        assert_eq!(keyspace.get("short").unwrap().unwrap(), "new");
        keyspace.update("short", |old| Some([old.unwrap(), b"er"].concat())).unwrap();
        keyspace.merge("short", b"!").unwrap();
        assert_eq!(keyspace.get("short").unwrap().unwrap(), "newer!");
        rested_bytes(&db);
        check(&keyspace, "long", 4, limit + 1);
        verify(&db);
    }
}

#[test]
fn values_in_pieces_move_with_their_keyspace_to_another_tree() {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for number in 0..300 {
        keyspace.insert(format!("small-{number}"), [7; 500]).unwrap();
    }
    put(&keyspace, "one", 1, 2 << 20);
    db.flush().unwrap();
    put(&keyspace, "two", 2, 1 << 20);
    for (tree, placement) in [
        (Tree::leveled(), Placement::separate()),
        (Tree::splinter(), Placement::hybrid()),
        (Tree::treeline(), Placement::inline()),
    ] {
        keyspace.set_tree(tree).unwrap();
        keyspace.set_placement(placement).unwrap();
        rested_bytes(&db);
        check(&keyspace, "one", 1, 2 << 20);
        check(&keyspace, "two", 2, 1 << 20);
        verify(&db);
    }
}

#[test]
fn copies_of_a_store_include_its_values_in_pieces() {
    for options in options() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", options).unwrap();
        put(&keyspace, "flushed", 1, 2 << 20);
        db.flush().unwrap();
        put(&keyspace, "in memory", 2, 200_000);
        db.checkpoint("/checkpoint").unwrap();
        let repository = Repository::at("/backups").env(machine.clone());
        repository.create(&db).unwrap();
        repository.restore(None, "/restored").unwrap();
        drop(keyspace);
        db.close().unwrap();
        let salvage_options = SalvageOptions::new("/db", "/saved").env(machine.clone()).memory_bytes(MEMORY);
        let report = salvage(salvage_options).unwrap();
        assert!(report.keyspaces.iter().all(|keyspace| keyspace.lost_ranges.is_empty()), "{report:?}");
        for directory in ["/checkpoint", "/restored", "/saved"] {
            let db = open_at(&machine, directory);
            let keyspace = db.open_keyspace("k").unwrap().unwrap();
            for _ in 0..2 {
                check(&keyspace, "flushed", 1, 2 << 20);
                check(&keyspace, "in memory", 2, 200_000);
                verify(&db);
                rested_bytes(&db);
            }
            put(&keyspace, "another", 3, 300_000);
            check(&keyspace, "flushed", 1, 2 << 20);
            check(&keyspace, "another", 3, 300_000);
        }
    }
}

#[test]
fn the_keyspace_of_the_pieces_is_inaccessible_to_users() {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    put(&keyspace, "key", 1, 100_000);
    let name = "\u{0}values in pieces";
    assert_eq!(db.keyspace(name, KeyspaceOptions::default()).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(db.open_keyspace(name).unwrap().is_none() && !db.drop_keyspace(name).unwrap());
    assert_eq!(db.keyspace_names(), ["k"]);
    let error = keyspace
        .update("other", |_| {
            let error = keyspace.insert_reader("key", 100_000, made(2, 100_000)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            None
        })
        .unwrap();
    assert!(error.is_none());
    drop(keyspace);
    db.close().unwrap();
    let db = Db::builder(Path::new("/db")).env(machine.clone()).read_only().open().unwrap();
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    check(&keyspace, "key", 1, 100_000);
    let error = keyspace.insert_reader("key", 1, made(1, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
