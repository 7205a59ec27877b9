//! One client thread: runs its share of a workload, checks each answer, measures each operation.
//!
//! **Invariants**
//! - The clock is read once per operation; the time between two readings counts for the operation that ends,
//!   so no pause is lost.
//! - There are no allocations per operation, except for what the store returns.
//! - A wrong answer is a complaint and the run continues; a failed call ends the run.

pub(crate) mod queues;
mod writes;

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use testudo::Result;
use testudo_base::num::{u64_of, usize_of};
use testudo_env::{Env, SplitMix};

use super::{
    key_order::KeyOrder,
    mixgraph,
    oracle::Sight,
    ordered_load::{PartsInOrder, Preparation},
    target::Target,
    values,
    workload::{BATCH_KEYS, Mix, Shape},
    zipf::{Picker, below},
};
use crate::{
    Workload,
    report::{
        complaints::{Complaints, Verdict},
        tally::{Class, Tally},
    },
    subject::Records,
};

/// Records per call when records are written in order.
const ORDERED_BATCH: usize = 1000;
/// With --rate, an operation may be this much early, since timers have no finer resolution.
const EARLY_MAX: Duration = Duration::from_micros(100);
/// Entries per step of a full scan.
const SCAN_STEP: u64 = 1024;

/// State shared by the threads of a workload.
pub(crate) struct Shared<'a, R> {
    pub(crate) env: &'a dyn Env,
    pub(crate) target: &'a Target<R>,
    pub(crate) complaints: &'a Complaints,
    pub(crate) workload: Workload,
    pub(crate) picker: Picker,
    /// Threads that run the workload; they come first, then the writers, then the thread that updates at a
    /// rate.
    pub(crate) threads: usize,
    /// Threads that update records until the workload threads are done.
    pub(crate) writers: usize,
    /// Interval between updates of the thread that only updates until the workload threads are done.
    pub(crate) update_interval: Option<Duration>,
    /// Number of workload threads that are not done.
    pub(crate) busy: AtomicUsize,
    /// Whether new records are written in key order.
    pub(crate) is_ordered: bool,
    /// Set if some of the new records are written in key order, at one position per thread.
    pub(crate) sequential: Option<Preparation>,
    /// Maximum operations of all threads; the maximum value if time is the limit.
    pub(crate) ops: u64,
    pub(crate) deadline: Option<Duration>,
    /// With --rate: interval between operations of a thread.
    pub(crate) interval: Option<Duration>,
    /// Key order of the records, for updates of stretches of it.
    pub(crate) key_order: Option<&'a KeyOrder>,
    /// Scan length of workloads without one in their name.
    pub(crate) scan_length: u64,
    pub(crate) seed: u64,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) failed: AtomicBool,
}

/// Guard of a running workload thread; dropped on a panic as well.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R> Shared<'_, R> {
    /// Returns the number of threads whose operations count: all except the one that updates at a rate.
    pub(crate) fn counted_threads(&self) -> usize {
        self.threads + self.writers
    }

    /// Returns the number of all threads.
    pub(crate) fn all_threads(&self) -> usize {
        self.counted_threads() + usize::from(self.update_interval.is_some())
    }
}

/// Number of operations that a thread has done so far, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress(AtomicU64);

impl Progress {
    pub(crate) fn operations(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A client thread.
pub(crate) struct Worker<'a, R> {
    shared: &'a Shared<'a, R>,
    target: &'a Target<R>,
    progress: &'a Progress,
    index: usize,
    /// Interval between its operations, at a fixed rate.
    interval: Option<Duration>,
    random: SplitMix,
    key: Vec<u8>,
    previous_key: Vec<u8>,
    expected_key: Vec<u8>,
    value: Vec<u8>,
    started: Duration,
    /// When the current operation began, or was due.
    last_reading: Duration,
    /// When the current operation was called.
    called: Duration,
    tally: Tally,
}

impl<'a, R: Records> Worker<'a, R> {
    pub(crate) fn new(shared: &'a Shared<'a, R>, index: usize, progress: &'a Progress) -> Self {
        let mut seeds = SplitMix::new(shared.seed);
        let seed = (0..=index).fold(0, |_, _| seeds.next_u64());
        let is_at_a_rate = index >= shared.counted_threads();
        Self {
            shared,
            target: shared.target,
            progress,
            index,
            interval: if is_at_a_rate { shared.update_interval } else { shared.interval },
            random: SplitMix::new(seed),
            key: Vec::new(),
            previous_key: Vec::new(),
            expected_key: Vec::new(),
            value: Vec::new(),
            started: shared.env.monotonic(),
            last_reading: shared.env.monotonic(),
            called: Duration::ZERO,
            tally: Tally::new(),
        }
    }

