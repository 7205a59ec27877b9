//! `testudo verify`: checks all data on disk, without changing it.
//!
//! **Invariants**
//! - Exit code 1 only if stored bytes are damaged; if the check is impossible (no store, locked, no
//!   permission), the exit code is 2.
//! - A partial check never calls the store valid, and lists the unread parts.

use clap::{Args, ValueEnum};
use serde_json::json;
use testudo::{ErrorKind, Finding, VerifyLevel, VerifyOptions, VerifyReport};
use testudo_base::planted;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Failure, Outcome, Verdict, next_step},
    output::{
        size::{show_count, show_size},
        watched_work::watched,
    },
    store,
};

/// Arguments of `testudo verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Extent of the check
    #[arg(long, value_enum, default_value_t = Level::Full)]
    level: Level,
    /// The same as `--level full`, which is the default
    #[arg(long, conflicts_with = "level")]
    full: bool,
}

/// Extent of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// The data that opening reads, the structure of the trees and the references to extents
    Fast,
    /// Everything: also all bytes of superblock, manifest and log, every page, every record, filters and the
    /// order of all keys
    Full,
}

/// Checks the store and reports the findings.
pub(crate) fn run(context: &mut Context, arguments: &VerifyArguments) -> Outcome {
    let store = &arguments.store;
    let level = match arguments.level {
        Level::Full if arguments.full || !planted!("verify-fast-by-default") => VerifyLevel::Full,
        Level::Full | Level::Fast => VerifyLevel::Fast,
    };
    let stopwatch = context.stopwatch();
    let report = match verify(context, store, level)? {
        Ok(report) => report,
        // Damage that prevents opening the store is a finding like any other.
        Err(error) if error.kind() == ErrorKind::Corruption => {
            VerifyReport { level, findings: vec![Finding::from(&error)], ..VerifyReport::default() }
        }
        Err(error) => return Err(Failure::store(&store.dir, &error)),
    };
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        // Unknown unless everything was read.
        let valid = (!report.findings.is_empty() || report.is_valid()).then_some(report.is_valid());
        context.console.json(&json!({
            "sound": valid, "level": report.level, "not_read": level.not_read(), "seconds": seconds,
            "keyspaces": report.keyspaces, "entries": report.entries,
            "buffered_entries": report.buffered_entries, "bytes": report.bytes, "findings": report.findings,
        }))?;
    } else {
        print(context, &report, seconds)?;
        if !report.findings.is_empty() {
            context.console.line(format_args!("{}", next_step(&store.dir)))?;
        }
    }
    Ok(if report.findings.is_empty() { Verdict::Fine } else { Verdict::Negative })
}

fn print(context: &mut Context, report: &VerifyReport, seconds: f64) -> Result<(), Failure> {
    let console = &mut context.console;
    for finding in &report.findings {
        console.line(format_args!("damaged: {finding}"))?;
    }
    let (keyspaces, bytes) = (report.keyspaces, show_size(report.bytes));
    let [entries, buffered] = [report.entries, report.buffered_entries].map(show_count);
    let not_read = report.level.not_read();
    if not_read.is_empty() {
        let verdict = if report.is_valid() { "valid" } else { "damaged" };
        return console.line(format_args!(
            "{verdict} (full check of {keyspaces} keyspaces, {entries} entries in trees and {buffered} in \
             write buffers, {bytes}, in {seconds:.1} s)"
        ));
    }
    let verdict = if report.findings.is_empty() { "nothing found" } else { "damaged" };
    console.line(format_args!("{verdict} (fast check of {keyspaces} keyspaces, in {seconds:.1} s)"))?;
    console
        .line(format_args!("not read: {} ({bytes} of runs); `--level full` reads them", not_read.join(", ")))
}

fn verify(
    context: &mut Context,
    store: &StoreArguments,
    level: VerifyLevel,
) -> Result<testudo::Result<VerifyReport>, Failure> {
    store::require(context, &store.dir)?;
    match store::try_open_for_reading(context, store) {
        Ok(db) => {
            let options = VerifyOptions::new(level);
            watched(context, "verify", |observer| db.verify(options.observer(observer)))
        }
        Err(error) => Ok(Err(error)),
    }
}
