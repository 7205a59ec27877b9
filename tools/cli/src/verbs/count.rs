//! `testudo count`: how many records there are, in all, in a range, or with a prefix.
//!
//! It counts by reading them, so that the answer is exact; `testudo ls` says at once about how many there
//! are.

use clap::Args;
use serde_json::json;

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::Context,
    failure::{Outcome, Verdict},
    input::key_range::RangeArguments,
    output::progress::{Progress, Unit},
    store,
};

const RECORDS_BETWEEN_LOOKS: u64 = 1000;

/// Arguments of `testudo count`.
#[derive(Args, Debug)]
pub(crate) struct CountArguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    record: RecordArguments,
    #[command(flatten)]
    range: RangeArguments,
}

/// Prints the number.
pub(crate) fn run(context: &mut Context, arguments: &CountArguments) -> Outcome {
    let CountArguments { store, record, range } = arguments;
    let range = range.parse(record.formats)?;
    let db = store::open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &record.keyspace.name)?;
    let mut progress = Progress::new(context, "count", None, Unit::Records);
    let mut count = 0u64;
    for entry in range.open(&keyspace).map_err(|error| store.failure(&error))? {
        entry.map_err(|error| store.failure(&error))?;
        count += 1;
        if count.is_multiple_of(RECORDS_BETWEEN_LOOKS) {
            progress.set(count);
        }
    }
    drop(progress);
    if context.json {
        context.console.json(&json!({ "count": count }))?;
    } else {
        context.console.line(format_args!("{count}"))?;
    }
    Ok(Verdict::Fine)
}
