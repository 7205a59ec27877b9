//! Reads of a hot range beside updates that come at a fixed rate, over time (LSbM fig. 11, 12): what merges
//! do to a cache of pages, in a leveled tree as it is, with warm merges (the paper's incremental warming up)
//! and with compaction buffers.
//!
//! **Invariants**
//! - There is no record cache, as there is none in the systems of the paper: only pages are told apart here.
//! - A read has one page to find in the cache, so what page reads leave of all reads are hits. Updates read
//!   no page, and are not among the operations that are counted.

use testudo::Result;
use testudo_base::num::usize_of;

use super::{
    Findings,
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Workload,
    report::{
        Report,
        line_chart::{Line, LineChart},
        size::{floor, human_count, quotient},
    },
};

/// Name, preset, and whether merges warm the cache.
const WAYS: [(&str, &str, bool); 3] =
    [("leveled", "leveled", false), ("leveled, warm merges", "leveled", true), ("lsbm", "lsbm", false)];

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let head = ["tree", "updates/s", "reads/s", "page reads per read", "hit %", "hit %, worst second"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let rates: &[u64] = experiment.scaled(&[1_000], &[4_000, 16_000], &[1_000, 4_000, 16_000]);
    for rate in rates {
        let mut reports = Vec::with_capacity(WAYS.len());
        for way in WAYS {
            let report = measure(experiment, way, *rate, &mut findings)?;
            findings.table.push(row(way.0, *rate, &report));
            reports.push(report);
        }
        let plain = reports[0].ops_per_second;
        let ratios = WAYS.iter().zip(&reports).skip(1).map(|((name, ..), report)| {
            format!("{name} {:.2} times", quotient(report.ops_per_second, plain))
        });
        let ratios: Vec<_> = ratios.collect();
        findings.remarks.push(format!(
            "beside {rate} updates a second, reads against {}: {}",
            WAYS[0].0,
            ratios.join(", ")
        ));
        let beside = format!("beside {} updates a second", human_count(*rate as f64));
        let charts: [(&str, &str, &str, Series); 2] = [
            ("lsbm-hits", "Reads that find all in memory", "%", hits_by_second),
            ("lsbm-rate", "Reads", "reads a second", |report| report.rate_by_second.clone()),
        ];
        for (file, title, unit, series) in charts {
            let lines = WAYS.iter().zip(&reports).map(|((name, ..), report)| line(name, &series(report)));
            let chart = LineChart {
                title: format!("{title} {beside}"),
                x_name: "seconds".to_owned(),
                y_name: unit.to_owned(),
                x_doubles: false,
                lines: lines.collect(),
            };
            findings.charts.push((format!("{file}-{rate}"), chart));
        }
    }
    Ok(findings)
}

type Series = fn(&Report) -> Vec<f64>;

/// A store of its own: a load, and the hot range.
fn measure(
    experiment: &mut Experiment<'_>,
    (name, tree, warms): (&str, &str, bool),
    rate: u64,
    findings: &mut Findings,
) -> Result<Report> {
    let records: u64 = experiment.scaled(5_000, 1_000_000, 20_000_000);
    let mut flags = experiment.flags()?;
    flags.workloads = vec![Workload::Load, Workload::RangeHot];
    flags.records = Some(records);
    tree.clone_into(&mut flags.store.tree);
    // What the full scale is measured with elsewhere, in proportion.
    flags.store.memory = (records * (256 << 20) / 20_000_000).max(4 << 20);
    flags.seconds = Some(experiment.scaled(0.05, 8.0, 240.0));
    flags.warmup_seconds = experiment.scaled(0.02, 2.0, 20.0);
    flags.warm_merges = warms;
    flags.no_record_cache = true;
    flags.updates_beside = rate;
    let reports = experiment.measure(&format!("tree={name} updates={rate}"), &flags)?;
    findings.wrong_answers += wrong_answers(&reports);
    Ok(reports.into_iter().next_back().unwrap_or_default())
}

fn row(name: &str, rate: u64, report: &Report) -> Vec<String> {
    // Those of the warm-up show how the cache is filled.
    let warmup_seconds = usize_of(floor(report.warmup_seconds.ceil()));
    let worst = hits_by_second(report).into_iter().skip(warmup_seconds).fold(100.0, f64::min);
    vec![
        name.to_owned(),
        rate.to_string(),
        human_count(report.ops_per_second),
        format!("{:.4}", report.page_reads_per_read),
        format!("{:.2}", 100.0 * (1.0 - report.page_reads_per_read)),
        format!("{worst:.2}"),
    ]
}

fn hits_by_second(report: &Report) -> Vec<f64> {
    let seconds = report.rate_by_second.iter().zip(&report.page_reads_by_second);
    seconds.map(|(rate, reads)| 100.0 * (1.0 - quotient(*reads, *rate))).collect()
}

fn line(name: &str, values: &[f64]) -> Line {
    let points = values.iter().enumerate().map(|(second, value)| (second as f64, *value)).collect();
    Line { name: name.to_owned(), points }
}
