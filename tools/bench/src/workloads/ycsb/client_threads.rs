//! The client threads of a workload, and the watching thread.
//!
//! **Invariants**
//! - The watching thread makes a due backup when half of the workload is done; it also switches trees and
//!   takes snapshots.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use testudo::{Db, Error, Result};

use super::{
    backup_check::BackupCheck,
    held_snapshots::HeldSnapshots,
    space_watch::SpaceWatch,
    tree_switches::TreeSwitches,
    worker::{Progress, Shared, Worker},
};
use crate::{
    report::{
        rate_over_time::OverTime,
        size::{human_count, quotient},
        tally::Tally,
    },
    subject::Records,
};

const POLL: Duration = Duration::from_millis(10);
/// Poll interval before a backup or a switch is due.
const SHORT_POLL: Duration = Duration::from_micros(200);

/// Side tasks while a workload runs.
#[derive(Default)]
pub(crate) struct Asides<'a, 'b, 's> {
    pub(crate) space: Option<&'a mut SpaceWatch<'s>>,
    pub(crate) backup: Option<(&'a Db, &'a mut BackupCheck<'b>)>,
    pub(crate) switches: Option<&'a mut TreeSwitches<'s>>,
    pub(crate) snapshots: Option<&'a mut HeldSnapshots<'s>>,
}

/// Runs all threads of a workload to completion, showing progress on a terminal, and records their rate in
/// `rates`. A backup is made when half is done.
pub(crate) fn run_threads<R: Records>(
    shared: &Shared<'_, R>,
    started: Duration,
    Asides { mut space, mut backup, mut switches, mut snapshots }: Asides<'_, '_, '_>,
    rates: &mut OverTime<'_>,
) -> Result<Vec<Tally>> {
    let progress: Vec<Progress> = (0..shared.all_threads()).map(|_| Progress::default()).collect();
    let counted = &progress[..shared.counted_threads()];
    rates.begin(started);
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (index, progress) in progress.iter().enumerate() {
            let worker = move || Worker::new(shared, index, progress).run();
            let handle =
                std::thread::Builder::new().name(format!("client-{index}")).spawn_scoped(scope, worker);
            match handle {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    shared.failed.store(true, std::sync::atomic::Ordering::Relaxed);
                    return Err(Error::io(format!("--threads {}", shared.all_threads()), error));
                }
            }
        }
        let mut display = Display::new(shared, started);
        let operations = || progress[..shared.threads].iter().map(Progress::operations).sum::<u64>();
        let mut aside = Ok(());
        while !handles.iter().all(|handle| handle.is_finished()) {
            shared.env.sleep(if backup.is_some() || switches.is_some() { SHORT_POLL } else { POLL });
            display.show(counted);
            rates.note(shared.env.monotonic(), || counted.iter().map(Progress::operations).sum());
            if let Some(space) = &mut space {
                space.look(shared.env.monotonic());
            }
            let share = share_done(shared, started, operations());
            if share >= 0.5
                && let Some((db, backup)) = backup.take()
            {
                aside = backup.take(db, &operations);
            }
            if let Some(switches) = &mut switches
                && aside.is_ok()
            {
                aside = switches.keep_up(share, || (shared.env.monotonic(), operations()));
            }
            if let Some(snapshots) = &mut snapshots
                && aside.is_ok()
            {
                aside = snapshots.keep_up(shared.env.monotonic());
            }
            if aside.is_err() {
                shared.failed.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        display.clear();
        // The threads finished before the halfway point was observed.
        if let Some((db, backup)) = backup {
            aside = aside.and(backup.take(db, &operations));
        }
        let join = |handle: std::thread::ScopedJoinHandle<'_, Tally>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let tallies: Vec<Tally> = handles.into_iter().map(join).collect();
        let ended = tallies.iter().map(|tally| tally.ended).max().unwrap_or(started);
        rates.end(ended, tallies.iter().take(shared.counted_threads()).map(|tally| tally.operations).sum());
        aside.map(|()| tallies)
    })
}

/// Returns the completed share of the workload, 0 to 1.
fn share_done<R>(shared: &Shared<'_, R>, started: Duration, operations: u64) -> f64 {
    match shared.deadline {
        Some(deadline) => {
            let passed = shared.env.monotonic().saturating_sub(started);
            quotient(passed.as_secs_f64(), deadline.saturating_sub(started).as_secs_f64())
        }
        None => quotient(operations as f64, shared.ops as f64),
    }
}

/// Progress line on a terminal.
struct Display<'a, R> {
    shared: &'a Shared<'a, R>,
    is_terminal: bool,
    shown_at: Duration,
    shown_operations: u64,
}

impl<'a, R> Display<'a, R> {
    fn new(shared: &'a Shared<'a, R>, started: Duration) -> Self {
        Self { shared, is_terminal: std::io::stderr().is_terminal(), shown_at: started, shown_operations: 0 }
    }

    /// Updates the line, at most once per second.
    fn show(&mut self, progress: &[Progress]) {
        let now = self.shared.env.monotonic();
        let passed = now.saturating_sub(self.shown_at);
        if !self.is_terminal || passed < Duration::from_secs(1) {
            return;
        }
        let operations: u64 = progress.iter().map(Progress::operations).sum();
        let rate = (operations - self.shown_operations) as f64 / passed.as_secs_f64();
        eprint!(
            "\r{}: {} operations, {}/s\x1b[K",
            self.shared.workload.name(),
            human_count(operations as f64),
            human_count(rate)
        );
        let _ = std::io::stderr().flush();
        (self.shown_at, self.shown_operations) = (now, operations);
    }

    fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
