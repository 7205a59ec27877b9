//! Scrubbing: reads all live data from the device, bypassing all caches, at a rate that leaves bandwidth to
//! others.
//!
//! Runs that existed when the scrub began are scrubbed in the order of their ids. A run that a merge replaces
//! during the scrub is skipped; its successors are newer than the scrub and were just written.
//!
//! **Invariants**
//! - No lock of the store is held during reads, and only a few runs are pinned at a time.
//! - Runs are listed once per pass, and again only after changes of trees (`scrub/run_list.rs`).
//! - A position names the first page not yet scrubbed; a scrub that resumes there reads every other page
//!   once.

mod run_list;

use std::{fmt, ops::ControlFlow, str::FromStr, time::Duration};

use testudo_base::{Error, ErrorKind, Result, RunId, sync::Arc};
use testudo_contract::Part;
use testudo_env::{Env, Process};
use testudo_run::Run;
use testudo_store::{
    Store,
    long_work::{Observed, WorkDone},
};

use crate::{
    Db,
    check::{
        findings::{Finding, check_files, check_run_pages},
        scrub::run_list::{OfKeyspace, RunList},
    },
};

/// Maximum runs pinned at a time.
const BATCH_RUNS: usize = 32;
/// Suffix of findings that cost no data.
const OF_SPARE_RUN: &str = " (in a retained run: no record is lost, and the run is dropped)";
/// Maximum sleep between two calls of the observer.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Position of a scrub. Its text form can be stored and parsed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPosition {
    run: RunId,
    page: u32,
    /// Exclusive upper bound: runs with this id or a greater one are newer than the scrub.
    end: RunId,
}

impl fmt::Display for ScrubPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run, self.page, self.end)
    }
}

impl FromStr for ScrubPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut parts = text.split('.');
            let run = RunId(parts.next()?.parse().ok()?);
            let page = parts.next()?.parse().ok()?;
            let end = RunId(parts.next()?.parse().ok()?);
            parts.next().is_none().then_some(Self { run, page, end })
        };
        parse().ok_or_else(|| Error::invalid("not a scrub position"))
    }
}

/// Options of [`Db::scrub`].
#[derive(Debug, Default)]
pub struct ScrubOptions<'a> {
    bytes_per_second: Option<u64>,
    resume_from: Option<ScrubPosition>,
    observer: Observed<'a, ScrubProgress>,
}

impl<'a> ScrubOptions<'a> {
    /// A scrub from the beginning, as fast as the device allows, without an observer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maximum bytes to read per second; `None`, the default: as fast as the device allows.
    #[must_use]
    pub fn bytes_per_second(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.bytes_per_second = bytes.into();
        self
    }

    /// Position at which an earlier scrub stopped; `None`, the default, starts from the beginning.
    #[must_use]
    pub fn resume_from(mut self, position: impl Into<Option<ScrubPosition>>) -> Self {
        self.resume_from = position.into();
        self
    }

    /// Calls `observer` with the progress after each stretch of pages; its `Break` stops the scrub.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(ScrubProgress) -> ControlFlow<()> + 'a) -> Self {
        self.observer = Observed::by(observer);
        self
    }
}

/// Result of [`Db::scrub`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Runs read, in part or whole.
    pub runs: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Position to resume from; `None` if the scrub is complete.
    pub position: Option<ScrubPosition>,
    /// Problems found; empty if there are none.
    pub findings: Vec<Finding>,
}

/// Progress of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Bytes of runs read, out of those that were live when the scrub began.
    pub done: WorkDone,
    /// Position to resume from if it is stopped now.
    pub position: ScrubPosition,
    /// Number of findings so far; store it together with the position.
    pub findings: usize,
}

/// Called with the progress after each stretch of pages.
type ScrubObserver<'a> = dyn FnMut(ScrubProgress) -> ControlFlow<()> + 'a;

impl Db {
    /// Verifies every live page, the sealed part of the log, manifest and superblock as stored on the device,
    /// while the store is in use. Damage is a finding, not an error. If the observer stops the scrub, the
    /// report has the position to resume from.
    ///
    /// Errors: `Closed`, also if the store is closed during the scrub; `Io`.
    pub fn scrub(&self, mut options: ScrubOptions<'_>) -> Result<ScrubReport> {
        self.store().read_throughout(|| self.scrub_open(&mut options))
    }

