//! Contribution of TreeLine's components (TreeLine fig. 8, table 4): the record cache and page updates, both,
//! either and neither of them, in the YCSB workloads.
//!
//! **Invariants**
//! - Without page updates the tree is the leveled one, which is otherwise the same.
//! - Settings run in two rounds of opposite order, and a point is the mean of its two runs.

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
        size::{human_bytes, human_count, quotient},
    },
};

/// Name, preset, and whether there is a record cache.
const WAYS: [(&str, &str, bool); 4] = [
    ("treeline", "treeline", true),
    ("no record cache", "treeline", false),
    ("no page updates", "leveled", true),
    ("neither", "leveled", false),
];
const WORKLOADS: [Workload; 7] =
    [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D, Workload::E, Workload::F];

/// Result of one configuration and workload.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    rate: f64,
    read_bytes: f64,
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let mut points = [[Point::default(); WORKLOADS.len()]; WAYS.len()];
    for way in (0..WAYS.len()).chain((0..WAYS.len()).rev()) {
        let reports = measure(experiment, WAYS[way])?;
        findings.wrong_answers += wrong_answers(&reports);
        for (point, report) in points[way].iter_mut().zip(&reports) {
            point.rate += report.ops_per_second / 2.0;
            point.read_bytes += quotient(report.device_bytes_read as f64, report.ops as f64) / 2.0;
        }
    }
    for ((name, ..), points) in WAYS.iter().zip(&points) {
        let mut row = vec![(*name).to_owned()];
        row.extend(points.iter().map(|point| human_count(point.rate)));
        let scan = WORKLOADS.iter().zip(points).find(|(workload, _)| **workload == Workload::E);
        row.push(scan.map_or_else(String::new, |(_, point)| {
            human_bytes(crate::report::size::floor(point.read_bytes))
        }));
        findings.table.push(row);
    }
    for (index, workload) in WORKLOADS.iter().enumerate() {
        let neither = points[WAYS.len() - 1][index].rate;
        let ratios = WAYS.iter().zip(&points).take(WAYS.len() - 1);
        let ratios: Vec<String> = ratios
            .map(|((name, ..), points)| format!("{name} {:.2}", quotient(points[index].rate, neither)))
            .collect();
        findings.remarks.push(format!("{}, relative to neither: {}", workload.name(), ratios.join(", ")));
    }
    findings.charts.push(("treeline-factors".to_owned(), chart(&points)));
    Ok(findings)
}

fn measure(experiment: &mut Experiment<'_>, (name, tree, caches): (&str, &str, bool)) -> Result<Vec<Report>> {
    let records: u64 = experiment.scaled(5_000, 500_000, 10_000_000);
    let mut flags = experiment.flags()?;
    flags.workloads = WORKLOADS.to_vec();
    flags.records = Some(records);
    tree.clone_into(&mut flags.store.tree);
    flags.store.memory = (records * 124 / 10).max(4 << 20);
    flags.seconds = Some(experiment.scaled(0.05, 0.7, 20.0));
    flags.warmup_seconds = experiment.scaled(0.0, 0.2, 10.0);
    flags.settle_seconds = experiment.scaled(0.0, 1.0, 20.0);
    flags.no_record_cache = !caches;
    experiment.measure(name, &flags)
}

fn head() -> Vec<String> {
    let mut head = vec!["ops/s".to_owned()];
    head.extend(WORKLOADS.iter().map(|workload| workload.name()));
    head.push("read by a scan of e".to_owned());
    head
}

fn chart(points: &[[Point; WORKLOADS.len()]; WAYS.len()]) -> LineChart {
    let neither = &points[WAYS.len() - 1];
    let line = |((name, ..), points): (&(&str, &str, bool), &[Point; WORKLOADS.len()])| Line {
        name: (*name).to_owned(),
        points: points
            .iter()
            .zip(neither)
            .enumerate()
            .map(|(at, (point, neither))| (at as f64, quotient(point.rate, neither.rate)))
            .collect(),
    };
    LineChart {
        title: "Throughput of load, A to F, relative to neither".to_owned(),
        x_name: "workload: 0 load, 1 A … 6 F".to_owned(),
        y_name: "relative to neither".to_owned(),
        x_doubles: false,
        lines: WAYS.iter().zip(points).map(line).collect(),
    }
}
