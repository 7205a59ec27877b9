//! `testudo verify`: checks what is on disk, without changing it.
//!
//! **Invariants**
//! - Exit code 1 only where stored bytes are damaged; where it could not look (no store, locked, no permission)
//!   the exit code is 2.

use clap::Args;
use serde_json::json;
use testudo::{ErrorKind, VerifyLevel, VerifyReport};

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Failure, Outcome, Verdict},
    progress::{Progress, Unit, Watch},
    stat::figures_of,
    store,
};

/// Arguments of `testudo verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Every page, every record and the order of all keys too
    #[arg(long)]
    full: bool,
}

/// Checks the store and says what was found.
pub(crate) fn run(context: &mut Context, arguments: &VerifyArguments) -> Outcome {
    let store = &arguments.store;
    let level = if arguments.full { VerifyLevel::Full } else { VerifyLevel::Fast };
    let stopwatch = context.stopwatch();
    let report = verify(context, store, level);
    let seconds = stopwatch.elapsed().as_secs_f64();
    let level = if arguments.full { "full" } else { "fast" };
    match report {
        Ok(report) => {
            if store.json {
                context.console.json(&json!({
                    "sound": true, "level": level, "seconds": seconds, "checked": figures_of(&report)?,
                }))?;
            } else {
                context.console.line(format_args!("sound ({level}): {report:?} in {seconds:.1} s"))?;
            }
            Ok(Verdict::Fine)
        }
        Err(error) if error.kind() == ErrorKind::Corruption => {
            let finding = error.to_string();
            if store.json {
                let (file, offset) = error.location().unzip();
                context.console.json(&json!({
                    "sound": false, "level": level, "seconds": seconds, "finding": finding,
                    "file": file, "offset": offset,
                }))?;
            } else {
                context.console.line(format_args!("damaged: {finding}"))?;
            }
            Ok(Verdict::Negative)
        }
        Err(error) => Err(Failure::store(&store.dir, &error)),
    }
}

fn verify(context: &Context, store: &StoreArguments, level: VerifyLevel) -> testudo::Result<VerifyReport> {
    let db = store::try_open_for_reading(context, store)?;
    let before = db.stats();
    let total = (level == VerifyLevel::Full).then_some(before.live_bytes);
    let progress = Progress::new(context, "verify", total, Unit::Bytes);
    let watched = db.clone();
    let _watch = Watch::start(context, progress, move || {
        watched.stats().device_bytes_read.saturating_sub(before.device_bytes_read)
    });
    db.verify(level)
}
