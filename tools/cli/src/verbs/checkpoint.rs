//! `testudo checkpoint`: creates a second, complete store with the contents of this one.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use testudo::CheckpointOptions;

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

/// Arguments of `testudo checkpoint`.
#[derive(Args, Debug)]
pub(crate) struct CheckpointArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Directory of the new store; must be empty or not exist
    target: PathBuf,
}

/// Creates the new store and reports its contents.
pub(crate) fn run(context: &mut Context, arguments: &CheckpointArguments) -> Outcome {
    let store = &arguments.store;
    let stopwatch = context.stopwatch();
    let db = store::open_for_reading(context, store)?;
    let options = CheckpointOptions::new(&arguments.target);
    let report = watched(context, "checkpoint", |observer| db.checkpoint(options.observer(observer)))?;
    let what = format!("checkpoint of {}", store.dir.display());
    let report = report.map_err(|error| Failure::with_help(what, &error, || next_step(&store.dir)))?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        context.console.json(&json!({
            "target": arguments.target.display().to_string(), "seqno": report.seqno,
            "keyspaces": report.keyspaces,
            "runs": report.runs, "run_bytes": report.run_bytes, "tail_operations": report.tail_operations,
            "seconds": seconds,
        }))?;
    } else {
        context.console.line(format_args!(
            "{} keyspaces at seqno {} in {}: {} in {} runs, {} newer operations, {seconds:.1} s",
            report.keyspaces,
            report.seqno,
            arguments.target.display(),
            show_size(report.run_bytes),
            report.runs,
            show_count(report.tail_operations),
        ))?;
    }
    Ok(Verdict::Fine)
}
