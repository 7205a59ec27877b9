//! `testudo scrub`: reads and checks all live data at a chosen rate; can be resumed.
//!
//! The position is kept in the file `scrub` of the store's directory: a line of text with the store's id and
//! a checksum.
//!
//! **Invariants**
//! - The store itself is only read.
//! - A position file that is damaged or belongs to another store is ignored: the scrub starts over and
//!   reports it.

use std::{io, ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use serde_json::json;
use testudo::{Error, ErrorKind, ScrubOptions, ScrubPosition, ScrubReport};
use testudo_base::{checksum::checksum64, num::usize_of};
use testudo_env::{Env, OpenMode, OpenOptions};

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Failure, Outcome, Verdict, next_step, say},
    output::{
        progress::{Progress, Unit},
        size::{show_count, show_size},
    },
    store,
};

/// Interval of saving the position, in case the scrub is killed.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// Maximum bytes of the position file.
const LONGEST_LINE: u64 = 256;

/// Arguments of `testudo scrub`.
#[derive(Args, Debug)]
pub(crate) struct ScrubArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Maximum bytes to read per second
    #[arg(long, value_name = "SIZE", value_parser = testudo_bench::parse_positive)]
    rate: Option<u64>,
    /// Resume where the last scrub stopped, according to the file `scrub` in the store's directory
    #[arg(long)]
    resume: bool,
}

/// Scrubs the store and reports the findings.
pub(crate) fn run(context: &mut Context, arguments: &ScrubArguments) -> Outcome {
    let store = &arguments.store;
    let interruption = context.catch_interruption()?;
    let stopwatch = context.stopwatch();
    store::require(context, &store.dir)?;
    let db = match store::try_open_for_reading(context, store) {
        Ok(db) => db,
        // Damage that prevents opening the store is a finding like any other.
        Err(error) if error.kind() == ErrorKind::Corruption => {
            return unopened(context, store, &error);
        }
        Err(error) => return Err(store.failure(&error)),
    };
    let keeper = Keeper::new(context, store)?;
    let resume_from = if arguments.resume { keeper.read() } else { None };
    let is_resumed = resume_from.is_some();
    let rate = arguments.rate.filter(|&rate| rate > 0);
    let options = ScrubOptions::new().bytes_per_second(rate).resume_from(resume_from);
    let mut progress = Progress::new(context, "scrub", Some(0), Unit::Bytes);
    let mut kept_at = Duration::ZERO;
    let report = db.scrub(options.observer(|now| {
        progress.set_total(now.done.total_bytes);
        progress.set(now.done.done_bytes);
        // Findings are printed at the end; if the scrub is killed before, the next one must find them again.
        if stopwatch.elapsed() >= kept_at + KEEP_EVERY && now.findings == 0 {
            kept_at = stopwatch.elapsed();
            keeper.keep(now.position);
        }
        if interruption.is_raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }));
    drop(progress);
    let report = report.map_err(|error| store.failure(&error))?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        context.console.json(&json!({
            "sound": report.findings.is_empty(), "complete": report.position.is_none(), "resumed": is_resumed,
            "runs": report.runs, "bytes": report.bytes, "findings": report.findings, "seconds": seconds,
        }))?;
    } else {
        print(context, &report, seconds)?;
        if !report.findings.is_empty() {
            context.console.line(format_args!("{}", next_step(&store.dir)))?;
        }
    }
    context.console.flush()?;
    match report.position {
        Some(position) => keeper.keep(position),
        None => keeper.forget(),
    }
    match (report.findings.is_empty(), report.position) {
        (false, _) => Ok(Verdict::Negative),
        (true, Some(_)) => Err(Failure::new("interrupted; continue with --resume")),
        (true, None) => Ok(Verdict::Fine),
    }
}

fn unopened(context: &mut Context, store: &StoreArguments, error: &Error) -> Outcome {
    if context.json {
        context.console.json(&json!({
            "sound": false, "complete": false, "resumed": false, "runs": 0, "bytes": 0, "findings": [],
            "error": error.to_string(), "seconds": 0.0,
        }))?;
    } else {
        context.console.line(format_args!("damaged: {error}"))?;
        context.console.line(format_args!("{}", next_step(&store.dir)))?;
    }
    Ok(Verdict::Negative)
}

fn print(context: &mut Context, report: &ScrubReport, seconds: f64) -> Result<(), Failure> {
    for finding in &report.findings {
        context.console.line(format_args!("damaged: {finding}"))?;
    }
    let verdict = match (report.findings.is_empty(), report.position) {
        (false, _) => "damaged",
        (true, Some(_)) => "valid so far",
        (true, None) => "valid",
    };
    let (runs, bytes) = (show_count(report.runs), show_size(report.bytes));
    context.console.line(format_args!("{verdict} ({runs} runs, {bytes} read in {seconds:.1} s)"))
}

/// Stores the position between two scrubs.
struct Keeper {
    env: Arc<dyn Env>,
    path: PathBuf,
    store_id: String,
}

impl Keeper {
    fn new(context: &Context, store: &StoreArguments) -> Result<Self, Failure> {
        let store_id = store::store_id(context, store)?;
        Ok(Self { env: context.env.clone(), path: store.dir.join("scrub"), store_id })
    }

    fn line(&self, position: &str) -> String {
        let text = format!("testudo-scrub {} {position}", self.store_id);
        format!("{text} {:016x}\n", checksum64(text.as_bytes(), 0))
    }

    fn read(&self) -> Option<ScrubPosition> {
        let text = match self.read_text() {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                say(&format!("{}: {error}; starting over", self.path.display()));
                return None;
            }
        };
        let position = text.split(' ').nth(2).filter(|position| self.line(position) == text);
        let position = position.and_then(|position| position.parse().ok());
        if position.is_none() {
            say(&format!("{} is damaged or belongs to another store; starting over", self.path.display()));
        }
        position
    }

    fn read_text(&self) -> io::Result<String> {
        let file = self.env.open(&self.path, OpenOptions { mode: OpenMode::Read, direct: false })?;
        let mut bytes = vec![0; usize_of(file.len()?.min(LONGEST_LINE))];
        file.read_at(0, &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Saves the position. On failure, the next scrub merely starts over.
    fn keep(&self, position: ScrubPosition) {
        if let Err(error) = self.write(&self.line(&position.to_string())) {
            say(&format!("{}: {error}; the position is not saved", self.path.display()));
        }
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let temporary = self.path.with_extension("tmp");
        // Left over from a killed scrub.
        let _ = self.env.remove_file(&temporary);
        let file = self.env.open(&temporary, OpenOptions { mode: OpenMode::CreateNew, direct: false })?;
        file.write_at(0, line.as_bytes())?;
        self.env.rename(&temporary, &self.path)
    }

    fn forget(&self) {
        // A leftover file is from an earlier scrub: a later `--resume` merely covers less.
        let _ = self.env.remove_file(&self.path);
    }
}
