//! Point reads under updates, over time: in a hot range (LSbM fig. 11, 12), and zipfian (fig. 13).
//!
//! **Invariants**
//! - A read needs one page, so every read without a page read is a hit.

use testudo::Result;
use testudo_base::num::usize_of;

use super::{
    Findings,
    beside_updates::{Axis, Load, WAYS, chart_over_time, hits_by_second, lines, measure, remark},
    experiment::Experiment,
};
use crate::{
    Distribution, Workload,
    report::{
        Report,
        size::{floor, human_count},
    },
};

/// Fig. 11, 12.
pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let rates: &[u64] = experiment.scaled(&[1_000], &[4_000, 16_000], &[1_000, 4_000, 16_000]);
    reads(experiment, Distribution::RangeHot, rates, "lsbm")
}

/// Fig. 13.
pub(crate) fn zipf(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let rates: &[u64] = experiment.scaled(&[1_000], &[16_000], &[1_000, 4_000, 16_000]);
    reads(experiment, Distribution::Zipfian, rates, "lsbm-zipf")
}

fn reads(
    experiment: &mut Experiment<'_>,
    distribution: Distribution,
    rates: &[u64],
    files: &str,
) -> Result<Findings> {
    let head = ["tree", "updates/s", "reads/s", "page reads per read", "hit %", "hit %, worst second"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    for updates_beside in rates.iter().copied() {
        let load = Load { workload: Workload::RangeHot, distribution, updates_beside, seconds: 8.0 };
        let mut reports = Vec::with_capacity(WAYS.len());
        for way in WAYS {
            let report = measure(experiment, way, load, &mut findings)?;
            findings.table.push(row(way.name, updates_beside, &report));
            reports.push(report);
        }
        findings.remarks.push(remark(&reports, updates_beside, "reads"));
        let (hits, rates) =
            (lines(&reports, hits_by_second), lines(&reports, |report| report.rate_by_second.clone()));
        let axis = Axis { title: "Reads served from memory", unit: "%" };
        let chart = chart_over_time(axis, updates_beside, hits);
        findings.charts.push((format!("{files}-hits-{updates_beside}"), chart));
        let axis = Axis { title: "Reads", unit: "reads per second" };
        let chart = chart_over_time(axis, updates_beside, rates);
        findings.charts.push((format!("{files}-rate-{updates_beside}"), chart));
    }
    Ok(findings)
}

fn row(name: &str, updates_beside: u64, report: &Report) -> Vec<String> {
    // Seconds of the warm-up are skipped, since the cache is being filled then.
    let warmup_seconds = usize_of(floor(report.warmup_seconds.ceil()));
    let worst = hits_by_second(report).into_iter().skip(warmup_seconds).fold(100.0, f64::min);
    vec![
        name.to_owned(),
        updates_beside.to_string(),
        human_count(report.ops_per_second),
        format!("{:.4}", report.page_reads_per_read),
        format!("{:.2}", hit_percent(report)),
        format!("{worst:.2}"),
    ]
}

/// Returns the percentage of reads that found their page in memory.
pub(crate) fn hit_percent(report: &Report) -> f64 {
    100.0 * (1.0 - report.page_reads_per_read)
}
