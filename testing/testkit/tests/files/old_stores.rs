#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Stores written by earlier builds are opened, read, checked and written to.
//!
//! The files are in `testing/fixtures`; its README states their builds and contents. The expected content
//! comes from repeating the same steps with this build.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo::{
    Db, DbBuilder, Durability, Keyspace, KeyspaceOptions, MergeFunction, RepairOptions, SalvageOptions, Tree,
    VerifyLevel, repair, salvage,
};
use testudo_base::{codec::Reader, num::usize_of};
use testudo_env::{Env, MemEnv};
use testudo_testkit::busy_store::{Contents, contents_of};

/// Files of a store, each: length of its name u32, its name, length u64, its bytes; compressed by zstd.
const BEFORE_KIND_BYTES: &[u8] = include_bytes!("../../../fixtures/store_before_kind_bytes.zst");
/// The same for a store whose filters have remainders of 16 bits.
const WIDE_FILTERS: &[u8] = include_bytes!("../../../fixtures/store_with_16_bit_filters.zst");
/// The same for a store whose manifest has the lists of replaced pages.
const BEFORE_MAPS: &[u8] = include_bytes!("../../../fixtures/store_before_map_pages.zst");
/// The same for a store whose pages have at most one overflow page each.
const BEFORE_SECTIONS: &[u8] = include_bytes!("../../../fixtures/store_before_page_sections.zst");
/// The same for a store with pages of any number of sections.
const SECTIONS: &[u8] = include_bytes!("../../../fixtures/store_with_page_sections.zst");

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

/// Moves everything to the bottom, which scans trigger.
fn empty_levels(db: &Db, users: &Keyspace) {
    for _ in 0..200 {
        db.compact().unwrap();
        if users.stats().tree.buffered_bytes == 0 {
            return;
        }
        (0..100).for_each(|number| drop(users.range(wide_key(number * 900)..).unwrap().next()));
    }
}

/// Overwrites and removes adjacent records, and moves them to the bottom.
fn update_pages(db: &Db, users: &Keyspace, rounds: std::ops::Range<u8>) {
    for round in rounds {
        let first = u32::from(round) * 7919 % 11_900;
        for number in first..first + 40 {
            users.insert(wide_key(number * 8), [round; 100]).unwrap();
        }
        (first..first + 3).for_each(|number| users.remove(wide_key(number * 8)).unwrap());
        empty_levels(db, users);
    }
}

/// Fills a new store: a keyspace with replaced pages.
fn fill_replaced_pages(machine: &Arc<MemEnv>) {
    let tree = Tree::treeline().with_run_bytes(192 << 10).with_growth_factor(4).with_level1_flushes(1);
    let db = builder(machine).open().unwrap();
    let users = db.keyspace("users", KeyspaceOptions::default().tree(tree)).unwrap();
    (0..12_000).for_each(|number| users.insert(wide_key(number * 8), [1; 100]).unwrap());
    db.compact().unwrap();
    update_pages(&db, &users, 2..12);
    let tree = users.stats().tree;
    assert!(tree.replaced_pages > 9 && tree.buffered_bytes == 0, "{tree:?}");
    drop(users);
    db.close().unwrap();
}

/// Inserts, overwrites and removes records next to each other, and moves them to the bottom.
fn split_pages(db: &Db, users: &Keyspace, rounds: std::ops::Range<u8>) {
    for round in rounds {
        let first = u32::from(round % 6) * 2001 + 100;
        for number in first..first + 16 {
            users.insert(wide_key(number * 8 + 1 + u32::from(round / 6)), [round; 100]).unwrap();
        }
        (first..first + 4).for_each(|number| users.remove(wide_key(number * 8)).unwrap());
        empty_levels(db, users);
    }
}

