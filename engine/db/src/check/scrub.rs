//! Scrubbing: reads everything that is live from the device, past all caches, at a pace that leaves the
//! device to others.
//!
//! Runs are scrubbed in the order of their ids, those that existed when the scrub began. A run that a merge
//! replaces meanwhile needs no look; its successors are younger than the scrub and were just written.
//!
//! **Invariants**
//! - No lock of the store is held while anything is read, and only a few runs are held at a time.
//! - A position names the first page that was not looked at; going on from there covers every other page
//!   once.

use std::{collections::BTreeMap, fmt, ops::ControlFlow, str::FromStr, time::Duration};

use testudo_base::{Error, ErrorKind, Result, RunId, sync::Arc};
use testudo_contract::Part;
use testudo_env::{Env, Process};
use testudo_run::Run;
use testudo_store::{Store, long_work::WorkDone};

use crate::{
    Db,
    check::findings::{Finding, check_files, check_run_pages},
};

/// Runs that are held at once.
const BATCH_RUNS: usize = 32;
/// What findings say that cost nothing.
const OF_SPARE_RUN: &str = " (retained beside live runs: no record is lost, and it is given up)";
/// Longest sleep before the observer is asked again.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Where a scrub stands; its text form can be kept and read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPosition {
    run: RunId,
    page: u32,
    /// Runs from here on are younger than the scrub.
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
        parse().ok_or_else(|| Error::invalid("not a position of a scrub"))
    }
}

/// How a scrub is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Most bytes to read in a second; `None` is as fast as the device goes.
    pub bytes_per_second: Option<u64>,
    /// Where an earlier scrub stopped; `None` begins anew.
    pub resume_from: Option<ScrubPosition>,
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Runs looked at, in part or whole.
    pub runs: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Where to go on; `None` if everything was looked at.
    pub position: Option<ScrubPosition>,
    /// What is wrong; empty if all is valid.
    pub findings: Vec<Finding>,
}

/// How far a scrub has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Bytes of runs that were read, of those that were live when it began.
    pub done: WorkDone,
    /// Where to go on if it is stopped now.
    pub position: ScrubPosition,
    /// What was found so far; whoever keeps the position should not forget it.
    pub findings: usize,
}

/// Is told after each piece how far the scrub is; its `Break` stops it.
pub type ScrubObserver<'a> = dyn FnMut(ScrubProgress) -> ControlFlow<()> + 'a;

impl Db {
    /// Verifies every live page, the sealed part of the log, manifest and superblock as the device has them,
    /// while the store is in use. Damage is a finding; a stop by the observer is not an error, the report
    /// then says where to go on.
    ///
    /// Errors: `Closed`, also if the store is closed meanwhile; `Io`.
    pub fn scrub(&self, options: &ScrubOptions, observer: &mut ScrubObserver<'_>) -> Result<ScrubReport> {
        self.store().read_throughout(|| self.scrub_open(options, observer))
    }

    fn scrub_open(&self, options: &ScrubOptions, observer: &mut ScrubObserver<'_>) -> Result<ScrubReport> {
        let store = self.store();
        let mut report = ScrubReport::default();
        // What is written from now on need not be read. Nothing is by a reader, and its own ids say nothing:
        // a copy that a reader made has runs with such ids as well.
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
            observer,
        };
        loop {
            let runs = next_runs(store, scrub.progress.position);
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

/// Whether a tree has the run, and needs it for no answer.
fn is_spare(store: &Store, run: &Run) -> bool {
    store.keyspaces().iter().any(|keyspace| keyspace.view.load().tree.is_spare(run.reference().id))
}

/// The next runs to look at, by id, with the names of their keyspaces.
fn next_runs(store: &Store, position: ScrubPosition) -> Vec<(Arc<Run>, String)> {
    let mut runs: BTreeMap<RunId, (Arc<Run>, String)> = BTreeMap::new();
    for keyspace in store.keyspaces() {
        for part in keyspace.view.load().tree.parts() {
            let Part::Run(run) = part;
            let id = run.reference().id;
            if (position.run..position.end).contains(&id) {
                runs.insert(id, (run, keyspace.name.to_string()));
            }
        }
        while runs.len() > BATCH_RUNS {
            runs.pop_last();
        }
    }
    runs.into_values().collect()
}

struct Scrub<'a, 'o> {
    env: &'a dyn Env,
    rate: Option<u64>,
    started: Duration,
    progress: ScrubProgress,
    /// The one that does the work: an observer may fork.
    process: Process,
    observer: &'a mut ScrubObserver<'o>,
}

impl Scrub<'_, '_> {
    fn run(&mut self, run: &Arc<Run>, keyspace: &str, report: &mut ScrubReport) -> Result<()> {
        let id = run.reference().id;
        let position = self.progress.position;
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
        self.progress.position = ScrubPosition { run: RunId(id.0 + 1), page: 0, ..position };
        Ok(())
    }

    /// Reports, and sleeps for as long as the rate asks for.
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
