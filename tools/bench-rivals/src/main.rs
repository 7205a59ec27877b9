//! Testudo and its rivals, one process per run: the same workloads, checks and memory limit for all.
//!
//! `run` measures one engine in this process with the driver of `testudo-bench`; `compare` starts such
//! processes one after the other and tabulates their results side by side.
//!
//! **Invariants**
//! - Exit codes: 0 fine, 1 wrong answers, 2 failure, 3 a requested engine is missing or did not finish.

mod command_line;
mod compare;
mod engine;
mod failure;
mod fjall_store;
mod lmdb;
mod machine;
mod memory_limit;
mod redb_store;
mod rocksdb;
mod summary;

use std::{io::Write, process::ExitCode};

use clap::Parser;
use command_line::{Command, CommandLine};
use testudo_bench::{Context, stop_on_signals};

fn main() -> ExitCode {
    let stop = stop_on_signals();
    let done = match CommandLine::parse().command {
        Command::Run(args) => {
            // A process that only starts one child per workload leaves the memory to the children.
            let starts_others = args.ycsb.reopen_each && args.ycsb.step.is_none();
            let group = args.group.as_deref().filter(|_| !starts_others);
            let joined = group.map_or(Ok(()), memory_limit::join);
            joined
                .and_then(|()| args.engine.run(&args.ycsb, &Context::new(stop)))
                .map(|outcome| outcome.exit_code())
        }
        Command::Compare(args) => compare::compare(&args, &stop),
        Command::Queue(args) => {
            args.engine.run_queue(&args.queue, &Context::new(stop)).map(|outcome| outcome.exit_code())
        }
        Command::Engines => list_engines(),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // If even the message cannot be written, there is nothing left to do.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

fn list_engines() -> testudo::Result<u8> {
    use clap::ValueEnum;
    let mut missing = 0;
    for engine in engine::Engine::value_variants() {
        match engine.check() {
            Ok(()) => println!("{}: ready", engine.name()),
            Err(reason) => {
                missing = 3;
                println!("{}: missing: {reason}", engine.name());
            }
        }
    }
    Ok(missing)
}
