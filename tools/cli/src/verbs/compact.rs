//! `testudo compact`: flushes the write buffers into the trees and waits for background work to finish.

use std::{thread, time::Duration};

use clap::Args;
use serde_json::json;
use testudo::Db;
use testudo_env::Env;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Outcome, Verdict},
    output::{
        progress::{Progress, Unit},
        size::show_size,
    },
    store,
};

/// Interval of progress updates.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Arguments of `testudo compact`.
#[derive(Args, Debug)]
pub(crate) struct CompactArguments {
    #[command(flatten)]
    store: StoreArguments,
}

/// Flushes and waits for background work; shows the bytes written meanwhile.
fn settle(context: &Context, db: &Db, progress: &mut Progress) -> testudo::Result<()> {
    let began = db.stats().io.bytes_written;
    thread::scope(|scope| {
        let settling = scope.spawn(|| db.compact());
        while !settling.is_finished() {
            progress.set(db.stats().io.bytes_written - began);
            context.env.sleep(LOOK_EVERY);
        }
        settling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Compacts the store and reports its size before and after.
pub(crate) fn run(context: &mut Context, arguments: &CompactArguments) -> Outcome {
    let store = &arguments.store;
    let stopwatch = context.stopwatch();
    let db = store::open_for_writing(context, store)?;
    let before = db.stats().space.disk_bytes;
    let mut progress = Progress::new(context, "compact", None, Unit::Bytes);
    let settled = settle(context, &db, &mut progress);
    drop(progress);
    let flushed = settled.map(|()| Verdict::Fine).map_err(|error| store.failure(&error));
    let after = db.stats().space.disk_bytes;
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
