//! Load, then A, B, C, E and F on one store that is never reopened: a fixed share of write memory for all of
//! them, or the share that the store chooses.
//!
//! TurtleKV (§5.1.3) sets the best share for each phase by hand as the phase begins; here the store has to
//! find it.
//!
//! **Invariants**
//! - Every configuration runs the same phases for the same time; the order of the configurations alternates
//!   between rounds.

mod memory_sampler;

use testudo::{Error, Result};

use crate::{
    Context, Outcome, PhasesArgs, Workload, YcsbArgs,
    measure::phases::memory_sampler::MemorySampler,
    report::{
        Report,
        line_chart::{Line, LineChart},
        output::Output,
        size::{human_count, quotient},
    },
    subject::{Subject as _, scratch::Scratch, testudo_subject::Testudo},
    workloads::ycsb::RunState,
};

const PHASES: [Workload; 6] =
    [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::E, Workload::F];

/// Division of the memory.
#[derive(Clone, Copy, Debug)]
enum Division {
    Fixed(f64),
    Auto,
}

impl Division {
    fn name(self) -> String {
        match self {
            Self::Fixed(share) => format!("fixed {share:.2}"),
            Self::Auto => "auto".to_owned(),
        }
    }

    /// Returns the fixed share, if there is one.
    fn share(self) -> Option<f64> {
        match self {
            Self::Fixed(share) => Some(share),
            Self::Auto => None,
        }
    }
}

const DIVISIONS: [Division; 4] =
    [Division::Fixed(0.125), Division::Fixed(0.45), Division::Fixed(0.75), Division::Auto];

/// Runs all configurations and compares them.
pub(crate) fn run(args: &PhasesArgs, context: &Context) -> Result<Outcome> {
    if args.store.write_share.is_some() {
        return Err(Error::invalid("--write-share: phases sets it itself, to compare the settings"));
    }
    let mut output = Output::new(args.store.json.as_deref())?;
    let mut rates = vec![[0.0; PHASES.len()]; DIVISIONS.len()];
    let mut wrong_answers = 0;
    let rounds = usize::from(args.rounds);
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..DIVISIONS.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            for (phase, report) in measure(args, context, DIVISIONS[index], &mut output)?.iter().enumerate() {
                rates[index][phase] += report.ops_per_second / rounds as f64;
                wrong_answers += report.wrong_answers;
            }
            if context.stopped() {
                return Ok(Outcome::of(wrong_answers));
            }
        }
    }
    output.table(&table(&rates))?;
    if let Some(dir) = &args.plot {
        chart(&rates).write(dir, "phases")?;
    }
    Ok(Outcome::of(wrong_answers))
}

fn measure(
    args: &PhasesArgs,
    context: &Context,
    division: Division,
    output: &mut Output,
) -> Result<Vec<Report>> {
    let mut flags = YcsbArgs::defaults()?;
    flags.store = args.store.clone();
    flags.store.write_share = division.share();
    flags.workloads = PHASES.to_vec();
    flags.records = Some(args.records.unwrap_or(if args.store.smoke { 2_000 } else { 1_000_000 }));
    flags.seconds = Some(if args.store.smoke { 0.05 } else { args.seconds });
    flags.threads = args.threads;
    flags.settle_seconds = 0.0;
    let scratch = Scratch::new(&*context.env, args.store.dir.as_deref(), args.store.tmp.as_deref())?;
    let mut state = RunState::<Testudo>::open(&flags, context, scratch.path())?;
    let mut reports = Vec::new();
    let plot = args.plot.as_deref().filter(|_| matches!(division, Division::Auto));
    let sampled = plot.and_then(|_| state.subject().testudo());
    let sampler = sampled.map(|db| MemorySampler::start(&context.env, db)).transpose()?;
    for workload in &PHASES {
        let mut report = state.run_workload(*workload, false)?;
        report.division = Some(division.name());
        output.result(&report)?;
        let interrupted = report.interrupted;
        reports.push(report);
        if interrupted {
            break;
        }
    }
    if let (Some(dir), Some(sampler)) = (plot, sampler) {
        sampler.stop().write(dir, "memory-over-time")?;
    }
    state.close()?;
    Ok(reports)
}

/// Score of each configuration: the geometric mean over the phases of its rate relative to the best rate.
fn scores(rates: &[[f64; PHASES.len()]]) -> Vec<f64> {
    let best = |phase: usize| rates.iter().map(|rates| rates[phase]).fold(f64::MIN_POSITIVE, f64::max);
    let score = |rates: &[f64; PHASES.len()]| {
        let logs = rates.iter().enumerate().map(|(phase, rate)| (rate / best(phase)).max(1e-9).ln());
        (logs.sum::<f64>() / PHASES.len() as f64).exp()
    };
    rates.iter().map(score).collect()
}

fn table(rates: &[[f64; PHASES.len()]]) -> Vec<Vec<String>> {
    let mut head = vec!["write share".to_owned()];
    head.extend(PHASES.iter().map(|workload| workload.name()));
    head.push("mean, relative to best".to_owned());
    let mut rows = vec![head];
    for ((division, rates), score) in DIVISIONS.iter().zip(rates).zip(scores(rates)) {
        let mut row = vec![division.name()];
        row.extend(rates.iter().map(|rate| human_count(*rate)));
        row.push(format!("{score:.3}"));
        rows.push(row);
    }
    rows
}

fn chart(rates: &[[f64; PHASES.len()]]) -> LineChart {
    let best = |phase: usize| rates.iter().map(|rates| rates[phase]).fold(f64::MIN_POSITIVE, f64::max);
    let line = |(division, rates): (&Division, &[f64; PHASES.len()])| {
        let points = (1u8..).zip(rates.iter().enumerate());
        let points = points.map(|(x, (phase, rate))| (f64::from(x), quotient(*rate, best(phase)))).collect();
        Line { name: division.name(), points }
    };
    LineChart {
        title: "Throughput by phase, relative to the best configuration".to_owned(),
        x_name: "load, A, B, C, E, F".to_owned(),
        y_name: "relative to the best".to_owned(),
        x_doubles: false,
        lines: DIVISIONS.iter().zip(rates).map(line).collect(),
    }
}

#[cfg(test)]
mod tests;
