//! Keyspaces with moderate load, and one more that is written faster than its tree is compacted: the cost of
//! its backlog to the others.
//!
//! **Invariants**
//! - The neighbors get the same updates at the same rate in both phases, by one thread.
//! - At the end, all of their records are compared with the last update of each.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::Serialize;
use testudo::{Error, Result};
use testudo_base::num::{u64_of, usize_of};
use testudo_env::{Env as _, SplitMix};

use crate::{
    Context, NeighborsArgs, Outcome,
    report::{
        complaints::Complaints,
        histogram::{Histogram, Percentiles},
        output::Output,
        size::{human_count, quotient},
    },
    subject::{Records, Settings, Subject, scratch::Scratch},
};

/// Records per keyspace and seconds per phase with --smoke.
const SMOKE: (u64, f64) = (500, 0.2);
/// Interval at which the updates that are due are sent.
const TICK: Duration = Duration::from_millis(1);

/// Result of a phase.
#[derive(Debug, Serialize)]
struct Phase {
    engine: &'static str,
    tree: String,
    /// `alone` or `with-busy`.
    phase: &'static str,
    neighbors: u64,
    records: u64,
    memory_bytes: u64,
    /// Updates of the neighbors.
    ops: u64,
    seconds: f64,
    ops_per_second: f64,
    latency_us: Percentiles,
    /// Writes of the busy keyspace.
    busy_ops_per_second: f64,
    throttled_ms: f64,
    max_stall_ms: f64,
    wrong_answers: u64,
}

impl Phase {
    fn row(&self) -> Vec<String> {
        let us = |micros: f64| format!("{micros:.1}");
        let Percentiles { p50, p99, p999, max, .. } = self.latency_us;
        vec![
            self.phase.to_owned(),
            human_count(self.ops_per_second),
            us(p50),
            us(p99),
            us(p999),
            us(max),
            human_count(self.busy_ops_per_second),
            us(self.throttled_ms),
            self.wrong_answers.to_string(),
        ]
    }
}

/// Runs both phases on a store of this kind.
///
/// # Errors
/// Errors of the store, and `Invalid` for contradictory flags.
pub fn run_neighbors_on<S: Subject>(args: &NeighborsArgs, context: &Context) -> Result<Outcome> {
    let mut output = Output::new(args.store.json.as_deref())?;
    let settings = Settings::of(&args.store, 2, context);
    let scratch = Scratch::new(&*context.env, args.store.dir.as_deref(), args.store.tmp.as_deref())?;
    let store = S::open(scratch.path(), &settings)?;
    let (records, seconds) = if args.store.smoke { SMOKE } else { (args.records, args.seconds) };
    let names: Vec<String> = (0..args.neighbors).map(|index| format!("neighbor-{index}")).collect();
    let bench = Bench {
        args,
        context,
        records,
        length: Duration::from_secs_f64(seconds),
        neighbors: store.many_records(&names)?,
        busy: store.records("busy")?,
        complaints: Complaints::default(),
    };
    let mut versions = bench.load()?;
    store.flush()?;
    let mut phases = Vec::new();
    for (phase, with_busy) in [("alone", false), ("with-busy", true)] {
        if context.stopped() {
            break;
        }
        phases.push(bench.run_phase(&store, phase, with_busy, &mut versions)?);
    }
    bench.compare(&versions)?;
    let wrong_answers = bench.complaints.count();
    drop(bench);
    store.close()?;
    let latencies = ["p50 µs", "p99 µs", "p99.9 µs", "max µs"];
    let head = [&["phase", "updates/s"][..], &latencies, &["busy/s", "throttled ms", "wrong"]].concat();
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for phase in &mut phases {
        phase.wrong_answers = wrong_answers;
        output.result(phase)?;
        rows.push(phase.row());
    }
    output.table(&rows)?;
    if let [alone, with_busy] = &phases[..] {
        let ratio = quotient(with_busy.latency_us.p999, alone.latency_us.p999);
        output.text(&format!("p99.9 of the neighbors with a busy keyspace: {ratio:.2} times as long\n"))?;
    }
    Ok(Outcome::of(wrong_answers))
}

struct Bench<'a, R> {
    args: &'a NeighborsArgs,
    context: &'a Context,
    /// Of each keyspace.
    records: u64,
    length: Duration,
    neighbors: Vec<R>,
    busy: R,
    complaints: Complaints,
}

