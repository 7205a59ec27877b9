//! One log for all threads against one log per thread: an upper bound on the benefit of several log streams.
//!
//! | subject | configuration |
//! |---|---|
//! | one-log | the store's: all threads append to one log |
//! | log-each | one log per thread; commits of different threads are not ordered |
//! | numbered | as log-each, with one counter that numbers all commits: the minimum cost of an order |
//!
//! | case | operation | of `--ops` |
//! |---|---|---|
//! | append | a commit of 24 + 100 bytes, to files that discard everything | all |
//! | insert | as append, plus an insert into a memtable that all threads share | an eighth |
//! | file | as append, to files in a temporary directory, until the last byte is written | a quarter |
//! | synced | as file, and each commit is durable before the next one of its thread | a four-thousandth |
//!
//! The time is the median of several rounds; `ratio` is the time of `one-log` relative to the subject's, the
//! median over the rounds.
//!
//! **Invariants**
//! - All subjects do the same work in every round, one after the other; each round starts with another one.
//! - As in a store, each log has a thread that writes its full buffers. The number and the size of the
//!   buffers are a store's.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::ScopedJoinHandle,
    time::Duration,
};

use crossbeam_utils::CachePadded;
use testudo::{Error, Result};
use testudo_base::{Incarnation, Kind, Seqno, StoreId, chunks::ChunkPool, num::usize_of};
use testudo_env::Env;
use testudo_memtable::Memtable;
use testudo_wal::{NoListener, Wal, WalOptions, WalStart};

use super::{
    Bench, MicroResult,
    forgetful_env::ForgetfulEnv,
    log::PAYLOAD,
    records::{KEY_BYTES, VALUE, keys},
};
use crate::subject::scratch::Scratch;

const ONE_LOG: usize = 0;
const NUMBERED: usize = 2;
const SUBJECTS: [&str; 3] = ["one-log", "log-each", "numbered"];
/// Odd, so that the median is one of them.
const ROUNDS: usize = 7;
/// Longest wait of a thread that writes full buffers before it checks whether to exit.
const WRITE_INTERVAL: Duration = Duration::from_millis(2);

/// Work per commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Append,
    Insert,
    File,
    Synced,
}

impl Case {
    const ALL: [Self; 4] = [Self::Append, Self::Insert, Self::File, Self::Synced];

    fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Insert => "insert",
            Self::File => "file",
            Self::Synced => "synced",
        }
    }

    /// Returns the number of commits of one thread, for the `operations` of the flags.
    fn commits(self, operations: u64, threads: u16) -> u64 {
        let divisor = match self {
            Self::Append => 1,
            Self::Insert => 8,
            Self::File => 4,
            Self::Synced => 4000,
        };
        (operations / divisor / u64::from(threads)).max(1)
    }

    fn is_on_device(self) -> bool {
        matches!(self, Self::File | Self::Synced)
    }
}

/// A measurement that is repeated in several rounds.
#[derive(Clone, Copy)]
struct Plan<'a> {
    case: Case,
    threads: u16,
    /// Commits of each thread.
    commits: u64,
    /// Keys of all threads, concatenated.
    keys: &'a [[u8; KEY_BYTES]],
    /// Directory of the log files.
    directory: &'a Path,
    /// Pool of the memtables' chunks, already used, as in a store that has run for a while.
    pool: &'a Arc<ChunkPool>,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_subjects("log-streams", &Case::ALL.map(Case::name), &SUBJECTS)?;
    let wants = |case: Case| SUBJECTS.iter().any(|subject| bench.wants(case.name(), subject));
    let wanted: Vec<Case> = Case::ALL.into_iter().filter(|case| wants(*case)).collect();
    let on_device = wanted.iter().any(|case| case.is_on_device());
    let place = bench.args.tmp.as_deref();
    let scratch = on_device.then(|| Scratch::new(&*bench.context.env, None, place)).transpose()?;
    let directory = scratch.as_ref().map_or(Path::new("/"), Scratch::path);
    let pool = &ChunkPool::new(1 << 40);
    for case in wanted {
        for &threads in &bench.args.threads {
            let commits = case.commits(bench.args.ops, threads);
            let inserted = if case == Case::Insert { commits * u64::from(threads) } else { 0 };
            let keys = keys(inserted);
            compare(bench, Plan { case, threads, commits, keys: &keys, directory, pool })?;
        }
    }
    Ok(())
}

