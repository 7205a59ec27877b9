//! Division of memory between whole pages and single records: a simulation, without a store.
//!
//! Each case is a workload, each subject a policy; the metric is pages read from the device. The data set is
//! ten times the memory, which `--pages` sets. A page holds 33 records of 124 bytes.
//!
//! | case | accesses |
//! |---|---|
//! | zipfian, zipfian-0.7, zipfian-1.2 | zipfian reads, hot records scattered, skew of YCSB or another |
//! | clustered | zipfian reads, hot records adjacent |
//! | range, large-range | 98 % of reads uniform in a range: a twentieth of the keys, or 0.8 of the memory |
//! | latest | 95 % reads, recent records most often; 5 % inserts |
//! | uniform | uniform reads |
//! | updates | half zipfian reads, half zipfian updates |
//! | scans | scans of 100 records with zipfian starts |
//! | mixed | `range` and `zipfian`, alternating |
//! | scans-and-reads | `scans` and `zipfian`, alternating |
//! | mixgraph | a published model: hot ranges, hot keys in them, few scans |
//! | phases | `range`, `zipfian`, `scans`, `range`; a result for each phase |
//! | trace | reads of the keys of `--trace FILE`; memory is a tenth of the size of these keys' records |
//!
//! **Invariants**
//! - Every policy gets the same accesses.
//! - Steady-state figures are those of the last quarter of a phase.

mod memory;
mod pages;
mod policy;
mod records;
mod source;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use clap::Args;
use parking_lot::Mutex;
use serde::Serialize;
use testudo_base::{
    Error, PAGE_BYTES, Result,
    num::{u64_of, usize_of},
};
use testudo_bench::{Context, Outcome, Output, Zipf, human_count, parse_positive, trace_keys};

use self::{
    memory::{Memory, Sizes},
    pages::FRAME_BYTES,
    policy::{Admission, Border, POLICIES, Policy},
    source::{Accesses, Source, count_of, mixgraph_shares, records_of},
};

/// A key of 24 bytes and a value of 100.
const RECORD_BYTES: u64 = 124;
/// Overhead of a record in the record cache: its header and its index entry.
const RECORD_OVERHEAD: u64 = 27;
const RECORDS_PER_PAGE: u64 = 33;
/// Pages of the data for each page of memory.
const DATA_FACTOR: u64 = 10;
/// Windows per phase, to detect the steady state.
const WINDOWS: u64 = 80;
/// Threads that simulate policies in parallel.
const WORKERS: usize = 2;
const SEED: u64 = 7;

const CASES: [&str; 15] = [
    "zipfian",
    "zipfian-0.7",
    "zipfian-1.2",
    "clustered",
    "range",
    "large-range",
    "latest",
    "uniform",
    "updates",
    "scans",
    "mixed",
    "scans-and-reads",
    "mixgraph",
    "phases",
    "trace",
];
const PHASES: [&str; 4] = ["phases: range", "phases: zipfian", "phases: scans", "phases: range again"];

/// Flags of `memory-division`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DivisionArgs {
    /// Operations of each phase
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_positive)]
    ops: u64,
    /// Sizes of the memory, in pages
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8192")]
    #[arg(value_parser = clap::value_parser!(u64).range(64..=1 << 24))]
    pages: Vec<u64>,
    /// A trace for the case `trace`, in a format supported by `testudo bench replay`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Cases [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    case: Vec<String>,
    /// Policies [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subject: Vec<String>,
    /// File for one line of JSON per result; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl DivisionArgs {
    /// Errors: `Invalid` for unknown names of cases and policies.
    fn check_names(&self) -> Result<()> {
        let subjects = POLICIES.map(|(name, _)| name);
        let unknown = |wanted: &[String], known: &[&str]| {
            wanted.iter().find(|wanted| !known.contains(&wanted.as_str())).cloned()
        };
        match unknown(&self.case, &CASES).or_else(|| unknown(&self.subject, &subjects)) {
            None => Ok(()),
            Some(name) => {
                let (cases, subjects) = (CASES.join(", "), subjects.join(", "));
                Err(Error::invalid(format!("no {name:?}; cases: {cases}; subjects: {subjects}")))
            }
        }
    }

    /// Whether the flags select this case of this policy.
    fn wants(&self, case: &str, subject: &str) -> bool {
        let fits = |wanted: &[String], name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
        fits(&self.case, case) && fits(&self.subject, subject)
    }
}

