//! Queues, windows and sessions: entries are inserted at one end, the entry at the other end is peeked at and
//! removed. Also churn: random writes with 30 % removals.
//!
//! A store must not slow down as more entries are removed. So a result reports peek latencies at the
//! beginning and at the end.
//!
//! **Invariants**
//! - Every peek is compared with the expected entry at that end.
//! - One thread does everything, so the cost of a peek is not hidden by concurrency.

use std::{collections::VecDeque, time::Duration};

use testudo::{Error, Result};
use testudo_base::num::u64_of;
use testudo_env::{Env as _, SplitMix};

use crate::{
    Context, Outcome, QueueArgs, QueuePattern,
    measure::process,
    report::{
        Report, Sample, Totals,
        complaints::Complaints,
        output::Output,
        size::quotient,
        tally::{Class, Tally},
    },
    subject::{Records, Settings, Subject, scratch::Scratch},
};

/// Number of rounds and entries with --smoke.
const SMOKE: u64 = 2_000;
/// Number of peeks in each reported mean.
const LOOKS_TOLD: usize = 1_000;
/// Entries that a window advances at once.
const WINDOW_STEP: u64 = 100;
/// Percentage of removals among the writes of churn.
const REMOVED_PERCENT: u64 = 30;

/// Runs the patterns on a store of this kind.
///
/// # Errors
/// Errors of the store, and `Invalid` for contradictory flags.
pub fn run_queue_on<S: Subject>(args: &QueueArgs, context: &Context) -> Result<Outcome> {
    let mut output = Output::new(args.store.json.as_deref())?;
    let settings = Settings::of(&args.store, 1, context);
    let mut reports = Vec::new();
    for pattern in &args.patterns {
        if context.stopped() {
            break;
        }
        // Not every store supports several maps.
        let scratch = Scratch::new(&*context.env, args.store.dir.as_deref(), args.store.tmp.as_deref())?;
        let store = S::open(scratch.path(), &settings)?;
        let report = run_pattern(&store, args, *pattern, context)?;
        store.close()?;
        drop(scratch);
        output.result(&report)?;
        reports.push(report);
    }
    let rows = std::iter::once(Report::table_head()).chain(reports.iter().map(Report::table_row));
    output.table(&rows.collect::<Vec<_>>())?;
    for report in &reports {
        if let (Some(first), Some(last)) = (report.first_looks_us, report.last_looks_us) {
            let name = &report.workload;
            output.text(&format!("{name}: a peek took {first:.1} µs at first, {last:.1} µs at the end\n"))?;
        }
    }
    Ok(Outcome::of(reports.iter().map(|report| report.wrong_answers).sum()))
}

fn run_pattern<S: Subject>(
    store: &S,
    args: &QueueArgs,
    pattern: QueuePattern,
    context: &Context,
) -> Result<Report> {
    let name = pattern.name();
    let records = store.records(&name)?;
    let mut bench = Bench {
        args,
        context,
        records: &records,
        tally: Tally::new(),
        complaints: Complaints::default(),
        first_looks: Vec::new(),
        last_looks: VecDeque::new(),
        value: vec![0; usize::try_from(args.value_bytes).map_err(|_| Error::invalid("--value-bytes"))?],
        random: SplitMix::new(7),
    };
    process::reset_peak_rss();
    let waiting = if args.store.smoke { args.waiting.min(SMOKE) } else { args.waiting };
    let rounds = if args.store.smoke { args.rounds.min(SMOKE) } else { args.rounds };
    let mut state = State::default();
    for number in 0..waiting {
        bench.fill(pattern, number, &mut state)?;
    }
    bench.tally = Tally::new();
    let before = Sample::take(store.readings());
    let started = context.env.monotonic();
    for round in 0..rounds {
        if context.stopped() {
            break;
        }
        bench.round(pattern, waiting, round, &mut state)?;
    }
    let Bench { mut tally, complaints, first_looks, last_looks, .. } = bench;
    tally.ended = context.env.monotonic();
    let after = Sample::take(store.readings());
    let mut report = Report {
        engine: S::NAME,
        tree: store.kind(),
        workload: name,
        distribution: "queue".to_owned(),
        records: waiting,
        key_bytes: KEY_BYTES,
        value_bytes: args.value_bytes,
        keyspaces: 1,
        threads: 1,
        memory_bytes: args.store.memory,
        ..Report::default()
    };
    report.measure(&Totals::of(&[tally], 1, started), &before, &after);
    report.interrupted = context.stopped();
    report.wrong_answers = complaints.count();
    report.first_looks_us = mean_us(first_looks.iter());
    report.last_looks_us = mean_us(last_looks.iter());
    Ok(report)
}

