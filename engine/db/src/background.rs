//! The background threads of a store, and the same work step by step in stepped execution.
//!
//! - *log thread*: writes full log buffers at once, and all of them every 100 ms.
//! - *sync thread*: syncs the log every 500 ms, creates its next segment in advance, and persists the
//!   watermark. It is separate so that buffers are written while the device syncs.
//! - *flush thread*: flushes sealed buffers and those of keyspaces at rest, shortens the log, returns space
//!   to the file system.
//! - *job threads*: remove released log segments, and run the trees' own background jobs.
//! - *warm thread*: reads back the hot set, see `background/warm_loop.rs`.
//!
//! **Invariants**
//! - A panic or an error in the background poisons the store, and the threads end. Work that fails for lack
//!   of space, descriptors or another resource is retried.

mod warm_loop;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use testudo_base::{
    Error, ErrorKind, Result,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_env::Thread;
use testudo_flush::{
    govern::{govern_memory::govern_memory, govern_values::govern_values},
    jobs::{catch_up::look_at_sealed, run_job, schedule::Schedule, step_job},
    log_release::remove_released,
    seal::seal_buffers::{seal_at_rest, seal_if_full, seal_with_full_logs},
    shorten_log::shorten_log,
    space::{
        give_back::{give_back_all_space, give_back_space},
        hold_space::{fit_to_device, lock_and_hold_space},
        reclaim::{flush_or_reclaim, win_space},
    },
};
use testudo_recovery::warm::restore::restore_some;
use testudo_store::{
    Store,
    background::{
        background_work::Wakeup,
        idle::{IDLE_AFTER, Idle, Throttle},
    },
    keyspace::KeyspaceCore,
    memory::metadata::fit_caches,
};
use testudo_write::long_values;

use crate::status::publish_status;

/// Maximum time that commits stay in the log's buffers.
const LOG_WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time that commits stay unsynced.
const LOG_SYNC_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum delay until the superblock states a new durable seqno.
const WATERMARK_INTERVAL: Duration = Duration::from_secs(1);
/// The same in stepped execution, in steps.
const WATERMARK_STEPS: u32 = 8;
/// Interval at which log buffers are freed that were added while the device was slow.
const LOG_TRIM_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which the sync thread checks for due work.
const SYNC_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum sleep of the flush thread without a wakeup.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);

/// A job thread's view of writes and flushes, to detect idle periods.
#[derive(Debug)]
struct Watch {
    /// Idle state of all keyspaces together.
    idle: Idle,
    throttle: Throttle,
    writes: u64,
    flushes: u64,
    schedule: Schedule,
}

impl Watch {
    fn from(now: Duration) -> Self {
        Self {
            idle: Idle::from(now),
            throttle: Throttle::default(),
            writes: 0,
            flushes: 0,
            schedule: Schedule::default(),
        }
    }

    /// Updates the idle state from the counters, whichever thread wrote or flushed.
    fn check(&mut self, store: &Store) {
        let now = store.env.monotonic();
        let counters = &store.counters;
        let (writes, flushes) = (counters.user_writes.sum(), counters.flushes.load(Relaxed));
        debug_assert!(writes >= self.writes && flushes >= self.flushes, "counters only grow");
        if self.flushes != flushes {
            self.idle.record_flush(now);
        }
        if self.writes != writes {
            self.idle.interrupt(now);
        }
        (self.writes, self.flushes) = (writes, flushes);
        for keyspace in store.catalogue.read().by_id.values() {
            keyspace.check_for_writes(now);
        }
    }

    /// Runs one job of one tree; returns `false` if none is ready.
    fn run_job(&mut self, store: &Store) -> Result<bool> {
        let began = store.env.monotonic();
        let is_welcome =
            self.idle.is_idle(began) || self.throttle.allows(began, self.idle.since_flush(began));
        let is_idle = |keyspace: &KeyspaceCore| is_welcome && keyspace.idle.lock().is_idle(began);
        let outcome = run_job(store, &mut self.schedule, is_idle);
        let ended = store.env.monotonic();
        if is_stalled(&outcome) {
            self.idle.interrupt(ended);
            self.throttle.record_stall(ended);
        } else if matches!(outcome, Ok(true)) {
            self.throttle.note(began, ended);
        } else if outcome.is_ok() && self.idle.is_idle(began) {
            return Ok(long_values::try_sweep(store));
        }
        if outcome.is_ok() && store.long_values.is_sweep_overdue() {
            long_values::try_sweep(store);
        }
        outcome
    }
}

type Body = fn(&Store) -> Result<()>;

