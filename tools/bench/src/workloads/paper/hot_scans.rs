//! Range queries in a hot range under updates: rate over time (LSbM fig. 14), and on average (fig. 15).
//!
//! **Invariants**
//! - Every scan returns a fixed number of records.

use testudo::Result;

use super::{
    Findings,
    beside_updates::{Axis, Load, SCAN_LENGTH, WAYS, chart_over_time, lines, measure, remark},
    experiment::Experiment,
};
use crate::{
    Distribution, Workload,
    report::{
        Report,
        size::{human_count, quotient},
    },
};

/// Returns a load of hot-range scans with `updates_beside` updates per second.
pub(crate) fn load(updates_beside: u64) -> Load {
    let (workload, distribution) = (Workload::RangeHotScans, Distribution::RangeHot);
    Load { workload, distribution, updates_beside, seconds: 8.0 }
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let head = ["tree", "updates/s", "scans/s", "page reads per scan", "other reads per scan", "p99 µs"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let rates: &[u64] = experiment.scaled(&[1_000], &[4_000, 16_000], &[1_000, 4_000, 16_000]);
    for updates_beside in rates.iter().copied() {
        let mut reports = Vec::with_capacity(WAYS.len());
        for way in WAYS {
            let report = measure(experiment, way, load(updates_beside), &mut findings)?;
            findings.table.push(row(way.name, updates_beside, &report));
            reports.push(report);
        }
        findings.remarks.push(remark(&reports, updates_beside, &format!("scans of {SCAN_LENGTH} records")));
        let rates = lines(&reports, |report| report.rate_by_second.clone());
        let axis = Axis { title: "Range queries", unit: "scans per second" };
        let chart = chart_over_time(axis, updates_beside, rates);
        findings.charts.push((format!("lsbm-scans-{updates_beside}"), chart));
    }
    Ok(findings)
}

fn row(name: &str, updates_beside: u64, report: &Report) -> Vec<String> {
    let per_scan = |reads: u64| format!("{:.3}", quotient(reads as f64, report.ops as f64));
    let latency = report.latency_us_by_class.get("scan").unwrap_or(&report.latency_us);
    vec![
        name.to_owned(),
        updates_beside.to_string(),
        human_count(report.ops_per_second),
        per_scan(report.page_reads),
        // Reads by background work are included.
        per_scan(report.stream_reads),
        format!("{:.0}", latency.p99),
    ]
}
