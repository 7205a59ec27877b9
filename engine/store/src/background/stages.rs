//! Duration of the stages of a flush, and the bytes flushed.
//!
//! `wait for commits and sync the log → apply to the trees → sync the data → commit the edit
//! → publish and release the log`
//!
//! **Invariants**
//! - Times are those of the flushing thread; they add up to the time of all rounds.

use std::time::Duration;

use testudo_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use testudo_env::Env;

/// A stage of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Commits in flight end, and the log is synced up to the newest of them.
    Log,
    /// Flows are planned, merged, and written as runs.
    Apply,
    /// The data file is synced.
    Data,
    /// The manifest edit is written and synced.
    Edit,
    /// The new trees are published; the log is released.
    Publish,
}

/// Times of all rounds, in microseconds by stage, and bytes.
#[derive(Debug, Default)]
pub struct Stages {
    micros: [AtomicU64; 5],
    /// Longest round.
    max_micros: AtomicU64,
    /// Bytes of flushed memtables.
    bytes: AtomicU64,
}

impl Stages {
    pub fn micros(&self, stage: Stage) -> u64 {
        self.micros[stage as usize].load(Relaxed)
    }

    pub fn max_micros(&self) -> u64 {
        self.max_micros.load(Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Records the size and duration of a round.
    pub fn record_round(&self, bytes: u64, took: Duration) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.max_micros.fetch_max(micros(took), Relaxed);
    }
}

/// Measures the stages of one round.
pub struct StageClock<'a> {
    env: &'a dyn Env,
    stages: &'a Stages,
    since: Duration,
}

impl<'a> StageClock<'a> {
    pub fn start(env: &'a dyn Env, stages: &'a Stages) -> Self {
        Self { env, stages, since: env.monotonic() }
    }

    /// Ends `stage` and begins the next one.
    pub fn end(&mut self, stage: Stage) {
        let now = self.env.monotonic();
        self.stages.micros[stage as usize].fetch_add(micros(now.saturating_sub(self.since)), Relaxed);
        self.since = now;
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
