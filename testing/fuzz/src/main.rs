//! The program `testudo-fuzz`: feeds inputs to targets, or replays one.
//!
//! **Invariants**
//! - Exit code 0: nothing found; 1: a failure, with its replay command; 2: could not run.
//! - Standard output holds results only; progress goes to standard error.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use testudo_base::checksum::checksum64;
use testudo_env::{Env, RealEnv};
use testudo_fuzz::{Amount, CountingAllocator, Failure, Session, TARGETS, Target, find, run_once};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs between two updates of the progress line.
const RUNS_BETWEEN_LOOKS: u64 = 32;

#[derive(Debug, Parser)]
#[command(
    name = "testudo-fuzz",
    version,
    about = "Feed the code that reads Testudo's files with hostile bytes",
    after_help = "Exit codes: 0 nothing found; 1 a failure, with its replay command; 2 could not run."
)]
struct Arguments {
    /// The target, `all`, or `list` to list all targets
    target: String,
    /// Run for this long [default: 60]
    #[arg(long, value_name = "S", conflicts_with = "execs")]
    seconds: Option<u64>,
    /// Run this many inputs
    #[arg(long, value_name = "N")]
    execs: Option<u64>,
    /// Seed that determines the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Inputs to start from, in addition to generated ones
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Directory for failing inputs
    #[arg(long, value_name = "DIR", default_value = ".")]
    failures: PathBuf,
    /// Run this one input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seconds", "execs", "corpus"])]
    replay: Option<PathBuf>,
    /// Results as JSON lines
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let targets: Vec<&Target> = match arguments.target.as_str() {
        "list" => return list(arguments.json),
        "all" if arguments.replay.is_none() => TARGETS.iter().collect(),
        name => match find(name) {
            Some(target) => vec![target],
            None => {
                eprintln!("testudo-fuzz: unknown target `{name}`; `testudo-fuzz list` lists all targets");
                return ExitCode::from(2);
            }
        },
    };
    let mut code = 0;
    for target in targets {
        let outcome = match &arguments.replay {
            Some(file) => replay(target, file, arguments.json),
            None => session(target, &arguments),
        };
        code = code.max(outcome.unwrap_or_else(|message| {
            eprintln!("testudo-fuzz: {message}");
            2
        }));
    }
    ExitCode::from(code)
}

fn list(json: bool) -> ExitCode {
    for target in TARGETS {
        if json {
            println!("{}", serde_json::json!({"target": target.name, "about": target.about}));
        } else {
            println!("{:<15} {}", target.name, target.about);
        }
    }
    ExitCode::SUCCESS
}

fn replay(target: &Target, file: &Path, json: bool) -> Result<u8, String> {
    let input = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let outcome = run_once(target, &input);
    let (right, message) = (outcome.is_ok(), outcome.err());
    if json {
        println!("{}", serde_json::json!({"target": target.name, "right": right, "message": message}));
    } else {
        println!("{}: {}", target.name, message.as_deref().unwrap_or("passed"));
    }
    Ok(u8::from(!right))
}

fn read_corpus(directory: &Path) -> Result<Vec<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    paths.iter().filter(|path| path.is_file()).map(|path| fs::read(path).map_err(failed)).collect()
}

fn session(target: &Target, arguments: &Arguments) -> Result<u8, String> {
    let corpus = arguments.corpus.as_deref().map_or(Ok(Vec::new()), read_corpus)?;
    let seconds = Duration::from_secs(arguments.seconds.unwrap_or(60));
    let amount = arguments.execs.map_or(Amount::Time(seconds), Amount::Runs);
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed} {human_pos} runs, {per_sec}") {
        bar.set_style(style);
    }
    bar.set_message(target.name);
    // An input that kills the process remains in this file.
    let current = arguments.failures.join(format!("fuzz-running-{}", target.name));
    let clock = RealEnv::new();
    let started = clock.monotonic();
    let session = Session { target, seed: arguments.seed, amount, corpus };
    let outcome = session.run(|run, input| {
        if run.is_multiple_of(RUNS_BETWEEN_LOOKS) {
            bar.set_position(run);
            bar.tick();
        }
        // Without the file only such an input is lost.
        let _ = fs::write(&current, input);
    });
    bar.finish_and_clear();
    let _ = fs::remove_file(&current);
    let elapsed = clock.monotonic().saturating_sub(started).as_secs_f64();
    match outcome {
        Ok(runs) if arguments.json => {
            let line =
                serde_json::json!({"target": target.name, "right": true, "runs": runs, "seconds": elapsed});
            println!("{line}");
            Ok(0)
        }
        Ok(runs) => {
            println!("{:<15} passed, {runs} runs in {elapsed:.1} s", target.name);
            Ok(0)
        }
        Err(failure) => report(target, arguments, &failure),
    }
}

/// Writes the failing input and prints the command that replays it.
fn report(target: &Target, arguments: &Arguments, failure: &Failure) -> Result<u8, String> {
    let name = format!("fuzz-{}-{:016x}", target.name, checksum64(&failure.input, 0));
    let path = arguments.failures.join(name);
    fs::write(&path, &failure.input).map_err(|error| format!("{}: {error}", path.display()))?;
    let replay = format!("testudo-fuzz {} --replay {}", target.name, path.display());
    if arguments.json {
        let line = serde_json::json!({
            "target": target.name, "right": false, "run": failure.run, "seed": arguments.seed,
            "message": failure.message, "input": path, "replay": replay,
        });
        println!("{line}");
    } else {
        println!(
            "{}: FAILED in run {} of seed {}: {}",
            target.name, failure.run, arguments.seed, failure.message
        );
        println!("replay: {replay}");
    }
    Ok(1)
}
