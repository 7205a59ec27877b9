//! Dispatch of commands to the code that runs them.
//!
//! **Invariants**
//! - Exit codes: 0 fine, 1 wrong answers, 2 failure.

use std::{ffi::OsString, io::Write, process::ExitCode};

use clap::Parser;
use testudo::Result;

use crate::{
    BenchArgs, BenchCommand, Context, Outcome, Testudo,
    measure::{device, phases},
    workloads::{micro, neighbors, paper, queue, replay, ycsb},
};

#[derive(Parser)]
#[command(name = "testudo-bench", version, about = "Measures the store, checking every answer")]
struct CommandLine {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Runs one command to completion.
///
/// # Errors
/// `Invalid` for contradictory arguments; otherwise errors of the store or the disk. Wrong answers are not
/// an error but [`Outcome::WrongAnswers`].
pub fn run(command: &BenchCommand, context: &Context) -> Result<Outcome> {
    match command {
        BenchCommand::Ycsb(args)
        | BenchCommand::Mixed(args)
        | BenchCommand::Rangehot(args)
        | BenchCommand::Mixgraph(args) => ycsb::run_on::<Testudo>(args, context),
        BenchCommand::Queue(args) => queue::run_queue_on::<Testudo>(args, context),
        BenchCommand::Neighbors(args) => neighbors::run_neighbors_on::<Testudo>(args, context),
        BenchCommand::Replay(args) => replay::run(args, context),
        BenchCommand::Device(args) => device::run(args, context),
        BenchCommand::Micro(args) => micro::run(args, context),
        BenchCommand::Paper(args) => paper::run(args, context),
        BenchCommand::Phases(args) => phases::run(args, context),
    }
}

/// Parses a whole command line, including the program name, runs it and returns the exit code.
pub fn main_with(args: impl Iterator<Item = OsString>, context: &Context) -> ExitCode {
    let line = match CommandLine::try_parse_from(args) {
        Ok(line) => line,
        Err(error) => {
            // If even the message cannot be written, there is nothing left to do.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    match run(&line.bench.command, context) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}
