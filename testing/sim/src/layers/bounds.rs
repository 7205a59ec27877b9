//! Memory of a store is bounded by its budget for any request: batches, readers, snapshots.
//!
//! Runs on an in-memory disk, so every number is a store counter and the same in each run.
//!
//! **Invariants**
//! - Requests beyond a bound are refused with a clear error, or their data is kept elsewhere; answers stay
//!   right.

use std::sync::Arc;

use testudo::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, SalvageOptions, VerifyLevel, salvage};
use testudo_base::num::u64_of;
use testudo_db::maintenance::Stepping as _;
use testudo_env::{Env, FaultyEnv, IoClass, MemEnv};

use crate::{
    LayerReport, Limits,
    sweep::{Outcome, judge},
};

pub(crate) const NAME: &str = "bounds";

/// The minimum budget.
const MEMORY_BYTES: u64 = 1 << 20;

/// Name and test of one bound.
type Case = (&'static str, fn() -> Result<(), String>);

const CASES: &[Case] = &[
    ("batch", batch_beyond_the_bound),
    ("reader", reader_of_a_log_that_is_larger_than_its_budget),
    ("holes", files_that_are_mostly_holes),
    ("snapshots", snapshots_held_while_others_write),
    ("caches", caches_that_have_what_nobody_writes),
    ("metadata", keyspaces_for_which_caches_make_room),
];

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let mut report = LayerReport::default();
    for (name, case) in CASES {
        report.merge(judge(NAME, None, None, || {
            case().map_err(|why| format!("{name}: {why}"))?;
            Ok(LayerReport::default())
        })?);
        limits.tick(1);
    }
    report.add("cases", u64_of(CASES.len()));
    Ok(report)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn require(holds: bool, why: impl Fn() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

fn open(machine: &Arc<MemEnv>) -> Result<(Db, Keyspace), String> {
    let db = Db::builder("/db").memory_bytes(MEMORY_BYTES).env(machine.clone()).open().map_err(text)?;
    let keyspace = db.keyspace("keyspace", KeyspaceOptions::default).map_err(text)?;
    Ok((db, keyspace))
}

/// A value of `bytes` bytes that differs from others.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn batch_beyond_the_bound() -> Result<(), String> {
    let machine = MemEnv::new(1);
    let (db, keyspace) = open(&machine)?;
    let mut batch = db.batch();
    for number in 0..4_000_u64 {
        batch.insert(&keyspace, number.to_be_bytes(), value(number, 1000));
    }
    require(batch.bytes() <= MEMORY_BYTES / 4, || format!("a batch of {} bytes", batch.bytes()))?;
    let refused = batch.commit().expect_err("the batch is four times the budget");
    let message = refused.to_string();
    let is_clear = refused.kind() == ErrorKind::Invalid && message.contains("262144");
    require(is_clear, || format!("a large batch is refused with: {message}"))?;
    require(db.stats().writes.count == 0, || "a refused batch was applied".into())?;
    // A batch that fits is applied; a single write is bounded only by the value limit.
    let mut batch = db.batch();
    while batch.has_room_for(8, 1000) {
        batch.insert(&keyspace, u64_of(batch.len()).to_be_bytes(), value(0, 1000));
    }
    let count = u64_of(batch.len());
    require(count == (MEMORY_BYTES / 4) / 1040, || format!("{count} writes fit"))?;
    batch.commit().map_err(text)?;
    let mut single = db.batch();
    single.insert(&keyspace, vec![7; 60_000], vec![7; 262_144]);
    single.commit().map_err(text)?;
    require(db.stats().writes.count == count + 1, || "a batch that fits was not applied".into())
}

/// Records in the reader's case: several times its budget, all of them only in the log.
const LOGGED: u64 = 6_000;

fn write_log(machine: &Arc<MemEnv>) -> Result<(), String> {
    let db = Db::builder("/db").memory_bytes(64 * MEMORY_BYTES).env(machine.clone()).open().map_err(text)?;
    let options = || KeyspaceOptions::default().merge_operator("append");
    let keyspace = db.keyspace("keyspace", options).map_err(text)?;
    for number in 0..LOGGED {
        // Insert, then change by an operand; finally remove every seventh key.
        keyspace.insert(key(number), value(number, 1000)).map_err(text)?;
        keyspace.merge(key(number / 2), b"+").map_err(text)?;
    }
    for number in (0..LOGGED).step_by(7) {
        keyspace.remove(key(number)).map_err(text)?;
    }
    require(db.stats().flush.count == 0, || "the log was flushed".into())?;
    db.close().map_err(text)
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Expected value of a key after [`write_log`].
fn logged(number: u64) -> Option<Vec<u8>> {
    let operands = if number < LOGGED / 2 { 2 } else { 0 };
    let whole = || [value(number, 1000), vec![b'+'; operands]].concat();
    (!number.is_multiple_of(7)).then(whole)
}

fn reader_of_a_log_that_is_larger_than_its_budget() -> Result<(), String> {
    let machine = MemEnv::new(2);
    write_log(&machine)?;
    let files = || -> Vec<_> {
        machine.all_files().into_iter().map(|path| (path.clone(), machine.file_bytes(path).ok())).collect()
    };
    let before = files();
    let reader = Db::builder("/db").memory_bytes(MEMORY_BYTES).env(machine.clone()).read_only();
    let db = reader.open().map_err(text)?;
    let stats = db.stats();
    let is_within = stats.memory.memtable_bytes + stats.record_cache.used_bytes <= stats.memory.budget_bytes;
    require(is_within, || format!("a reader holds {} bytes in memtables", stats.memory.memtable_bytes))?;
    let keyspace = db.open_keyspace("keyspace").map_err(text)?.ok_or("the keyspace is missing")?;
    let snapshot = db.snapshot().map_err(text)?;
    for number in 0..LOGGED {
        let (got, of_snapshot) = (keyspace.get(key(number)), snapshot.get(&keyspace, key(number)));
        let (got, of_snapshot) = (got.map_err(text)?, of_snapshot.map_err(text)?);
        let expected = logged(number);
        let is_right = got.as_deref() == expected.as_deref() && of_snapshot.as_deref() == expected.as_deref();
        require(is_right, || format!("a reader's answer for record {number} is wrong"))?;
    }
    let found = keyspace.iter().map_err(text)?.count();
    let expected = (0..LOGGED).filter(|&number| logged(number).is_some()).count();
    require(found == expected, || format!("a scan finds {found} of {expected} records"))?;
    let report = db.verify(VerifyLevel::Full).map_err(text)?;
    require(report.is_valid(), || format!("a reader finds {:?}", report.findings))?;
    db.checkpoint("/copy").map_err(text)?;
    drop((keyspace, snapshot));
    db.close().map_err(text)?;
    let copied = |(path, _): &(std::path::PathBuf, _)| path.starts_with("/copy");
    let after: Vec<_> = files().into_iter().filter(|file| !copied(file)).collect();
    require(after == before, || "a reader has changed files".into())?;
    let copy = Db::builder("/copy").memory_bytes(MEMORY_BYTES).env(machine.clone()).open().map_err(text)?;
    let keyspace = copy.open_keyspace("keyspace").map_err(text)?.ok_or("the copy has no keyspace")?;
    let found = keyspace.iter().map_err(text)?.count();
    require(found == expected, || format!("the copy of a reader has {found} of {expected} records"))
}

/// Budget of the store whose caches are measured; its records take twice as much.
const CACHED_MEMORY_BYTES: u64 = 16 << 20;
const CACHED_RECORDS: u64 = 80_000;

fn caches_that_have_what_nobody_writes() -> Result<(), String> {
    let machine = MemEnv::new(4);
    let builder = Db::builder("/db").memory_bytes(CACHED_MEMORY_BYTES).env(machine.clone());
    let db = builder.open().map_err(text)?;
    let keyspace = db.keyspace("keyspace", KeyspaceOptions::default).map_err(text)?;
    for number in 0..CACHED_RECORDS {
        keyspace.insert(key(number), value(number, 400)).map_err(text)?;
    }
    db.flush().map_err(text)?;
    for round in 0..2 {
        for number in (0..CACHED_RECORDS).step_by(5) {
            let got = keyspace.get(key(number)).map_err(text)?;
            require(got.is_some(), || format!("record {number} is missing"))?;
        }
        let stats = db.stats();
        let cached = stats.page_cache.used_bytes + stats.record_cache.used_bytes;
        let is_used = cached > CACHED_MEMORY_BYTES / 2;
        require(is_used, || format!("round {round}: caches hold {cached} bytes without writers"))?;
        for number in 0..CACHED_RECORDS / 4 {
            keyspace.insert(key(number), value(number, 400)).map_err(text)?;
            if number % 256 == 0 {
                let stats = db.stats();
                let held =
                    stats.page_cache.used_bytes + stats.record_cache.used_bytes + stats.memory.memtable_bytes;
                // An eighth is for memory other than caches and write buffers.
                let is_within = held <= CACHED_MEMORY_BYTES / 8 * 7;
                require(is_within, || format!("{held} bytes while caches shrink"))?;
            }
        }
        db.flush().map_err(text)?;
    }
    db.close().map_err(text)
}

/// Keyspaces whose mere existence takes a quarter of the budget.
const KEYSPACES: u64 = 1_500;

fn keyspaces_for_which_caches_make_room() -> Result<(), String> {
    let machine = MemEnv::new(5);
    let builder = Db::builder("/db").memory_bytes(CACHED_MEMORY_BYTES).env(machine.clone());
    let db = builder.open().map_err(text)?;
    let names: Vec<String> = (0..KEYSPACES).map(|number| format!("keyspace {number}")).collect();
    let small = names.iter().map(String::as_str);
    let small = db.keyspaces(small, KeyspaceOptions::default).map_err(text)?;
    let large = db.keyspace("large", KeyspaceOptions::default).map_err(text)?;
    for keyspaces in small.chunks(100) {
        keyspaces.iter().try_for_each(|keyspace| keyspace.insert(b"key", b"value")).map_err(text)?;
        // Keep few small write buffers at a time: the allocator retains their memory.
        db.flush().map_err(text)?;
    }
    for number in 0..CACHED_RECORDS {
        large.insert(key(number), value(number, 400)).map_err(text)?;
    }
    db.flush().map_err(text)?;
    let read = |db: &Db| {
        (0..CACHED_RECORDS)
            .step_by(2)
            .try_for_each(|number| large.get(key(number)).map(drop))
            .map_err(text)?;
        Ok::<_, String>(db.stats())
    };
    let stats = read(&db)?;
    let metadata = stats.memory.metadata_bytes;
    require(metadata > CACHED_MEMORY_BYTES / 6, || format!("{KEYSPACES} keyspaces take {metadata} bytes"))?;
    let cached = stats.page_cache.used_bytes + stats.record_cache.used_bytes;
    let held = cached + stats.memory.memtable_bytes + metadata;
    // An eighth is for everything else.
    let is_within = held <= CACHED_MEMORY_BYTES / 8 * 7;
    require(is_within, || format!("{held} bytes are held, {metadata} of them metadata"))?;
    drop(small);
    for name in &names {
        db.drop_keyspace(name).map_err(text)?;
    }
    let stats = read(&db)?;
    let again = stats.page_cache.used_bytes + stats.record_cache.used_bytes;
    require(stats.memory.metadata_bytes < metadata / 4, || {
        format!("{} bytes of metadata without keyspaces", stats.memory.metadata_bytes)
    })?;
    require(again > cached + metadata / 2, || format!("caches hold {again} bytes, {cached} before"))?;
    drop(large);
    db.close().map_err(text)
}

/// Records of the store whose files get holes.
const SPARSE_RECORDS: u64 = 300;
/// Maximum reads of those files. The holes are millions of pages; reading them in the largest reads would
/// take sixteen times as many.
const READS_MAX: u64 = 2_000;

fn files_that_are_mostly_holes() -> Result<(), String> {
    let machine = MemEnv::new(3);
    let (db, keyspace) = open(&machine)?;
    for number in 0..SPARSE_RECORDS {
        keyspace.insert(key(number), value(number, 1000)).map_err(text)?;
        if number == SPARSE_RECORDS / 2 {
            db.flush().map_err(text)?;
        }
    }
    db.persist(Durability::Sync).map_err(text)?;
    let killed = machine.live_image();
    drop((db, keyspace));
    for path in killed.all_files() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let gib = match name.split('-').next() {
            Some("manifest") => 3,
            Some("wal" | "data") => 8,
            _ => continue,
        };
        killed.truncate(&path, gib << 30).map_err(text)?;
    }
    let lost_manifest = killed.live_image();
    for (machine, without_manifest) in [(killed, false), (lost_manifest, true)] {
        for path in machine.all_files().iter().filter(|_| without_manifest) {
            if path.to_string_lossy().contains("manifest") {
                machine.remove_file(path).map_err(text)?;
            }
        }
        let counted = FaultyEnv::new(machine);
        let reads = || counted.call_count(IoClass::Read);
        let options = SalvageOptions::new("/db", "/new");
        let options = options.env(counted.clone()).memory_bytes(MEMORY_BYTES);
        salvage(options).map_err(text)?;
        require(reads() < READS_MAX, || format!("a salvage reads holes: {} reads", reads()))?;
        require_records(&counted, "/new")?;
        if !without_manifest {
            let before = reads();
            require_records(&counted, "/db")?;
            let count = reads() - before;
            require(count < READS_MAX, || format!("an opening reads holes: {count} reads"))?;
        }
    }
    Ok(())
}

/// Opens the store in `directory` and counts its records.
fn require_records(env: &Arc<FaultyEnv>, directory: &str) -> Result<(), String> {
    let builder = Db::builder(directory).memory_bytes(MEMORY_BYTES).env(env.clone()).create(false);
    let db = builder.open().map_err(text)?;
    let mut found = 0;
    for name in db.keyspace_names() {
        let keyspace = db.open_keyspace(&name).map_err(text)?.ok_or("a keyspace is missing")?;
        found += u64_of(keyspace.iter().map_err(text)?.count());
    }
    require(found == SPARSE_RECORDS, || format!("{directory} has {found} of {SPARSE_RECORDS} records"))?;
    db.close().map_err(text)
}

/// Snapshots held at once, and writes between two snapshots.
const SNAPSHOTS: u64 = 120;
const BETWEEN: u64 = 40;
/// Keys that are overwritten repeatedly.
const OVERWRITTEN: u64 = 1_500;

/// Expected value of a key in a snapshot after `rounds` rounds: the round of its last write, plus later
/// operands.
fn as_of(rounds: u64, number: u64) -> Option<Vec<u8>> {
    let written = |round: &u64| (0..BETWEEN).any(|at| written_in(*round, at) == number);
    let last = (0..rounds).rev().find(written)?;
    Some(value(last, 900))
}

fn written_in(round: u64, at: u64) -> u64 {
    (round * 7 + at * 31) % OVERWRITTEN
}

fn snapshots_held_while_others_write() -> Result<(), String> {
    let machine = MemEnv::new(4);
    let db = Db::builder("/db").memory_bytes(MEMORY_BYTES).env(machine).open().map_err(text)?;
    let options = || KeyspaceOptions::default().merge_operator("add-u64");
    let keyspace = db.keyspace("written", KeyspaceOptions::default).map_err(text)?;
    let counter = db.keyspace("counted", options).map_err(text)?;
    let mut snapshots = Vec::new();
    for round in 0..SNAPSHOTS {
        for at in 0..BETWEEN {
            keyspace.insert(key(written_in(round, at)), value(round, 900)).map_err(text)?;
        }
        counter.merge(key(round % 5), 1_u64.to_le_bytes()).map_err(text)?;
        snapshots.push(db.snapshot().map_err(text)?);
    }
    db.flush().map_err(text)?;
    let held = db.stats().memory.memtable_bytes;
    require(held <= MEMORY_BYTES, || format!("{SNAPSHOTS} snapshots hold {held} bytes of memtables"))?;
    db.check_invariants().map_err(text)?;
    for (rounds, snapshot) in (1..).zip(&snapshots) {
        for number in (0..OVERWRITTEN).step_by(13) {
            let got = snapshot.get(&keyspace, key(number)).map_err(text)?;
            let is_right = got.as_deref() == as_of(rounds, number).as_deref();
            require(is_right, || format!("snapshot {rounds} shows another value of key {number}"))?;
        }
        let mut sum = 0;
        for entry in snapshot.iter(&counter).map_err(text)? {
            let value = entry.and_then(|entry| entry.value()).map_err(text)?;
            sum += u64::from_le_bytes(value.as_ref().try_into().map_err(text)?);
        }
        require(sum == rounds, || format!("snapshot {rounds} counts {sum}"))?;
    }
    drop(snapshots);
    db.compact().map_err(text)?;
    let held = db.stats().space.held_bytes;
    require(held == 0, || format!("{held} bytes of the data file are still held without holders"))
}