    /// Works until the work is done, the time is up or a stop is requested.
    pub(crate) fn run(mut self) -> Tally {
        self.started = self.shared.env.monotonic();
        self.last_reading = self.started;
        self.called = self.started;
        let busy = (self.index < self.shared.threads).then(|| Busy(&self.shared.busy));
        let result = match self.shared.workload.shape() {
            _ if self.index >= self.shared.threads => self.write_along(),
            Shape::Fill if self.shared.is_ordered => self.fill_ordered(),
            Shape::Fill => match &self.shared.sequential {
                Some(preparation) => self.fill_mixed(preparation),
                None => self.fill(),
            },
            Shape::Mixed(mix) => self.mixed(mix),
            Shape::Batches => self.batches(),
            Shape::FullScan => self.full_scans(),
            Shape::Removals(kept) => self.remove_all_but(kept),
            Shape::Queues => self.move_queue(),
        };
        // If the rate is not sustained, the next operation was due before the last one ended.
        self.tally.ended = self.last_reading.max(self.called);
        drop(busy);
        if let Err(error) = result {
            self.shared.failed.store(true, Ordering::Relaxed);
            self.tally.error = Some(error.context(&format!("workload {}", self.shared.workload.name())));
        }
        self.tally
    }

    /// Ends one step of `operations` operations; returns whether to continue.
    #[inline]
    fn lap(&mut self, class: Class, operations: u64) -> bool {
        let now = self.shared.env.monotonic();
        self.tally.record(class, operations, now.saturating_sub(self.last_reading));
        self.last_reading = now;
        if let Some(interval) = self.interval {
            if self.shared.interval.is_some() {
                self.tally.calls.record(now.saturating_sub(self.called));
            }
            self.last_reading = self.wait_turn(now, interval);
            self.called = now.max(self.last_reading);
        }
        self.progress.0.store(self.tally.operations, Ordering::Relaxed);
        let in_time = self.shared.deadline.is_none_or(|deadline| now < deadline);
        in_time && !self.shared.stop.load(Ordering::Relaxed) && !self.shared.failed.load(Ordering::Relaxed)
    }

    /// Waits until the next operation is due. Returns the start of its latency, which for a late operation is
    /// the time it was due.
    fn wait_turn(&self, now: Duration, interval: Duration) -> Duration {
        let due = self.started + Duration::from_nanos(nanos(interval).saturating_mul(self.tally.operations));
        if due > now + EARLY_MAX {
            self.shared.env.sleep(due - now);
            return self.shared.env.monotonic();
        }
        due.min(now)
    }

    /// Returns this thread's share of `count`, as a range.
    fn share_of(&self, count: u64) -> std::ops::Range<u64> {
        let part =
            |index| u128::from(count) * u128::from(u64_of(index)) / u128::from(u64_of(self.shared.threads));
        testudo_base::num::low64(part(self.index))..testudo_base::num::low64(part(self.index + 1))
    }

    fn fill(&mut self) -> Result<()> {
        for record in self.share_of(self.shared.ops) {
            self.put(record, 0)?;
            if !self.lap(Class::Write, 1) {
                break;
            }
        }
        Ok(())
    }

    /// Inserts the next record in order at this thread's position in the key space, or a random one.
    fn fill_mixed(&mut self, preparation: &Preparation) -> Result<()> {
        let share = preparation.share;
        let mut others = self.share_of(self.shared.ops).filter(|record| !share.has(*record));
        let mut in_order = preparation.numbers(self.index)?;
        loop {
            let is_in_order = below(&mut self.random, 100) < share.percent();
            let other = if is_in_order { None } else { others.next() };
            let record = match other {
                Some(other) => other,
                None => match in_order.next().transpose()?.or_else(|| others.next()) {
                    Some(record) => record,
                    None => return Ok(()),
                },
            };
            self.put(record, 0)?;
            if !self.lap(Class::Write, 1) {
                return Ok(());
            }
        }
    }

