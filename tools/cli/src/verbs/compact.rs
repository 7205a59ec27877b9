//! `testudo compact`: empties the write buffers into the trees and waits until background work is done.

use clap::Args;
use serde_json::json;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Outcome, Verdict},
    output::size::show_size,
    store,
};

/// Arguments of `testudo compact`.
#[derive(Args, Debug)]
pub(crate) struct CompactArguments {
    #[command(flatten)]
    store: StoreArguments,
}

/// Flushes, settles, and says what it came to.
pub(crate) fn run(context: &mut Context, arguments: &CompactArguments) -> Outcome {
    let store = &arguments.store;
    let stopwatch = context.stopwatch();
    let db = store::open_for_writing(context, store, false)?;
    let before = db.stats().disk_bytes;
    let flushed = db.settle().map(|()| Verdict::Fine).map_err(|error| store.failure(&error));
    let after = db.stats().disk_bytes;
    store.close(db, flushed)?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        let document = json!({ "disk_bytes_before": before, "disk_bytes_after": after, "seconds": seconds });
        context.console.json(&document)?;
    } else {
        let (before, after) = (show_size(before), show_size(after));
        context.console.line(format_args!("{before} on disk before, {after} after, {seconds:.1} s"))?;
    }
    Ok(Verdict::Fine)
}
