//! Long work of the library under a progress bar, ended by Ctrl-C.
//!
//! **Invariants**
//! - Ctrl-C ends the work through the library, which leaves nothing half-made.

use std::ops::ControlFlow;

use testudo::{Observer, WorkDone};

use crate::{
    context::Context,
    failure::Failure,
    output::progress::{Progress, Unit},
};

/// Does `work` with an observer that draws a bar named `title` and listens to Ctrl-C.
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
