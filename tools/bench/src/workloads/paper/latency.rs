//! Latency by kind of operation over YCSB, with memory for a third of the data and for all of it (TurtleKV
//! fig. 10).
//!
//! **Invariants**
//! - Loops are closed: each thread has one operation in flight. `ycsb --rate` measures open loops.

use testudo::Result;

use super::{
    Findings,
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Workload,
    report::{
        line_chart::{Line, LineChart},
        size::human_bytes,
    },
};

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let records: u64 = experiment.scaled(5_000, 500_000, 10_000_000);
    let data_bytes = records * 124;
    let head = ["memory", "workload", "operation", "count", "p50 µs", "p99 µs", "p99.9 µs", "max µs"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let mut lines = Vec::new();
    for memory in [(data_bytes / 3).max(4 << 20), data_bytes.max(4 << 20)] {
        let mut flags = experiment.flags()?;
        flags.workloads =
            vec![Workload::Load, Workload::A, Workload::B, Workload::C, Workload::E, Workload::F];
        flags.records = Some(records);
        flags.store.memory = memory;
        flags.seconds = Some(experiment.scaled(0.05, 2.0, 30.0));
        let reports = experiment.measure(&format!("memory={memory}"), &flags)?;
        findings.wrong_answers += wrong_answers(&reports);
        for report in &reports {
            for (class, latency) in &report.latency_us_by_class {
                let count = report.ops_by_class.get(class).copied().unwrap_or(0);
                findings.table.push(vec![
                    human_bytes(memory),
                    report.workload.clone(),
                    (*class).to_owned(),
                    count.to_string(),
                    format!("{:.1}", latency.p50),
                    format!("{:.1}", latency.p99),
                    format!("{:.1}", latency.p999),
                    format!("{:.0}", latency.max),
                ]);
                let marks = [(0.5, latency.p50), (2.0, latency.p99), (3.0, latency.p999)];
                let points = marks.iter().map(|(nines, us)| (*nines, us.max(0.1).log10())).collect();
                lines.push(Line {
                    name: format!("{} {class} {}", report.workload, human_bytes(memory)),
                    points,
                });
            }
        }
    }
    let chart = LineChart {
        title: "Latency by kind of operation".to_owned(),
        x_name: "p50 (0.5), p99 (2), p99.9 (3)".to_owned(),
        y_name: "log10 of µs".to_owned(),
        x_doubles: false,
        lines: lines
            .into_iter()
            .filter(|line| {
                line.name.starts_with("load") || line.name.starts_with('a') || line.name.starts_with('c')
            })
            .collect(),
    };
    findings.charts.push(("turtle-latency".to_owned(), chart));
    Ok(findings)
}
