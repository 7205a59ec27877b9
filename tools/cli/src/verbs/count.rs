//! `testudo count`: counts all records, those of a range, or those with a prefix.
//!
//! The count is exact because it reads the records; `testudo ls` gives an estimate at once.

use clap::Args;
use serde_json::json;

use crate::{
    arguments::RangeOfStore,
    context::Context,
    failure::{Outcome, Verdict},
    output::progress::{Progress, Unit},
    store,
};

/// Arguments of `testudo count`.
#[derive(Args, Debug)]
pub(crate) struct CountArguments {
    #[command(flatten)]
    records: RangeOfStore,
}

/// Prints the number of records.
pub(crate) fn run(context: &mut Context, arguments: &CountArguments) -> Outcome {
    let store = &arguments.records.store;
    let (_db, keyspace, range) = store::open_range(context, &arguments.records)?;
    let mut progress = Progress::new(context, "count", None, Unit::Records);
    let mut count = 0u64;
    for entry in range.open(&keyspace).map_err(|error| store.failure(&error))? {
        entry.map_err(|error| store.failure(&error))?;
        count += 1;
        progress.set_sometimes(count);
    }
    drop(progress);
    if context.json {
        context.console.json(&json!({ "count": count }))?;
    } else {
        context.console.line(format_args!("{count}"))?;
    }
    Ok(Verdict::Fine)
}
