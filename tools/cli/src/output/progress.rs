//! Progress bar for work that takes over a second, on a terminal only.
//!
//! **Invariants**
//! - Nothing is drawn if standard error is not a terminal, nor in the first second.
//! - The bar is cleared when the work ends.

use std::{
    fmt,
    io::{self, IsTerminal, Read},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use testudo_base::num::u64_of;

use crate::context::{Context, Stopwatch};

const DRAW_AFTER: Duration = Duration::from_secs(1);
const COUNTS_BETWEEN_LOOKS: u64 = 1000;

/// Unit of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Records.
    Records,
}

/// Progress of one task.
pub(crate) struct Progress {
    bar: ProgressBar,
    stopwatch: Stopwatch,
    hidden: bool,
}

impl Progress {
    /// Creates the progress of a task named `title`; `total` is its size, if known.
    pub(crate) fn new(context: &Context, title: &'static str, total: Option<u64>, unit: Unit) -> Self {
        let stats = match (unit, total) {
            (Unit::Bytes, Some(_)) => "[{bar:30}] {bytes}/{total_bytes}, {binary_bytes_per_sec}",
            (Unit::Bytes, None) => "{spinner} {bytes}, {binary_bytes_per_sec}",
            (Unit::Records, Some(_)) => "[{bar:30}] {human_pos}/{human_len}, {rate}/s",
            (Unit::Records, None) => "{spinner} {human_pos}, {rate}/s",
        };
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()).with_message(title);
        if let Ok(style) = ProgressStyle::with_template(&format!("{{msg}} {stats}")) {
            // A failed write to the terminal only spoils the bar.
            let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
                let _ = write!(out, "{:.0}", state.per_sec());
            };
            bar.set_style(style.with_key("rate", rate).progress_chars("=> "));
        }
        Self { bar, stopwatch: context.stopwatch(), hidden: true }
    }

    /// Wraps a reader and counts its bytes as progress.
    pub(crate) fn of_reader<R: Read>(self, reader: R) -> impl Read {
        CountedReader { reader, position: 0, progress: self }
    }

    /// Sets the total amount of work.
    pub(crate) fn set_total(&mut self, total: u64) {
        self.bar.set_length(total);
    }

    /// As [`Progress::set`], for work counted one by one: updates only every [`COUNTS_BETWEEN_LOOKS`] counts.
    pub(crate) fn set_sometimes(&mut self, position: u64) {
        if position.is_multiple_of(COUNTS_BETWEEN_LOOKS) {
            self.set(position);
        }
    }

    /// Sets the amount of work done to `position`.
    pub(crate) fn set(&mut self, position: u64) {
        if self.hidden && self.stopwatch.elapsed() >= DRAW_AFTER {
            self.hidden = false;
            if io::stderr().is_terminal() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        }
        self.bar.set_position(position);
    }
}

/// Reader with a progress bar.
struct CountedReader<R> {
    reader: R,
    position: u64,
    progress: Progress,
}

impl<R: Read> Read for CountedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(buffer)?;
        self.position += u64_of(bytes);
        self.progress.set(self.position);
        Ok(bytes)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
