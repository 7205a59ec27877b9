//! Throughput against client threads (SplinterDB fig. 10, 11): reads of workload C, and loading.
//!
//! **Invariants**
//! - With more threads than cores, extra threads can only hide device latency.

use testudo::Result;

use super::{
    Findings,
    both_trees::{ROUNDS, TREES, leaf_bytes, lines, memory_bytes, rounds, times},
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Workload,
    report::{line_chart::LineChart, size::human_count},
};

const THREADS: [u16; 4] = [1, 2, 4, 8];
const FEW_THREADS: [u16; 2] = [1, 2];
const WORKLOADS: [Workload; 2] = [Workload::Load, Workload::C];

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let records: u64 = experiment.scaled(2_000, 400_000, 10_000_000);
    let threads: &[u16] = experiment.scaled(&FEW_THREADS, &THREADS, &THREADS);
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    // By setting and tree: one rate per workload.
    let mut rates = vec![[[0.0; WORKLOADS.len()]; TREES.len()]; threads.len()];
    for (setting, tree) in rounds(threads.len()) {
        let mut flags = experiment.flags()?;
        flags.workloads = WORKLOADS.to_vec();
        flags.records = Some(records);
        flags.threads = threads[setting];
        flags.store.tree = TREES[tree].to_owned();
        flags.store.leaf_bytes = Some(leaf_bytes(experiment));
        flags.store.memory = memory_bytes(records);
        flags.seconds = Some(experiment.scaled(0.02, 0.8, 20.0));
        flags.warmup_seconds = experiment.scaled(0.0, 0.2, 10.0);
        let setting_name = format!("tree={} threads={}", TREES[tree], threads[setting]);
        let reports = experiment.measure(&setting_name, &flags)?;
        findings.wrong_answers += wrong_answers(&reports);
        for (rate, report) in rates[setting][tree].iter_mut().zip(&reports) {
            *rate += report.ops_per_second / ROUNDS as f64;
        }
    }
    for (count, rates) in threads.iter().zip(&rates) {
        let mut row = vec![count.to_string()];
        row.extend(rates.iter().flatten().map(|rate| human_count(*rate)));
        findings.table.push(row);
    }
    let axis: Vec<f64> = threads.iter().map(|count| f64::from(*count)).collect();
    for (index, workload) in WORKLOADS.iter().enumerate() {
        for (tree, name) in TREES.iter().enumerate() {
            let gains = threads.iter().zip(&rates).skip(1).map(|(count, of_count)| {
                format!("{} with {count}", times(rates[0][tree][index], of_count[tree][index]))
            });
            let gains: Vec<_> = gains.collect();
            findings.remarks.push(format!("{}, {name}: {} threads", workload.name(), gains.join(", ")));
        }
        let chart = LineChart {
            title: format!("Throughput of {} against client threads", workload.name()),
            x_name: "client threads".to_owned(),
            y_name: "operations/s".to_owned(),
            x_doubles: true,
            lines: lines(&axis, &rates, |rates| rates[index]),
        };
        findings.charts.push((format!("splinter-threads-{}", workload.name()), chart));
    }
    Ok(findings)
}

fn head() -> Vec<String> {
    let of_tree = |tree: &&str| WORKLOADS.map(|workload| format!("{tree} {}/s", workload.name()));
    std::iter::once("threads".to_owned()).chain(TREES.iter().flat_map(of_tree)).collect()
}