/// Result of a phase.
#[derive(Clone, Copy, Debug, Serialize)]
struct Division {
    /// Pages read from the device per operation, in steady state.
    page_reads: f64,
    /// Operations until page reads were within 5 % of the steady state.
    settled_after: u64,
    /// Share of the memory that records hold at the end.
    record_share: f64,
}

/// Result of a policy in a phase, as JSON.
#[derive(Serialize)]
struct Shown {
    case: &'static str,
    subject: &'static str,
    pages: u64,
    operations: u64,
    /// Page reads relative to those with the best fixed border.
    ratio: Option<f64>,
    #[serde(flatten)]
    division: Division,
    /// Time of the simulation per operation.
    ns_per_op: f64,
}

impl Shown {
    fn row(&self) -> Vec<String> {
        vec![
            self.case.to_owned(),
            self.subject.to_owned(),
            self.pages.to_string(),
            human_count(self.operations as f64),
            format!("{:.4}", self.division.page_reads),
            self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")),
            human_count(self.division.settled_after as f64),
            format!("{:.2}", self.division.record_share),
        ]
    }
}

/// Columns of the table.
const HEAD: [&str; 8] = ["case", "subject", "pages", "ops", "page reads/op", "ratio", "settled", "records"];

/// A case: its sizes, and its phases with their names.
struct Plan {
    sizes: Sizes,
    operations: u64,
    phases: Vec<(&'static str, Source)>,
}

/// Compares the policies selected by `args`.
pub(crate) fn run(args: &DivisionArgs, context: &Context) -> Result<Outcome> {
    args.check_names()?;
    let mut output = Output::new(args.json.as_deref())?;
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for case in CASES {
        for &pages in &args.pages {
            let policies: Vec<_> = POLICIES.into_iter().filter(|(name, _)| args.wants(case, name)).collect();
            if context.stopped() || policies.is_empty() {
                continue;
            }
            let Some(plan) = plan_of(args, case, pages)? else { continue };
            for shown in compare(context, &plan, &policies) {
                output.result(&shown)?;
                rows.push(shown.row());
            }
        }
    }
    output.table(&rows)?;
    Ok(Outcome::Fine)
}

/// Returns the plan of a case; `None` for the trace if there is none.
fn plan_of(args: &DivisionArgs, case: &'static str, pages: u64) -> Result<Option<Plan>> {
    let memory_bytes = pages * PAGE_BYTES;
    let sizes = Sizes {
        memory_bytes,
        records: pages * DATA_FACTOR * RECORDS_PER_PAGE,
        records_per_page: RECORDS_PER_PAGE,
        record_bytes: RECORD_BYTES + RECORD_OVERHEAD,
    };
    let operations = args.ops;
    if case == "trace" {
        let Some(path) = &args.trace else { return Ok(None) };
        let records = records_of(&trace_keys(path)?);
        if records.is_empty() {
            return Err(Error::invalid(format!("{}: no operation", path.display())));
        }
        let count = count_of(&records);
        let sizes = Sizes {
            memory_bytes: (count * RECORD_BYTES / DATA_FACTOR).max(64 * PAGE_BYTES),
            records: count,
            ..sizes
        };
        let operations = u64_of(records.len());
        let phases = vec![(case, Source::Trace { records, next: 0 })];
        return Ok(Some(Plan { sizes, operations, phases }));
    }
    let phases = if case == "phases" {
        let sources = ["range", "zipfian", "scans", "range"].map(|name| source_of(name, &sizes));
        PHASES.into_iter().zip(sources).collect()
    } else {
        vec![(case, source_of(case, &sizes))]
    };
    Ok(Some(Plan { sizes, operations, phases }))
}

fn source_of(case: &str, sizes: &Sizes) -> Source {
    let records = sizes.records;
    let zipf = Zipf::new(records);
    let range = Source::Range { count: records / 20 };
    match case {
        "zipfian" => Source::Scattered(zipf),
        "zipfian-0.7" => Source::Scattered(Zipf::with_skew(records, 0.7)),
        "zipfian-1.2" => Source::Scattered(Zipf::with_skew(records, 1.2)),
        "clustered" => Source::Clustered(zipf),
        "range" => range,
        "large-range" => {
            Source::Range { count: sizes.memory_bytes / 10 * 8 / FRAME_BYTES * RECORDS_PER_PAGE }
        }
        "latest" => Source::Latest { zipf, inserted: records / 2 },
        "uniform" => Source::Uniform,
        "updates" => Source::Updates(zipf),
        "scans" => Source::Scans(zipf),
        "mixed" => Source::Mixed(Box::new([range, Source::Scattered(zipf)])),
        "scans-and-reads" => Source::Mixed(Box::new([Source::Scans(zipf), Source::Scattered(zipf)])),
        "mixgraph" => Source::Mixgraph(mixgraph_shares()),
        _ => unreachable!("every case but the trace has a source"),
    }
}

/// Simulates the policies; returns the results, by phase and policy.
fn compare(context: &Context, plan: &Plan, policies: &[(&'static str, Policy)]) -> Vec<Shown> {
    let results = Mutex::new(vec![None; policies.len()]);
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(&(_, policy)) = policies.get(at) else { return };
            let started = context.monotonic();
            let phases = simulate(plan, policy);
            results.lock()[at] = Some((phases, context.monotonic().saturating_sub(started)));
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    let results: Vec<(Vec<Division>, Duration)> = results.into_inner().into_iter().flatten().collect();
    let mut shown = Vec::new();
    for (phase, (case, _)) in plan.phases.iter().enumerate() {
        let best = best_fixed(policies, |at| results[at].0[phase].page_reads);
        for (&(subject, _), (phases, time)) in policies.iter().zip(&results) {
            let division = phases[phase];
            let operations = plan.operations * u64_of(phases.len());
            shown.push(Shown {
                case,
                subject,
                pages: plan.sizes.memory_bytes / PAGE_BYTES,
                operations: plan.operations,
                ratio: best.map(|best| division.page_reads / best),
                division,
                ns_per_op: time.as_secs_f64() * 1e9 / operations.max(1) as f64,
            });
        }
    }
    shown
}

/// Returns the minimum over the fixed-border policies that admit every record.
fn best_fixed(policies: &[(&'static str, Policy)], page_reads: impl Fn(usize) -> f64) -> Option<f64> {
    let is_fixed = |policy: &Policy| {
        let expected = Policy { border: policy.border, admission: Admission::All, has_probation: true };
        matches!(policy.border, Border::Fixed(_)) && *policy == expected
    };
    let fixed = (0..policies.len()).filter(|&at| is_fixed(&policies[at].1));
    fixed.map(page_reads).min_by(f64::total_cmp).filter(|&least| least > 0.0)
}

/// Runs the phases of a plan one after the other.
fn simulate(plan: &Plan, policy: Policy) -> Vec<Division> {
    let mut memory = Memory::new(plan.sizes, policy);
    let window = (plan.operations / WINDOWS).max(1);
    let mut divisions = Vec::new();
    for (_, source) in &plan.phases {
        let mut accesses = Accesses::new(source.clone(), plan.sizes.records, SEED);
        let mut page_reads = |_| {
            let reads: u64 =
                accesses.by_ref().take(usize_of(window)).map(|access| memory.access(access)).sum();
            reads as f64 / window as f64
        };
        let windows: Vec<f64> = (0..WINDOWS).map(&mut page_reads).collect();
        let (page_reads, settled) = steady_state(&windows);
        let settled_after = u64_of(settled) * window;
        divisions.push(Division { page_reads, settled_after, record_share: memory.record_share() });
    }
    divisions
}

/// Returns the mean of the last quarter, and the number of windows until one is at most 5 % above it.
fn steady_state(windows: &[f64]) -> (f64, usize) {
    let last = &windows[windows.len() / 4 * 3..];
    let steady = last.iter().sum::<f64>() / last.len() as f64;
    // A thousandth of a page is noise where almost nothing is read.
    let near = steady * 1.05 + 0.001;
    let first = windows.iter().position(|&reads| reads <= near).unwrap_or(windows.len());
    (steady, first + 1)
}

#[cfg(test)]
mod tests;
