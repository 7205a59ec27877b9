//! Stores with different value placements, under mixes of value lengths (Parallax, chapters 4 and 5).
//!
//! Mixes are those of the thesis: keys of 24 bytes, values of 9, 104 or 1,004. The number of records gives
//! each mix the same total size, and the memory is an eighth of it. A record keeps its value length when it
//! is updated; in the thesis, updates change it in mixed workloads.
//!
//! **Invariants**
//! - Deferred work counts for its workload: bytes and CPU time are counted until the store is idle.
//! - Amplification is per byte that users wrote or read, as in the thesis, so that the write and the read
//!   part add up.

use serde::Serialize;
use testudo::{Keyspace, Placement, Result};

use super::{
    Findings,
    both_trees::leaf_bytes,
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Workload,
    args::Mix,
    report::{
        Report,
        line_chart::{Line, LineChart},
        size::{human_bytes, human_count, quotient},
    },
    workloads::ycsb::Lengths,
};

const KEY_BYTES: u64 = 24;
const MEMORY_MIN: u64 = 4 << 20;
/// Divisor of the data size that gives the memory.
const MEMORY_PART: u64 = 8;
/// Operations of other workloads per scan.
const OPERATIONS_OF_A_SCAN: u64 = 10;

/// A tree with a value placement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) tree: &'static str,
    pub(crate) placement: Placement,
}

/// The load, workload A, and both together, since A may do work that the load deferred.
pub(crate) const STEPS: [&str; 3] = ["load", "a", "load + a"];

/// Cost of one or several workloads until the store was idle again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    step: String,
    ops: u64,
    seconds: f64,
    cpu_seconds: f64,
    /// Bytes that users wrote and read.
    user_bytes: u64,
    /// Bytes written to the device: log, data and garbage collection.
    written_bytes: u64,
    read_bytes: u64,
    /// Space amplification at the end.
    space: f64,
    outside: Outside,
}

/// A cost shown in charts.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// Suffix of the file name.
    pub(crate) file: &'static str,
    pub(crate) value: fn(&Cost) -> f64,
}

/// The thesis' three metrics: I/O amplification, throughput, efficiency.
pub(crate) const SHOWN: [Shown; 3] = [
    Shown { title: "I/O", unit: "bytes written and read / user byte", file: "io", value: Cost::io },
    Shown { title: "Rate", unit: "operations/s", file: "rate", value: Cost::rate },
    Shown { title: "Processor time", unit: "µs / operation", file: "cpu", value: Cost::cpu_us },
];

/// Values outside the runs of the tree.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Outside {
    pub(crate) value_segments: u64,
    pub(crate) value_bytes: u64,
    pub(crate) dead_value_bytes: u64,
    pub(crate) transient_value_bytes: u64,
    pub(crate) dead_transient_value_bytes: u64,
}

/// State of the outside values after a workload, as JSON.
#[derive(Serialize)]
struct Point<'a> {
    after: &'a str,
    #[serde(flatten)]
    outside: Outside,
}

impl Cost {
    fn of(report: &Report, outside: Outside) -> Self {
        let at_once = (report.device_bytes_written, report.device_bytes_read, report.cpu_seconds);
        let (written, read, cpu_seconds) = report.settled.map_or(at_once, |settled| {
            (settled.device_bytes_written, settled.device_bytes_read, settled.cpu_seconds)
        });
        Self {
            step: report.workload.clone(),
            ops: report.ops,
            seconds: report.seconds,
            cpu_seconds,
            user_bytes: report.user_bytes_written + report.user_bytes_read,
            written_bytes: written,
            read_bytes: read,
            space: report.space_amplification_settled.unwrap_or(report.space_amplification),
            outside,
        }
    }

    /// Returns the cost of this and the next workload together.
    fn and(&self, next: &Self) -> Self {
        Self {
            step: format!("{} + {}", self.step, next.step),
            ops: self.ops + next.ops,
            seconds: self.seconds + next.seconds,
            cpu_seconds: self.cpu_seconds + next.cpu_seconds,
            user_bytes: self.user_bytes + next.user_bytes,
            written_bytes: self.written_bytes + next.written_bytes,
            read_bytes: self.read_bytes + next.read_bytes,
            ..next.clone()
        }
    }

