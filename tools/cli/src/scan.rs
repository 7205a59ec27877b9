//! `testudo scan`: the records of a range, in either direction.
//!
//! Text output is key, tab, value, both escaped, which is what `load --format tsv` reads; JSON output is what
//! `load --format jsonl` reads.

use std::ops::Bound;

use clap::Args;
use serde_json::json;
use testudo::{Entry, Iter, Keyspace};

use crate::{
    arguments::{RecordArguments, StoreArguments},
    bytes_text::{from_argument, show_into},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    json_record::JsonRecord,
    store,
};

/// Arguments of `testudo scan`.
#[derive(Args, Debug)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    record: RecordArguments,
    /// First key, included
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// End of the keys, not included
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Only keys that start with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// At most so many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Leave out the values
    #[arg(long)]
    keys_only: bool,
    /// Print only how many records there are
    #[arg(long, conflicts_with = "keys_only")]
    count: bool,
    /// Write the bytes of the values and nothing else
    #[arg(long, conflicts_with_all = ["hex", "json", "keys_only", "count"])]
    raw: bool,
}

/// Prints the records.
pub(crate) fn run(context: &mut Context, arguments: &ScanArguments) -> Outcome {
    let store = &arguments.store;
    let range = Range::of(arguments)?;
    let db = store::open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &arguments.record.keyspace)?;
    let mut entries = range.open(&keyspace).map_err(|error| store.failure(&error))?;
    let mut count = 0;
    let mut line = Vec::new();
    while arguments.limit.is_none_or(|limit| count < limit) {
        let next = if arguments.reverse { entries.next_back() } else { entries.next() };
        let Some(entry) = next else { break };
        let entry = entry.map_err(|error| store.failure(&error))?;
        count += 1;
        if !arguments.count {
            print(context, arguments, &entry, &mut line)?;
        }
    }
    match (arguments.count, store.json) {
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
    let hex = arguments.record.hex;
    let value = match arguments.keys_only {
        true => None,
        false => Some(entry.value().map_err(|error| arguments.store.failure(&error))?),
    };
    if arguments.store.json {
        return context.console.json(&JsonRecord::new(entry.key(), value.as_deref(), hex));
    }
    line.clear();
    if arguments.raw {
        line.extend_from_slice(value.as_deref().unwrap_or_default());
        return context.console.write(line);
    }
    show_into(line, entry.key(), hex);
    if let Some(value) = value {
        line.push(b'\t');
        show_into(line, &value, hex);
    }
    line.push(b'\n');
    context.console.write(line)
}

/// Which keys.
enum Range {
    Between(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Prefix(Vec<u8>),
}

impl Range {
    fn of(arguments: &ScanArguments) -> Result<Self, Failure> {
        let hex = arguments.record.hex;
        let parse = |name: &str, key: &Option<String>| {
            key.as_ref().map(|key| from_argument(name, key, hex)).transpose()
        };
        if let Some(prefix) = parse("--prefix", &arguments.prefix)? {
            return Ok(Self::Prefix(prefix));
        }
        let (from, to) = (parse("--from", &arguments.from)?, parse("--to", &arguments.to)?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return Err(Failure::new("--from is beyond --to, so that the range holds no key"));
        }
        Ok(Self::Between(
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }

    fn open(&self, keyspace: &Keyspace) -> testudo::Result<Iter> {
        match self {
            Self::Prefix(prefix) => keyspace.prefix(prefix),
            Self::Between(from, to) => keyspace.range::<Vec<u8>, _>((from.clone(), to.clone())),
        }
    }
}