    fn scrub_open(&self, options: &mut ScrubOptions<'_>) -> Result<ScrubReport> {
        let store = self.store();
        let mut report = ScrubReport::default();
        // Later runs need no scrub. A read-only store writes none, and its own ids are meaningless: a copy
        // made by a reader contains runs with such ids too.
        let end = if store.log.wal.is_some() { store.run_ids.next() } else { RunId(u64::MAX) };
        let fresh = ScrubPosition { run: RunId(0), page: 0, end };
        let position = options.resume_from.unwrap_or(fresh);
        if options.resume_from.is_none() {
            report.bytes += check_files(store, &mut report.findings)?;
        }
        let live = store.data.space_stats().live_bytes;
        let started = store.env.monotonic();
        let mut scrub = Scrub {
            env: &*store.env,
            rate: options.bytes_per_second,
            started,
            progress: ScrubProgress {
                done: WorkDone { done_bytes: 0, total_bytes: live },
                position,
                findings: report.findings.len(),
            },
            process: Process::current(),
            observer: options.observer.get(),
        };
        let mut list = RunList::new();
        loop {
            let position = scrub.progress.position;
            let runs = list.take(BATCH_RUNS, || runs_from(store, position));
            if runs.is_empty() {
                return Ok(report);
            }
            for (run, keyspace) in runs {
                report.runs += 1;
                let before = report.findings.len();
                let outcome = scrub.run(&run, &keyspace, &mut report);
                let found = &mut report.findings[before..];
                if !found.is_empty() && is_spare(store, &run) {
                    run.note_damage();
                    found.iter_mut().for_each(|finding| finding.what.push_str(OF_SPARE_RUN));
                }
                match outcome {
                    Err(error) if error.kind() == ErrorKind::Cancelled => {
                        report.position = Some(scrub.progress.position);
                        return Ok(report);
                    }
                    outcome => outcome?,
                }
            }
        }
    }
}

/// Returns `true` if a tree retains the run but needs it for no answer.
fn is_spare(store: &Store, run: &Run) -> bool {
    store.keyspaces().iter().any(|keyspace| keyspace.view.load().tree.is_spare(run.reference().id))
}

/// Returns all runs from the position on, with the names of their keyspaces, in no order.
fn runs_from(store: &Store, position: ScrubPosition) -> Vec<(RunId, OfKeyspace<Run>)> {
    let mut runs = Vec::new();
    for keyspace in store.keyspaces() {
        let ids = position.run..position.end;
        let parts = keyspace.view.load().tree.parts().into_iter();
        let parts = parts.map(|Part::Run(run)| (run.reference().id, (run, Arc::clone(&keyspace.name))));
        runs.extend(parts.filter(|(id, _)| ids.contains(id)));
    }
    runs
}

struct Scrub<'a, 'o> {
    env: &'a dyn Env,
    rate: Option<u64>,
    started: Duration,
    progress: ScrubProgress,
    /// The process that runs the scrub: an observer may fork.
    process: Process,
    observer: &'a mut ScrubObserver<'o>,
}

impl Scrub<'_, '_> {
    fn run(&mut self, run: &Arc<Run>, keyspace: &str, report: &mut ScrubReport) -> Result<()> {
        let id = run.reference().id;
        let position = self.progress.position;
        debug_assert!(position.run <= id, "runs are scrubbed in the order of their ids");
        let from = if id == position.run { position.page } else { 0 };
        let mut read = 0;
        let outcome =
            check_run_pages(run, keyspace, from, &mut report.findings, &mut |bytes, page, findings| {
                read += bytes;
                self.progress.position = ScrubPosition { run: id, page, ..position };
                self.progress.findings = findings;
                self.passed(bytes)
            });
        report.bytes += read;
        outcome?;
        debug_assert!(id < position.end, "runs of the pass are older than it");
        self.progress.position = ScrubPosition { run: RunId(id.0 + 1), page: 0, ..position };
        Ok(())
    }

    /// Calls the observer, then sleeps as the rate requires.
    fn passed(&mut self, bytes: u64) -> Result<()> {
        self.progress.done.done_bytes += bytes;
        loop {
            let is_stopped = (self.observer)(self.progress).is_break();
            self.process.check()?;
            if is_stopped {
                return Err(Error::new(ErrorKind::Cancelled, "stopped on request"));
            }
            let Some(rate) = self.rate else { return Ok(()) };
            let due = Duration::from_secs_f64(self.progress.done.done_bytes as f64 / rate.max(1) as f64);
            let passed = self.env.monotonic().saturating_sub(self.started);
            let Some(ahead) = due.checked_sub(passed).filter(|ahead| !ahead.is_zero()) else { return Ok(()) };
            self.env.sleep(ahead.min(SLEEP_MAX));
        }
    }
}

#[cfg(test)]
mod tests;
