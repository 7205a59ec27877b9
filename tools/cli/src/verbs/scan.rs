//! `testudo scan`: prints the records of a range, in either direction.
//!
//! Text output is key, tab, value, escaped unless another format is selected, as `load --format tsv` reads
//! it. JSON output is as `load --format jsonl` reads it.

use clap::Args;
use serde_json::json;
use testudo::Entry;

use crate::{
    arguments::RangeOfStore,
    context::Context,
    failure::{Failure, Outcome, Verdict},
    input::json_record::JsonRecord,
    output::progress::{Progress, Unit},
    store,
};

/// Arguments of `testudo scan`.
#[derive(Args, Debug)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    records: RangeOfStore,
    /// Maximum number of records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Scan from the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Omit the values
    #[arg(long)]
    keys_only: bool,
    /// Print only the number of records
    #[arg(long, conflicts_with = "keys_only")]
    count: bool,
    /// Write only the bytes of the values
    #[arg(long, conflicts_with_all = ["value_format", "json", "keys_only", "count"])]
    raw: bool,
}

/// Prints the records.
pub(crate) fn run(context: &mut Context, arguments: &ScanArguments) -> Outcome {
    let store = &arguments.records.store;
    let (_db, keyspace, range) = store::open_range(context, &arguments.records)?;
    let mut entries = range.open(&keyspace).map_err(|error| store.failure(&error))?;
    let mut progress = arguments.count.then(|| Progress::new(context, "scan", None, Unit::Records));
    let mut count = 0;
    let mut line = Vec::new();
    while arguments.limit.is_none_or(|limit| count < limit) {
        let next = if arguments.reverse { entries.next_back() } else { entries.next() };
        let Some(entry) = next else { break };
        let entry = entry.map_err(|error| store.failure(&error))?;
        count += 1;
        match &mut progress {
            None => print(context, arguments, &entry, &mut line)?,
            Some(progress) => progress.set_sometimes(count),
        }
    }
    drop(progress);
    match (arguments.count, context.json) {
        (false, _) => {}
        (true, true) => context.console.json(&json!({ "count": count }))?,
        (true, false) => context.console.line(format_args!("{count}"))?,
    }
    Ok(Verdict::Fine)
}

fn print(
    context: &mut Context,
    arguments: &ScanArguments,
    entry: &Entry,
    line: &mut Vec<u8>,
) -> Result<(), Failure> {
    let formats = arguments.records.record.formats;
    let value = match arguments.keys_only {
        true => None,
        false => {
            let store = &arguments.records.store;
            Some(entry.value().map_err(|error| store.failure_at(entry.key(), &error, ""))?)
        }
    };
    if context.json {
        return context
            .console
            .json(&JsonRecord::new(entry.key(), value.as_deref(), formats).map_err(Failure::new)?);
    }
    line.clear();
    if arguments.raw {
        line.extend_from_slice(value.as_deref().unwrap_or_default());
        return context.console.write(line);
    }
    formats.show_key(line, entry.key()).map_err(Failure::new)?;
    if let Some(value) = value {
        line.push(b'\t');
        formats.show_value(line, &value).map_err(Failure::new)?;
    }
    line.push(b'\n');
    context.console.write(line)
}
