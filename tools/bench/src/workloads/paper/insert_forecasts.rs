//! Insert forecasts in stores (TreeLine fig. 10): key sets in their recorded order, and time-ordered keys of
//! users; records of 64 and 256 bytes; forecasts on and off.
//!
//! `three quarters of the keys → everything moved down → the last quarter, with a read for each`
//!
//! Inserts come at two paces: with moves, everything is moved down after a few inserts, as in a store with
//! pauses, so that most of them reach pages; at full speed, moves are as large as the levels above.
//!
//! **Invariants**
//! - Every read is compared with what was inserted, and all records are at the end.
//! - Both settings do the same, one after the other; the counts do not depend on the speed of the machine,
//!   except at full speed.

use serde::Serialize;
use testudo::{Keyspace, Result};
use testudo_base::num::{u64_of, usize_of};
use testudo_env::{Env as _, SplitMix};

use super::{
    Findings,
    experiment::Experiment,
    key_sets::{KeySet, key_sets, scattered},
};
use crate::{
    report::{
        line_chart::{Line, LineChart},
        size::{human_count, quotient},
    },
    subject::{PageCounts, Records, Settings, Subject, testudo_subject::Testudo},
    workloads::ycsb::zipf::{Picker, below},
};

/// Presets with and without forecasts.
const TREES: [&str; 2] = ["treeline-no-forecast", "treeline"];
const NAMES: [&str; 2] = ["off", "on"];
const RECORD_BYTES: [usize; 2] = [64, 256];
/// Loaded keys for each insert before everything is moved down: most runs get few enough for page updates.
const LOADED_FOR_EACH: u64 = 400;
/// Ratio of the data size to the memory.
const TIMES_MEMORY: u64 = 8;
/// Keys of a user, on average.
const KEYS_OF_USER: u64 = 100;

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Point {
    inserts: u64,
    inserts_per_second: f64,
    page_inserts: u64,
    forecast_hits: u64,
    pages_replaced: u64,
    pages_overflowed: u64,
    runs_rewritten: u64,
    written_per_byte: f64,
    /// Bytes of the tree's runs per byte of records, the mean after all moves: runs grow until they are
    /// rewritten.
    space: f64,
    wrong_answers: u64,
}

#[derive(Serialize)]
struct Shown<'a> {
    keys: &'a str,
    record_bytes: usize,
    pace: &'a str,
    forecast: &'a str,
    #[serde(flatten)]
    point: Point,
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let most = experiment.scaled(1_500, 80_000, 1_000_000);
    let mut sets = key_sets(experiment)?;
    sets.push(users(u64_of(most)));
    let mut lines: Vec<Line> = RECORD_BYTES
        .iter()
        .flat_map(|bytes| NAMES.map(|name| Line { name: format!("{bytes} B, {name}"), points: Vec::new() }))
        .collect();
    let mut names = Vec::new();
    for set in &sets {
        let mut keys: Vec<&[u8]> = set.keys.iter().map(Vec::as_slice).collect();
        keys.truncate(most);
        for (number, record_bytes) in RECORD_BYTES.into_iter().enumerate() {
            for pace in ["with moves", "full speed"] {
                let mut points = [Point::default(); TREES.len()];
                for (point, tree) in points.iter_mut().zip(TREES) {
                    *point = measure(experiment, &keys, record_bytes, tree, pace == "with moves")?;
                    findings.wrong_answers += point.wrong_answers;
                }
                for (at, (point, forecast)) in points.iter().zip(NAMES).enumerate() {
                    let shown = Shown { keys: &set.name, record_bytes, pace, forecast, point: *point };
                    let setting = format!("keys={} record={record_bytes} {pace} {forecast}", set.name);
                    experiment.result(&setting, &shown)?;
                    findings.table.push(row(&shown));
                    if pace == "with moves" {
                        let rate = point.inserts_per_second;
                        lines[number * NAMES.len() + at].points.push((names.len() as f64, rate));
                    }
                }
                findings.remarks.push(remark(&set.name, record_bytes, pace, &points));
            }
        }
        names.push(set.name.clone());
    }
    let chart = LineChart {
        title: "Inserts with moves, with and without forecasts".to_owned(),
        x_name: format!("keys: {}", names.join(", ")),
        y_name: "inserts/s, with a read for each".to_owned(),
        x_doubles: false,
        lines,
    };
    findings.charts.push(("treeline-forecast".to_owned(), chart));
    Ok(findings)
}

/// Time-ordered keys of users: each key is the user and the time. Some users are far more active than others.
fn users(count: u64) -> KeySet {
    let all = (count / KEYS_OF_USER).max(4);
    let (picker, mut random) = (Picker::zipfian(all), SplitMix::new(11));
    let key = |time: u64| {
        let user = if time < all { time } else { picker.pick(&mut random, all) };
        [scattered(user).to_be_bytes(), time.to_be_bytes()].concat()
    };
    KeySet { name: "users".to_owned(), keys: (0..count).map(key).collect() }
}

