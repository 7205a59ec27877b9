//! Power loss while values are written in pieces, and cleanup of values that were never completed.

use std::{io::Read, path::Path};

use testudo_base::{Kind, Seqno, num::u64_of, sync::Arc};
use testudo_env::{CrashPolicy, MemEnv};
use testudo_options::{Durability, KeyspaceOptions, Tree};
use testudo_store::{
    commits::batch_format::Operation,
    read::look_up::{self, Reference},
    values::pieces_format::piece_key,
};
use testudo_values::Placement;
use testudo_write::{
    commit::commit_one,
    long_values::{self, commit_piece},
};

use crate::{Db, Keyspace, VerifyLevel};

const LENGTH: u64 = 200_000;

fn open(machine: &Arc<MemEnv>, durability: Durability) -> Db {
    let builder = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20);
    builder.durability(durability).warm_restart(false).open().unwrap()
}

fn insert(keyspace: &Keyspace, byte: u8) -> testudo_base::Result<()> {
    keyspace.insert_reader("key", LENGTH, std::io::repeat(byte).take(LENGTH))
}

/// The byte that the key's value consists of.
fn present(keyspace: &Keyspace) -> Option<u8> {
    let mut value = Vec::new();
    keyspace.get_reader("key").unwrap()?.read_to_end(&mut value).unwrap();
    assert_eq!(u64_of(value.len()), LENGTH);
    assert!(value.iter().all(|byte| *byte == value[0]), "a mix of two values");
    Some(value[0])
}

/// Number of heads and of pieces.
fn entries(db: &Db) -> (usize, usize) {
    let Some(core) = db.store().long_values.keyspace() else { return (0, 0) };
    let keyspace = Keyspace::new(db, Arc::clone(core));
    let count = |prefix: &str| keyspace.prefix(prefix).unwrap().count();
    (count("h"), count("p"))
}

#[test]
fn power_loss_leaves_either_old_or_new_value_and_no_stray_pieces() {
    let trees = [(Tree::turtle(), Placement::inline()), (Tree::leveled(), Placement::separate())];
    for (seed, (tree, placement)) in (0..).zip(trees) {
        for durability in [Durability::Buffered, Durability::Sync] {
            let mut ended = false;
            for count in (1..).step_by(3) {
                let machine = MemEnv::new(seed);
                let db = open(&machine, durability);
                let options = KeyspaceOptions::default().tree(tree).placement(placement);
                let keyspace = db.keyspace("k", options).unwrap();
                insert(&keyspace, b'a').unwrap();
                db.persist(Durability::Sync).unwrap();
                machine.crash_after(count);
                let outcome = insert(&keyspace, b'b').and_then(|()| db.flush()).and_then(|()| db.compact());
                ended = !machine.is_crashed();
                let image = machine.crash_image(&CrashPolicy::random(count), count);
                let db = open(&image, durability);
                let keyspace = db.open_keyspace("k").unwrap().unwrap();
                let found = present(&keyspace).unwrap();
                assert!(found == b'a' || found == b'b', "{found}");
                assert!(outcome.is_err() || found == b'b', "a flushed value is durable");
                assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
                db.compact().unwrap();
                assert_eq!(entries(&db), (1, 4), "after {count} operations");
                assert_eq!(present(&keyspace), Some(found));
                insert(&keyspace, b'c').unwrap();
                assert_eq!(present(&keyspace), Some(b'c'));
                if ended {
                    break;
                }
            }
            assert!(ended);
        }
    }
}

#[test]
fn synced_value_survives_any_power_loss() {
    for seed in 0..20 {
        let machine = MemEnv::new(seed);
        let db = open(&machine, Durability::Sync);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        insert(&keyspace, b'a').unwrap();
        insert(&keyspace, b'b').unwrap();
        let image = machine.crash_image(&CrashPolicy::LOSE_ALL, seed);
        let db = open(&image, Durability::Sync);
        assert_eq!(present(&db.open_keyspace("k").unwrap().unwrap()), Some(b'b'));
    }
}

#[test]
fn failed_value_is_removed_and_sweep_spares_value_in_progress() {
    let machine = MemEnv::new(1);
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    insert(&keyspace, b'a').unwrap();
    let short = std::io::repeat(b'b').take(LENGTH - 1);
    assert!(keyspace.insert_reader("key", LENGTH, short).is_err());
    assert_eq!(entries(&db), (1, 4));
    // A sweep while a value is half written.
    let (mut given, db_of_reader) = (0, db.clone());
    let sweeping = SweepingReader(|into: &mut [u8]| {
        assert!(!long_values::sweep(db_of_reader.store()).unwrap());
        db_of_reader.flush().unwrap();
        let count = into.len().min(usize::try_from(LENGTH - given).unwrap());
        into[..count].fill(b'c');
        given += u64_of(count);
        count
    });
    keyspace.insert_reader("other", LENGTH, sweeping).unwrap();
    assert_eq!(entries(&db), (2, 8));
    assert_eq!(present(&keyspace), Some(b'a'));
    keyspace.remove("other").unwrap();
    assert!(long_values::sweep(db.store()).unwrap());
    assert_eq!(entries(&db), (1, 4));
}

struct SweepingReader<F>(F);

impl<F: FnMut(&mut [u8]) -> usize> Read for SweepingReader<F> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        Ok(self.0(into))
    }
}

