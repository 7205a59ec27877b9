//! Stores that put values in different places, under mixes of value lengths (Parallax, chapters 4 and 5).
//!
//! Mixes are those of the thesis: keys of 24 bytes, values of 9, 104 or 1,004. Each mix has as many records
//! as make the same bytes, and a store has an eighth of that as memory. A record keeps the length of its
//! value when it is updated; in the thesis, updates change it in mixed workloads.
//!
//! **Invariants**
//! - A workload bears what it leaves behind: bytes and processor time are counted until the store is idle.
//! - Bytes are counted for each byte that users wrote or read, as in the thesis, so that what is written and
//!   what is read add up.

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
/// Memory is the data divided by this.
const MEMORY_PART: u64 = 8;
/// So many operations of another workload are one of scans.
const OPERATIONS_OF_A_SCAN: u64 = 10;

/// A tree, and where it puts values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) tree: &'static str,
    pub(crate) placement: Placement,
}

/// The load and workload A, and both together: what the one has put off, the other may pay for.
pub(crate) const STEPS: [&str; 3] = ["load", "a", "load + a"];

/// What a workload, or several, have cost until the store was idle again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    step: String,
    ops: u64,
    seconds: f64,
    cpu_seconds: f64,
    /// What users wrote and read.
    user_bytes: u64,
    /// To the device: log, data and reclaiming.
    written_bytes: u64,
    read_bytes: u64,
    /// At the end.
    space: f64,
    outside: Outside,
}

/// What charts show of costs.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// The end of a file's name.
    pub(crate) file: &'static str,
    pub(crate) value: fn(&Cost) -> f64,
}

/// The thesis' three: I/O amplification, throughput, efficiency.
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

/// What was outside after a workload, as JSON.
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

    /// Of one and, after that, the other.
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

    /// Bytes written and read for each byte of users: the thesis' I/O amplification.
    fn io(&self) -> f64 {
        self.of_user_bytes(self.written_bytes + self.read_bytes)
    }

    fn rate(&self) -> f64 {
        quotient(self.ops as f64, self.seconds)
    }

    fn cpu_us(&self) -> f64 {
        quotient(self.cpu_seconds * 1e6, self.ops as f64)
    }

    /// Its row of a table.
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

/// The head of the table that [`Cost::row`] makes rows of.
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
        "of it dead",
    ];
    names.map(str::to_owned).to_vec()
}

impl Outside {
    fn of(keyspaces: &[Keyspace]) -> Self {
        keyspaces.iter().map(Keyspace::stats).fold(Self::default(), |sum, stats| Self {
            value_segments: sum.value_segments + stats.value_segments,
            value_bytes: sum.value_bytes + stats.value_bytes,
            dead_value_bytes: sum.dead_value_bytes + stats.dead_value_bytes,
            transient_value_bytes: sum.transient_value_bytes + stats.transient_value_bytes,
            dead_transient_value_bytes: sum.dead_transient_value_bytes + stats.dead_transient_value_bytes,
        })
    }
}

/// A fresh store with a mix of values, and `workloads` on it: a load, workload A, and others. Gives the costs
/// of [`STEPS`], and then of the others.
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
        // Each is followed by a rest, as the last one of a store is.
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

/// Loads, and workload A after them, of each mix in each way; the first way is compared with the others.
pub(crate) fn compare(
    experiment: &mut Experiment<'_>,
    name: &str,
    ways: &[Way],
    mixes: &[(&str, Mix)],
) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    // Of each way, of each mix, of each step.
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

/// How much of the I/O of others `cost` does, and how many of their operations a second.
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

/// The charts of one of [`STEPS`]: for each way a line, of its costs for each mix.
pub(crate) fn charts_of_step(
    experiment: &str,
    (step, mixes): (&str, &[&str]),
    ways: &[(&'static str, Vec<&Cost>)],
) -> [(String, LineChart); 3] {
    SHOWN.map(|shown| {
        let line = |(name, costs): &(&'static str, Vec<&Cost>)| {
            (*name, costs.iter().map(|cost| (shown.value)(cost)).collect())
        };
        let title = format!("{} of {step}, by mixes of lengths", shown.title);
        let file = format!("{experiment}-{}-{}", step.replace(" + ", "-"), shown.file);
        (file, chart(title, mixes, shown.unit, ways.iter().map(line).collect()))
    })
}

/// A chart with a line for each way; places on the axis are numbered.
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
