//! `testudo repair`: repairs damage in place where valid parts suffice, and reports damage that needs
//! salvage.
//!
//! **Invariants**
//! - Exit code 0 only if the store is valid afterwards.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use testudo::{Remedy, RepairOptions, RepairReport, repair};

use crate::{
    context::Context,
    failure::{Failure, Outcome, Verdict},
    output::{size::show_size, watched_work::watched},
    raw_store::enter,
};

/// Arguments of `testudo repair`.
#[derive(Args, Debug)]
pub(crate) struct RepairArguments {
    /// Directory of the store
    dir: PathBuf,
    /// Only report the repairs; write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Repairs the store and reports the findings.
pub(crate) fn run(context: &mut Context, arguments: &RepairArguments) -> Outcome {
    let options = RepairOptions::new(&arguments.dir).env(context.env.clone()).dry_run(arguments.dry_run);
    enter(context, &arguments.dir)?;
    let stopwatch = context.stopwatch();
    let report = watched(context, "repair", |observer| repair(options.observer(observer)))?;
    let report = report
        .map_err(|error| Failure::about(format_args!("repair of {}", arguments.dir.display()), error))?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        context.console.json(&json!({
            "sound": report.is_valid(), "dry_run": arguments.dry_run, "findings": report.findings,
            "checked_bytes": report.checked_bytes, "seconds": seconds,
        }))?;
    } else {
        print(context, &report, seconds)?;
        if let Some(next) = next_step(&report, &arguments.dir) {
            context.console.line(format_args!("{next}"))?;
        }
    }
    Ok(if report.is_valid() { Verdict::Fine } else { Verdict::Negative })
}

/// Suggested next step, if any.
fn next_step(report: &RepairReport, dir: &Path) -> Option<String> {
    let dir = dir.display();
    let has = |remedy| report.findings.iter().any(|finding| finding.remedy == remedy);
    if has(Remedy::NeedsSalvage) {
        return Some(format!("next: restore a backup, or `testudo salvage {dir} NEW`"));
    }
    has(Remedy::Repairable).then(|| format!("next: `testudo repair {dir}`"))
}

fn print(context: &mut Context, report: &RepairReport, seconds: f64) -> Result<(), Failure> {
    for finding in &report.findings {
        let remedy = match finding.remedy {
            Remedy::Repaired => "repaired",
            Remedy::Repairable => "repairable",
            Remedy::NeedsSalvage => "needs salvage",
        };
        let (file, offset) = (&finding.file, finding.offset);
        context.console.line(format_args!(
            "{remedy}: {file} at offset {offset}: {} ({})",
            finding.what, finding.action
        ))?;
    }
    let verdict = if report.is_valid() { "valid" } else { "not valid" };
    let bytes = show_size(report.checked_bytes);
    context.console.line(format_args!("{verdict} ({bytes} of runs checked, in {seconds:.1} s)"))
}
