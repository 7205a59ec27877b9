//! The store of a run, its records, and one workload after another on them.
//!
//! **Invariants**
//! - A store that already holds records is never loaded again; its versions are read before it is measured.
//! - `seq` and `queue` have a keyspace of their own, which they empty first; no other workload uses it.

mod existing_records;

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize},
    time::Duration,
};

use clap::ValueEnum;
use testudo::{Error, Result};
use testudo_base::num::usize_of;
use testudo_env::{Env, SplitMix};

use super::{
    BackupResult,
    backup_check::BackupCheck,
    client_threads::{Asides, run_threads},
    held_snapshots::HeldSnapshots,
    key_order::KeyOrder,
    keys::KeyMaker,
    oracle::Oracle,
    ordered_load::{Preparation, SequentialShare},
    space_watch::SpaceWatch,
    target::Target,
    tree_switches::{Calls, TreeSwitches},
    values::Lengths,
    versions_file,
    worker::{Shared, queues::fill_queues},
    workload::Shape,
    zipf::{Picker, below},
};
use crate::{
    Context, Distribution, Workload, YcsbArgs,
    measure::process,
    report::{
        Report, Sample, Settled, Totals, complaints::Complaints, rate_over_time::OverTime, size::quotient,
        tally::Tally, without_log,
    },
    subject::{PageCounts, PageWork, Readings, Records, Settings, Subject},
};

const SMOKE_RECORDS: u64 = 2_000;
const DEFAULT_RECORDS: u64 = 1_000_000;
/// Number of records read after a write-only workload.
const SPOT_CHECKS: u64 = 1_000;
/// Period without writes after which background work counts as done.
const IDLE_FOR: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);
/// Offset from the seed of the measured part.
const WARMUP_SEED: u64 = 0x9e37_79b9;

/// An open store with the expected state of its records.
pub(crate) struct RunState<'a, S: Subject> {
    args: &'a YcsbArgs,
    context: &'a Context,
    settings: Settings,
    dir: &'a Path,
    db: S,
    open_seconds: f64,
    /// Number of records when the first workload after the load began.
    records: u64,
    main: Target<S::Records>,
    /// Records of the last workload with its own keyspace.
    own: Option<Target<S::Records>>,
    /// Key order of the records while a workload needs it.
    key_order: Option<KeyOrder>,
    backup: Option<BackupCheck<'a>>,
    /// Index of the next workload of the run.
    number: usize,
}

impl<'a, S: Subject> RunState<'a, S> {
    /// Opens the store in `dir`; determines what it holds unless it is to be loaded.
    pub(crate) fn open(args: &'a YcsbArgs, context: &'a Context, dir: &'a Path) -> Result<Self> {
        let settings = Settings {
            sync: args.sync,
            warm_restart: !args.no_warm_restart,
            warm_merges: args.warm_merges,
            retain_merged: args.retain_merged,
            record_cache: !args.no_record_cache,
            ..Settings::of(&args.store, usize::from(args.threads), context)
        };
        let started = context.env.monotonic();
        let db = S::open(dir, &settings)?;
        let open_seconds = context.env.monotonic().saturating_sub(started).as_secs_f64();
        if let Some(share) = args.store.write_share {
            let other = || Error::invalid(format!("--write-share: not supported by {}", S::NAME));
            db.testudo().ok_or_else(other)?.memory().set_write_share(share)?;
        }
        if !args.switch_trees.is_empty() && db.testudo().is_none() {
            return Err(Error::invalid(format!("--switch-trees: not supported by {}", S::NAME)));
        }
        if args.backup_to.is_some() && db.testudo().is_none() {
            return Err(Error::invalid(format!("--backup-to: not supported by {}", S::NAME)));
        }
        let records = args.records.unwrap_or(if args.store.smoke { SMOKE_RECORDS } else { DEFAULT_RECORDS });
        let keys = KeyMaker::new(usize_of(args.key_bytes))?.adjacent(args.adjacent);
        if records > keys.capacity() {
            let message = format!("--key-bytes {}: only {} keys", args.key_bytes, keys.capacity());
            return Err(Error::invalid(message));
        }
        let keyspaces = main_keyspaces(&db, args)?;
        let lengths = Lengths::of_flags(args.value_bytes, args.mix);
        let main = Target::new(keyspaces, keys, lengths, Oracle::new(0));
        let backup = args.backup_to.as_deref().map(|repository| BackupCheck::new(context, repository));
        let number = args.step.unwrap_or(0);
        let (own, key_order) = (None, None);
        let mut state = Self {
            args,
            context,
            settings,
            dir,
            db,
            open_seconds,
            records,
            main,
            own,
            key_order,
            backup,
            number,
        };
        state.find_records()?;
        Ok(state)
    }

