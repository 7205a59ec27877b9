#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Stores written by earlier builds are opened, read, checked and written to.
//!
//! The files are in `testing/fixtures`; its README states their builds and contents. The expected content
//! comes from repeating the same steps with this build.

use std::{io::Read, path::Path, sync::Arc};

use testudo::{
    Db, DbBuilder, Durability, KeyspaceOptions, MergeFunction, RepairOptions, Tree, VerifyLevel, repair,
};
use testudo_base::{codec::Reader, num::usize_of};
use testudo_env::{Env, MemEnv};
use testudo_testkit::busy_store::{Contents, contents_of};

/// Files of a store, each: length of its name u32, its name, length u64, its bytes; compressed by zstd.
const BEFORE_KIND_BYTES: &[u8] = include_bytes!("../../../fixtures/store_before_kind_bytes.zst");
/// The same for a store whose filters have remainders of 16 bits.
const WIDE_FILTERS: &[u8] = include_bytes!("../../../fixtures/store_with_16_bit_filters.zst");

fn builder(machine: &Arc<MemEnv>) -> DbBuilder {
    Db::builder("/db").memory_bytes(1 << 20).env(machine.clone())
}

/// Adds an operator that appends operands to the value, with a dash before each.
fn with_operator(builder: DbBuilder) -> DbBuilder {
    builder.merge_operator(Arc::new(MergeFunction::new(
        "dashes",
        |_: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]| {
            let mut value = existing.unwrap_or_default().to_vec();
            for operand in operands {
                value.push(b'-');
                value.extend_from_slice(operand);
            }
            Ok(value)
        },
    )))
}

fn key(number: u32) -> Vec<u8> {
    let stem = if number.is_multiple_of(50) { "long ".repeat(70) } else { "key ".to_owned() };
    format!("{stem}{number:04}").into_bytes()
}

/// Fills a new store: values, removals and operands in two trees and in the log, and operands that could not
/// be merged when they reached their values.
fn fill(machine: &Arc<MemEnv>) {
    let db = with_operator(builder(machine)).open().unwrap();
    let tree = Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4);
    let turtle = KeyspaceOptions::default().tree(tree).merge_operator("dashes");
    let turtle = db.keyspace("turtle", turtle).unwrap();
    let splinter = KeyspaceOptions::default().tree(Tree::splinter()).merge_operator("append");
    let splinter = db.keyspace("splinter", splinter).unwrap();
    for round in 0..4_u32 {
        for number in (round..600).step_by(3) {
            let length = if number == 123 { 9_000 } else { 40 + number % 60 };
            let value = format!("{round}").repeat(length as usize);
            turtle.insert(key(number), &value).unwrap();
            splinter.insert(key(number), &value).unwrap();
        }
        for number in (round..600).step_by(7) {
            turtle.remove(key(number)).unwrap();
            splinter.merge(key(number), "more").unwrap();
        }
        db.flush().unwrap();
    }
    for number in (0..600).step_by(5) {
        turtle.merge(key(number), "unmerged").unwrap();
    }
    drop((turtle, splinter));
    db.close().unwrap();
    let db = builder(machine).open().unwrap();
    let turtle = db.open_keyspace("turtle").unwrap().unwrap();
    for round in 0..4_u32 {
        for number in (round..600).step_by(4) {
            turtle.insert([key(number), b"/beside".to_vec()].concat(), [b'b'; 60]).unwrap();
        }
        db.flush().unwrap();
    }
    drop(turtle);
    db.close().unwrap();
    let db = with_operator(builder(machine)).open().unwrap();
    let turtle = db.open_keyspace("turtle").unwrap().unwrap();
    for number in (0..600).step_by(11) {
        turtle.merge(key(number), "logged").unwrap();
    }
    let mut batch = db.batch();
    batch.insert(&turtle, "last", "one");
    batch.remove(&turtle, key(33));
    batch.durability(Durability::Sync).commit().unwrap();
    drop(turtle);
    db.close().unwrap();
}

const WIDE_RECORDS: u32 = 5_000;

