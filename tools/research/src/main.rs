//! The program `testudo-research`: simulations of policies and layouts, without a store.
//!
//! `paper` runs the experiments of published designs that only simulate; those that run the store are
//! commands of `testudo bench paper`. `memory-division` compares divisions of a memory budget between pages
//! and records.
//!
//! **Invariants**
//! - No store is opened. The simulated decisions are those of the crates in `trees/`, except page groups,
//!   which no tree has.
//! - Exit codes: 0 fine, 2 failure.

mod betree;
mod experiments;
mod groups;
mod growth;
mod memory_division;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use testudo_base::Result;
use testudo_bench::{Context, Outcome, PaperArgs, stop_on_signals};

use memory_division::DivisionArgs;

#[derive(Parser)]
#[command(name = "testudo-research", version, about = "Simulates policies and layouts, without a store")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Experiments of the published designs that only simulate, with charts
    Paper(PaperArgs),
    /// Divisions of memory between whole pages and single records
    MemoryDivision(DivisionArgs),
}

fn run(command: &Command, context: &Context) -> Result<Outcome> {
    match command {
        Command::Paper(args) => experiments::run(args, context),
        Command::MemoryDivision(args) => memory_division::run(args, context),
    }
}

fn main() -> ExitCode {
    let line = CommandLine::parse();
    match run(&line.command, &Context::new(stop_on_signals())) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