    /// Returns the store itself.
    pub(crate) fn subject(&self) -> &S {
        &self.db
    }

    /// Returns the maps that hold its records.
    pub(crate) fn records(&self) -> &[S::Records] {
        &self.main.keyspaces
    }

    /// Returns the time to open the store, in seconds.
    pub(crate) fn open_seconds(&self) -> f64 {
        self.open_seconds
    }

    /// Replaces the flags; those about the store and its records must not change.
    pub(crate) fn set_flags(&mut self, args: &'a YcsbArgs) {
        self.args = args;
    }

    /// Closes the store.
    pub(crate) fn close(self) -> Result<()> {
        drop((self.main, self.own));
        self.db.close()
    }

    /// Closes the store, then writes the expected state of its records to `file`, for the next process.
    /// Returns the time to close it, in seconds.
    pub(crate) fn close_keeping_versions(self, file: &Path) -> Result<f64> {
        let Self { context, db, records, main, own, .. } = self;
        let Target { keyspaces, oracle, .. } = main;
        drop((keyspaces, own));
        let started = context.env.monotonic();
        db.close()?;
        let seconds = context.env.monotonic().saturating_sub(started).as_secs_f64();
        versions_file::write(file, records, &oracle)?;
        Ok(seconds)
    }

    /// Closes and reopens the store; adds the time to reopen and any wrong answers to `report`.
    pub(crate) fn reopen(self, report: &mut Report) -> Result<Self> {
        let Self { args, context, settings, dir, db, main, own, .. } = self;
        drop((main.keyspaces, own));
        db.close()?;
        let started = context.env.monotonic();
        let db = S::open(dir, &settings)?;
        let open_seconds = context.env.monotonic().saturating_sub(started).as_secs_f64();
        report.reopen_seconds = Some(open_seconds);
        let main = Target { keyspaces: main_keyspaces(&db, args)?, ..main };
        let state = Self { settings, db, open_seconds, main, own: None, ..self };
        let complaints = Complaints::default();
        state.spot_check(&state.main, &complaints)?;
        report.wrong_answers += complaints.count();
        Ok(state)
    }