/// Starts the threads. On an error, those in `threads` are running.
pub(crate) fn start(store: &Arc<Store>, threads: &mut Vec<Box<dyn Thread>>) -> Result<()> {
    debug_assert!(threads.is_empty(), "threads are started once");
    let warm: Option<(&str, Body)> = store.warm.is_on().then_some(("testudo-warm", warm_loop::warm_loop));
    let job_threads = store.background.job_executor.workers();
    let mut bodies: Vec<(&str, Body)> =
        vec![("testudo-log", log_loop), ("testudo-sync", sync_loop), ("testudo-flush", flush_loop)];
    bodies.extend(std::iter::repeat_n::<(&str, Body)>(("testudo-jobs", job_loop), job_threads));
    if store.log.wal.is_none() {
        // A read-only store only restores its hot set.
        bodies.clear();
    }
    for (name, body) in bodies.into_iter().chain(warm) {
        let store_of_thread = Arc::clone(store);
        let run = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| persist(&store_of_thread, body)));
            let panicked = || Error::new(ErrorKind::Poisoned, "a background thread panicked");
            let outcome = outcome.unwrap_or_else(|_| Err(panicked()));
            if let Err(error) = outcome.as_ref()
                && error.kind() != ErrorKind::Closed
            {
                store_of_thread.poison(error);
            }
        };
        let thread = store.env.spawn(name, Box::new(run));
        threads.push(thread.map_err(|e| Error::io("a background thread", e))?);
    }
    Ok(())
}

/// Runs the body of a thread; restarts it after transient errors.
fn persist(store: &Store, body: Body) -> Result<()> {
    loop {
        match body(store) {
            Err(error) if error.is_transient() && !store.health.is_closing() => {
                store.env.sleep(LOG_WRITE_INTERVAL);
            }
            outcome => return outcome,
        }
    }
}

fn log_loop(store: &Store) -> Result<()> {
    let wal = store.wal()?;
    let mut written = store.env.monotonic();
    while !store.health.is_closing() && !store.has_failed() {
        // Reads load footers of runs into memory.
        fit_caches(store);
        if wal.wait_for_sealed(LOG_WRITE_INTERVAL) {
            wal.write_sealed()?;
        }
        let now = store.env.monotonic();
        if now.saturating_sub(written) >= LOG_WRITE_INTERVAL {
            wal.write_all()?;
            written = now;
        }
    }
    Ok(())
}

fn sync_loop(store: &Store) -> Result<()> {
    let wal = store.wal()?;
    let mut synced = store.env.monotonic();
    let (mut stated, mut trimmed) = (synced, synced);
    while !store.health.is_closing() && !store.has_failed() {
        publish_status(store);
        wal.prepare_segment()?;
        store.value_logs.sync_early()?;
        let now = store.env.monotonic();
        if now.saturating_sub(synced) >= LOG_SYNC_INTERVAL {
            wal.sync_all()?;
            synced = now;
        }
        if now.saturating_sub(stated) >= WATERMARK_INTERVAL {
            store.manifest.state_watermark()?;
            stated = now;
        }
        if now.saturating_sub(trimmed) >= LOG_TRIM_INTERVAL {
            wal.trim_buffers();
            trimmed = now;
        }
        wait_for(&store.background.sync_wakeup, SYNC_CHECK_INTERVAL);
    }
    Ok(())
}

fn flush_loop(store: &Store) -> Result<()> {
    let (mut idle_rounds, mut jobs) = (0u32, 0);
    while !store.health.is_closing() && !store.has_failed() {
        let worked = (|| {
            check_device_space(store)?;
            govern_memory(store);
            govern_values(store)?;
            seal_with_full_logs(store)?;
            seal_if_full(store);
            if are_jobs_awaited(store) {
                return Ok(true);
            }
            Ok(flush_or_reclaim(store)?
                || shorten_log(store)?
                || win_space(store)?
                || (seal_at_rest(store) && flush_or_reclaim(store)?))
        })();
        if is_stalled(&worked) {
            wait_for_work(store);
            continue;
        }
        if worked? {
            idle_rounds = 0;
            continue;
        }
        let jobs_before = std::mem::replace(&mut jobs, store.counters.jobs.load(Relaxed));
        if jobs != jobs_before {
            // Return the space that jobs have freed once no work is left.
            idle_rounds = idle_rounds.min(1);
        }
        if idle_rounds == 2 {
            give_back_space(store)?;
        }
        idle_rounds = idle_rounds.saturating_add(1);
        wait_for_work(store);
    }
    Ok(())
}

