//! The store of a run, its records, and one workload after another on them.
//!
//! **Invariants**
//! - A store that already holds records is never loaded again; its versions are read before it is measured.
//! - `seq` writes into a keyspace of its own, which it empties first; no other workload looks there.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use testudo::{Db, Durability, Error, Keyspace, KeyspaceOptions, Result, Tree};
use testudo_base::num::usize_of;
use testudo_env::{Env, SplitMix};

use super::{
    BackupResult,
    backup_check::BackupCheck,
    keys::KeyMaker,
    oracle::Oracle,
    target::Target,
    worker::{Progress, Shared, Worker},
    workload::Shape,
    zipf::{Picker, below},
};
use crate::{
    Context, Workload, YcsbArgs,
    complaints::Complaints,
    process,
    report::{Report, Sample, Settled, Totals},
    size::{human_count, quotient},
    tally::Tally,
};

const SEQ_KEYSPACE: &str = "ycsb-seq";
const SMOKE_RECORDS: u64 = 2_000;
const DEFAULT_RECORDS: u64 = 1_000_000;
/// Records read after a workload that only writes.
const SPOT_CHECKS: u64 = 1_000;
/// Work has come to rest when nothing was written for this long.
const REST: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);
/// While the middle of a workload is waited for.
const SHORT_POLL: Duration = Duration::from_micros(200);

/// An open store with what is known about it.
pub(crate) struct RunState<'a> {
    args: &'a YcsbArgs,
    context: &'a Context,
    db: Db,
    tree: Tree,
    records: u64,
    main: Target,
    seq: Option<Target>,
    backup: Option<BackupCheck<'a>>,
}

impl<'a> RunState<'a> {
    /// Opens the store in `dir`; finds out what it holds unless it is to be loaded.
    pub(crate) fn open(args: &'a YcsbArgs, context: &'a Context, dir: &Path) -> Result<Self> {
        let tree: Tree = args.store.tree.parse()?;
        let durability = if args.sync { Durability::Sync } else { Durability::Buffered };
        let env: Arc<dyn Env> = context.env.clone();
        let builder = Db::builder(dir).memory_bytes(args.store.memory).durability(durability).env(env);
        let db = builder.open()?;
        let records = args.records.unwrap_or(if args.store.smoke { SMOKE_RECORDS } else { DEFAULT_RECORDS });
        let keys = KeyMaker::new(usize_of(args.key_bytes))?;
        if records > keys.capacity() {
            let message = format!("--key-bytes {}: only {} keys", args.key_bytes, keys.capacity());
            return Err(Error::invalid(message));
        }
        let mut keyspaces = Vec::new();
        for index in 0..args.keyspaces {
            keyspaces.push(keyspace(&db, &format!("ycsb-{index}"), &tree)?);
        }
        let value_bytes = usize_of(args.value_bytes);
        let main = Target { keyspaces, keys, value_bytes, oracle: Oracle::new(0) };
        let backup = args.backup_to.as_deref().map(|repository| BackupCheck::new(context, repository));
        let mut state = Self { args, context, db, tree, records, main, seq: None, backup };
        state.find_records()?;
        Ok(state)
    }

    /// Closes the store.
    pub(crate) fn close(self) -> Result<()> {
        drop((self.main, self.seq));
        self.db.close()
    }

    fn find_records(&mut self) -> Result<()> {
        let named = |workload: &Workload| self.args.workloads.contains(workload);
        let mut holds_records = false;
        for keyspace in &self.main.keyspaces {
            holds_records |= keyspace.iter()?.next().is_some();
        }
        if named(&Workload::Load) {
            if holds_records {
                let message = "--dir already holds records: leave out load, or name an empty directory";
                return Err(Error::invalid(message));
            }
            return Ok(());
        }
        if self.args.workloads.iter().all(|workload| *workload == Workload::Seq) {
            return Ok(());
        }
        if !holds_records {
            let message = "--workloads: nothing is there to work on; begin with load, or name a loaded --dir";
            return Err(Error::invalid(message));
        }
        self.take_over_records()
    }

    /// Reads everything once, to know the version of every record.
    fn take_over_records(&mut self) -> Result<()> {
        let damaged = |reason: &str| {
            Error::invalid(format!("--dir does not hold a whole data set of these flags: {reason}"))
        };
        let (mut count, mut end) = (0, 0);
        let mut key = Vec::new();
        for (index, keyspace) in self.main.keyspaces.iter().enumerate() {
            for entry in keyspace.iter()? {
                let entry = entry?;
                let value = entry.value()?;
                let judged = self.main.judge_entry(index, (entry.key(), &value), false, &mut key);
                let (record, version) = judged.map_err(|reason| damaged(&reason))?;
                self.main.oracle.assume_version(record, version);
                count += 1;
                end = end.max(record + 1);
                if self.context.stopped() {
                    return Err(Error::invalid("stopped while the records were read"));
                }
            }
        }
        if count != end {
            return Err(damaged(&format!("{count} records are there, the last is number {}", end - 1)));
        }
        self.main.oracle.assume_records(count);
        self.records = count;
        Ok(())
    }