    /// Runs one workload; after a load, and after the last one, waits for background work.
    pub(crate) fn run_workload(&mut self, workload: Workload, last: bool) -> Result<Report> {
        self.prepare(workload)?;
        let complaints = Complaints::default();
        let page_reads = || self.db.readings().page_reads;
        let mut rates = OverTime::new(&page_reads);
        if self.args.warmup_seconds > 0.0 && workload.has_warm_up() {
            self.warm_up(workload, &complaints, &mut rates)?;
        }
        let mut backup = self.backup.take();
        let sequential = self.prepare_sequential(workload)?;
        process::reset_peak_rss();
        let (before, pages_before) = (Sample::take(self.db.readings()), self.page_counts(workload));
        let started = self.context.env.monotonic();
        let shared = self.shared(workload, &complaints, self.limits(workload, started));
        let shared = Shared { sequential, ..shared };
        let due = backup.as_mut().filter(|backup| workload == Workload::A && !backup.is_taken());
        let due = self.db.testudo().zip(due);
        let is_backed_up = due.is_some();
        let (working, writers, counted) = (shared.threads, shared.writers, shared.counted_threads());
        let new_report = self.new_report(workload);
        let readings = || self.db.readings();
        let mut space = SpaceWatch::new(&readings);
        let mut switches = self.tree_switches(workload, started);
        let mut snapshots = self.held_snapshots(started)?;
        let asides = Asides {
            space: Some(&mut space),
            backup: due,
            switches: switches.as_mut(),
            snapshots: snapshots.as_mut(),
        };
        let mut tallies = run_threads(&shared, started, asides, &mut rates)?;
        if let Some(error) = tallies.iter_mut().find_map(|tally| tally.error.take()) {
            return Err(error);
        }
        let (peak_bytes, live_bytes_by_second) = (space.peak_bytes(), space.live_bytes_by_second());
        let after = Sample::take(self.db.readings());
        let totals = Totals::of(&tallies, counted, started);
        let tree_switches = switches.map(|switches| switches.result(totals.end(started), totals.longest_gap));
        let snapshots_held = snapshots.map(|snapshots| snapshots.taken());
        self.backup = backup;
        let mut report = Report { is_backed_up, writers, tree_switches, snapshots_held, ..new_report };
        report.measure(&totals, &before, &after);
        report.note_rates(&rates, self.args.reopen_each || workload.has_updates_beside());
        report.key_order_bytes = self.key_order.as_ref().map(KeyOrder::bytes);
        report.note_pages(
            self.page_counts(workload),
            pages_before.map_or_else(PageWork::default, |pages| pages.work),
        );
        if workload.has_updates_beside() {
            report.live_bytes_by_second = live_bytes_by_second;
            report.updates_beside = Some(self.args.updates_beside);
        }
        if self.distribution(workload) == Distribution::RangeHot {
            report.hot_fraction = Some(self.args.hot_fraction);
        }
        if workload == Workload::Load && self.args.ordered_load {
            (report.ordered_load, report.threads) = (true, 1);
        }
        if workload == Workload::Load {
            report.sequential_share = self.args.sequential_share;
        }
        if !matches!(workload.shape(), Shape::Fill | Shape::FullScan | Shape::Queues) {
            let distribution = self.distribution(workload).to_possible_value();
            report.distribution = distribution.map(|value| value.get_name().to_owned()).unwrap_or_default();
            report.warmup_seconds = self.args.warmup_seconds;
        }
        report.interrupted = self.context.stopped();
        if !report.interrupted {
            self.check_after(workload, &tallies[..working], &complaints)?;
            self.db
                .testudo()
                .zip(self.backup.as_mut())
                .map_or(Ok(()), |(db, backup)| backup.read_snapshot(db))?;
        }
        report.records = self.target(workload).oracle.acknowledged();
        report.space_amplification = quotient(after.store.disk_bytes as f64, self.live_bytes() as f64);
        report.peak_disk_bytes = peak_bytes.max(after.store.disk_bytes);
        report.space_amplification_peak = quotient(report.peak_disk_bytes as f64, self.live_bytes() as f64);
        report.wrong_answers = complaints.count();
        let fills = matches!(workload.shape(), Shape::Fill);
        if (fills || last) && self.args.settle_seconds > 0.0 && !report.interrupted {
            self.wait_for_compactions(&mut report, &before, started)?;
        }
        self.number += 1;
        Ok(report)
    }

    /// Returns the seed of the next workload. Seeds differ between workloads: otherwise a workload would
    /// repeat the accesses of the previous one and find everything in memory, even after a warm restart.
    /// Workers use the numbers derived from it, which must not coincide with those of another workload.
    fn seed(&self) -> u64 {
        let mut seeds = SplitMix::new(self.args.seed);
        (0..=self.number).fold(0, |_, _| seeds.next_u64())
    }

