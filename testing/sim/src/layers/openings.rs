#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]
//! Stores that are opened repeatedly, with or without a write, and closed, killed or only read: their files,
//! file lengths, and the calls of an opening do not grow. An opening that writes nothing leaves every file of
//! a closed store unchanged.
//!
//! Everything is counted on the in-memory machine, and also on the real one, where the report adds the time
//! of openings; times are not checked.
//!
//! **Invariants**
//! - The same few records are overwritten all the time, so any growth is due to the openings.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use testudo::{Db, Durability, VerifyLevel};
use testudo_env::{Env, FaultyEnv, MemEnv, OpenMode, OpenOptions, RealEnv};
use testudo_testkit::{configuration::crash_configurations, engine_store::EngineOpener};

use crate::{
    LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, judge, require_share, sweep},
};

pub(crate) const NAME: &str = "openings";
/// Unit of the count.
pub(crate) const UNIT: &str = "openings";
/// Openings of each store in the short form.
const OPENINGS_SHORT: u64 = 200;
/// Divisor of the count on the real machine.
const REAL_PART: u64 = 4;
/// Records of each store.
const RECORDS: u64 = 40;
/// Maximum number of files: superblock, watermark, manifest, data, reserve, lock, log segments.
const FILES_MAX: usize = 16;
/// Maximum total length in bytes, without reserve and data file.
const BYTES_MAX: u64 = 1 << 20;
/// As above, for a store that is closed each time.
const CLOSED_BYTES_MAX: u64 = 512 << 10;
/// Maximum log segments of a closed store.
const CLOSED_SEGMENTS_MAX: usize = 5;
/// Maximum data file size with so few records.
const DATA_BYTES_MAX: u64 = 4 << 20;
/// Margin by which the calls of a late opening may exceed those of an early one.
const CALLS_MARGIN: u64 = 50;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let count =
        if limits.count_or(OPENINGS_SHORT) == u64::MAX { 1000 } else { limits.count_or(OPENINGS_SHORT) };
    let some = limits.some_of(&configurations, 3);
    let items = some.flat_map(|configuration| [false, true].map(|real| (configuration, real)));
    let alone = Limits { threads: 1, ..limits.clone() };
    let report = sweep(&alone, items, None, |(configuration, is_real)| {
        judge(NAME, Some(&configuration.name), None, || {
            let report = if is_real {
                open_really(&configuration.opener, count / REAL_PART)?
            } else {
                open_in_memory(&configuration.opener, count)
            };
            limits.tick(count);
            Ok(report)
        })
    })?;
    require_share(NAME, limits, &report, &[(UNIT, 700), ("killed", 50), ("left as they were", 40)])?;
    Ok(report)
}

/// Purpose of one opening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Write,
    Nothing,
    /// For a write that is refused.
    Refused,
    Read,
    Killed,
}

fn purpose(n: u64) -> Purpose {
    match n % 8 {
        3 => Purpose::Nothing,
        6 => Purpose::Refused,
        5 => Purpose::Read,
        // For a while the store is never closed.
        _ if n % 100 >= 60 && n % 100 < 85 => Purpose::Killed,
        _ => Purpose::Write,
    }
}

fn write(db: &Db, opener: &EngineOpener, n: u64) {
    let keyspace = db.keyspace("k", || opener.options).unwrap();
    let key = (n % RECORDS).to_be_bytes();
    keyspace.insert(key, format!("opening {n}").repeat(10)).unwrap();
    db.persist(Durability::Sync).unwrap();
}

fn swap_in_vain(db: &Db, opener: &EngineOpener) {
    let keyspace = db.keyspace("k", || opener.options).unwrap();
    keyspace.compare_and_swap("a key", Some(b"what it never had"), Some(b"new")).unwrap_err();
}

/// Checks that each record has the value of the last opening that wrote it.
fn check(db: &Db, written: &[Option<u64>]) {
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    for (record, n) in (0u64..).zip(written) {
        let value = keyspace.get(record.to_be_bytes()).unwrap();
        let expected = n.map(|n| format!("opening {n}").repeat(10).into_bytes());
        assert!(value.as_deref() == expected.as_deref(), "record {record}, of opening {n:?}");
    }
}

