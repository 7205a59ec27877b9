//! Scans of real keys (TreeLine fig. 7, table 4): key sets, records of 64 and 1,024 bytes, uniform and
//! zipfian starts, stores of eight times the memory.
//!
//! `keys, in order of arrival → a store → idle → reopened → scans of 1 to 100 records`
//!
//! **Invariants**
//! - The keys and values of every scan are compared with the inserted ones.
//! - Trees alternate, in two rounds of opposite order; a point is the mean of its two runs.

use std::{thread, time::Duration};

use serde::Serialize;
use testudo::{Error, Result};
use testudo_base::num::{u64_of, usize_of};
use testudo_env::{Env as _, SplitMix};

use super::{
    Findings,
    experiment::Experiment,
    key_sets::{KeySet, key_sets, scattered},
};
use crate::{
    Context,
    report::{
        line_chart::{Line, LineChart},
        size::{human_bytes, human_count, quotient},
    },
    subject::{Records, Settings, Subject, testudo_subject::Testudo},
    workloads::ycsb::{
        wait_for_idle,
        zipf::{Picker, below},
    },
};

const TREES: [&str; 3] = ["treeline", "turtle", "leveled"];
const RECORD_BYTES: [usize; 2] = [64, 1024];
const SKEWS: [&str; 2] = ["uniform", "zipfian"];
const ROUNDS: usize = 2;
/// Maximum scan length, as in YCSB.
const LENGTH_MAX: u64 = 100;
/// Ratio of the data size to the memory.
const TIMES_MEMORY: u64 = 8;
/// A store that has written nothing for this long is idle.
const IDLE_FOR: Duration = Duration::from_secs(1);

/// Result of one tree and skew.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Point {
    scans_per_second: f64,
    read_bytes_per_scan: f64,
    wrong_answers: u64,
}

#[derive(Serialize)]
struct Shown<'a> {
    keys: &'a str,
    record_bytes: usize,
    tree: &'a str,
    skew: &'a str,
    #[serde(flatten)]
    point: Point,
}

type Points = [[Point; TREES.len()]; SKEWS.len()];

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    for record_bytes in RECORD_BYTES {
        let mut lines: Vec<Line> = TREES
            .iter()
            .flat_map(|tree| SKEWS.map(|skew| Line { name: format!("{tree}, {skew}"), points: Vec::new() }))
            .collect();
        let mut names = Vec::new();
        for set in key_sets(experiment)? {
            let points = measure_set(experiment, &set, record_bytes)?;
            for (skew, points) in SKEWS.iter().zip(&points) {
                let mut row = vec![set.name.clone(), format!("{record_bytes} B"), (*skew).to_owned()];
                for point in points {
                    row.push(human_count(point.scans_per_second));
                    row.push(human_bytes(crate::report::size::floor(point.read_bytes_per_scan)));
                    findings.wrong_answers += point.wrong_answers;
                }
                findings.table.push(row);
            }
            for (number, line) in lines.iter_mut().enumerate() {
                let point = &points[number % SKEWS.len()][number / SKEWS.len()];
                line.points.push((names.len() as f64, point.scans_per_second));
            }
            names.push(set.name);
        }
        findings.charts.push((
            format!("treeline-scans-{record_bytes}"),
            LineChart {
                title: format!("Scans of 1 to {LENGTH_MAX} records of {record_bytes} B"),
                x_name: format!("keys: {}", names.join(", ")),
                y_name: "scans/s".to_owned(),
                x_doubles: false,
                lines,
            },
        ));
    }
    Ok(findings)
}

fn measure_set(experiment: &mut Experiment<'_>, set: &KeySet, record_bytes: usize) -> Result<Points> {
    let most = experiment.scaled(1_000, 100_000, usize::MAX);
    let keys: Vec<&[u8]> = set.keys.iter().take(most).map(Vec::as_slice).collect();
    let mut points = Points::default();
    for tree in (0..TREES.len()).chain((0..TREES.len()).rev()) {
        for (skew, found) in measure_tree(experiment, &keys, record_bytes, TREES[tree])?.iter().enumerate() {
            let point = &mut points[skew][tree];
            point.scans_per_second += found.scans_per_second / ROUNDS as f64;
            point.read_bytes_per_scan += found.read_bytes_per_scan / ROUNDS as f64;
            point.wrong_answers += found.wrong_answers;
        }
    }
    for (skew, points) in SKEWS.iter().zip(&points) {
        for (tree, point) in TREES.iter().zip(points) {
            let shown = Shown { keys: &set.name, record_bytes, tree, skew, point: *point };
            experiment
                .result(&format!("keys={} record={record_bytes} tree={tree} {skew}", set.name), &shown)?;
        }
    }
    Ok(points)
}