    fn of_user_bytes(&self, bytes: u64) -> f64 {
        quotient(bytes as f64, self.user_bytes as f64)
    }

    /// Returns the bytes written and read per user byte: the thesis' I/O amplification.
    fn io(&self) -> f64 {
        self.of_user_bytes(self.written_bytes + self.read_bytes)
    }

    fn rate(&self) -> f64 {
        quotient(self.ops as f64, self.seconds)
    }

    fn cpu_us(&self) -> f64 {
        quotient(self.cpu_seconds * 1e6, self.ops as f64)
    }

    /// Returns the table row.
    fn row(&self, mix: &str, way: &str) -> Vec<String> {
        let Outside { value_bytes, dead_value_bytes, .. } = self.outside;
        vec![
            mix.to_owned(),
            way.to_owned(),
            self.step.clone(),
            human_count(self.rate()),
            format!("{:.2}", self.of_user_bytes(self.written_bytes)),
            format!("{:.2}", self.of_user_bytes(self.read_bytes)),
            format!("{:.2}", self.io()),
            format!("{:.2}", self.cpu_us()),
            format!("{:.2}", self.space),
            human_bytes(value_bytes),
            format!("{:.1} %", 100.0 * quotient(dead_value_bytes as f64, value_bytes as f64)),
        ]
    }
}

/// Returns the header for the rows of [`Cost::row`].
pub(crate) fn head() -> Vec<String> {
    let names = [
        "mix",
        "values",
        "workload",
        "ops/s",
        "written / byte",
        "read / byte",
        "I/O / byte",
        "CPU µs/op",
        "space",
        "outside",
        "garbage",
    ];
    names.map(str::to_owned).to_vec()
}

impl Outside {
    fn of(keyspaces: &[Keyspace]) -> Self {
        keyspaces.iter().map(Keyspace::stats).fold(Self::default(), |sum, stats| Self {
            value_segments: sum.value_segments + stats.values.segments,
            value_bytes: sum.value_bytes + stats.values.bytes,
            dead_value_bytes: sum.dead_value_bytes + stats.values.dead_bytes,
            transient_value_bytes: sum.transient_value_bytes + stats.values.transient_bytes,
            dead_transient_value_bytes: sum.dead_transient_value_bytes + stats.values.dead_transient_bytes,
        })
    }
}

/// Creates a store with a mix of values and runs `workloads` on it: a load, workload A, and others. Returns
/// the costs of [`STEPS`], then of the others.
pub(crate) fn measure(
    experiment: &mut Experiment<'_>,
    way: Way,
    (mix_name, mix): (&str, Mix),
    workloads: &[Workload],
    findings: &mut Findings,
) -> Result<Vec<Cost>> {
    let data_bytes: u64 = experiment.scaled(1 << 19, 64 << 20, 2 << 30);
    let records = data_bytes / (KEY_BYTES + Lengths::of_flags(0, Some(mix)).mean());
    let mut flags = experiment.flags()?;
    flags.workloads = workloads.to_vec();
    flags.key_bytes = KEY_BYTES;
    flags.mix = Some(mix);
    flags.records = Some(records);
    way.tree.clone_into(&mut flags.store.tree);
    flags.store.placement = Some(way.placement);
    flags.store.leaf_bytes = Some(leaf_bytes(experiment));
    flags.store.memory = (data_bytes / MEMORY_PART).max(MEMORY_MIN);
    let ops = experiment.scaled(400, 100_000, 2_000_000).min(records);
    flags.ops = Some(ops);
    let mut of_scans = flags.clone();
    of_scans.ops = Some(ops.div_ceil(OPERATIONS_OF_A_SCAN));
    let setting = format!("mix={mix_name} values={}", way.name);
    let scratch = experiment.scratch()?;
    let mut state = experiment.open(&flags, &scratch)?;
    let mut costs = Vec::with_capacity(workloads.len());
    for workload in workloads {
        state.set_flags(if *workload == Workload::E { &of_scans } else { &flags });
        // Each workload settles afterwards, like the last one of a store.
        let report = experiment.run_workload(&mut state, &setting, *workload, true)?;
        findings.wrong_answers += wrong_answers(std::slice::from_ref(&report));
        let outside = Outside::of(state.records());
        experiment.result(&setting, &Point { after: &report.workload, outside })?;
        let cost = Cost::of(&report, outside);
        let both = costs.first().filter(|_| costs.len() == 1).map(|load: &Cost| load.and(&cost));
        costs.push(cost);
        costs.extend(both);
    }
    state.close()?;
    findings.table.extend(costs.iter().map(|cost| cost.row(mix_name, way.name)));
    Ok(costs)
}