    /// Takes the first held snapshot of a workload, if snapshots are to be held.
    fn held_snapshots(&self, now: Duration) -> Result<Option<HeldSnapshots<'_>>> {
        let Some(seconds) = self.args.hold_snapshots else { return Ok(None) };
        let db = self.db.testudo().ok_or_else(|| Error::invalid("--hold-snapshots: Testudo only"))?;
        HeldSnapshots::new(db, Duration::from_secs_f64(seconds), now).map(Some)
    }

    /// Returns the pages of a workload's keyspaces that replace single pages, if any does.
    fn page_counts(&self, workload: Workload) -> Option<PageCounts> {
        let counts = self.target(workload).keyspaces.iter().filter_map(Records::page_counts);
        counts.reduce(PageCounts::plus)
    }

    /// Returns the tree switches that are due in a workload, if any.
    fn tree_switches(&self, workload: Workload, started: Duration) -> Option<TreeSwitches<'_>> {
        if self.args.switch_trees.is_empty() || workload != self.args.switch_in {
            return None;
        }
        let keyspaces = &self.target(workload).keyspaces;
        let set = |tree: &str| keyspaces.iter().try_for_each(|keyspace| keyspace.set_tree(tree));
        let is_moving = || keyspaces.iter().any(Records::is_moving);
        let present = (&*self.tree(), (started, 0));
        let calls: Calls<'_> = (Box::new(set), Box::new(is_moving));
        Some(TreeSwitches::new(&self.args.switch_trees, self.args.switches, present, calls))
    }

    /// Returns the current tree of the records, or else the kind of the store.
    fn tree(&self) -> String {
        self.main.keyspaces.first().and_then(Records::tree).unwrap_or_else(|| self.db.kind())
    }

    /// Runs a workload before it is measured, to warm up the caches.
    fn warm_up(&self, workload: Workload, complaints: &Complaints, rates: &mut OverTime<'_>) -> Result<()> {
        let started = self.context.env.monotonic();
        let deadline = started + Duration::from_secs_f64(self.args.warmup_seconds);
        let shared = self.shared(workload, complaints, (u64::MAX, Some(deadline)));
        // The measured part must not repeat the warm-up.
        let shared = Shared { seed: shared.seed.wrapping_add(WARMUP_SEED), ..shared };
        let tallies = run_threads(&shared, started, Asides::default(), rates)?;
        tallies.into_iter().find_map(|tally| tally.error).map_or(Ok(()), Err)
    }

    /// Returns the number of records that a workload picks from. Inserts do not change which records are
    /// popular, as in YCSB: zipfian ranks are spread over the initial records.
    fn population(&self, workload: Workload) -> u64 {
        let acknowledged = self.target(workload).oracle.acknowledged();
        match self.distribution(workload) {
            Distribution::Zipfian | Distribution::Mixgraph => acknowledged.min(self.records),
            Distribution::Uniform | Distribution::Latest | Distribution::RangeHot => acknowledged,
        }
    }

    /// Returns the shared state of a workload's threads; `limits` are operations and a deadline.
    fn shared<'s>(
        &'s self,
        workload: Workload,
        complaints: &'s Complaints,
        (ops, deadline): (u64, Option<Duration>),
    ) -> Shared<'s, S::Records> {
        let target = self.target(workload);
        let is_ordered = self.args.ordered_load && workload == Workload::Load;
        let has_writers = !matches!(workload.shape(), Shape::Fill | Shape::Queues);
        let writers = if has_writers { usize::from(self.args.writers) } else { 0 };
        let threads = if is_ordered { 1 } else { usize::from(self.args.threads) - writers };
        Shared {
            env: &*self.context.env,
            target,
            complaints,
            workload,
            picker: Picker::new(
                self.distribution(workload),
                self.population(workload).max(1),
                target.keys,
                self.args.hot_fraction,
            ),
            threads,
            writers,
            update_interval: workload
                .has_updates_beside()
                .then(|| Duration::from_secs(1).div_f64(self.args.updates_beside as f64)),
            busy: AtomicUsize::new(threads),
            is_ordered,
            sequential: None,
            ops,
            deadline,
            interval: self
                .args
                .rate
                .map(|rate| Duration::from_nanos(u64::from(self.args.threads) * 1_000_000_000 / rate)),
            key_order: self.key_order.as_ref(),
            scan_length: self.args.scan_length,
            seed: self.seed(),
            stop: self.context.stop_flag(),
            failed: AtomicBool::new(false),
        }
    }

    /// Computes the order of a load's sequential records, if only some are inserted in key order.
    fn prepare_sequential(&self, workload: Workload) -> Result<Option<Preparation>> {
        let share = self.args.sequential_share.filter(|_| workload == Workload::Load);
        let Some(share) = share.and_then(SequentialShare::new) else { return Ok(None) };
        let threads = usize::from(self.args.threads);
        Preparation::new(self.main.keys, self.records, share, threads, self.dir).map(Some)
    }

    fn distribution(&self, workload: Workload) -> Distribution {
        let given = self.args.distribution.filter(|_| workload != Workload::ClusterOverwrite);
        given.unwrap_or_else(|| workload.default_distribution())
    }

    /// Restores the backup, if one was made, and compares it.
    pub(crate) fn restore_backup(&mut self) -> Result<Option<BackupResult>> {
        self.backup.as_mut().map_or(Ok(None), |backup| backup.restore(self.args))
    }

    fn target(&self, workload: Workload) -> &Target<S::Records> {
        match &self.own {
            Some(own) if workload.has_own_keyspace() => own,
            _ => &self.main,
        }
    }

    fn live_bytes(&self) -> u64 {
        self.main.live_bytes() + self.own.as_ref().map_or(0, Target::live_bytes)
    }

    /// Prepares the keyspace or the key order of a workload that needs one.
    fn prepare(&mut self, workload: Workload) -> Result<()> {
        self.key_order = (workload == Workload::ClusterOverwrite)
            .then(|| KeyOrder::new(self.main.keys, self.main.oracle.acknowledged()));
        if !workload.has_own_keyspace() {
            return Ok(());
        }
        self.own = None;
        let keyspace_of = |workload: Workload| format!("ycsb-{}", workload.name());
        for earlier in [Workload::Seq, Workload::Queue] {
            self.db.drop_records(&keyspace_of(earlier))?;
        }
        let name = keyspace_of(workload);
        let Target { keys, lengths, .. } = &self.main;
        let own = Target::new(vec![self.db.records(&name)?], keys.in_order(), *lengths, Oracle::new(0));
        if workload == Workload::Queue {
            fill_queues(&own, usize::from(self.args.threads))?;
        }
        self.own = Some(own);
        Ok(())
    }

    /// Returns the maximum number of operations and the deadline.
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
            engine: S::NAME,
            tree: self.tree(),
            workload: workload.name(),
            key_bytes: self.args.key_bytes,
            value_bytes: self.main.lengths.mean(),
            keyspaces: usize::from(self.args.keyspaces),
            threads: usize::from(self.args.threads),
            sync: self.args.sync,
            memory_bytes: self.args.store.memory,
            ..Report::default()
        }
    }

    /// Runs the checks that are possible only after all threads have ended.
    fn check_after(&self, workload: Workload, tallies: &[Tally], complaints: &Complaints) -> Result<()> {
        let target = self.target(workload);
        match workload.shape() {
            Shape::Fill => {
                target.oracle.assume_records(self.records);
                self.spot_check(target, complaints)?;
            }
            Shape::FullScan => {
                let seen: Option<u64> = tallies.iter().map(|tally| tally.first_pass).sum();
                let expected = target.oracle.acknowledged() - target.removed.count();
                if let Some(seen) = seen
                    && seen != expected
                {
                    complaints.add(&format!("a full scan returned {seen} records of {expected}"));
                }
            }
            Shape::Mixed(_) | Shape::Batches | Shape::Removals(_) | Shape::Queues => {}
        }
        Ok(())
    }

    /// Reads a few records of a write-only target.
    fn spot_check(&self, target: &Target<S::Records>, complaints: &Complaints) -> Result<()> {
        let mut random = SplitMix::new(self.args.seed);
        let records = target.oracle.acknowledged();
        let mut key = Vec::new();
        for _ in 0..SPOT_CHECKS.min(records) {
            let record = below(&mut random, records);
            target.keys.write(record, &mut key);
            let before = target.oracle.look(record);
            let verdict = target.keyspace(record).get(&key, |found| target.judge(record, before, found))?;
            complaints.note(verdict);
        }
        Ok(())
    }

    /// Waits until nothing has been written for `idle_for`, up to --settle-seconds. Returns the time of the
    /// last write and the measurements.
    pub(crate) fn wait_for_idle(&self, idle_for: Duration) -> Result<(Duration, Readings)> {
        let at_most = Duration::from_secs_f64(self.args.settle_seconds);
        wait_for_idle(&self.db, self.context, idle_for, at_most)
    }

    /// Waits until the store is idle and records the cost.
    fn wait_for_compactions(&self, report: &mut Report, before: &Sample, started: Duration) -> Result<()> {
        let (checked, checked_cpu) = (self.db.readings(), process::cpu_seconds());
        let (idle_since, stats) = self.wait_for_idle(IDLE_FOR)?;
        let read = stats.device_bytes_read.saturating_sub(checked.device_bytes_read);
        let written = stats.device_bytes_written.saturating_sub(before.store.device_bytes_written);
        let log = stats.wal_bytes_written.saturating_sub(before.store.wal_bytes_written);
        let space = quotient(stats.disk_bytes as f64, self.live_bytes() as f64);
        report.settled = Some(Settled {
            seconds: idle_since.saturating_sub(started).as_secs_f64(),
            device_bytes_written: written,
            process_bytes_written: before
                .io
                .zip(process::io())
                .map(|(before, now)| now.write_bytes - before.write_bytes),
            write_amplification: quotient(written as f64, report.user_bytes_written as f64),
            write_amplification_without_log: without_log(written, log, report.user_bytes_written),
            device_bytes_read: report.device_bytes_read + read,
            wal_bytes_written: log,
            cpu_seconds: report.cpu_seconds + (process::cpu_seconds() - checked_cpu),
            space_amplification: space,
        });
        report.space_amplification_settled = Some(space);
        Ok(())
    }
}

/// Waits until a store has written nothing for `idle_for`, up to `at_most`. Returns the time of the last
/// write and the measurements.
pub(crate) fn wait_for_idle<S: Subject>(
    db: &S,
    context: &Context,
    idle_for: Duration,
    at_most: Duration,
) -> Result<(Duration, Readings)> {
    let env = &*context.env;
    db.flush()?;
    let limit = env.monotonic() + at_most;
    let mut stats = db.readings();
    let mut idle_since = env.monotonic();
    while env.monotonic() < limit && env.monotonic() < idle_since + idle_for && !context.stopped() {
        env.sleep(POLL);
        let now = db.readings();
        if (now.device_bytes_written, now.disk_bytes) != (stats.device_bytes_written, stats.disk_bytes) {
            idle_since = env.monotonic();
        }
        stats = now;
    }
    Ok((idle_since, stats))
}

fn main_keyspaces<S: Subject>(db: &S, args: &YcsbArgs) -> Result<Vec<S::Records>> {
    let names: Vec<String> = (0..args.keyspaces).map(|index| format!("ycsb-{index}")).collect();
    db.many_records(&names)
}