#[test]
fn overwritten_value_is_removed_but_snapshots_still_read_it() {
    let machine = MemEnv::new(1);
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    insert(&keyspace, b'a').unwrap();
    let snapshot = db.snapshot().unwrap();
    for byte in [b'b', b'c'] {
        insert(&keyspace, byte).unwrap();
        assert_eq!(entries(&db), (1, 4), "without a sweep");
    }
    db.flush().unwrap();
    let mut value = Vec::new();
    let reader = snapshot.keyspace(&keyspace).unwrap().get_reader("key").unwrap();
    reader.unwrap().read_to_end(&mut value).unwrap();
    assert!(value.len() == usize::try_from(LENGTH).unwrap() && value.iter().all(|byte| *byte == b'a'));
}

#[test]
fn sweep_becomes_overdue_after_many_values_in_a_busy_store() {
    let machine = MemEnv::new(1);
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut were_overdue = 0;
    for _ in 0..70 {
        insert(&keyspace, b'a').unwrap();
        keyspace.remove("key").unwrap();
        were_overdue += u64::from(db.store().long_values.is_sweep_overdue());
    }
    assert!((1..70).contains(&were_overdue), "{were_overdue}");
    assert!(long_values::sweep(db.store()).unwrap());
    assert!(!db.store().long_values.is_sweep_overdue());
    assert_eq!(entries(&db), (0, 0));
}

#[test]
fn value_numbers_are_never_reused() {
    let machine = MemEnv::new(3);
    let mut numbers = Vec::new();
    for round in 0..6 {
        let db = open(&machine, Durability::Buffered);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        for _ in 0..3 {
            insert(&keyspace, round).unwrap();
            let found = look_up::find::<Reference>(&**keyspace.core.view.load(), b"key", Seqno(u64::MAX))
                .unwrap()
                .unwrap();
            numbers.push(found.long_value().unwrap());
        }
        if round % 2 == 0 {
            db.compact().unwrap();
        }
        assert!(db.store().last_seqno() > Seqno(0));
        drop(keyspace);
        db.close().unwrap();
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

/// The state after a salvage that found an older version: the head names the original keyspace of the value.
#[test]
fn sweep_keeps_pieces_that_older_versions_refer_to() {
    let machine = MemEnv::new(4);
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let older = db.keyspace("k.older", KeyspaceOptions::default()).unwrap();
    insert(&keyspace, b'a').unwrap();
    let found =
        look_up::find::<Reference>(&**keyspace.core.view.load(), b"key", Seqno(u64::MAX)).unwrap().unwrap();
    let mut reference = Vec::new();
    found.encode(&mut reference);
    let keyspace_id = older.core.id;
    let operation =
        Operation { keyspace: keyspace_id, kind: Kind::Reference, key: b"key", value: &reference };
    commit_one(db.store(), &older.core, &operation, Durability::Buffered).unwrap();
    insert(&keyspace, b'b').unwrap();
    db.compact().unwrap();
    assert_eq!((present(&keyspace), present(&older)), (Some(b'b'), Some(b'a')));
    older.remove("key").unwrap();
    db.store().long_values.expect_sweep();
    db.compact().unwrap();
    assert_eq!((present(&keyspace), entries(&db).0), (Some(b'b'), 1));
}

/// The state after a salvage that lost the newest heads.
#[test]
fn pieces_without_a_head_never_join_another_value() {
    let machine = MemEnv::new(5);
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    insert(&keyspace, b'a').unwrap();
    let pieces = Arc::clone(db.store().long_values.keyspace().unwrap());
    let stray = 1_000_000;
    commit_piece(db.store(), &pieces, &piece_key(stray, 0), &[7; 100]).unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    insert(&keyspace, b'b').unwrap();
    let found =
        look_up::find::<Reference>(&**keyspace.core.view.load(), b"key", Seqno(u64::MAX)).unwrap().unwrap();
    assert!(found.long_value().unwrap() > stray, "{found:?}");
    assert_eq!(present(&keyspace), Some(b'b'));
}

/// Claims to have read more bytes than requested.
struct Boaster;

impl Read for Boaster {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(buffer.len() + 1)
    }
}

#[test]
fn reader_that_overstates_its_count_is_rejected() {
    let machine = MemEnv::new(6);
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let error = keyspace.insert_reader("key", LENGTH, Boaster).unwrap_err();
    assert_eq!(error.kind(), testudo_base::ErrorKind::Invalid, "{error}");
    assert_eq!((present(&keyspace), entries(&db)), (None, (0, 0)));
}

/// A sweep would wait for the lock of the key that is being updated.
#[test]
fn sweep_inside_an_update_is_refused_without_waiting() {
    let machine = MemEnv::new(7);
    let db = open(&machine, Durability::Buffered);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    insert(&keyspace, b'a').unwrap();
    db.store().long_values.expect_sweep();
    keyspace
        .update("key", |_| {
            assert!(!long_values::try_sweep(db.store()));
            assert_eq!(long_values::sweep(db.store()).unwrap_err().kind(), testudo_base::ErrorKind::Invalid);
            Some(b"short".to_vec())
        })
        .unwrap();
    db.compact().unwrap();
    assert_eq!((keyspace.get("key").unwrap().as_deref(), entries(&db)), (Some(&b"short"[..]), (0, 0)));
}
