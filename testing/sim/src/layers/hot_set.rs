#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]
//! Stores that are opened repeatedly with the `hot-set` file of the previous closing, of an earlier one, of a
//! diverged copy, and with flipped bits: every read returns the last value written.
//!
//! **Invariants**
//! - Each round overwrites some records, and the rounds of a copy write other values, so that restoring a
//!   wrong record gives a wrong answer.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{Db, Durability, RestoreState};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, MemEnv, OpenMode, OpenOptions};
use testudo_testkit::{configuration::crash_configurations, engine_store::EngineOpener};

use crate::{
    LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, judge, require, sweep},
};

pub(crate) const NAME: &str = "hot-set";
/// Unit of the count.
pub(crate) const UNIT: &str = "openings";
const ROUNDS_SHORT: u64 = 24;
const DIRECTORY: &str = "/db";
const RECORDS: u32 = 1500;
/// Records that a round overwrites, and records that it reads at the end.
const CHANGED: u32 = 150;
const READ: u32 = 800;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let count = limits.count_or(ROUNDS_SHORT).min(10_000);
    let report = sweep(limits, configurations.iter(), None, |configuration| {
        judge(NAME, Some(&configuration.name), None, || {
            let mut report = LayerReport::default();
            live(&configuration.opener, count, &mut report);
            limits.tick(count);
            Ok(report)
        })
    })?;
    require(NAME, limits, &report, &[(UNIT, 100), ("with records back", 10), ("damaged", 10)])?;
    Ok(report)
}

/// A store and its expected content.
struct Life {
    machine: Arc<MemEnv>,
    expected: BTreeMap<u32, String>,
    /// The `hot-set` files that its closings left.
    left: Vec<Vec<u8>>,
}

fn path() -> std::path::PathBuf {
    Path::new(DIRECTORY).join("hot-set")
}

fn put(machine: &MemEnv, bytes: &[u8]) {
    let _ = machine.remove_file(&path());
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    machine.open(&path(), options).unwrap().write_at(0, bytes).unwrap();
}

fn live(opener: &EngineOpener, count: u64, report: &mut LayerReport) {
    let opener = EngineOpener { memory_bytes: 2 << 20, ..opener.clone() };
    let mut store = Life { machine: MemEnv::new(3), expected: BTreeMap::new(), left: Vec::new() };
    round(&opener, &mut store, 0, "both", RECORDS, report);
    let (machine, expected) = (store.machine.live_image(), store.expected.clone());
    let mut copy = Life { machine, expected, left: store.left.clone() };
    for n in 1..count {
        round(&opener, &mut store, n, "one", CHANGED, report);
        round(&opener, &mut copy, n, "other", CHANGED, report);
        exchange(&mut store, &copy, n, report);
        if n % 9 == 4 {
            let policy = if n % 2 == 0 { CrashPolicy::KEEP_ALL } else { CrashPolicy::LOSE_ALL };
            store.machine = store.machine.crash_image(&policy, n);
        }
    }
}

/// Replaces the store's file by another one.
fn exchange(store: &mut Life, copy: &Life, n: u64, report: &mut LayerReport) {
    let at = usize::try_from(n).unwrap();
    let bytes = match n % 4 {
        1 => copy.left.last().cloned(),
        2 => store.left.get(at.wrapping_mul(7) % store.left.len().max(1)).cloned(),
        3 => store.left.last().cloned().map(|mut bytes| {
            let end = bytes.len() - 1;
            // Half of them are in the last block, which holds records.
            bytes[if n % 8 == 3 { end - at % 4000.min(end) } else { at * 9973 % (end + 1) }] ^= 1;
            report.add("damaged", 1);
            bytes
        }),
        _ => None,
    };
    if let Some(bytes) = bytes {
        put(&store.machine, &bytes);
    }
}

/// Opens, checks every record while the caches are filled, overwrites some, reads, and closes.
fn round(opener: &EngineOpener, life: &mut Life, n: u64, who: &str, changed: u32, report: &mut LayerReport) {
    let env = Arc::clone(&life.machine) as Arc<dyn Env>;
    let db = opener.open_db(env, Path::new(DIRECTORY)).unwrap();
    let keyspace = db.keyspace("k", || opener.options).unwrap();
    let _ = keyspace.get("none").unwrap();
    while db.step().unwrap() {}
    let stats = db.stats();
    report.add(UNIT, 1);
    report.add("with records back", u64::from(stats.restore.records > 0));
    report.add("with pages back", u64::from(stats.restore.pages > 0));
    report.add("not whole", u64::from(stats.restore.state == RestoreState::Damaged));
    check(&db, &life.expected);
    for number in 0..changed {
        let number = (number * 11 + u32::try_from(n).unwrap() * 97) % RECORDS;
        let value = format!("{who} {n} {number} {}", "x".repeat(60));
        keyspace.insert(number.to_be_bytes(), &value).unwrap();
        life.expected.insert(number, value);
    }
    if n % 3 != 2 {
        db.flush().unwrap();
    }
    db.persist(Durability::Sync).unwrap();
    for number in 0..READ {
        let _ = keyspace.get((number * 3 % RECORDS).to_be_bytes()).unwrap();
    }
    drop(keyspace);
    db.close().unwrap();
    life.left.extend(life.machine.file_bytes(path()));
}

fn check(db: &Db, expected: &BTreeMap<u32, String>) {
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    for (number, value) in expected {
        let found = keyspace.get(number.to_be_bytes()).unwrap();
        assert!(found.as_deref() == Some(value.as_bytes()), "record {number}: {found:?}, not {value:?}");
    }
}
