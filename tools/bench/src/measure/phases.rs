//! Load, then A, B, C, E and F on one store that is never reopened: memory divided in one way for all of
//! them, and divided anew before each.
//!
//! This is the paper's "dynamic tuning" (TurtleKV §5.1.3): the write share that suits each phase is set as
//! it begins, and takes effect at the next memtable.
//!
//! **Invariants**
//! - Every configuration does the same phases for the same time; rounds go through the configurations there
//!   and back.

use testudo::Result;

use crate::{
    Context, Outcome, PhasesArgs, Workload, YcsbArgs,
    report::{
        Report,
        line_chart::{Line, LineChart},
        output::Output,
        size::{human_count, quotient},
    },
    subject::{Subject as _, scratch::Scratch, testudo_subject::Testudo},
    workloads::ycsb::RunState,
};

/// Phases, and the write share that suits each.
const PHASES: [(Workload, f64); 6] = [
    (Workload::Load, 0.6),
    (Workload::A, 0.45),
    (Workload::B, 0.15),
    (Workload::C, 0.1),
    (Workload::E, 0.15),
    (Workload::F, 0.45),
];

/// How the memory is divided.
#[derive(Clone, Copy, Debug)]
enum Division {
    Fixed(f64),
    ByPhase,
}

impl Division {
    fn name(self) -> String {
        match self {
            Self::Fixed(share) => format!("fixed {share:.2}"),
            Self::ByPhase => "by phase".to_owned(),
        }
    }

    fn share(self, phase: usize) -> f64 {
        match self {
            Self::Fixed(share) => share,
            Self::ByPhase => PHASES[phase].1,
        }
    }
}

const DIVISIONS: [Division; 4] =
    [Division::Fixed(0.1), Division::Fixed(0.45), Division::Fixed(0.7), Division::ByPhase];

/// Runs all configurations and compares them.
pub(crate) fn run(args: &PhasesArgs, context: &Context) -> Result<Outcome> {
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
    flags.store.write_share = Some(division.share(0));
    flags.workloads = PHASES.iter().map(|(workload, _)| *workload).collect();
    flags.records = Some(args.records.unwrap_or(if args.store.smoke { 2_000 } else { 1_000_000 }));
    flags.seconds = Some(if args.store.smoke { 0.05 } else { args.seconds });
    flags.threads = args.threads;
    flags.settle_seconds = 0.0;
    let scratch = Scratch::new(&*context.env, args.store.dir.as_deref(), args.store.tmp.as_deref())?;
    let mut state = RunState::<Testudo>::open(&flags, context, scratch.path())?;
    let mut reports = Vec::new();
    for (phase, (workload, _)) in PHASES.iter().enumerate() {
        if let Some(db) = state.subject().testudo() {
            db.memory().set_write_share(division.share(phase))?;
        }
        let mut report = state.run_workload(*workload, false)?;
        report.division = Some(division.name());
        output.result(&report)?;
        let interrupted = report.interrupted;
        reports.push(report);
        if interrupted {
            break;
        }
    }
    state.close()?;
    Ok(reports)
}

/// Of each configuration: the geometric mean over the phases of its rate to the best rate.
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
    head.extend(PHASES.iter().map(|(workload, _)| workload.name()));
    head.push("mean, of the best".to_owned());
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
        title: "Throughput by phase, of the best configuration".to_owned(),
        x_name: "load, A, B, C, E, F".to_owned(),
        y_name: "of the best".to_owned(),
        x_doubles: false,
        lines: DIVISIONS.iter().zip(rates).map(line).collect(),
    }
}

#[cfg(test)]
mod tests;
