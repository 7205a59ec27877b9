//! Long-running library calls with a progress bar, interruptible by Ctrl-C.
//!
//! **Invariants**
//! - Ctrl-C cancels the work through the library, which leaves nothing half done.

use std::ops::ControlFlow;

use testudo::{Observer, WorkDone};

use crate::{
    context::Context,
    failure::Failure,
    output::progress::{Progress, Unit},
};

/// Runs `work` with an observer that draws a bar named `title` and cancels on Ctrl-C.
pub(crate) fn watched<T>(
    context: &mut Context,
    title: &'static str,
    work: impl FnOnce(&mut Observer<'_>) -> T,
) -> Result<T, Failure> {
    let interruption = context.catch_interruption()?;
    let mut progress = Progress::new(context, title, Some(0), Unit::Bytes);
    Ok(work(&mut |done: WorkDone| {
        progress.set_total(done.total_bytes);
        progress.set(done.done_bytes);
        if interruption.is_raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }))
}