fn open_in_memory(opener: &EngineOpener, count: u64) -> LayerReport {
    let directory = Path::new("/db");
    let mut machine = MemEnv::new(7);
    let (mut calls, mut report) = (Vec::new(), LayerReport::default());
    let mut written = vec![None; usize::try_from(RECORDS).unwrap()];
    let mut segments = 0;
    let (mut was_killed, mut before) = (true, BTreeMap::new());
    for n in 0..count {
        let env = FaultyEnv::new(Arc::clone(&machine) as Arc<dyn Env>);
        let purpose = purpose(n);
        let builder = opener.builder(Arc::clone(&env) as Arc<dyn Env>, directory);
        let db = if purpose == Purpose::Read { builder.read_only() } else { builder }.open().unwrap();
        if matches!(purpose, Purpose::Write | Purpose::Killed) {
            write(&db, opener, n);
            written[usize::try_from(n % RECORDS).unwrap()] = Some(n);
        }
        if purpose == Purpose::Refused {
            swap_in_vain(&db, opener);
        }
        if purpose == Purpose::Killed {
            machine = machine.live_image();
            report.add("killed", 1);
        } else {
            db.close().unwrap();
        }
        if purpose == Purpose::Write {
            calls.push(env.total_call_count());
        }
        let after = contents(&*machine, directory);
        if purpose == Purpose::Read || purpose == Purpose::Nothing && !was_killed {
            check_unchanged(&before, &after);
            report.add("left as they were", 1);
        }
        was_killed = purpose == Purpose::Killed || was_killed && purpose == Purpose::Read;
        before = after;
        segments = measure(&*machine, directory, n, segments);
    }
    let tenth = calls.len() / 4;
    let most = |calls: &[u64]| calls.iter().copied().max().unwrap_or_default();
    let (early, late) = (most(&calls[..tenth]), most(&calls[calls.len() - tenth..]));
    assert!(late <= early + CALLS_MARGIN, "a late opening takes {late} calls, an early one {early}");
    let db = opener.open_db(Arc::clone(&machine) as Arc<dyn Env>, directory).unwrap();
    check(&db, &written);
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
    report.add(UNIT, count);
    report
}

/// All files with their bytes.
fn contents(env: &dyn Env, directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let options = OpenOptions { mode: OpenMode::Read, direct: false };
        let file = env.open(&directory.join(&name), options).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(0, &mut bytes).unwrap();
        (name, bytes)
    };
    env.list_dir(directory).unwrap().into_iter().map(|entry| read(entry.name)).collect()
}

fn check_unchanged(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) {
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(before), names(after), "an opening without writes left other files");
    for (name, bytes) in before {
        assert!(after[name] == *bytes, "an opening without writes changed {name}");
    }
}

fn open_really(opener: &EngineOpener, count: u64) -> Result<LayerReport, String> {
    let guard = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let (directory, clock) = (guard.path().join("db"), RealEnv::new());
    let (mut times, mut report) = (Vec::new(), LayerReport::default());
    let mut written = vec![None; usize::try_from(RECORDS).unwrap()];
    let mut segments = 0;
    for n in 0..count {
        let purpose = purpose(n);
        let builder = opener.builder(RealEnv::new(), &directory);
        let began = clock.monotonic();
        let db = if purpose == Purpose::Read { builder.read_only() } else { builder }.open().unwrap();
        times.push(clock.monotonic().saturating_sub(began));
        if matches!(purpose, Purpose::Write | Purpose::Killed) {
            write(&db, opener, n);
            written[usize::try_from(n % RECORDS).unwrap()] = Some(n);
        }
        if purpose == Purpose::Refused {
            swap_in_vain(&db, opener);
        }
        db.close().unwrap();
        segments = measure(&*clock, &directory, n, segments);
    }
    let db = opener.open_db(RealEnv::new(), &directory).unwrap();
    check(&db, &written);
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
    let tenth = times.len().div_ceil(10);
    let micros = |times: &[Duration]| {
        let total: Duration = times.iter().sum();
        u64::try_from(total.as_micros()).unwrap_or(u64::MAX) / u64::try_from(times.len().max(1)).unwrap()
    };
    report.add("µs of an opening, first tenth, sum of stores", micros(&times[..tenth]));
    report.add("µs of an opening, last tenth, sum of stores", micros(&times[times.len() - tenth..]));
    report.add(UNIT, count);
    Ok(report)
}

/// Counts the files and bytes of a closed or killed store; returns the number of log segments.
fn measure(env: &dyn Env, directory: &Path, n: u64, segments_before: usize) -> usize {
    let entries = env.list_dir(directory).unwrap();
    let length = |name: &str| {
        let options = OpenOptions { mode: OpenMode::Read, direct: false };
        env.open(&directory.join(name), options).unwrap().len().unwrap()
    };
    let files: Vec<(String, u64)> =
        entries.into_iter().map(|entry| (entry.name.clone(), length(&entry.name))).collect();
    let sum = |is_counted: fn(&str) -> bool| -> u64 {
        files.iter().filter(|(name, _)| is_counted(name)).map(|(_, bytes)| bytes).sum()
    };
    let data = sum(|name| name == "data");
    let others = sum(|name| !["data", "reserve"].contains(&name));
    let segments = files.iter().filter(|(name, _)| name.starts_with("wal-")).count();
    let is_closed_each_time = n % 100 < 60;
    let bytes_max = if is_closed_each_time { CLOSED_BYTES_MAX } else { BYTES_MAX };
    let is_small = files.len() <= FILES_MAX && others <= bytes_max && data <= DATA_BYTES_MAX;
    let is_short = segments <= CLOSED_SEGMENTS_MAX || !is_closed_each_time;
    assert!(is_small && is_short, "after {} openings: {files:?}", n + 1);
    let may_grow = matches!(purpose(n), Purpose::Write | Purpose::Killed);
    let is_unchanged = segments <= segments_before || may_grow;
    assert!(is_unchanged, "an opening without writes left a log segment: {files:?}");
    segments
}