/// Measures one store: inserts, then scans with starts of either skew.
fn measure_tree(
    experiment: &Experiment<'_>,
    keys: &[&[u8]],
    record_bytes: usize,
    tree: &str,
) -> Result<[Point; SKEWS.len()]> {
    let (scratch, context) = (experiment.scratch()?, experiment.context());
    let bytes = u64_of(keys.len() * record_bytes);
    let memory_bytes = (bytes / TIMES_MEMORY).max(4 << 20);
    let settings = Settings::of_experiment(memory_bytes, usize::from(experiment.args.threads), tree, context);
    let store = Testudo::open(scratch.path(), &settings)?;
    let records = store.records("keys")?;
    for (number, key) in keys.iter().enumerate() {
        if number % 1024 == 0 {
            experiment.check_stopped()?;
        }
        Records::insert(&records, key, &value_of(key, record_bytes))?;
    }
    let rest: f64 = experiment.scaled(0.05, 10.0, 60.0);
    wait_for_idle(&store, context, IDLE_FOR, Duration::from_secs_f64(rest))?;
    drop(records);
    store.close()?;
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut points = [Point::default(); SKEWS.len()];
    for (skew, point) in points.iter_mut().enumerate() {
        let store = Testudo::open(scratch.path(), &settings)?;
        let records = store.records("keys")?;
        let count = u64_of(sorted.len());
        let picker = if skew == 0 { Picker::Uniform } else { Picker::zipfian(count) };
        let scans = Scans { records: &records, keys: &sorted, record_bytes, picker, context };
        let warm: f64 = experiment.scaled(0.01, 1.0, 10.0);
        scans.run(settings.threads, Duration::from_secs_f64(warm))?;
        let before = store.readings().device_bytes_read;
        let time = Duration::from_secs_f64(experiment.scaled(0.02, 2.0, 20.0));
        let (scanned, wrong_answers) = scans.run(settings.threads, time)?;
        let read = store.readings().device_bytes_read - before;
        experiment.check_stopped()?;
        *point = Point {
            scans_per_second: scanned as f64 / time.as_secs_f64(),
            read_bytes_per_scan: quotient(read as f64, scanned as f64),
            wrong_answers,
        };
        drop(records);
        store.close()?;
    }
    Ok(points)
}

/// Returns a value derived from its key; key and value together have `record_bytes` if that exceeds the key.
fn value_of(key: &[u8], record_bytes: usize) -> Vec<u8> {
    let seed = key.iter().fold(0u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let mut value = vec![0; record_bytes.saturating_sub(key.len()).max(8)];
    SplitMix::new(scattered(seed)).fill(&mut value);
    value
}

/// Scans over a store with the given keys.
struct Scans<'s, R: Records> {
    records: &'s R,
    keys: &'s [&'s [u8]],
    record_bytes: usize,
    picker: Picker,
    context: &'s Context,
}

impl<R: Records + Sync> Scans<'_, R> {
    /// Scans with `threads` threads for `time`; returns the number of scans and of wrong ones.
    fn run(&self, threads: usize, time: Duration) -> Result<(u64, u64)> {
        let end = self.context.env.monotonic() + time;
        thread::scope(|scope| {
            let seeds = 0..u64_of(threads);
            let workers: Vec<_> = seeds.map(|seed| scope.spawn(move || self.scan_until(seed, end))).collect();
            let mut all = (0, 0);
            for worker in workers {
                let lost = |_| Error::invalid("a thread of the experiment panicked");
                let (scanned, wrong) = worker.join().map_err(lost)??;
                all = (all.0 + scanned, all.1 + wrong);
            }
            Ok(all)
        })
    }

    fn scan_until(&self, seed: u64, end: Duration) -> Result<(u64, u64)> {
        let mut random = SplitMix::new(seed + 1);
        let (mut scanned, mut wrong) = (0, 0);
        while self.context.env.monotonic() < end && !self.context.stopped() {
            let count = u64_of(self.keys.len());
            let from = usize_of(self.picker.pick(&mut random, count));
            let length = usize_of(1 + below(&mut random, LENGTH_MAX));
            let mut expected = self.keys[from..].iter().take(length);
            let mut is_right = true;
            self.records.scan(self.keys[from], None, Some(u64_of(length)), |key, value| {
                is_right &= expected.next() == Some(&key) && value == value_of(key, self.record_bytes);
                true
            })?;
            scanned += 1;
            wrong += u64::from(!is_right || expected.next().is_some());
        }
        Ok((scanned, wrong))
    }
}

fn head() -> Vec<String> {
    let of_tree = |tree: &&str| [format!("{tree} scans/s"), "read by one".to_owned()];
    ["keys", "record", "from"].map(str::to_owned).into_iter().chain(TREES.iter().flat_map(of_tree)).collect()
}