/// Fills a new store: a keyspace with overflow pages.
fn fill_overflow_pages(machine: &Arc<MemEnv>, rounds: u8) {
    let tree = Tree::treeline().with_run_bytes(192 << 10).with_growth_factor(4).with_level1_flushes(1);
    let db = builder(machine).open().unwrap();
    let users = db.keyspace("users", KeyspaceOptions::default().tree(tree)).unwrap();
    (0..12_000).for_each(|number| users.insert(wide_key(number * 8), [1; 100]).unwrap());
    db.compact().unwrap();
    split_pages(&db, &users, 0..rounds);
    let tree = users.stats().tree;
    assert!(tree.overflow_pages > 2 && tree.buffered_bytes == 0, "{tree:?}");
    drop(users);
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
    // footers with index and filter, transient segments of commits, maps, sections of pages.
    assert_eq!(features(&machine), (2, 1023), "an earlier build cannot read kind bytes");
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

/// Number of map pages in the data file, current ones or not.
fn maps_of(machine: &MemEnv) -> usize {
    let data = machine.file_bytes("/db/data").unwrap();
    let is_map =
        |(number, page): &(usize, &[u8])| page[8] == 6 && page[16..24] == (*number as u64).to_le_bytes();
    data.chunks_exact(4096).enumerate().filter(is_map).count()
}

#[test]
fn replaced_pages_listed_in_the_manifest_are_read_and_get_maps() {
    let machine = unpack(BEFORE_MAPS);
    let same = MemEnv::new(1);
    fill_replaced_pages(&same);
    assert!(maps_of(&machine) == 0 && maps_of(&same) > 0, "earlier builds wrote no maps");
    let expected = contents_of(&builder(&same).open().unwrap()).unwrap();
    let report = repair(RepairOptions::new("/db").env(machine.clone()).dry_run(true)).unwrap();
    assert_eq!(report.findings, []);
    let db = builder(&machine).open().unwrap();
    assert!(contents_of(&db).unwrap() == expected);
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    assert_eq!(maps_of(&machine), 0, "reading writes none");
    db.close().unwrap();
    for machine in [&machine, &same] {
        let db = builder(machine).open().unwrap();
        let users = db.open_keyspace("users").unwrap().unwrap();
        update_pages(&db, &users, 12..20);
        drop(users);
        db.close().unwrap();
    }
    assert!(maps_of(&machine) > 0, "the next version of a run has a map");
    let expected = contents_of(&builder(&same).open().unwrap()).unwrap();
    assert_eq!(features(&machine), (2, 1023), "an earlier build cannot read maps");
    let db = builder(&machine).open().unwrap();
    assert!(contents_of(&db).unwrap() == expected);
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    db.close().unwrap();
}

/// Content of a store after more of its pages were split, by this build.
fn splitting_continues(machine: &Arc<MemEnv>, same: &Arc<MemEnv>, rounds: std::ops::Range<u8>) {
    let expected = contents_of(&builder(same).open().unwrap()).unwrap();
    let report = repair(RepairOptions::new("/db").env(machine.clone()).dry_run(true)).unwrap();
    assert_eq!(report.findings, []);
    let db = builder(machine).open().unwrap();
    assert!(contents_of(&db).unwrap() == expected);
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    db.close().unwrap();
    for machine in [machine, same] {
        let db = builder(machine).open().unwrap();
        let users = db.open_keyspace("users").unwrap().unwrap();
        split_pages(&db, &users, rounds.clone());
        drop(users);
        db.close().unwrap();
    }
    let expected = contents_of(&builder(same).open().unwrap()).unwrap();
    assert_eq!(features(machine), (2, 1023), "an earlier build cannot read sections");
    let db = builder(machine).open().unwrap();
    assert!(contents_of(&db).unwrap() == expected);
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    db.close().unwrap();
}

#[test]
fn pages_with_one_overflow_page_are_read_and_split_further() {
    let machine = unpack(BEFORE_SECTIONS);
    assert_eq!(features(&machine), (2, 511), "the fixture is from an earlier build");
    let same = MemEnv::new(1);
    fill_overflow_pages(&same, 12);
    splitting_continues(&machine, &same, 12..24);
}

#[test]
fn pages_with_sections_of_the_first_build_are_read() {
    let machine = unpack(SECTIONS);
    assert_eq!(features(&machine), (2, 1023));
    let same = MemEnv::new(1);
    fill_overflow_pages(&same, 24);
    splitting_continues(&machine, &same, 24..30);
}

/// Reads damaged stores of both builds without their manifests: parts of pages are found in the data file.
#[test]
fn overflow_pages_of_both_builds_are_salvaged_without_a_manifest() {
    for (packed, rounds) in [(BEFORE_SECTIONS, 12), (SECTIONS, 24)] {
        let machine = unpack(packed);
        let same = MemEnv::new(1);
        fill_overflow_pages(&same, rounds);
        let expected = contents_of(&builder(&same).open().unwrap()).unwrap();
        let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("manifest-");
        for path in machine.all_files().into_iter().filter(is_manifest) {
            machine.remove_file(&path).unwrap();
        }
        let report = salvage(SalvageOptions::new("/db", "/new").env(machine.clone())).unwrap();
        let db = Db::builder("/new").memory_bytes(1 << 20).env(machine.clone()).open().unwrap();
        let found = contents_of(&db).unwrap();
        assert!(found == expected, "{report:?}");
        db.close().unwrap();
    }
}
