//! Throughput of each workload against the write share, at constant total memory (TurtleKV fig. 9a–d):
//! writes benefit from a large χ, point queries from the remaining cache.
//!
//! **Invariants**
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
        size::{human_bytes, human_count},
    },
};

const SHARES: [f64; 5] = [0.05, 0.15, 0.3, 0.45, 0.7];
const WORKLOADS: [Workload; 6] =
    [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::E, Workload::F];

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let records: u64 = experiment.scaled(5_000, 300_000, 10_000_000);
    let data_bytes = records * 124;
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    // A third of the data, then all of it, as in the paper.
    for memory in [data_bytes / 3, data_bytes] {
        let memory = memory.max(4 << 20);
        let mut rates = vec![[0.0; WORKLOADS.len()]; SHARES.len()];
        let order = (0..SHARES.len()).chain((0..SHARES.len()).rev());
        for setting in order {
            let reports = measure(experiment, records, memory, SHARES[setting])?;
            findings.wrong_answers += wrong_answers(&reports);
            for (rate, report) in rates[setting].iter_mut().zip(&reports) {
                *rate += report.ops_per_second / 2.0;
            }
        }
        for (share, rates) in SHARES.iter().zip(&rates) {
            let mut row = vec![human_bytes(memory), format!("{share:.2}")];
            row.extend(rates.iter().map(|rate| human_count(*rate)));
            findings.table.push(row);
        }
        for (index, workload) in WORKLOADS.iter().enumerate() {
            let rates: Vec<f64> = rates.iter().map(|rates| rates[index]).collect();
            findings.remarks.push(remark(memory, *workload, &rates));
        }
        findings.charts.push((
            format!("turtle-sensitivity-{}", if memory >= data_bytes { "whole" } else { "third" }),
            chart(memory, &rates),
        ));
    }
    Ok(findings)
}

fn measure(experiment: &mut Experiment<'_>, records: u64, memory: u64, share: f64) -> Result<Vec<Report>> {
    let mut flags = experiment.flags()?;
    flags.workloads = WORKLOADS.to_vec();
    flags.records = Some(records);
    flags.store.memory = memory;
    flags.store.write_share = Some(share);
    flags.seconds = Some(experiment.scaled(0.05, 0.4, 20.0));
    flags.warmup_seconds = experiment.scaled(0.0, 0.1, 5.0);
    experiment.measure(&format!("memory={memory} share={share}"), &flags)
}

fn head() -> Vec<String> {
    let mut head = vec!["memory".to_owned(), "write share".to_owned()];
    head.extend(WORKLOADS.iter().map(|workload| workload.name()));
    head
}

/// Formats the best share, and the rate of the worst.
fn remark(memory: u64, workload: Workload, rates: &[f64]) -> String {
    let best = (0..rates.len()).max_by(|a, b| rates[*a].total_cmp(&rates[*b])).unwrap_or(0);
    let worst = rates.iter().copied().fold(f64::MAX, f64::min);
    format!(
        "{}, {}: best at a share of {:.2}; the worst share has {:.0} % of its rate",
        human_bytes(memory),
        workload.name(),
        SHARES[best],
        100.0 * worst / rates[best].max(f64::MIN_POSITIVE)
    )
}

fn chart(memory: u64, rates: &[[f64; WORKLOADS.len()]]) -> LineChart {
    let line = |(index, workload): (usize, &Workload)| {
        let best = rates.iter().map(|rates| rates[index]).fold(f64::MIN_POSITIVE, f64::max);
        let points = SHARES.iter().zip(rates).map(|(share, rates)| (*share, rates[index] / best)).collect();
        Line { name: workload.name(), points }
    };
    LineChart {
        title: format!("Throughput against the write share, {} in total", human_bytes(memory)),
        x_name: "share of memory for write buffers".to_owned(),
        y_name: "relative to the best".to_owned(),
        x_doubles: false,
        lines: WORKLOADS.iter().enumerate().map(line).collect(),
    }
}
