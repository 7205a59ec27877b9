//! `testudo compact`: flushes the write buffers into the trees and waits for background work to finish. With
//! a keyspace or range, it compacts that completely instead.

use std::{thread, time::Duration};

use clap::Args;
use serde_json::json;
use testudo::{Db, Keyspace};
use testudo_env::Env;

use crate::{
    arguments::{StoreArguments, parse_name},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    input::{
        format::FormatArguments,
        key_range::{KeyRange, RangeArguments},
    },
    output::{
        progress::{Progress, Unit},
        size::show_size,
    },
    store,
};

/// Interval of progress updates.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Keyspace compacted if only a range is given.
const DEFAULT_KEYSPACE: &str = "default";

/// Arguments of `testudo compact`.
#[derive(Args, Debug)]
pub(crate) struct CompactArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Name of the only keyspace to compact, completely; with a range, `default` if it is not given
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    keyspace: Option<String>,
    #[command(flatten)]
    formats: FormatArguments,
    #[command(flatten)]
    range: RangeArguments,
}

impl CompactArguments {
    /// Parses the keyspace and range to compact; `None` means the pending work of the whole store.
    fn parse(&self) -> Result<Option<(&str, KeyRange)>, Failure> {
        if self.keyspace.is_none() && !self.range.is_given() {
            return Ok(None);
        }
        let range = self.range.parse(self.formats)?;
        if range.is_empty() {
            return Err(Failure::new("--from and --to are equal, so the range is empty"));
        }
        Ok(Some((self.keyspace.as_deref().unwrap_or(DEFAULT_KEYSPACE), range)))
    }
}

/// Compacts `part`, or does the pending work of all keyspaces; shows the bytes written meanwhile.
fn compact(
    context: &Context,
    db: &Db,
    part: Option<&(Keyspace, KeyRange)>,
    progress: &mut Progress,
) -> testudo::Result<()> {
    let began = db.stats().io.bytes_written;
    thread::scope(|scope| {
        let compacting = scope.spawn(|| match part {
            Some((keyspace, range)) => range.compact(keyspace),
            None => db.compact(),
        });
        while !compacting.is_finished() {
            progress.set(db.stats().io.bytes_written - began);
            context.env.sleep(LOOK_EVERY);
        }
        compacting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Compacts the store, or a part of it, and reports its size before and after.
pub(crate) fn run(context: &mut Context, arguments: &CompactArguments) -> Outcome {
    let store = &arguments.store;
    let part = arguments.parse()?;
    let stopwatch = context.stopwatch();
    let db = store::open_for_writing(context, store)?;
    let part = part.map(|(name, range)| Ok::<_, Failure>((store.existing_keyspace(&db, name)?, range)));
    let part = part.transpose()?;
    let before = db.stats().space.disk_bytes;
    let mut progress = Progress::new(context, "compact", None, Unit::Bytes);
    let compacted = compact(context, &db, part.as_ref(), &mut progress);
    drop((progress, part));
    let flushed = compacted.map(|()| Verdict::Fine).map_err(|error| store.failure(&error));
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