    fn fill_ordered(&mut self) -> Result<()> {
        let target = self.target;
        let mut pairs = Vec::new();
        for part in PartsInOrder::new(target.keys, self.shared.ops) {
            for batch in part.chunks(ORDERED_BATCH) {
                pairs.resize_with(batch.len(), || (Vec::new(), Vec::new()));
                for (record, (key, value)) in batch.iter().zip(&mut pairs) {
                    target.keys.write(*record, key);
                    value.resize(target.lengths.of(*record), 0);
                    values::write(*record, 0, value);
                    self.tally.written_bytes += u64_of(key.len() + value.len());
                }
                target.keyspace(0).insert_ordered(&pairs)?;
                self.tally.writes += u64_of(batch.len());
                if !self.lap(Class::Write, u64_of(batch.len())) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn mixed(&mut self, mix: Mix) -> Result<()> {
        let share = self.share_of(self.shared.ops);
        let operations = self.tally.operations.saturating_add(share.end - share.start);
        while self.tally.operations < operations {
            let draw = below(&mut self.random, 100);
            let (reads, updates) = (mix.reads, mix.reads + mix.updates);
            let removals = updates + mix.removals;
            let inserts = removals + mix.inserts;
            let scans = inserts + mix.scans;
            let class = if draw < reads {
                self.read()?;
                Class::Read
            } else if draw < updates {
                if !self.update_picked()? {
                    break;
                }
                Class::Write
            } else if draw < removals {
                let record = self.pick();
                let _turn = self.target.oracle.turn(record);
                self.remove(record)?;
                Class::Write
            } else if draw < inserts {
                self.insert()?;
                Class::Write
            } else if draw < scans {
                self.scan()?;
                Class::Scan
            } else if draw < scans + mix.absent {
                self.read_absent()?;
                Class::Read
            } else {
                self.read_modify_write()?;
                Class::ReadModifyWrite
            };
            if !self.lap(class, 1) {
                break;
            }
        }
        Ok(())
    }

    fn pick(&mut self) -> u64 {
        self.shared.picker.pick(&mut self.random, self.target.oracle.acknowledged())
    }

    fn complain(&self, verdict: Verdict) {
        self.shared.complaints.note(verdict);
    }

    fn put(&mut self, record: u64, version: u8) -> Result<()> {
        self.target.keys.write(record, &mut self.key);
        self.value.resize(self.target.lengths.of(record), 0);
        values::write(record, version, &mut self.value);
        self.target.keyspace(record).insert(&self.key, &self.value)?;
        self.tally.writes += 1;
        self.tally.written_bytes += u64_of(self.key.len() + self.value.len());
        Ok(())
    }

    fn get(&mut self, record: u64) -> Result<()> {
        self.target.keys.write(record, &mut self.key);
        let before = self.target.oracle.look(record);
        let target = self.target;
        let (verdict, bytes) = target
            .keyspace(record)
            .get(&self.key, |found| (target.judge(record, before, found), found.map(|value| value.len())))?;
        self.count_read(bytes);
        self.complain(verdict);
        Ok(())
    }

    fn count_read(&mut self, value_bytes: Option<usize>) {
        self.tally.reads += 1;
        self.tally.read_bytes += value_bytes.map_or(0, |bytes| u64_of(self.key.len() + bytes));
    }

    fn read(&mut self) -> Result<()> {
        let record = self.pick();
        self.get(record)
    }

    /// Reads an absent key next to that of a record.
    fn read_absent(&mut self) -> Result<()> {
        let record = self.pick();
        self.target.keys.write_absent(record, &mut self.key);
        let found = self.target.keyspace(record).get(&self.key, |found| found.map(<[u8]>::len))?;
        self.count_read(found);
        self.complain(match found {
            None => Ok(()),
            Some(_) => Err(format!("a key next to that of record {record} exists, but was never written")),
        });
        Ok(())
    }

    fn scan(&mut self) -> Result<()> {
        let record = self.pick();
        let length = match self.shared.workload.scan_length(self.shared.scan_length) {
            Some(length) => length,
            None if self.shared.workload == Workload::Mixgraph => mixgraph::scan_length(&mut self.random),
            None => 1 + below(&mut self.random, self.shared.scan_length),
        };
        self.target.keys.write(record, &mut self.key);
        let start = std::mem::take(&mut self.key);
        let keyspace_index = usize_of(record % u64_of(self.target.keyspaces.len()));
        self.previous_key.clear();
        let (target, mut found) = (self.target, 0);
        target.keyspace(record).scan(&start, None, Some(length), |key, value| {
            if found == 0 && key != start {
                self.complain(Err(format!("a scan from record {record} does not begin with it")));
            }
            self.take_entry(keyspace_index, key, value);
            found += 1;
            found < length
        })?;
        self.key = start;
        // Keys are spread evenly, so a scan may end early only near the end of the key space.
        let after = (1.0 - self.target.keys.fraction(record)) * self.target.oracle.acknowledged() as f64;
        if found < length && after / self.target.keyspaces.len() as f64 > 2.0 * length as f64 + 100.0 {
            self.complain(Err(format!("a scan of {length} from record {record} ended after {found}")));
        }
        Ok(())
    }

    /// Checks one entry of a scan against the previous one (empty if none) and against the oracle.
    fn take_entry(&mut self, keyspace: usize, key: &[u8], value: &[u8]) {
        if *key <= *self.previous_key {
            self.shared.complaints.add("the keys of a scan are not in ascending order");
        }
        self.previous_key.clear();
        self.previous_key.extend_from_slice(key);
        let exact = !self.shared.workload.updates_records() && self.shared.writers == 0;
        let verdict = self.target.judge_entry(keyspace, (key, value), exact, &mut self.expected_key);
        self.complain(verdict.map(|_| ()));
        self.tally.reads += 1;
        self.tally.read_bytes += u64_of(key.len() + value.len());
    }

    fn batches(&mut self) -> Result<()> {
        let share = self.share_of(self.shared.ops / u64_of(BATCH_KEYS));
        let mut keys = vec![Vec::new(); BATCH_KEYS];
        let mut records = [(0, Sight::default()); BATCH_KEYS];
        for _ in share {
            // A batch reads from one keyspace.
            let home = self.pick() % u64_of(self.target.keyspaces.len());
            for (key, (record, before)) in keys.iter_mut().zip(&mut records) {
                *record = loop {
                    let record = self.pick();
                    if record % u64_of(self.target.keyspaces.len()) == home {
                        break record;
                    }
                };
                self.target.keys.write(*record, key);
                *before = self.target.oracle.look(*record);
            }
            let (target, mut answers) = (self.target, 0);
            target.keyspace(home).multi_get(&keys, |index, value| {
                let (record, before) = records[index];
                self.count_read(value.map(<[u8]>::len));
                self.complain(target.judge(record, before, value));
                answers += 1;
            })?;
            if answers != BATCH_KEYS {
                self.shared.complaints.add("multi_get returned another number of answers than keys");
            }
            if !self.lap(Class::Read, u64_of(BATCH_KEYS)) {
                break;
            }
        }
        Ok(())
    }

    /// Makes one pass, or passes until the time is up.
    fn full_scans(&mut self) -> Result<()> {
        loop {
            let before = self.tally.operations;
            if !self.scan_part()? {
                return Ok(());
            }
            if self.tally.first_pass.is_none() {
                self.tally.first_pass = Some(self.tally.operations - before);
            }
            if self.shared.deadline.is_none() {
                return Ok(());
            }
        }
    }

    /// Scans this thread's part of every keyspace; returns whether it got to the end.
    fn scan_part(&mut self) -> Result<bool> {
        let (mut first, mut end) = (Vec::new(), Vec::new());
        self.target.keys.write_boundary(self.index, self.shared.threads, &mut first);
        self.target.keys.write_boundary(self.index + 1, self.shared.threads, &mut end);
        let end = (self.index + 1 < self.shared.threads).then_some(&end[..]);
        let target = self.target;
        for (index, keyspace) in target.keyspaces.iter().enumerate() {
            self.previous_key.clear();
            let (mut step, mut goes_on) = (0, true);
            keyspace.scan(&first, end, None, |key, value| {
                self.take_entry(index, key, value);
                step += 1;
                if step == SCAN_STEP {
                    step = 0;
                    goes_on = self.lap(Class::Scan, SCAN_STEP);
                }
                goes_on
            })?;
            if !goes_on || (step > 0 && !self.lap(Class::Scan, step)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