/// Returns the mean of some durations, if there are any.
fn mean_us<'a>(looks: impl ExactSizeIterator<Item = &'a Duration>) -> Option<f64> {
    let count = looks.len();
    (count > 0).then(|| quotient(looks.sum::<Duration>().as_secs_f64() * 1e6, count as f64))
}

/// Bytes of a key.
const KEY_BYTES: u64 = 16;

/// State of the patterns.
#[derive(Debug, Default)]
struct State {
    /// Smallest number still present, for the ordered patterns.
    first: u64,
    /// Numbers in order of insertion.
    sessions: VecDeque<u64>,
}

struct Bench<'a, R> {
    args: &'a QueueArgs,
    context: &'a Context,
    records: &'a R,
    tally: Tally,
    complaints: Complaints,
    /// Latencies of the first and the last peeks.
    first_looks: Vec<Duration>,
    last_looks: VecDeque<Duration>,
    value: Vec<u8>,
    random: SplitMix,
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:016x}").into_bytes()
}

/// Spreads numbers over the key space.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<R: Records> Bench<'_, R> {
    fn timed<T>(&mut self, class: Class, call: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, Duration)> {
        let started = self.context.env.monotonic();
        let answer = call(self)?;
        let took = self.context.env.monotonic().saturating_sub(started);
        self.tally.record(class, 1, took);
        Ok((answer, took))
    }

    fn insert(&mut self, number: u64) -> Result<()> {
        let key = key(number);
        let len = self.value.len().min(key.len());
        self.value[..len].copy_from_slice(&key[..len]);
        self.tally.writes += 1;
        self.tally.written_bytes += u64_of(key.len() + self.value.len());
        self.timed(Class::Write, |bench| bench.records.insert(&key, &bench.value)).map(|_| ())
    }

    fn remove(&mut self, number: u64) -> Result<()> {
        let key = key(number);
        self.tally.writes += 1;
        self.tally.written_bytes += u64_of(key.len());
        self.timed(Class::Write, |bench| bench.records.remove(&key)).map(|_| ())
    }

    /// Peeks at the first key, which must be that of `expected` if given.
    fn look(&mut self, expected: Option<u64>) -> Result<()> {
        let (found, took) = self.timed(Class::Scan, |bench| {
            let mut found = None;
            bench.records.scan(&[], None, Some(1), |key, _| {
                found = Some(key.to_vec());
                false
            })?;
            Ok(found)
        })?;
        self.tally.reads += 1;
        self.tally.read_bytes += self.args.value_bytes + KEY_BYTES;
        if let Some(expected) = expected
            && found != Some(key(expected))
        {
            self.complaints.add(&format!("the first entry is not number {expected}"));
        }
        if self.first_looks.len() < LOOKS_TOLD {
            self.first_looks.push(took);
        }
        self.last_looks.push_back(took);
        if self.last_looks.len() > LOOKS_TOLD {
            self.last_looks.pop_front();
        }
        Ok(())
    }

    /// Inserts an initial entry, before the first round.
    fn fill(&mut self, pattern: QueuePattern, number: u64, state: &mut State) -> Result<()> {
        match pattern {
            QueuePattern::Queue | QueuePattern::Window => self.insert(number),
            QueuePattern::Sessions => {
                state.sessions.push_back(spread(number));
                self.insert(spread(number))
            }
            QueuePattern::Churn => self.insert(spread(number)),
        }
    }

    fn round(&mut self, pattern: QueuePattern, waiting: u64, round: u64, state: &mut State) -> Result<()> {
        match pattern {
            QueuePattern::Queue => {
                self.insert(waiting + round)?;
                self.look(Some(state.first))?;
                self.remove(state.first)?;
                state.first += 1;
            }
            QueuePattern::Window => {
                self.insert(waiting + round)?;
                self.look(Some(state.first))?;
                if round % WINDOW_STEP == WINDOW_STEP - 1 {
                    for number in state.first..state.first + WINDOW_STEP {
                        self.remove(number)?;
                    }
                    state.first += WINDOW_STEP;
                }
            }
            QueuePattern::Sessions => {
                state.sessions.push_back(spread(waiting + round));
                self.insert(spread(waiting + round))?;
                if let Some(oldest) = state.sessions.pop_front() {
                    self.remove(oldest)?;
                }
                self.look(None)?;
            }
            QueuePattern::Churn => {
                let number = spread(self.random.below(waiting.max(1)));
                if self.random.below(100) < REMOVED_PERCENT {
                    self.remove(number)?
                } else {
                    self.insert(number)?
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
