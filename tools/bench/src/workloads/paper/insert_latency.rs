//! Latencies of inserts during a load (SplinterDB table 1).
//!
//! **Invariants**
//! - Loops are closed: each thread has one insert in flight. `ycsb --rate` measures open loops.
//! - A point is the mean of its rounds, a maximum the larger of them.

use testudo::Result;

use super::{
    Findings,
    both_trees::{ROUNDS, TREES, leaf_bytes, memory_bytes, rounds, times},
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Workload,
    report::{
        histogram::Percentiles,
        line_chart::{Line, LineChart},
        size::{human_count, quotient},
    },
};

/// Name of a statistic, position on the axis, and accessor.
type Mark = (&'static str, f64, fn(&mut Percentiles) -> &mut f64);

const MARKS: [Mark; 6] = [
    ("mean", 0.0, |latency| &mut latency.mean),
    ("p50", 0.5, |latency| &mut latency.p50),
    ("p95", 1.3, |latency| &mut latency.p95),
    ("p99", 2.0, |latency| &mut latency.p99),
    ("p99.9", 3.0, |latency| &mut latency.p999),
    ("max", 4.0, |latency| &mut latency.max),
];

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let records: u64 = experiment.scaled(2_000, 2_000_000, 20_000_000);
    let mut findings = Findings::default();
    let mut rates = [0.0; TREES.len()];
    let mut latencies = [Percentiles::default(); TREES.len()];
    for (_, tree) in rounds(1) {
        let mut flags = experiment.flags()?;
        flags.workloads = vec![Workload::Load];
        flags.records = Some(records);
        flags.store.tree = TREES[tree].to_owned();
        flags.store.leaf_bytes = Some(leaf_bytes(experiment));
        flags.store.memory = memory_bytes(records);
        let mut reports = experiment.measure(&format!("tree={}", TREES[tree]), &flags)?;
        findings.wrong_answers += wrong_answers(&reports);
        for report in &mut reports {
            rates[tree] += report.ops_per_second / ROUNDS as f64;
            for (name, _, value) in MARKS {
                let (sum, measured) = (value(&mut latencies[tree]), *value(&mut report.latency_us));
                *sum = if name == "max" { sum.max(measured) } else { *sum + measured / ROUNDS as f64 };
            }
        }
    }
    let mut head = vec!["tree".to_owned(), "inserts/s".to_owned()];
    head.extend(MARKS.iter().map(|(name, ..)| format!("{name} µs")));
    findings.table.push(head);
    let mut lines = Vec::new();
    for ((tree, latency), rate) in TREES.iter().zip(&mut latencies).zip(rates) {
        let mut row = vec![(*tree).to_owned(), human_count(rate)];
        row.extend(MARKS.iter().map(|(_, _, value)| format!("{:.1}", value(latency))));
        findings.table.push(row);
        let points = MARKS.iter().skip(1).map(|(_, place, value)| (*place, value(latency).max(0.1).log10()));
        lines.push(Line { name: (*tree).to_owned(), points: points.collect() });
    }
    let [turtle, splinter] = &mut latencies;
    let ratios =
        MARKS.map(|(name, _, value)| format!("{name} {:.2}", quotient(*value(splinter), *value(turtle))));
    findings.remarks.push(format!(
        "{} relative to {}: {} the inserts; latency ratios: {}",
        TREES[1],
        TREES[0],
        times(rates[0], rates[1]),
        ratios.join(", ")
    ));
    let chart = LineChart {
        title: "Latency of inserts during a load".to_owned(),
        x_name: "p50 (0.5), p95 (1.3), p99 (2), p99.9 (3), max (4)".to_owned(),
        y_name: "log10 of µs".to_owned(),
        x_doubles: false,
        lines,
    };
    findings.charts.push(("splinter-latency".to_owned(), chart));
    Ok(findings)
}
