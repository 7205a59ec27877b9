//! Effect of the memory size: bytes written by loads of both trees (TurtleKV fig. 4), YCSB throughput with
//! small and with larger values (SplinterDB fig. 7 and 8), and the memory that a store holds from workload to
//! workload (TurtleKV fig. 11).
//!
//! The papers compare with KVell, which keeps an index of all keys in memory and degrades sharply where that
//! does not fit. It is not run here: the question is whether there is such a cliff.
//!
//! **Invariants**
//! - The data set is the same for every memory size; sizes go from a 32nd of it up to all of it.

use testudo::Result;

use super::{
    Findings,
    both_trees::TREES,
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

/// Divisors of the data size that give the memory sizes.
const PARTS: [u64; 6] = [32, 16, 8, 4, 2, 1];
const MEMORY_MIN: u64 = 4 << 20;
const WORKLOADS: [Workload; 4] = [Workload::Load, Workload::A, Workload::C, Workload::E];

/// Measures bytes written and the rate of loads against memory.
pub(crate) fn loads(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let records: u64 = experiment.scaled(5_000, 2_000_000, 20_000_000);
    let head = ["tree", "memory", "w-amp all", "ops/s"].map(str::to_owned).to_vec();
    let mut findings = Findings { table: vec![head], ..Findings::default() };
    let (mut written, mut rates) = (Vec::new(), Vec::new());
    for name in TREES {
        let (mut written_points, mut rate_points) = (Vec::new(), Vec::new());
        for memory in memories(records * 124) {
            let mut flags = experiment.flags()?;
            flags.workloads = vec![Workload::Load];
            flags.records = Some(records);
            flags.store.memory = memory;
            flags.store.tree = name.to_owned();
            let reports = experiment.measure(&format!("tree={name} memory={memory}"), &flags)?;
            findings.wrong_answers += wrong_answers(&reports);
            for report in &reports {
                let amplification =
                    report.settled.map_or(report.write_amplification, |settled| settled.write_amplification);
                written_points.push((mebibytes(memory), amplification));
                rate_points.push((mebibytes(memory), report.ops_per_second));
                findings.table.push(vec![
                    name.to_owned(),
                    human_bytes(memory),
                    format!("{amplification:.2}"),
                    human_count(report.ops_per_second),
                ]);
            }
        }
        findings.remarks.push(saved(name, &written_points));
        written.push(Line { name: name.to_owned(), points: written_points });
        rates.push(Line { name: name.to_owned(), points: rate_points });
    }
    let chart = |title: &str, y_name: &str, lines| LineChart {
        title: title.to_owned(),
        x_name: "memory, MiB".to_owned(),
        y_name: y_name.to_owned(),
        x_doubles: true,
        lines,
    };
    let title = "Bytes written by a load against memory";
    findings.charts.push(("turtle-memory-writes".to_owned(), chart(title, "written / user bytes", written)));
    let title = "Rate of a load against memory";
    findings.charts.push(("turtle-memory-rate".to_owned(), chart(title, "inserts per second", rates)));
    Ok(findings)
}

/// Measures the throughput of a splinter tree against memory, for two value sizes.
pub(crate) fn workloads(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut head = vec!["value bytes".to_owned(), "memory".to_owned()];
    head.extend(WORKLOADS.iter().map(|workload| workload.name()));
    let mut findings = Findings { table: vec![head], ..Findings::default() };
    for value_bytes in [100, 1024] {
        let data_bytes: u64 = experiment.scaled(1 << 20, 256 << 20, 4 << 30);
        let mut rates: Vec<(u64, Vec<f64>)> = Vec::new();
        for memory in memories(data_bytes) {
            let mut flags = experiment.flags()?;
            flags.workloads = WORKLOADS.to_vec();
            flags.records = Some(data_bytes / (24 + value_bytes));
            flags.value_bytes = value_bytes;
            flags.store.memory = memory;
            flags.store.tree = TREES[1].to_owned();
            flags.seconds = Some(experiment.scaled(0.05, 1.0, 20.0));
            flags.warmup_seconds = experiment.scaled(0.0, 0.5, 10.0);
            let setting = format!("value={value_bytes} memory={memory}");
            let reports = experiment.measure(&setting, &flags)?;
            findings.wrong_answers += wrong_answers(&reports);
            let now: Vec<f64> = reports.iter().map(|report| report.ops_per_second).collect();
            let mut row = vec![value_bytes.to_string(), human_bytes(memory)];
            row.extend(now.iter().map(|rate| human_count(*rate)));
            findings.table.push(row);
            rates.push((memory, now));
        }
        findings.remarks.extend(steepest(value_bytes, &rates));
        let line = |(index, workload): (usize, &Workload)| {
            let of = |(memory, rates): &(u64, Vec<f64>)| Some((mebibytes(*memory), *rates.get(index)?));
            Line { name: workload.name(), points: rates.iter().filter_map(of).collect() }
        };
        let chart = LineChart {
            title: format!("Throughput against memory, values of {value_bytes} bytes"),
            x_name: "memory, MiB".to_owned(),
            y_name: "operations per second".to_owned(),
            x_doubles: true,
            lines: WORKLOADS.iter().enumerate().map(line).collect(),
        };
        findings.charts.push((format!("splinter-memory-{value_bytes}"), chart));
    }
    Ok(findings)
}

/// Measures the peak memory of the process in each workload of a sequence, relative to the budget.
pub(crate) fn held(experiment: &mut Experiment<'_>) -> Result<Findings> {
    const SEQUENCE: [Workload; 6] =
        [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::E, Workload::F];
    let records: u64 = experiment.scaled(5_000, 3_000_000, 20_000_000);
    let head = ["tree", "workload", "peak RSS", "of the budget"].map(str::to_owned).to_vec();
    let mut findings = Findings { table: vec![head], ..Findings::default() };
    let mut lines = Vec::new();
    for name in TREES {
        let mut flags = experiment.flags()?;
        flags.workloads = SEQUENCE.to_vec();
        flags.records = Some(records);
        flags.store.memory = (records * 124 / 4).max(MEMORY_MIN);
        flags.store.tree = name.to_owned();
        flags.seconds = Some(experiment.scaled(0.05, 3.0, 30.0));
        let reports = experiment.measure(&format!("tree={name}"), &flags)?;
        findings.wrong_answers += wrong_answers(&reports);
        let part = |report: &Report| quotient(report.peak_rss_bytes as f64, report.memory_bytes as f64);
        for report in &reports {
            findings.table.push(vec![
                name.to_owned(),
                report.workload.clone(),
                human_bytes(report.peak_rss_bytes),
                format!("{:.2}", part(report)),
            ]);
        }
        let most = reports.iter().map(part).fold(0.0, f64::max);
        findings.remarks.push(format!("{name}: at most {most:.2} of the budget, including the benchmark"));
        let points = reports.iter().enumerate().map(|(at, report)| (at as f64 + 1.0, part(report)));
        lines.push(Line { name: name.to_owned(), points: points.collect() });
    }
    let names: Vec<String> = SEQUENCE.iter().map(|workload| workload.name()).collect();
    let chart = LineChart {
        title: "Memory held, by workload".to_owned(),
        x_name: names.join(", "),
        y_name: "peak RSS / budget".to_owned(),
        x_doubles: false,
        lines,
    };
    findings.charts.push(("turtle-memory-held".to_owned(), chart));
    Ok(findings)
}

/// Returns the distinct memory sizes.
fn memories(data_bytes: u64) -> Vec<u64> {
    let mut memories: Vec<u64> = PARTS.iter().map(|parts| (data_bytes / parts).max(MEMORY_MIN)).collect();
    memories.dedup();
    memories
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Formats the write amplification with the least and with the most memory.
fn saved(name: &str, written: &[(f64, f64)]) -> String {
    let (least, most) = (written.first().copied().unwrap_or_default(), written.last().copied());
    let most = most.unwrap_or_default();
    format!(
        "{name}: {:.2} bytes written per user byte with {:.0} MiB, {:.2} with {:.0} MiB",
        least.1, least.0, most.1, most.0
    )
}

/// Formats the largest slowdown of each workload when memory is halved.
fn steepest(value_bytes: u64, rates: &[(u64, Vec<f64>)]) -> Vec<String> {
    let of_workload = |(index, workload): (usize, &Workload)| {
        let kept =
            |pair: &[(u64, Vec<f64>)]| Some((pair[0].0, pair[0].1.get(index)? / pair[1].1.get(index)?));
        let (memory, kept) =
            rates.windows(2).filter_map(kept).min_by(|one, other| one.1.total_cmp(&other.1))?;
        Some(format!(
            "values of {value_bytes} bytes, {}: half the memory keeps {:.0} % of the rate at worst, at {}",
            workload.name(),
            kept * 100.0,
            human_bytes(memory)
        ))
    };
    WORKLOADS.iter().enumerate().filter_map(of_workload).collect()
}
