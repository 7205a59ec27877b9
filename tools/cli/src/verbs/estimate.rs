//! `testudo estimate`: about how many bytes the keys of a range take, without reading records.
//!
//! It says what the indexes of tree and write buffers say. `testudo count` reads everything and is exact.

use clap::Args;
use serde_json::json;

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::Context,
    failure::{Outcome, Verdict},
    input::key_range::RangeArguments,
    output::size::show_size,
    store,
};

/// Arguments of `testudo estimate`.
#[derive(Args, Debug)]
pub(crate) struct EstimateArguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    record: RecordArguments,
    #[command(flatten)]
    range: RangeArguments,
}

/// Prints the bytes.
pub(crate) fn run(context: &mut Context, arguments: &EstimateArguments) -> Outcome {
    let EstimateArguments { store, record, range } = arguments;
    let range = range.parse(record.formats)?;
    let db = store::open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &record.keyspace.name)?;
    let bytes = range.estimate(&keyspace).map_err(|error| store.failure(&error))?;
    if context.json {
        context.console.json(&json!({ "bytes": bytes }))?;
    } else {
        context.console.line(format_args!("{}", show_size(bytes)))?;
    }
    Ok(Verdict::Fine)
}