/// Runs all rounds of a measurement and reports each subject.
fn compare(bench: &mut Bench<'_>, plan: Plan<'_>) -> Result<()> {
    let mut times: [Vec<f64>; SUBJECTS.len()] = Default::default();
    let mut ratios = times.clone();
    for round in 0..ROUNDS {
        let mut in_round = [None; SUBJECTS.len()];
        for turn in 0..SUBJECTS.len() {
            let subject = (round + turn) % SUBJECTS.len();
            if bench.wants(plan.case.name(), SUBJECTS[subject]) {
                let time = measure(bench, plan, subject)?;
                times[subject].push(time);
                in_round[subject] = Some(time);
            }
        }
        for subject in ONE_LOG + 1..SUBJECTS.len() {
            if let (Some(one_log), Some(time)) = (in_round[ONE_LOG], in_round[subject]) {
                ratios[subject].push(one_log / time);
            }
        }
    }
    for (subject, (times, ratios)) in times.iter_mut().zip(&mut ratios).enumerate() {
        let Some(ns_per_op) = median(times) else { continue };
        bench.report(MicroResult {
            micro: "log-streams",
            case: plan.case.name(),
            subject: SUBJECTS[subject],
            threads: plan.threads,
            pages: 0,
            operations: plan.commits * u64::from(plan.threads),
            ns_per_op,
            hit_ratio: None,
            ratio: median(ratios),
        })?;
    }
    Ok(())
}

/// Returns the middle value; `None` if there are no values.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Returns the nanoseconds per commit, over all threads.
fn measure(bench: &Bench<'_>, plan: Plan<'_>, subject: usize) -> Result<f64> {
    let machine = &bench.context.env;
    let env: Arc<dyn Env> = match plan.case.is_on_device() {
        true => Arc::clone(machine) as Arc<dyn Env>,
        false => Arc::new(ForgetfulEnv(Arc::clone(machine))),
    };
    let count = if subject == ONE_LOG { 1 } else { plan.threads };
    let counter = (subject == NUMBERED).then(|| CachePadded::new(AtomicU64::new(0)));
    let directories: Vec<_> = (0..count).map(|log| plan.directory.join(format!("log-{log}"))).collect();
    let mut logs = Vec::with_capacity(directories.len());
    for directory in &directories {
        let failed = |error| Error::io(directory.display().to_string(), error);
        env.create_dir(directory).map_err(failed)?;
        let options = WalOptions::new(StoreId(1));
        logs.push(Wal::create(
            Arc::clone(&env),
            directory,
            options,
            WalStart::new_store(Incarnation(1)),
            Arc::new(NoListener),
        )?);
    }
    let memtable = Memtable::new(Arc::clone(plan.pool));
    let is_done = AtomicBool::new(false);
    let (elapsed, ends) = std::thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| write_full_buffers(log, &is_done));
        }
        let started = machine.monotonic();
        let commit = |thread: u16| {
            let log = &*logs[usize::from(thread) % logs.len()];
            let (memtable, counter) = (&memtable, counter.as_deref());
            scope.spawn(move || commit_all((log, counter), memtable, thread, plan))
        };
        let committing: Vec<_> = (0..plan.threads).map(commit).collect();
        let ends: Vec<_> = committing.into_iter().map(ScopedJoinHandle::join).collect();
        let elapsed = machine.monotonic().saturating_sub(started);
        is_done.store(true, Relaxed);
        (elapsed, ends)
    });
    for end in ends {
        end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    drop(logs);
    if plan.case.is_on_device() {
        for directory in &directories {
            let failed = |error| Error::io(directory.display().to_string(), error);
            std::fs::remove_dir_all(directory).map_err(failed)?;
        }
    }
    let commits = plan.commits * u64::from(plan.threads);
    Ok(elapsed.as_secs_f64() * 1e9 / commits as f64)
}

/// Does the work of a store's log thread. An error is reported by the committing threads.
fn write_full_buffers(log: &Wal, is_done: &AtomicBool) {
    while !is_done.load(Relaxed) {
        let is_sealed = log.wait_for_sealed(WRITE_INTERVAL);
        if is_sealed && log.write_sealed().and_then(|()| log.prepare_segment()).is_err() {
            return;
        }
    }
}

/// Makes the commits of one thread. When the last thread returns, everything is written.
fn commit_all(
    (log, counter): (&Wal, Option<&AtomicU64>),
    memtable: &Memtable,
    thread: u16,
    plan: Plan<'_>,
) -> Result<()> {
    let first = u64::from(thread) * plan.commits;
    for number in first..first + plan.commits {
        if let Some(counter) = counter {
            counter.fetch_add(1, Relaxed);
        }
        let reservation = log.reserve(PAYLOAD.len(), 1)?;
        let seqno = reservation.last_seqno();
        reservation.write(&PAYLOAD);
        match plan.case {
            Case::Append | Case::File => {}
            Case::Insert => {
                let key = &plan.keys[usize_of(number)];
                memtable.insert(Seqno(number + 1), Kind::Value, key, &VALUE, None);
            }
            Case::Synced => log.sync_to(seqno)?,
        }
    }
    log.write_all()
}

#[cfg(test)]
mod tests;
