//! The experiments of the papers, scaled to the machine at hand.
//!
//! Each compares the same engine with one setting varied, within one run, so that the shape holds on a noisy
//! machine; amplification comes from the engine's exact counters. An experiment prints a table, a line of
//! JSON per point, and charts.
//!
//! **Invariants**
//! - Every read of an experiment is checked as in `ycsb`; a wrong answer fails it.
//! - Conclusions of an experiment are computed from its points, never hard-coded.

mod beside_updates;
mod both_trees;
mod cache_and_device;
pub(crate) mod experiment;
mod factors;
mod hot_range;
mod hot_scans;
mod in_place_levels;
mod insert_forecasts;
mod insert_latency;
mod key_set_scans;
pub(crate) mod key_sets;
mod latency;
mod memory_sizes;
mod page_writes;
mod pair_classes;
mod placements;
mod scans;
mod sensitivity;
mod separation_model;
mod sequential;
mod sizes_over_time;
mod table_two;
mod threads;
mod value_mixes;
mod write_memory;

use testudo::{Error, Result};

use crate::{
    Context, Outcome, PaperArgs,
    report::{line_chart::LineChart, output::Output},
};
use experiment::Experiment;

/// Findings of an experiment.
#[derive(Debug, Default)]
pub struct Findings {
    /// Header and rows.
    pub table: Vec<Vec<String>>,
    /// File name and chart.
    pub charts: Vec<(String, LineChart)>,
    /// Conclusions from the points, in sentences.
    pub remarks: Vec<String>,
    /// Number of wrong answers of the store.
    pub wrong_answers: u64,
}

type Run = fn(&mut Experiment<'_>) -> Result<Findings>;

/// Name, figures or tables reproduced, and the experiment.
pub type NamedExperiment = (&'static str, &'static str, Run);

const EXPERIMENTS: [NamedExperiment; 24] = [
    ("turtle-write-memory", "TurtleKV fig. 3c, 9e: write amplification against χ", write_memory::run),
    ("turtle-sensitivity", "TurtleKV fig. 9a-d: throughput of each workload against χ", sensitivity::run),
    ("turtle-latency", "TurtleKV fig. 10: latency by kind of operation", latency::run),
    ("turtle-memory", "TurtleKV fig. 4: bytes written by loads against memory", memory_sizes::loads),
    ("turtle-memory-held", "TurtleKV fig. 11: memory held, by workload", memory_sizes::held),
    ("turtle-costs", "TurtleKV table 2: cost model against counters", table_two::run),
    ("splinter-sequential", "SplinterDB fig. 9: load rate against share of ordered keys", sequential::run),
    ("splinter-latency", "SplinterDB table 1: latency of inserts", insert_latency::run),
    ("splinter-scans", "SplinterDB fig. 12: bandwidth of scans against their length", scans::run),
    ("splinter-memory", "SplinterDB fig. 7, 8: throughput against memory", memory_sizes::workloads),
    ("splinter-threads", "SplinterDB fig. 10, 11: throughput against client threads", threads::run),
    ("lsbm-hot-range", "LSbM fig. 11, 12: hits and reads over time under updates", hot_range::run),
    ("lsbm-zipf", "LSbM fig. 13: hits and reads over time, zipfian", hot_range::zipf),
    ("lsbm-scans", "LSbM fig. 14, 15: range queries over time under updates", hot_scans::run),
    ("lsbm-size", "LSbM fig. 16, 17: size of a store under updates", sizes_over_time::run),
    ("lsbm-summary", "LSbM fig. 18: reads from memory, and range queries", cache_and_device::run),
    ("treeline-factors", "TreeLine fig. 8, table 4: its components, one by one", factors::run),
    ("treeline-scans", "TreeLine fig. 7, table 4: scans of key sets", key_set_scans::run),
    ("treeline-forecast", "TreeLine fig. 10: insert forecasts on and off", insert_forecasts::run),
    ("treeline-writes", "TreeLine §4.3: pages relocated, or in place after images", page_writes::run),
    ("parallax-mixes", "Parallax fig. 1.1, 5.1, 5.2: value placements by mix of lengths", value_mixes::run),
    ("parallax-classes", "Parallax fig. 5.3: medium values as medium, small or large", pair_classes::run),
    ("parallax-levels", "Parallax fig. 5.4: first level with medium values in place", in_place_levels::run),
    ("parallax-model", "Parallax eq. 2.4, fig. 2.1: I/O by model and by counters", separation_model::run),
];

/// Experiments that simulate and run no store. They are commands of `testudo-research` (`tools/research`).
const SIMULATIONS: [&str; 4] =
    ["splinter-policies", "treeline-groups", "treeline-epochs", "treeline-carried"];

/// Runs the experiments selected by `args`.
pub(crate) fn run(args: &PaperArgs, context: &Context) -> Result<Outcome> {
    if SIMULATIONS.contains(&args.name.as_str()) {
        let command = format!("cargo run --release -p testudo-research -- paper {}", args.name);
        return Err(Error::invalid(format!("{} is a simulation, without a store: {command}", args.name)));
    }
    let simulations: Vec<&str> = SIMULATIONS.into_iter().filter(|name| matches(&args.name, name)).collect();
    if !simulations.is_empty() {
        eprintln!("simulations are commands of testudo-research: {}", simulations.join(", "));
    }
    run_experiments(&EXPERIMENTS, args, context)
}

/// Runs those of `experiments` that `args` selects.
///
/// # Errors
/// `Invalid` if there is none; otherwise errors of the store or the disk.
pub fn run_experiments(
    experiments: &[NamedExperiment],
    args: &PaperArgs,
    context: &Context,
) -> Result<Outcome> {
    let chosen: Vec<_> = experiments.iter().filter(|(name, ..)| matches(&args.name, name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = experiments.iter().map(|(name, ..)| *name).collect();
        let message = format!("no experiment {:?}; available: all, {}", args.name, names.join(", "));
        return Err(Error::invalid(message));
    }
    let mut output = Output::new(args.json.as_deref())?;
    let mut wrong_answers = 0;
    for (name, title, experiment) in chosen {
        if context.stopped() {
            break;
        }
        output.text(&format!("{name}: {title}\n"))?;
        let findings = experiment(&mut Experiment::new(name, args, context, &mut output))?;
        report(&mut output, &findings)?;
        if let Some(dir) = &args.plot {
            for (file, chart) in &findings.charts {
                chart.write(dir, file)?;
            }
        }
        wrong_answers += findings.wrong_answers;
    }
    Ok(Outcome::of(wrong_answers))
}

fn report(output: &mut Output, findings: &Findings) -> Result<()> {
    output.table(&findings.table)?;
    for remark in &findings.remarks {
        output.text(&format!("  {remark}\n"))?;
    }
    output.text("\n")
}

/// Whether `asked` is `all`, the whole name, or a prefix with `*` such as `turtle-*`.
fn matches(asked: &str, name: &str) -> bool {
    asked == "all" || asked == name || asked.strip_suffix('*').is_some_and(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests;
