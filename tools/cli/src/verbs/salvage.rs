//! `testudo salvage`: creates a new store from the intact parts of a damaged one, and lists the losses.
//!
//! **Invariants**
//! - The damaged store is never written.
//! - Exit code 0 only if every record is proven to be present; 1 if anything is lost, uncertain or unproven.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use testudo::{KeyspaceSalvage, LostRange, NameSource, SalvageOptions, SalvageReport, salvage};

use crate::{
    context::Context,
    failure::{Failure, Outcome, Verdict},
    input::bytes_text::{escape, to_hex},
    output::{
        size::{show_count, show_size},
        watched_work::watched,
    },
    raw_store::enter,
};

/// Maximum lost ranges of a keyspace that are printed individually.
const PRINTED_RANGES: usize = 50;

/// Arguments of `testudo salvage`.
#[derive(Args, Debug)]
pub(crate) struct SalvageArguments {
    /// Directory of the damaged store
    dir: PathBuf,
    /// Directory of the new store; must be empty or not exist
    target: PathBuf,
    /// Put key versions that may be outdated into the keyspace itself, not into NAME.older
    #[arg(long)]
    older_versions: bool,
    /// Merge operator of keyspaces whose options are lost with the manifest
    #[arg(long, value_name = "NAME")]
    merge_operator: Option<String>,
    /// Memory budget of the new store while it is written; a value may take up to a quarter of it
    #[arg(long, value_name = "SIZE", value_parser = testudo_bench::parse_positive)]
    memory: Option<u64>,
}

/// Salvages the store and reports the result.
pub(crate) fn run(context: &mut Context, arguments: &SalvageArguments) -> Outcome {
    let mut options = SalvageOptions::new(&arguments.dir, &arguments.target)
        .env(context.env.clone())
        .older_versions(arguments.older_versions);
    if let Some(bytes) = arguments.memory {
        options = options.memory_bytes(bytes);
    }
    if let Some(name) = &arguments.merge_operator {
        options = options.merge_operator(name);
    }
    enter(context, &arguments.dir)?;
    let stopwatch = context.stopwatch();
    let report = watched(context, "salvage", |observer| salvage(options.observer(observer)))?;
    let report = report
        .map_err(|error| Failure::about(format_args!("salvage of {}", arguments.dir.display()), error))?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        context.console.json(&document(&report, seconds))?;
    } else {
        print(context, &report, seconds)?;
    }
    Ok(if report.is_complete() { Verdict::Fine } else { Verdict::Negative })
}

fn document(report: &SalvageReport, seconds: f64) -> Value {
    let range = |range: &LostRange| {
        json!({
            "low_hex": to_hex(&range.low), "high_hex": range.high.as_deref().map(to_hex),
            "records_about": range.records_about, "bytes_about": range.bytes_about,
            "file": range.file, "offset": range.offset, "why": range.why,
        })
    };
    let keyspace = |keyspace: &KeyspaceSalvage| {
        json!({
            "id": keyspace.id, "name": keyspace.name, "name_from": keyspace.name_from,
            "records": keyspace.records,
            "bytes": keyspace.bytes, "uncertain_records": keyspace.uncertain_records,
            "older_records": keyspace.older_records, "older_keyspace": keyspace.older_keyspace,
            "lost_ranges": keyspace.lost_ranges.iter().map(range).collect::<Vec<_>>(),
        })
    };
    json!({
        "complete": report.is_complete(), "store": report.store, "method": report.method, "seconds": seconds,
        "findings": report.findings, "unproven": report.unproven, "log": report.log,
        "keyspaces": report.keyspaces.iter().map(keyspace).collect::<Vec<_>>(),
    })
}

fn print(context: &mut Context, report: &SalvageReport, seconds: f64) -> Result<(), Failure> {
    let console = &mut context.console;
    for finding in &report.findings {
        console.line(format_args!("found: {finding}"))?;
    }
    if let Some(unproven) = &report.unproven {
        console.line(format_args!("not proven: {unproven}"))?;
    }
    for lost in &report.log.lost {
        let (first, last) = (lost.first_seqno, lost.last_seqno);
        console.line(format_args!(
            "lost: operations {first} to {last} of the log ({} at offset {})",
            lost.file, lost.offset
        ))?;
    }
    for keyspace in &report.keyspaces {
        print_keyspace(context, keyspace)?;
    }
    let verdict = if report.is_complete() { "everything" } else { "the rest" };
    let (records, operations) = (show_count(report.records()), show_count(report.log.operations));
    context.console.line(format_args!(
        "salvaged {verdict}: {records} records, with {operations} operations of the log, in {seconds:.1} s"
    ))
}

/// Describes the lost keys: one key, or a range.
fn shown_range(lost: &LostRange) -> String {
    let low = escape(&lost.low);
    if lost.high.as_deref().is_some_and(|high| high.strip_suffix(&[0]) == Some(&lost.low)) {
        return format!("the key {low}");
    }
    let high = lost.high.as_deref().map_or("the end".to_owned(), escape);
    format!("from {low} to {high} (exclusive), about {} records", show_count(lost.records_about))
}

fn print_keyspace(context: &mut Context, keyspace: &KeyspaceSalvage) -> Result<(), Failure> {
    let console = &mut context.console;
    let name = &keyspace.name;
    for lost in keyspace.lost_ranges.iter().take(PRINTED_RANGES) {
        let what = shown_range(lost);
        console.line(format_args!(
            "lost: {name}, {what} ({} at offset {}: {})",
            lost.file, lost.offset, lost.why
        ))?;
    }
    if keyspace.lost_ranges.len() > PRINTED_RANGES {
        let more = keyspace.lost_ranges.len() - PRINTED_RANGES;
        console.line(format_args!("lost: {name}, {more} more ranges (all of them with --json)"))?;
    }
    let origin = match keyspace.name_from {
        NameSource::Manifest => "",
        NameSource::Run => ", name from its runs",
        NameSource::Invented => ", name lost",
    };
    let (records, bytes) = (show_count(keyspace.records), show_size(keyspace.bytes));
    console.line(format_args!("keyspace {name}: {records} records, {bytes}{origin}"))?;
    if keyspace.uncertain_records > 0 {
        let count = show_count(keyspace.uncertain_records);
        console.line(format_args!(
            "  {count} of them uncertain: their runs lost the page that states their age"
        ))?;
    }
    if keyspace.older_records > 0 {
        let count = show_count(keyspace.older_records);
        let place = keyspace.older_keyspace.as_deref().unwrap_or("its keyspace");
        console.line(format_args!(
            "  {count} keys in lost ranges have only a version that may be outdated: it is in \
             {place}"
        ))?;
    }
    Ok(())
}