fn wide_key(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// Fills a new store: a run whose filter has several pages, and a small one with its filter in the footer.
fn fill_two_runs(machine: &Arc<MemEnv>) {
    let db = builder(machine).open().unwrap();
    let turtle = db.keyspace("turtle", KeyspaceOptions::default().tree(Tree::turtle())).unwrap();
    for number in 0..WIDE_RECORDS {
        turtle.insert(wide_key(number * 2), format!("value {number}")).unwrap();
    }
    db.flush().unwrap();
    for number in (0..WIDE_RECORDS).step_by(100) {
        turtle.insert(wide_key(number * 2), format!("newer value {number}")).unwrap();
    }
    db.flush().unwrap();
    drop(turtle);
    db.close().unwrap();
}

/// Whether the data file has a full filter partition with remainders of `bytes` bytes.
fn has_filter_of(machine: &MemEnv, bytes: u8) -> bool {
    let blocks = [50, 27][usize::from(bytes) - 1];
    // The payload follows the page header.
    machine.file_bytes("/db/data").unwrap().chunks(4096).any(|page| page[40..42] == [bytes, blocks])
}

/// Unpacks the files of a fixture to a machine.
fn unpack(packed: &[u8]) -> Arc<MemEnv> {
    let mut files = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(packed).unwrap().read_to_end(&mut files).unwrap();
    let machine = MemEnv::new(1);
    machine.create_dir(Path::new("/db")).unwrap();
    let mut reader = Reader::new(&files);
    while !reader.is_empty() {
        let name = reader.u32().unwrap() as usize;
        let name = std::str::from_utf8(reader.take(name).unwrap()).unwrap();
        let length = usize_of(reader.u64().unwrap());
        machine.replace(Path::new("/db").join(name), reader.take(length).unwrap()).unwrap();
    }
    machine
}

/// Content of the store of [`fill`] when this build creates it.
fn expected() -> Contents {
    let machine = MemEnv::new(1);
    fill(&machine);
    contents_of(&with_operator(builder(&machine)).open().unwrap()).unwrap()
}

/// Version and required features in the newest superblock.
fn features(machine: &MemEnv) -> (u32, u64) {
    let bytes = machine.file_bytes("/db/superblock").unwrap();
    let slot = |slot: &[u8]| {
        let mut reader = Reader::new(&slot[8..]);
        let version = reader.u32().unwrap();
        reader.u32().unwrap();
        let features = reader.u64().unwrap();
        reader.take(24).unwrap();
        (reader.u64().unwrap(), (version, features))
    };
    bytes.chunks(4096).map(slot).max().unwrap().1
}

#[test]
fn a_store_without_kind_bytes_is_read_unchanged() {
    let machine = unpack(BEFORE_KIND_BYTES);
    assert_eq!(features(&machine), (2, 0), "the fixture is from an earlier build");
    let before = machine.file_bytes("/db/data").unwrap();
    let db = with_operator(builder(&machine)).read_only().open().unwrap();
    assert!(contents_of(&db).unwrap() == expected());
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    drop(db);
    let options = RepairOptions::new("/db").env(machine.clone()).dry_run(true);
    assert_eq!(repair(options).unwrap().findings, []);
    assert!(machine.file_bytes("/db/data").unwrap() == before);
    assert_eq!(features(&machine), (2, 0), "a read-only open changes nothing");
}

#[test]
fn writing_to_a_store_without_kind_bytes_raises_its_features() {
    let machine = unpack(BEFORE_KIND_BYTES);
    let mut expected = expected();
    // Without the operator, entries of earlier blocks are copied unchanged into new ones.
    let db = builder(&machine).open().unwrap();
    let turtle = db.open_keyspace("turtle").unwrap().unwrap();
    for number in 0..600 {
        turtle.insert([key(number), b"/later".to_vec()].concat(), [b'l'; 60]).unwrap();
        if number % 200 == 199 {
            db.flush().unwrap();
        }
    }
    drop(turtle);
    db.compact().unwrap();
    db.close().unwrap();
    // Kind bytes, separated values, replaced pages, values in pieces, continued values, value logs,
    // footers with index and filter, transient segments of commits, maps.
    assert_eq!(features(&machine), (2, 511), "an earlier build cannot read kind bytes");
    let pairs = expected.get_mut("turtle").unwrap();
    pairs.extend((0..600).map(|number| ([key(number), b"/later".to_vec()].concat(), vec![b'l'; 60])));
    pairs.sort();
    let db = with_operator(builder(&machine)).open().unwrap();
    assert!(contents_of(&db).unwrap() == expected);
    db.compact().unwrap();
    assert!(contents_of(&db).unwrap() == expected);
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    db.close().unwrap();
}

#[test]
fn filters_with_16_bit_remainders_are_probed_verified_and_replaced() {
    let machine = unpack(WIDE_FILTERS);
    assert!(has_filter_of(&machine, 2), "the fixture has such filters");
    let same = MemEnv::new(1);
    fill_two_runs(&same);
    assert!(has_filter_of(&same, 1) && !has_filter_of(&same, 2), "no build writes them any more");
    let expected = contents_of(&builder(&same).open().unwrap()).unwrap();
    let db = builder(&machine).open().unwrap();
    assert!(contents_of(&db).unwrap() == expected);
    let turtle = db.open_keyspace("turtle").unwrap().unwrap();
    for number in 0..WIDE_RECORDS {
        assert!(turtle.get(wide_key(number * 2)).unwrap().is_some(), "{number}");
        assert_eq!(turtle.get(wide_key(number * 2 + 1)).unwrap(), None, "{number}");
    }
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    for number in 0..WIDE_RECORDS {
        turtle.insert(wide_key(number * 2 + 1), "later").unwrap();
    }
    drop(turtle);
    db.compact().unwrap();
    assert!(has_filter_of(&machine, 1));
    assert_eq!(contents_of(&db).unwrap()["turtle"].len(), 2 * WIDE_RECORDS as usize);
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    db.close().unwrap();
}