/// Inserts three quarters of the keys, and measures the insertion of the rest.
fn measure(
    experiment: &Experiment<'_>,
    keys: &[&[u8]],
    record_bytes: usize,
    tree: &str,
    moves: bool,
) -> Result<Point> {
    let (scratch, context) = (experiment.scratch()?, experiment.context());
    let bytes = u64_of(keys.len() * record_bytes);
    let memory_bytes = (bytes / TIMES_MEMORY).max(4 << 20);
    let settings = Settings::of_experiment(memory_bytes, 1, tree, context);
    let store = Testudo::open(scratch.path(), &settings)?;
    let records = store.records("keys")?;
    let (loaded, inserted) = keys.split_at(keys.len() / 4 * 3);
    for key in loaded {
        Records::insert(&records, key, &value_of(key, record_bytes))?;
    }
    records.compact_range(..)?;
    let before = (store.readings().device_bytes_written, work(&records));
    let started = context.env.monotonic();
    let every = usize_of((u64_of(loaded.len()) / LOADED_FOR_EACH).max(1));
    let (mut random, mut wrong_answers) = (SplitMix::new(3), 0);
    let mut spaces = Vec::new();
    for (number, key) in inserted.iter().enumerate() {
        Records::insert(&records, key, &value_of(key, record_bytes))?;
        let read = keys[usize_of(below(&mut random, u64_of(loaded.len() + number + 1)))];
        wrong_answers += u64::from(!is_right(&records, read, record_bytes)?);
        if moves && (number + 1) % every == 0 {
            experiment.check_stopped()?;
            records.compact_range(..)?;
            spaces.push(space_of(&records));
        }
    }
    store.flush()?;
    records.compact_range(..)?;
    let seconds = (context.env.monotonic() - started).as_secs_f64();
    let written = store.readings().device_bytes_written - before.0;
    let counts = work(&records).work.since(before.1.work);
    spaces.push(space_of(&records));
    for key in keys {
        wrong_answers += u64::from(!is_right(&records, key, record_bytes)?);
    }
    let inserts = u64_of(inserted.len());
    let point = Point {
        inserts,
        inserts_per_second: quotient(inserts as f64, seconds),
        page_inserts: counts.inserts,
        forecast_hits: counts.forecast_hits,
        pages_replaced: counts.replaced,
        pages_overflowed: counts.overflowed,
        runs_rewritten: counts.rewritten_runs,
        written_per_byte: quotient(written as f64, (inserted.len() * record_bytes) as f64),
        space: spaces.iter().sum::<f64>() / u64_of(spaces.len()) as f64,
        wrong_answers,
    };
    drop(records);
    store.close()?;
    Ok(point)
}

fn space_of(records: &Keyspace) -> f64 {
    let tree = records.stats().tree;
    quotient(tree.stored_bytes as f64, tree.leaf_bytes as f64)
}

fn work(records: &Keyspace) -> PageCounts {
    records.page_counts().unwrap_or_default()
}

fn is_right(records: &Keyspace, key: &[u8], record_bytes: usize) -> Result<bool> {
    Records::get(records, key, |value| value == Some(&value_of(key, record_bytes)[..]))
}

/// Returns a value derived from its key; both together have `record_bytes` if that exceeds the key.
fn value_of(key: &[u8], record_bytes: usize) -> Vec<u8> {
    let seed = key.iter().fold(0u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let mut value = vec![0; record_bytes.saturating_sub(key.len()).max(8)];
    SplitMix::new(scattered(seed)).fill(&mut value);
    value
}

fn remark(name: &str, record_bytes: usize, pace: &str, [off, on]: &[Point; TREES.len()]) -> String {
    format!(
        "{name}, {record_bytes} B, {pace}: forecasts: {:.2} times the overflowing pages, {:.2} times the \
         rewritten runs, {:.2} times the bytes written, {:.2} times the space",
        quotient(on.pages_overflowed as f64, off.pages_overflowed as f64),
        quotient(on.runs_rewritten as f64, off.runs_rewritten as f64),
        quotient(on.written_per_byte, off.written_per_byte),
        quotient(on.space, off.space),
    )
}

fn head() -> Vec<String> {
    let columns = [
        "keys",
        "record",
        "pace",
        "forecasts",
        "inserts/s",
        "into pages",
        "hits",
        "replaced",
        "overflowed",
        "runs rewritten",
        "written per byte",
        "space",
    ];
    columns.map(str::to_owned).to_vec()
}

fn row(Shown { keys, record_bytes, pace, forecast, point }: &Shown<'_>) -> Vec<String> {
    vec![
        (*keys).to_owned(),
        format!("{record_bytes} B"),
        (*pace).to_owned(),
        (*forecast).to_owned(),
        human_count(point.inserts_per_second),
        format!("{} of {}", point.page_inserts, point.inserts),
        point.forecast_hits.to_string(),
        point.pages_replaced.to_string(),
        point.pages_overflowed.to_string(),
        point.runs_rewritten.to_string(),
        format!("{:.2}", point.written_per_byte),
        format!("{:.3}", point.space),
    ]
}