/// Maximum wait of the flush thread for a job before it runs one itself.
const JOB_INTERVAL: Duration = Duration::from_millis(20);
/// Its minimum pause meanwhile: delayed writers wake it with every write.
const JOB_PAUSE: Duration = Duration::from_millis(1);

/// If all sealed buffers wait for jobs, waits until one has ended, or there is another reason to wake up;
/// returns whether a job of theirs runs. Otherwise the flush runs one itself.
fn are_jobs_awaited(store: &Store) -> bool {
    let jobs = || store.counters.jobs.load(Relaxed);
    let before = jobs();
    let sealed = look_at_sealed(store);
    if !sealed.are_all_behind() {
        return false;
    }
    store.background.job_wakeup.wake();
    wait_for(&store.background.wakeup, JOB_INTERVAL);
    if jobs() == before {
        store.env.sleep(JOB_PAUSE);
    }
    sealed.has_jobs(store) || jobs() > before
}

/// A search for work that takes this long is followed by a pause.
const LONG_LOOK: Duration = Duration::from_micros(500);
/// A job thread spends at most one part in this many of a processor on searching thousands of keyspaces for
/// work.
const LOOKING_PARTS: u32 = 8;

fn job_loop(store: &Store) -> Result<()> {
    let mut watch = Watch::from(store.env.monotonic());
    while !store.health.is_closing() && !store.has_failed() {
        let began = store.env.monotonic();
        watch.check(store);
        let worked = remove_released(store).and_then(|removed| Ok(removed || watch.run_job(store)?));
        if is_stalled(&worked) || !worked? {
            let took = store.env.monotonic().saturating_sub(began);
            if took >= LONG_LOOK {
                store.env.sleep((took * (LOOKING_PARTS - 1)).min(IDLE_INTERVAL));
            }
            wait_for(&store.background.job_wakeup, IDLE_INTERVAL);
        }
    }
    Ok(())
}

/// While the device is full: returns free space of the data file to the file system, and checks whether there
/// is space again. Also checks when write buffers may be full: the device may have less space than they
/// occupy.
fn check_device_space(store: &Store) -> Result<()> {
    if store.space.is_short() && !store.nearly_full.is_on() {
        give_back_all_space(store)?;
        store.space.refill()?;
    }
    if store.space.is_short() || store.nearly_full.is_on() || store.backpressure.may_be_full() {
        lock_and_hold_space(store)?;
    }
    fit_to_device(store)
}

/// Sleeps until there is work for the flush thread, or for [`IDLE_INTERVAL`].
fn wait_for_work(store: &Store) {
    wait_for(&store.background.wakeup, IDLE_INTERVAL);
}

/// Sleeps until woken, at most for `timeout`.
fn wait_for(wakeup: &Wakeup, timeout: Duration) {
    let mut is_woken = wakeup.is_woken.lock();
    if !*is_woken {
        wakeup.changed.wait_for(&mut is_woken, timeout);
    }
    *is_woken = false;
}

/// Returns `true` if work failed for lack of space or another transient resource. It is retried, and writers
/// get the error meanwhile.
fn is_stalled(outcome: &Result<bool>) -> bool {
    outcome.as_ref().is_err_and(Error::is_shortage)
}

/// Does one step of background work in stepped execution; returns `false` if there is none.
pub(crate) fn step(store: &Store) -> Result<bool> {
    let wal = store.wal()?;
    let outcome = (|| {
        wal.write_all()?;
        wal.prepare_segment()?;
        check_device_space(store)?;
        if store.background.steps.fetch_add(1, Relaxed).is_multiple_of(WATERMARK_STEPS) {
            store.manifest.state_watermark()?;
        }
        govern_memory(store);
        govern_values(store)?;
        seal_with_full_logs(store)?;
        seal_if_full(store);
        if flush_or_reclaim(store)? || shorten_log(store)? || win_space(store)? {
            return Ok(true);
        }
        let now = store.background_time();
        store.keyspaces().iter().for_each(|keyspace| keyspace.check_for_writes(now));
        if seal_at_rest(store) && flush_or_reclaim(store)? {
            return Ok(true);
        }
        if step_job(store, |keyspace| keyspace.idle.lock().since_flush(now) >= IDLE_AFTER)? {
            return Ok(true);
        }
        if long_values::try_sweep(store) {
            return Ok(true);
        }
        give_back_space(store)?;
        Ok(restore_some(store))
    })();
    if let Err(error) = &outcome
        && !is_stalled(&outcome)
    {
        store.poison(error);
    }
    outcome
}
