//! `testudo verify`: checks what is on disk, without changing it.
//!
//! **Invariants**
//! - Exit code 1 only where stored bytes are damaged; where it could not look (no store, locked, no permission)
//!   the exit code is 2.

use clap::{Args, ValueEnum};
use serde_json::json;
use testudo::{ErrorKind, VerifyLevel, VerifyReport};

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Failure, Outcome, Verdict},
    size::{show_count, show_size},
    store,
    watched_work::watched,
};

/// Arguments of `testudo verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// How much is looked at
    #[arg(long, value_enum, default_value_t = Level::Fast)]
    level: Level,
    /// The same as `--level full`
    #[arg(long, conflicts_with = "level")]
    full: bool,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// What opening reads, the structure of the trees and the references to extents
    Fast,
    /// Also the bytes of superblock, manifest and log, every page, every record, filters and the order of all keys
    Full,
}

/// Checks the store and says what was found.
pub(crate) fn run(context: &mut Context, arguments: &VerifyArguments) -> Outcome {
    let store = &arguments.store;
    let (level, level_name) = match (arguments.level, arguments.full) {
        (Level::Full, _) | (_, true) => (VerifyLevel::Full, "full"),
        (Level::Fast, false) => (VerifyLevel::Fast, "fast"),
    };
    let stopwatch = context.stopwatch();
    let report = match verify(context, store, level)? {
        Ok(report) => report,
        // Damage that already keeps the store from being opened is a finding like any other.
        Err(error) if error.kind() == ErrorKind::Corruption => {
            VerifyReport { findings: vec![error.to_string()], ..VerifyReport::default() }
        }
        Err(error) => return Err(Failure::store(&store.dir, &error)),
    };
    let seconds = stopwatch.elapsed().as_secs_f64();
    if store.json {
        context.console.json(&json!({
            "sound": report.is_sound(), "level": level_name, "seconds": seconds, "keyspaces": report.keyspaces,
            "entries": report.entries, "bytes": report.bytes, "findings": report.findings,
        }))?;
    } else {
        print(context, &report, level_name, seconds)?;
    }
    Ok(if report.is_sound() { Verdict::Fine } else { Verdict::Negative })
}

fn print(context: &mut Context, report: &VerifyReport, level: &str, seconds: f64) -> Result<(), Failure> {
    for finding in &report.findings {
        context.console.line(format_args!("damaged: {finding}"))?;
    }
    let (keyspaces, entries, bytes) = (report.keyspaces, show_count(report.entries), show_size(report.bytes));
    let verdict = if report.is_sound() { "sound" } else { "damaged" };
    context.console.line(format_args!(
        "{verdict} ({level} check of {keyspaces} keyspaces, {entries} entries, {bytes}, in {seconds:.1} s)"
    ))
}

fn verify(
    context: &mut Context,
    store: &StoreArguments,
    level: VerifyLevel,
) -> Result<testudo::Result<VerifyReport>, Failure> {
    match store::try_open_for_reading(context, store) {
        Ok(db) => watched(context, "verify", |observer| db.verify_observed(level, observer)),
        Err(error) => Ok(Err(error)),
    }
}
