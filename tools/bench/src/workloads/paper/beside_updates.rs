//! Queries concurrent with updates at a fixed rate, for each compared configuration (LSbM §6): a plain
//! leveled tree, one with warm merges (the paper's incremental warming up), and one with compaction buffers.
//!
//! **Invariants**
//! - There is no record cache, as in the paper's systems: only page caching is compared here.
//! - Updates read no pages and are not counted among the operations.

use testudo::Result;

use super::{
    Findings,
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Distribution, Workload,
    report::{
        Report,
        line_chart::{Line, LineChart},
        size::{human_count, quotient},
    },
};

/// A tree and its setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    preset: &'static str,
    warm_merges: bool,
}

const fn way(name: &'static str, preset: &'static str, warm_merges: bool) -> Way {
    Way { name, preset, warm_merges }
}

/// The compared configurations; the first one is the baseline.
pub(crate) const WAYS: [Way; 3] = [
    way("leveled", "leveled", false),
    way("leveled, warm merges", "leveled", true),
    way("lsbm", "lsbm", false),
];

/// The queries, and the rate of concurrent updates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) workload: Workload,
    pub(crate) distribution: Distribution,
    pub(crate) updates_beside: u64,
    /// Duration at the small scale.
    pub(crate) seconds: f64,
}

/// Length of a scan: about as many records as there are of 1 KB in the paper's 100 KB.
pub(crate) const SCAN_LENGTH: u64 = 100;

/// Loads a fresh store and then runs the queries.
pub(crate) fn measure(
    experiment: &mut Experiment<'_>,
    way: Way,
    load: Load,
    findings: &mut Findings,
) -> Result<Report> {
    let Load { workload, distribution, updates_beside, seconds } = load;
    let records: u64 = experiment.scaled(5_000, 1_000_000, 20_000_000);
    let mut flags = experiment.flags()?;
    flags.workloads = vec![Workload::Load, workload];
    flags.records = Some(records);
    way.preset.clone_into(&mut flags.store.tree);
    // In proportion to the memory used elsewhere at the full scale.
    flags.store.memory = (records * (256 << 20) / 20_000_000).max(4 << 20);
    flags.seconds = Some(experiment.scaled(0.05, seconds, seconds * 30.0));
    flags.warmup_seconds = experiment.scaled(0.02, 2.0, 20.0);
    flags.warm_merges = way.warm_merges;
    flags.no_record_cache = true;
    flags.updates_beside = updates_beside;
    flags.distribution = Some(distribution);
    flags.scan_length = SCAN_LENGTH;
    let setting = format!("tree={} updates={updates_beside}", way.name);
    let reports = experiment.measure(&setting, &flags)?;
    findings.wrong_answers += wrong_answers(&reports);
    Ok(reports.into_iter().next_back().unwrap_or_default())
}

/// Returns the throughput of each configuration relative to the first one.
pub(crate) fn remark(reports: &[Report], updates_beside: u64, what: &str) -> String {
    let plain = reports.first().map_or(0.0, |report| report.ops_per_second);
    let ratio = |(way, report): (&Way, &Report)| {
        format!("{} {:.2} times", way.name, quotient(report.ops_per_second, plain))
    };
    let ratios: Vec<_> = WAYS.iter().zip(reports).skip(1).map(ratio).collect();
    let against = WAYS[0].name;
    format!("with {updates_beside} updates per second, {what} relative to {against}: {}", ratios.join(", "))
}

/// Title and unit of a chart over time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
}

/// Creates a chart of lines with one value per second.
pub(crate) fn chart_over_time(axis: Axis, updates_beside: u64, lines: Vec<(&str, Vec<f64>)>) -> LineChart {
    let line = |(name, values): (&str, Vec<f64>)| {
        let points = values.into_iter().enumerate().map(|(second, value)| (second as f64, value)).collect();
        Line { name: name.to_owned(), points }
    };
    LineChart {
        title: format!("{} with {} updates per second", axis.title, human_count(updates_beside as f64)),
        x_name: "seconds".to_owned(),
        y_name: axis.unit.to_owned(),
        x_doubles: false,
        lines: lines.into_iter().map(line).collect(),
    }
}

/// Returns the percentage of reads that found their page in memory, for each second.
pub(crate) fn hits_by_second(report: &Report) -> Vec<f64> {
    let seconds = report.rate_by_second.iter().zip(&report.page_reads_by_second);
    seconds.map(|(rate, reads)| 100.0 * (1.0 - quotient(*reads, *rate))).collect()
}

/// Returns the lines of all configurations.
pub(crate) fn lines(reports: &[Report], series: fn(&Report) -> Vec<f64>) -> Vec<(&'static str, Vec<f64>)> {
    WAYS.iter().zip(reports).map(|(way, report)| (way.name, series(report))).collect()
}