    /// Runs one workload; after a load, and after the last one, waits for background work.
    pub(crate) fn run_workload(&mut self, workload: Workload, last: bool) -> Result<Report> {
        if workload == Workload::Seq {
            self.prepare_seq()?;
        }
        let complaints = Complaints::default();
        let distribution = self.args.distribution.unwrap_or_else(|| workload.default_distribution());
        let mut backup = self.backup.take();
        let target = self.target(workload);
        let picker = Picker::new(distribution, target.oracle.acknowledged().max(1));
        process::reset_peak_rss();
        let before = Sample::take(&self.db);
        let started = self.context.env.monotonic();
        let (ops, deadline) = self.limits(workload, started);
        let shared = Shared {
            env: &*self.context.env,
            target,
            complaints: &complaints,
            workload,
            picker,
            threads: usize::from(self.args.threads),
            ops,
            deadline,
            scan_length: self.args.scan_length,
            seed: self.args.seed,
            stop: self.context.stop_flag(),
            failed: AtomicBool::new(false),
        };
        let due = backup.as_mut().filter(|backup| workload == Workload::A && !backup.is_taken());
        let is_backed_up = due.is_some();
        let mut tallies = run_threads(&shared, started, due.map(|backup| (&self.db, backup)))?;
        self.backup = backup;
        if let Some(error) = tallies.iter_mut().find_map(|tally| tally.error.take()) {
            return Err(error);
        }
        let after = Sample::take(&self.db);
        let totals = Totals::of(&tallies, started);
        let mut report = Report { is_backed_up, ..self.new_report(workload) };
        report.measure(&totals, &before, &after);
        if workload.shape() != Shape::FullScan && !matches!(workload.shape(), Shape::Fill) {
            report.distribution = format!("{distribution:?}").to_lowercase();
        }
        report.interrupted = self.context.stopped();
        if !report.interrupted {
            self.check_after(workload, &tallies, &complaints)?;
            self.backup.as_mut().map_or(Ok(()), |backup| backup.read_snapshot(&self.db))?;
        }
        report.records = self.target(workload).oracle.acknowledged();
        report.space_amplification = quotient(after.store.disk_bytes as f64, self.live_bytes() as f64);
        report.wrong_answers = complaints.count();
        let fills = matches!(workload.shape(), Shape::Fill);
        if (fills || last) && self.args.settle_seconds > 0.0 && !report.interrupted {
            self.settle(&mut report, &before, started)?;
        }
        Ok(report)
    }

    /// Restores the backup that was made, if there is one, and says whether it is equal.
    pub(crate) fn restore_backup(&mut self) -> Result<Option<BackupResult>> {
        self.backup.as_mut().map_or(Ok(None), |backup| backup.restore(self.args))
    }

    fn target(&self, workload: Workload) -> &Target {
        match &self.seq {
            Some(seq) if workload == Workload::Seq => seq,
            _ => &self.main,
        }
    }

    fn live_bytes(&self) -> u64 {
        self.main.live_bytes() + self.seq.as_ref().map_or(0, Target::live_bytes)
    }

    fn prepare_seq(&mut self) -> Result<()> {
        self.seq = None;
        self.db.drop_keyspace(SEQ_KEYSPACE)?;
        let keyspaces = vec![keyspace(&self.db, SEQ_KEYSPACE, &self.tree)?];
        let Target { keys, value_bytes, .. } = &self.main;
        self.seq = Some(Target {
            keyspaces,
            keys: keys.in_order(),
            value_bytes: *value_bytes,
            oracle: Oracle::new(0),
        });
        Ok(())
    }

    /// How many operations, and until when.
    fn limits(&self, workload: Workload, started: Duration) -> (u64, Option<Duration>) {
        if workload.shape() == Shape::Fill {
            return (self.records, None);
        }
        match self.args.seconds {
            Some(seconds) => (u64::MAX, Some(started + Duration::from_secs_f64(seconds))),
            None => (self.args.ops.unwrap_or_else(|| workload.default_ops(self.args.store.smoke)), None),
        }
    }

    fn new_report(&self, workload: Workload) -> Report {
        Report {
            engine: "testudo",
            tree: self.args.store.tree.clone(),
            workload: workload.name(),
            key_bytes: self.args.key_bytes,
            value_bytes: self.args.value_bytes,
            keyspaces: usize::from(self.args.keyspaces),
            threads: usize::from(self.args.threads),
            sync: self.args.sync,
            memory_bytes: self.args.store.memory,
            ..Report::default()
        }
    }

