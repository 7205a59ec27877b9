//! Throughput and write amplification of loads against the share of inserts in key order (SplinterDB fig. 9):
//! from random to sequential both should improve step by step, and the tree's writes approach one write per
//! user byte.
//!
//! **Invariants**
//! - The log's bytes are not counted; data that a load leaves in memory is flushed and counted.

use testudo::Result;

use super::{
    Findings,
    both_trees::{ROUNDS, TREES, leaf_bytes, lines, memory_bytes, rounds, times},
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Workload,
    report::{Report, line_chart::LineChart, size::human_count},
};

/// Percentages of inserts in key order.
const SHARES: [u8; 7] = [0, 25, 50, 75, 90, 99, 100];
const FEW_SHARES: [u8; 3] = [0, 50, 100];

/// Mean over the rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    rate: f64,
    amplification: f64,
    stall_ms: f64,
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let records: u64 = experiment.scaled(2_000, 500_000, 10_000_000);
    let shares: &[u8] = experiment.scaled(&FEW_SHARES, &SHARES, &SHARES);
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let mut points = vec![[Point::default(); TREES.len()]; shares.len()];
    for (setting, tree) in rounds(shares.len()) {
        let report = load(experiment, records, shares[setting], TREES[tree])?;
        findings.wrong_answers += wrong_answers(std::slice::from_ref(&report));
        let point = &mut points[setting][tree];
        point.rate += report.ops_per_second / ROUNDS as f64;
        let settled = report.settled.and_then(|settled| settled.write_amplification_without_log);
        point.amplification += settled.unwrap_or(0.0) / ROUNDS as f64;
        point.stall_ms = point.stall_ms.max(report.max_stall_ms);
    }
    for (share, points) in shares.iter().zip(&points) {
        let mut row = vec![share.to_string()];
        for point in points {
            row.push(human_count(point.rate));
            row.push(format!("{:.2}", point.amplification));
            row.push(format!("{:.0}", point.stall_ms));
        }
        findings.table.push(row);
    }
    findings.remarks = (0..TREES.len()).map(|tree| remark(tree, &points)).collect();
    let (first, last) = (points[0], points[shares.len() - 1]);
    findings.remarks.push(format!(
        "{} relative to {}: {} the inserts if all random, {} if all in order; {} and {} the bytes written",
        TREES[1],
        TREES[0],
        times(first[0].rate, first[1].rate),
        times(last[0].rate, last[1].rate),
        times(first[0].amplification, first[1].amplification),
        times(last[0].amplification, last[1].amplification),
    ));
    let axis: Vec<f64> = shares.iter().map(|share| f64::from(*share)).collect();
    let chart = |title: &str, y_name: &str, value: fn(&Point) -> f64| LineChart {
        title: title.to_owned(),
        x_name: "inserts in key order, %".to_owned(),
        y_name: y_name.to_owned(),
        x_doubles: false,
        lines: lines(&axis, &points, value),
    };
    let rates = chart("Load rate against share of ordered keys", "inserts/s", |point| point.rate);
    findings.charts.push(("splinter-sequential-rate".to_owned(), rates));
    let written = chart(
        "Bytes written against share of ordered keys",
        "bytes written by the tree / user bytes",
        |point| point.amplification,
    );
    findings.charts.push(("splinter-sequential-writes".to_owned(), written));
    Ok(findings)
}

fn load(experiment: &mut Experiment<'_>, records: u64, share: u8, tree: &str) -> Result<Report> {
    let mut flags = experiment.flags()?;
    flags.workloads = vec![Workload::Load];
    flags.records = Some(records);
    flags.sequential_share = Some(share);
    flags.store.tree = tree.to_owned();
    flags.store.leaf_bytes = Some(leaf_bytes(experiment));
    flags.store.memory = memory_bytes(records);
    let reports = experiment.measure(&format!("tree={tree} share={share}"), &flags)?;
    Ok(reports.into_iter().next().unwrap_or_default())
}

fn head() -> Vec<String> {
    let of_tree = |tree: &&str| ["inserts/s", "w-amp tree", "stall ms"].map(|what| format!("{tree} {what}"));
    std::iter::once("% in order".to_owned()).chain(TREES.iter().flat_map(of_tree)).collect()
}

/// Formats the change from random to sequential, and the worst step in between.
fn remark(tree: usize, points: &[[Point; TREES.len()]]) -> String {
    let of_tree = || points.iter().map(|points| points[tree]);
    let steps = || of_tree().zip(of_tree().skip(1));
    let lowest = steps().map(|(from, to)| to.rate / from.rate).fold(f64::MAX, f64::min);
    let highest = steps().map(|(from, to)| to.amplification - from.amplification).fold(f64::MIN, f64::max);
    let (first, last) = (points[0][tree], points[points.len() - 1][tree]);
    format!(
        "{}: from random to in order {} the inserts, and {:.2} to {:.2} bytes written per user byte; from \
         one share to the \
         next at worst {lowest:.2} times the inserts and {highest:+.2} bytes",
        TREES[tree],
        times(first.rate, last.rate),
        first.amplification,
        last.amplification,
    )
}