/// Runs the load and workload A for each mix in each way, and compares the first way with the others.
pub(crate) fn compare(
    experiment: &mut Experiment<'_>,
    name: &str,
    ways: &[Way],
    mixes: &[(&str, Mix)],
) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    // Indexed by way, mix and step.
    let mut costs: Vec<Vec<Vec<Cost>>> = vec![Vec::new(); ways.len()];
    for mix in mixes {
        for (way, costs) in ways.iter().zip(&mut costs) {
            costs.push(measure(experiment, *way, *mix, &[Workload::Load, Workload::A], &mut findings)?);
        }
        let both = costs.iter().map(|of_way| of_way.last()?.last());
        let both = ways.iter().zip(both).filter_map(|(way, cost)| Some((way.name, cost?)));
        if let [(first, cost), others @ ..] = both.collect::<Vec<_>>().as_slice() {
            findings.remarks.push(format!("{}, {}", mix.0, compared(first, cost, others)));
        }
    }
    let mix_names: Vec<&str> = mixes.iter().map(|(name, _)| *name).collect();
    for (at, step) in STEPS.into_iter().enumerate() {
        let lines = ways
            .iter()
            .zip(&costs)
            .map(|(way, of_way)| (way.name, of_way.iter().filter_map(|of_mix| of_mix.get(at)).collect()));
        let lines: Vec<_> = lines.collect();
        findings.charts.extend(charts_of_step(name, (step, &mix_names), &lines));
    }
    Ok(findings)
}

/// Formats the I/O and the rate of `cost` relative to those of the others.
pub(crate) fn compared(name: &str, cost: &Cost, others: &[(&str, &Cost)]) -> String {
    let of_other = |(other, than): &(&str, &Cost)| {
        format!(
            "{:.2} of the I/O and {:.2} of the rate of {other}",
            quotient(cost.io(), than.io()),
            quotient(cost.rate(), than.rate())
        )
    };
    let all: Vec<String> = others.iter().map(of_other).collect();
    format!("{}: {name} has {}", cost.step, all.join(", "))
}

/// Returns the charts of one of [`STEPS`], with one line per way over the mixes.
pub(crate) fn charts_of_step(
    experiment: &str,
    (step, mixes): (&str, &[&str]),
    ways: &[(&'static str, Vec<&Cost>)],
) -> [(String, LineChart); 3] {
    SHOWN.map(|shown| {
        let line = |(name, costs): &(&'static str, Vec<&Cost>)| {
            (*name, costs.iter().map(|cost| (shown.value)(cost)).collect())
        };
        let title = format!("{} of {step}, by mix of lengths", shown.title);
        let file = format!("{experiment}-{}-{}", step.replace(" + ", "-"), shown.file);
        (file, chart(title, mixes, shown.unit, ways.iter().map(line).collect()))
    })
}

/// Creates a chart with one line per way; positions on the axis are numbered.
pub(crate) fn chart(title: String, places: &[&str], y_name: &str, lines: Vec<(&str, Vec<f64>)>) -> LineChart {
    let line = |(name, values): (&str, Vec<f64>)| {
        let points = values.into_iter().enumerate().map(|(at, value)| (at as f64, value)).collect();
        Line { name: name.to_owned(), points }
    };
    let place = |(at, name): (usize, &&str)| format!("{at} {name}");
    let places: Vec<String> = places.iter().enumerate().map(place).collect();
    LineChart {
        title,
        x_name: places.join(", "),
        y_name: y_name.to_owned(),
        x_doubles: false,
        lines: lines.into_iter().map(line).collect(),
    }
}