    /// What can be known only after all threads have ended.
    fn check_after(&self, workload: Workload, tallies: &[Tally], complaints: &Complaints) -> Result<()> {
        let target = self.target(workload);
        match workload.shape() {
            Shape::Fill => {
                target.oracle.assume_records(self.records);
                self.spot_check(target, complaints)?;
            }
            Shape::FullScan => {
                let seen: Option<u64> = tallies.iter().map(|tally| tally.first_pass).sum();
                let expected = target.oracle.acknowledged();
                if let Some(seen) = seen
                    && seen != expected
                {
                    complaints.add(&format!("a full scan gave {seen} records of {expected}"));
                }
            }
            Shape::Mixed(_) | Shape::Batches => {}
        }
        Ok(())
    }

    /// Reads a few records of a target that was only written.
    fn spot_check(&self, target: &Target, complaints: &Complaints) -> Result<()> {
        let mut random = SplitMix::new(self.args.seed);
        let records = target.oracle.acknowledged();
        let mut key = Vec::new();
        for _ in 0..SPOT_CHECKS.min(records) {
            let record = below(&mut random, records);
            target.keys.write(record, &mut key);
            let before = target.oracle.look(record);
            let found = target.keyspace(record).get(&key)?;
            complaints.note(target.judge(record, before, found.as_deref()));
        }
        Ok(())
    }

    /// Waits until background work rests, but not too long, and notes what it cost.
    fn settle(&self, report: &mut Report, before: &Sample, started: Duration) -> Result<()> {
        let env = &*self.context.env;
        self.db.flush()?;
        let limit = env.monotonic() + Duration::from_secs_f64(self.args.settle_seconds);
        let mut stats = self.db.stats();
        let mut resting_since = env.monotonic();
        while env.monotonic() < limit && env.monotonic() < resting_since + REST && !self.context.stopped() {
            env.sleep(POLL);
            let now = self.db.stats();
            if (now.device_bytes_written, now.disk_bytes) != (stats.device_bytes_written, stats.disk_bytes) {
                resting_since = env.monotonic();
            }
            stats = now;
        }
        let written = stats.device_bytes_written.saturating_sub(before.store.device_bytes_written);
        let space = quotient(stats.disk_bytes as f64, self.live_bytes() as f64);
        report.settled = Some(Settled {
            seconds: resting_since.saturating_sub(started).as_secs_f64(),
            device_bytes_written: written,
            write_amplification: quotient(written as f64, report.user_bytes_written as f64),
            space_amplification: space,
        });
        report.space_amplification_settled = Some(space);
        Ok(())
    }
}

fn keyspace(db: &Db, name: &str, tree: &Tree) -> Result<Keyspace> {
    db.keyspace(name, || KeyspaceOptions::default().tree(*tree))
}

/// Runs all threads of a workload to their end, saying how far they are where someone looks. A backup is made when half is
/// done.
fn run_threads(
    shared: &Shared<'_>,
    started: Duration,
    mut backup: Option<(&Db, &mut BackupCheck<'_>)>,
) -> Result<Vec<Tally>> {
    let progress: Vec<Progress> = (0..shared.threads).map(|_| Progress::default()).collect();
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
                    return Err(Error::io(format!("--threads {}", shared.threads), error));
                }
            }
        }
        let mut display = Display::new(shared, started);
        let operations = || progress.iter().map(Progress::operations).sum::<u64>();
        let mut backed_up = Ok(());
        while !handles.iter().all(|handle| handle.is_finished()) {
            shared.env.sleep(if backup.is_some() { SHORT_POLL } else { POLL });
            display.show(&progress);
            if is_half_done(shared, started, operations())
                && let Some((db, backup)) = backup.take()
            {
                backed_up = backup.take(db, &operations);
                if backed_up.is_err() {
                    shared.failed.store(true, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
        display.clear();
        // They were done before half of it was seen.
        if let Some((db, backup)) = backup {
            backed_up = backup.take(db, &operations);
        }
        let join = |handle: std::thread::ScopedJoinHandle<'_, Tally>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let tallies = handles.into_iter().map(join).collect();
        backed_up.map(|()| tallies)
    })
}

fn is_half_done(shared: &Shared<'_>, started: Duration, operations: u64) -> bool {
    match shared.deadline {
        Some(deadline) => shared.env.monotonic() >= (started + deadline) / 2,
        None => operations >= shared.ops / 2,
    }
}

/// The line on a terminal that says how far a workload is.
struct Display<'a> {
    shared: &'a Shared<'a>,
    is_terminal: bool,
    shown_at: Duration,
    shown_operations: u64,
}

impl<'a> Display<'a> {
    fn new(shared: &'a Shared<'a>, started: Duration) -> Self {
        Self { shared, is_terminal: std::io::stderr().is_terminal(), shown_at: started, shown_operations: 0 }
    }

    /// Once a second.
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
