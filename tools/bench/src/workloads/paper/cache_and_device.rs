//! Two numbers for each configuration: the share of reads served from memory, and the range queries per
//! second (LSbM fig. 18).
//!
//! **Invariants**
//! - Both are measured in a hot range under the same updates, each on its own store.

use testudo::Result;

use super::{
    Findings,
    beside_updates::{Load, WAYS, measure},
    experiment::Experiment,
    hot_range::hit_percent,
    hot_scans,
};
use crate::{
    Distribution, Workload,
    report::{
        line_chart::{Line, LineChart},
        size::human_count,
    },
};

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let head = ["tree", "updates/s", "hit %", "scans/s"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let updates_beside = experiment.scaled(1_000, 16_000, 16_000);
    let (workload, distribution) = (Workload::RangeHot, Distribution::RangeHot);
    let reads = Load { workload, distribution, updates_beside, seconds: 8.0 };
    let mut lines = Vec::new();
    for way in WAYS {
        let hits = hit_percent(&measure(experiment, way, reads, &mut findings)?);
        let scans = measure(experiment, way, hot_scans::load(updates_beside), &mut findings)?.ops_per_second;
        let row = [way.name.to_owned(), updates_beside.to_string(), format!("{hits:.2}"), human_count(scans)];
        findings.table.push(row.to_vec());
        lines.push(Line { name: way.name.to_owned(), points: vec![(scans, hits)] });
    }
    let chart = LineChart {
        title: "Reads from memory, and range queries".to_owned(),
        x_name: "range queries per second".to_owned(),
        y_name: "reads served from memory, %".to_owned(),
        x_doubles: false,
        lines,
    };
    findings.charts.push(("lsbm-summary".to_owned(), chart));
    Ok(findings)
}
