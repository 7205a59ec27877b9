//! The background threads of a store, and the same work step by step where there are none.
//!
//! *log thread*: writes full log buffers, everything every 100 ms, and syncs once a second. *drain thread*: drains sealed
//! buffers, shortens the log, does the trees' jobs when there is nothing more urgent, gives space back.
//!
//! **Invariants**
//! - A panic or an error in the background poisons the store; the threads then end.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use testudo_base::{
    Error, ErrorKind, Result,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
};
use testudo_env::Thread;

use crate::store::Store;

/// How long written commits may stay in the log's buffers.
const LOG_WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// How long they may stay unsynced.
const LOG_SYNC_INTERVAL: Duration = Duration::from_millis(500);
/// How long the drain thread sleeps when nobody wakes it.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);

/// A store is idle once nothing was written or drained for so long, and for twice as long as between the last two drains.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// Longer pauses than this between two drains say nothing about the next one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The same in stepped execution, which has no time: steps without work.
const IDLE_AFTER_STEPS: u32 = 16;

/// When something was written or drained last.
#[derive(Debug)]
struct Quiet {
    since: Duration,
    /// Between the last two drains.
    pause: Duration,
    last_drain: Duration,
    writes: u64,
    flushes: u64,
}

impl Quiet {
    fn from(now: Duration) -> Self {
        Self { since: now, pause: Duration::ZERO, last_drain: now, writes: 0, flushes: 0 }
    }

    /// Whoever wrote, and whoever drained, a thread of the store or a caller.
    fn look(&mut self, store: &Store) {
        let now = store.env.monotonic();
        let counters = &store.counters;
        let (writes, flushes) = (counters.user_writes.load(Relaxed), counters.flushes.load(Relaxed));
        if self.flushes != flushes {
            self.pause = now.saturating_sub(self.last_drain).min(LONGEST_PAUSE);
            self.last_drain = now;
        }
        if (self.writes, self.flushes) != (writes, flushes) {
            (self.writes, self.flushes) = (writes, flushes);
            self.since = now;
        }
    }

    /// Begins anew.
    fn interrupt(&mut self, now: Duration) {
        self.since = now;
    }

    fn is_idle(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= IDLE_AFTER.max(self.pause * 2)
    }
}

type Body = fn(&Store) -> Result<()>;

/// Starts the threads.
pub(crate) fn start(store: &Arc<Store>) -> Result<Vec<Box<dyn Thread>>> {
    let mut threads = Vec::new();
    let bodies: [(&str, Body); 2] = [("testudo-log", log_loop), ("testudo-drain", drain_loop)];
    for (name, body) in bodies {
        let store_of_thread = Arc::clone(store);
        let run = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| body(&store_of_thread)));
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
    Ok(threads)
}

fn log_loop(store: &Store) -> Result<()> {
    let wal = store.wal()?;
    let mut written = store.env.monotonic();
    let mut synced = written;
    while !store.is_closing.load(Acquire) && !store.has_failed() {
        if wal.wait_for_sealed(LOG_WRITE_INTERVAL) {
            wal.write_sealed()?;
        }
        let now = store.env.monotonic();
        if now.saturating_sub(written) >= LOG_WRITE_INTERVAL {
            wal.write_all()?;
            written = now;
        }
        if now.saturating_sub(synced) >= LOG_SYNC_INTERVAL {
            wal.sync_all()?;
            synced = now;
        }
    }
    Ok(())
}

fn drain_loop(store: &Store) -> Result<()> {
    let mut idle_rounds = 0u32;
    let mut quiet = Quiet::from(store.env.monotonic());
    while !store.is_closing.load(Acquire) && !store.has_failed() {
        look_for_room(store)?;
        store.seal_if_full();
        let worked = (|| Ok(store.drain_round()? || store.shorten_log()?))();
        if is_stalled(&worked) {
            rest(store);
            continue;
        }
        if worked? {
            idle_rounds = 0;
            continue;
        }
        quiet.look(store);
        if idle_rounds >= 1 {
            let worked = store.run_job(quiet.is_idle(store.env.monotonic()));
            if is_stalled(&worked) {
                quiet.interrupt(store.env.monotonic());
                rest(store);
            } else if worked? {
                // What it has freed is given back once nothing is left to do.
                idle_rounds = 1;
                continue;
            }
        }
        if idle_rounds == 2 {
            store.give_back_space()?;
        }
        idle_rounds = idle_rounds.saturating_add(1);
        rest(store);
    }
    Ok(())
}

/// While the device is full: gives free space of the data file back, and looks whether there is room again.
fn look_for_room(store: &Store) -> Result<()> {
    if store.room.is_short() {
        store.give_back_all_space()?;
        store.room.look()?;
    }
    Ok(())
}

/// Sleeps until the bell rings, or a moment.
fn rest(store: &Store) {
    let mut rung = store.bell.rung.lock();
    if !*rung {
        store.bell.changed.wait_for(&mut rung, IDLE_INTERVAL);
    }
    *rung = false;
}

/// Whether work failed for want of space: it is tried again, and writers are told meanwhile.
fn is_stalled(outcome: &Result<bool>) -> bool {
    matches!(outcome, Err(error) if error.kind() == ErrorKind::OutOfSpace)
}

/// One piece of background work in stepped execution; `false` if there is none.
pub(crate) fn step(store: &Store) -> Result<bool> {
    let wal = store.wal()?;
    let outcome = (|| {
        wal.write_all()?;
        look_for_room(store)?;
        store.seal_if_full();
        if store.drain_round()? || store.shorten_log()? {
            store.quiet_steps.store(0, Relaxed);
            return Ok(true);
        }
        if store.run_job(store.quiet_steps.fetch_add(1, Relaxed) >= IDLE_AFTER_STEPS)? {
            return Ok(true);
        }
        store.give_back_space()?;
        Ok(false)
    })();
    if let Err(error) = &outcome
        && !is_stalled(&outcome)
    {
        store.poison(error);
    }
    outcome
}