fn key(number: u64) -> Vec<u8> {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

impl<R: Records> Bench<'_, R> {
    /// Sets `value` to that of a record's version.
    fn fill(value: &mut [u8], version: u64) {
        let bytes = version.to_le_bytes();
        let length = value.len().min(bytes.len());
        value[..length].copy_from_slice(&bytes[..length]);
    }

    fn value(&self) -> Result<Vec<u8>> {
        Ok(vec![0; usize::try_from(self.args.value_bytes).map_err(|_| Error::invalid("--value-bytes"))?])
    }

    /// Loads all keyspaces; returns the versions of the neighbors' records.
    fn load(&self) -> Result<Vec<Vec<u64>>> {
        let value = self.value()?;
        for records in self.neighbors.iter().chain([&self.busy]) {
            for number in 0..self.records {
                records.insert(&key(number), &value)?;
            }
        }
        Ok(vec![vec![0; usize_of(self.records)]; self.neighbors.len()])
    }

    fn run_phase<S: Subject>(
        &self,
        store: &S,
        phase: &'static str,
        with_busy: bool,
        versions: &mut [Vec<u64>],
    ) -> Result<Phase> {
        let before = store.readings();
        let (has_ended, busy_ops) = (AtomicBool::new(false), AtomicU64::new(0));
        let started = self.context.env.monotonic();
        let latency = std::thread::scope(|scope| {
            let busy = with_busy.then(|| scope.spawn(|| self.write_busily(&has_ended, &busy_ops)));
            let latency = self.update_neighbors(versions);
            has_ended.store(true, Relaxed);
            let joined = busy.map(|busy| busy.join().expect("the busy thread does not panic"));
            joined.transpose().and(latency)
        })?;
        let seconds = self.context.env.monotonic().saturating_sub(started).as_secs_f64();
        let after = store.readings();
        Ok(Phase {
            engine: S::NAME,
            tree: store.kind(),
            phase,
            neighbors: u64_of(self.neighbors.len()),
            records: self.records,
            memory_bytes: self.args.store.memory,
            ops: latency.count(),
            seconds,
            ops_per_second: quotient(latency.count() as f64, seconds),
            latency_us: latency.percentiles(),
            busy_ops_per_second: quotient(busy_ops.load(Relaxed) as f64, seconds),
            throttled_ms: (after.throttled_micros - before.throttled_micros) as f64 / 1e3,
            max_stall_ms: latency.percentiles().max / 1e3,
            wrong_answers: 0,
        })
    }

    /// Overwrites records of the busy keyspace, at its rate or as fast as it can.
    fn write_busily(&self, has_ended: &AtomicBool, written: &AtomicU64) -> Result<()> {
        let (mut random, value) = (SplitMix::new(5), self.value()?);
        let started = self.context.env.monotonic();
        let is_due = |count: u64| {
            let elapsed = || self.context.env.monotonic().saturating_sub(started).as_secs_f64();
            self.args.busy_rate.is_none_or(|rate| (count as f64) < elapsed() * rate as f64)
        };
        while !has_ended.load(Relaxed) && !self.context.stopped() {
            if is_due(written.load(Relaxed)) {
                self.busy.insert(&key(random.below(self.records)), &value)?;
                written.fetch_add(1, Relaxed);
            } else {
                self.context.env.sleep(TICK);
            }
        }
        Ok(())
    }

    /// Updates records of the neighbors at the rate; returns the latencies.
    fn update_neighbors(&self, versions: &mut [Vec<u64>]) -> Result<Histogram> {
        let (mut latency, mut random, mut value) = (Histogram::new(), SplitMix::new(3), self.value()?);
        let started = self.context.env.monotonic();
        loop {
            let elapsed = self.context.env.monotonic().saturating_sub(started);
            if elapsed >= self.length || self.context.stopped() {
                return Ok(latency);
            }
            let due = elapsed.as_secs_f64() * self.args.rate as f64;
            while (latency.count() as f64) < due {
                let keyspace = usize_of(random.below(u64_of(self.neighbors.len())));
                let number = random.below(self.records);
                let version = &mut versions[keyspace][usize_of(number)];
                *version += 1;
                Self::fill(&mut value, *version);
                let began = self.context.env.monotonic();
                self.neighbors[keyspace].insert(&key(number), &value)?;
                latency.record(self.context.env.monotonic().saturating_sub(began));
            }
            self.context.env.sleep(TICK);
        }
    }

    /// Compares all records of the neighbors with their last versions.
    fn compare(&self, versions: &[Vec<u64>]) -> Result<()> {
        let mut expected = self.value()?;
        for (records, versions) in self.neighbors.iter().zip(versions) {
            for (number, version) in versions.iter().enumerate() {
                Self::fill(&mut expected, *version);
                let is_right = records.get(&key(u64_of(number)), |found| found == Some(&expected[..]))?;
                if !is_right {
                    self.complaints.add(&format!("record {number} is not its version {version}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
