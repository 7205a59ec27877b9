//! Scan bandwidth against scan length (SplinterDB fig. 12): right after a load with a concurrent updating
//! thread, and after the store has been idle for a while.
//!
//! **Invariants**
//! - The number of scanning threads is the same in both cases; updates come from one more.

use std::time::Duration;

use testudo::Result;

use super::{
    Findings,
    both_trees::{ROUNDS, TREES, leaf_bytes, lines, memory_bytes, rounds},
    experiment::Experiment,
};
use crate::{
    Workload, YcsbArgs,
    report::{
        Report,
        line_chart::LineChart,
        size::{human_count, quotient},
    },
};

const LENGTHS: [u32; 5] = [1, 10, 100, 1_000, 10_000];
const CASES: [&str; 2] = ["under load", "after idling"];
const RECORD_BYTES: f64 = 124.0;

/// Rates by case, length and tree.
type Rates = [[[f64; TREES.len()]; LENGTHS.len()]; CASES.len()];

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let mut rates: Rates = Default::default();
    for (_, tree) in rounds(1) {
        findings.wrong_answers += measure(experiment, tree, &mut rates)?;
    }
    for (case, rates) in CASES.iter().zip(&rates) {
        for (length, rates) in LENGTHS.iter().zip(rates) {
            let mut row = vec![(*case).to_owned(), length.to_string()];
            for rate in rates {
                row.push(human_count(*rate));
                row.push(format!("{:.2}", rate * RECORD_BYTES / 1e6));
            }
            findings.table.push(row);
        }
        let ratios = LENGTHS
            .iter()
            .zip(rates)
            .map(|(length, rates)| format!("{:.2} at length {length}", quotient(rates[1], rates[0])));
        let ratios: Vec<_> = ratios.collect();
        findings.remarks.push(format!(
            "{case}, scan rate of {} relative to {}: {}",
            TREES[1],
            TREES[0],
            ratios.join(", ")
        ));
        let chart = LineChart {
            title: format!("Scan bandwidth {case}"),
            x_name: "records per scan".to_owned(),
            y_name: "MB/s".to_owned(),
            x_doubles: true,
            lines: lines(&LENGTHS.map(f64::from), rates, |rate| rate * RECORD_BYTES / 1e6),
        };
        findings.charts.push((format!("splinter-scans-{}", case.replace(' ', "-")), chart));
    }
    Ok(findings)
}

/// Measures one store: a load, scans of all lengths right after it, and again after the store was idle.
/// Returns the number of wrong answers.
fn measure(experiment: &mut Experiment<'_>, tree: usize, rates: &mut Rates) -> Result<u64> {
    let of_case: [Vec<YcsbArgs>; CASES.len()] =
        [flags_of(experiment, tree, true)?, flags_of(experiment, tree, false)?];
    let idle_seconds = experiment.scaled(0.05, 4.0, 30.0);
    let scratch = experiment.scratch()?;
    let load_flags = YcsbArgs { settle_seconds: 0.0, ..of_case[0][0].clone() };
    let mut state = experiment.open(&load_flags, &scratch)?;
    let name = TREES[tree];
    let load = experiment.run_workload(&mut state, &format!("tree={name}"), Workload::Load, false)?;
    let mut wrong_answers = load.wrong_answers;
    for (case, of_length) in of_case.iter().enumerate() {
        if case == 1 {
            state.set_flags(&of_length[0]);
            state.wait_for_idle(Duration::from_secs_f64(idle_seconds))?;
        }
        for (index, flags) in of_length.iter().enumerate() {
            state.set_flags(flags);
            let setting = format!("tree={name} {} length={}", CASES[case], LENGTHS[index]);
            let report = experiment.run_workload(&mut state, &setting, Workload::Range, false)?;
            wrong_answers += report.wrong_answers;
            rates[case][index][tree] += records_per_second(&report) / ROUNDS as f64;
        }
    }
    state.close()?;
    Ok(wrong_answers)
}

/// Returns the flags for each length.
fn flags_of(experiment: &Experiment<'_>, tree: usize, under_load: bool) -> Result<Vec<YcsbArgs>> {
    let records: u64 = experiment.scaled(2_000, 500_000, 10_000_000);
    let mut flags = experiment.flags()?;
    flags.workloads = vec![Workload::Load, Workload::Range];
    flags.records = Some(records);
    flags.store.tree = TREES[tree].to_owned();
    flags.store.leaf_bytes = Some(leaf_bytes(experiment));
    flags.store.memory = memory_bytes(records);
    flags.seconds = Some(experiment.scaled(0.02, 0.6, 20.0));
    flags.writers = u16::from(under_load);
    flags.threads += flags.writers;
    let of_length = |length: u32| YcsbArgs { scan_length: u64::from(length), ..flags.clone() };
    Ok(LENGTHS.into_iter().map(of_length).collect())
}

/// Updates do not read, so all bytes read are from scans.
fn records_per_second(report: &Report) -> f64 {
    quotient(report.user_bytes_read as f64 / RECORD_BYTES, report.seconds)
}

fn head() -> Vec<String> {
    let of_tree = |tree: &&str| ["records/s", "MB/s"].map(|what| format!("{tree} {what}"));
    ["case", "length"].map(str::to_owned).into_iter().chain(TREES.iter().flat_map(of_tree)).collect()
}
