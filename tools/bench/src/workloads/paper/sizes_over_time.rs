//! Store size under updates, over time (LSbM fig. 16) and on average (fig. 17): the space of compaction
//! buffers relative to leveled trees.
//!
//! **Invariants**
//! - Sizes are the allocated bytes of the data file, the maximum in each second: free space is reused.

use testudo::Result;

use super::{
    Findings,
    beside_updates::{Axis, Load, WAYS, chart_over_time, measure},
    experiment::Experiment,
};
use crate::{
    Distribution, Workload,
    report::{
        Report,
        size::{floor, human_bytes, quotient},
    },
};

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let head = ["tree", "reads", "average size", "% of leveled", "largest"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let updates_beside = experiment.scaled(1_000, 16_000, 16_000);
    let [leveled, _, lsbm] = WAYS;
    let mut lines = Vec::new();
    for (distribution, reads, names) in [
        (Distribution::RangeHot, "hot range", ["leveled, hot range", "lsbm, hot range"]),
        (Distribution::Zipfian, "zipfian", ["leveled, zipfian", "lsbm, zipfian"]),
    ] {
        let mut plain = 0.0;
        for (way, name) in [leveled, lsbm].into_iter().zip(names) {
            let load = Load { workload: Workload::RangeHot, distribution, updates_beside, seconds: 20.0 };
            let report = measure(experiment, way, load, &mut findings)?;
            if way.name == leveled.name {
                plain = average_size(&report);
            }
            findings.table.push(row([way.name, reads], &report, plain));
            lines.push((name, report.live_bytes_by_second.iter().map(|bytes| *bytes as f64).collect()));
        }
    }
    let axis = Axis { title: "Space in use", unit: "bytes" };
    let chart = chart_over_time(axis, updates_beside, lines);
    findings.charts.push(("lsbm-size".to_owned(), chart));
    Ok(findings)
}

fn average_size(report: &Report) -> f64 {
    let sizes = &report.live_bytes_by_second;
    quotient(sizes.iter().map(|bytes| *bytes as f64).sum(), sizes.len() as f64)
}

/// Returns a table row; `plain` is the average size of a leveled tree.
fn row([tree, reads]: [&str; 2], report: &Report, plain: f64) -> Vec<String> {
    let (average, largest) = (average_size(report), report.live_bytes_by_second.iter().copied().max());
    vec![
        tree.to_owned(),
        reads.to_owned(),
        human_bytes(floor(average)),
        format!("{:.1}", 100.0 * quotient(average, plain)),
        human_bytes(largest.unwrap_or_default()),
    ]
}
