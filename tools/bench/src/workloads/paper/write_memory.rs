//! Write amplification against the checkpoint distance χ, for data sets of three sizes (TurtleKV fig. 3c and
//! 9e).
//!
//! The paper counts a merge per doubling between χ and the data size. As in a binary counter, a carry passes
//! through all tiers that it fills at once, so a record takes part in about every second merge: each doubling
//! of χ saves half a unit, and the lines of all sizes have the same slope. Averaged over a load into an
//! empty store, the tree is expected to write a record `1 + (log2(N / χ) - 1 / ln 2) / 2` times.
//!
//! **Invariants**
//! - The log's bytes are not counted; data that the load leaves in memory is flushed and counted.

use testudo::Result;

use super::{
    Findings,
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Workload,
    report::{
        Report,
        line_chart::{Line, LineChart},
        size::{floor, human_bytes, human_count, quotient},
    },
};

/// Doublings of χ in one line: from one leaf to 64 leaves.
const DOUBLINGS: u32 = 6;
/// Write share of these runs; the budget follows from χ, and the load does not need the rest.
const WRITE_SHARE: f64 = 0.45;

/// One load.
struct Point {
    chi: f64,
    measured: f64,
    model: f64,
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let leaf_bytes: u64 = experiment.scaled(64 << 10, 256 << 10, 1 << 20);
    let sizes: [u64; 3] = experiment.scaled(
        [10_000, 20_000, 40_000],
        [500_000, 1_000_000, 2_000_000],
        [5_000_000, 10_000_000, 20_000_000],
    );
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let mut lines = Vec::new();
    for records in sizes {
        let mut points = Vec::new();
        for doubling in 0..=DOUBLINGS {
            let report = load(experiment, records, leaf_bytes, leaf_bytes << doubling)?;
            findings.wrong_answers += wrong_answers(std::slice::from_ref(&report));
            let point = point_of(&report);
            findings.table.push(row(&report, &point));
            points.push(point);
        }
        let name = format!("{} records", human_count(records as f64));
        findings.remarks.push(remark(&name, &points));
        lines.push(Line { name, points: points.iter().map(|point| (point.chi, point.measured)).collect() });
    }
    let chart = LineChart {
        title: "Write amplification of the tree against checkpoint distance".to_owned(),
        x_name: "bytes of records in one checkpoint (χ), MiB".to_owned(),
        y_name: "bytes written by the tree / user bytes".to_owned(),
        x_doubles: true,
        lines,
    };
    findings.charts.push(("turtle-write-memory".to_owned(), chart));
    Ok(findings)
}

fn load(experiment: &mut Experiment<'_>, records: u64, leaf_bytes: u64, chi: u64) -> Result<Report> {
    let mut flags = experiment.flags()?;
    flags.workloads = vec![Workload::Load];
    flags.records = Some(records);
    flags.store.leaf_bytes = Some(leaf_bytes);
    flags.store.write_share = Some(WRITE_SHARE);
    // χ is half of the write buffers' share.
    flags.store.memory = floor(chi as f64 * 2.0 / WRITE_SHARE).max(1 << 20);
    let setting = format!("records={records} leaf={leaf_bytes} chi={chi}");
    let reports = experiment.measure(&setting, &flags)?;
    Ok(reports.into_iter().next().unwrap_or_default())
}

fn point_of(report: &Report) -> Point {
    let user = report.user_bytes_written as f64;
    let chi = quotient(user, report.flushes.max(1) as f64);
    let measured = report.settled.and_then(|settled| settled.write_amplification_without_log).unwrap_or(0.0);
    Point { chi: chi / f64::from(1 << 20), measured, model: writes_of_a_record(user, chi) }
}

/// Returns how often the tree writes a record during a load of `loaded` bytes, by the cost model.
pub(super) fn writes_of_a_record(loaded: f64, chi: f64) -> f64 {
    1.0 + ((quotient(loaded, chi).log2() - std::f64::consts::LOG2_E) / 2.0).max(0.0)
}

fn head() -> Vec<String> {
    ["records", "memory", "χ MiB", "checkpoints", "w-amp tree", "model", "w-amp all", "ops/s"]
        .map(str::to_owned)
        .to_vec()
}

fn row(report: &Report, point: &Point) -> Vec<String> {
    vec![
        report.records.to_string(),
        human_bytes(report.memory_bytes),
        format!("{:.2}", point.chi),
        report.flushes.to_string(),
        format!("{:.2}", point.measured),
        format!("{:.2}", point.model),
        format!(
            "{:.2}",
            report.settled.map_or(report.write_amplification, |settled| settled.write_amplification)
        ),
        human_count(report.ops_per_second),
    ]
}

/// Formats the slope by least squares, and the error of the model.
fn remark(name: &str, points: &[Point]) -> String {
    let count = points.len() as f64;
    let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.chi.log2()), mean(|point| point.measured));
    let covariance: f64 = points.iter().map(|p| (p.chi.log2() - mean_x) * (p.measured - mean_y)).sum();
    let variance: f64 = points.iter().map(|p| (p.chi.log2() - mean_x).powi(2)).sum();
    let error = points.iter().map(|p| (p.measured / p.model - 1.0).abs()).fold(0.0, f64::max);
    format!(
        "{name}: {:.2} units per doubling of χ; the model is off by at most {:.0} %",
        quotient(covariance, variance.max(0.0)),
        error * 100.0
    )
}
