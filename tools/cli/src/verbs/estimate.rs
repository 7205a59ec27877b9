//! `testudo estimate`: estimates the bytes that the keys of a range take, without reading records.
//!
//! The estimate comes from the indexes of trees and write buffers. `testudo count` reads everything and is
//! exact.

use clap::Args;
use serde_json::json;

use crate::{
    arguments::RangeOfStore,
    context::Context,
    failure::{Outcome, Verdict},
    output::size::show_size,
    store,
};

/// Arguments of `testudo estimate`.
#[derive(Args, Debug)]
pub(crate) struct EstimateArguments {
    #[command(flatten)]
    records: RangeOfStore,
}

/// Prints the estimated bytes.
pub(crate) fn run(context: &mut Context, arguments: &EstimateArguments) -> Outcome {
    let (_db, keyspace, range) = store::open_range(context, &arguments.records)?;
    let bytes = range.estimate(&keyspace).map_err(|error| arguments.records.store.failure(&error))?;
    if context.json {
        context.console.json(&json!({ "bytes": bytes }))?;
    } else {
        context.console.line(format_args!("{}", show_size(bytes)))?;
    }
    Ok(Verdict::Fine)
}
