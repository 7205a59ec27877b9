//! Blocks of schedules: many runs of one scenario under one scheduler and one seed.
//!
//! **Invariants**
//! - One block runs at a time in a process: some meeting points of the store are shared by the whole process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner, UngracefulShutdownConfig,
    scheduler::{PctScheduler, RandomScheduler},
};

use crate::{
    primitives::PRIMITIVES,
    scenarios::{SCENARIOS, Scenario},
};

/// Schedules of a block.
pub const BLOCK: usize = 100;
/// Changes of priority in a schedule of the probabilistic scheduler, plus one.
const PCT_DEPTH: usize = 4;
/// A schedule that takes more steps turns in circles.
const STEPS_MAX: usize = 1_000_000;
const STACK_BYTES: usize = 512 << 10;

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Any thread, evenly.
    Random,
    /// The thread with the highest priority; priorities change a few times (Burckhardt and others, ASPLOS 2010).
    Pct,
}

impl Scheduler {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Pct => "pct",
        }
    }

    /// The scheduler called `name`.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Random, Self::Pct].into_iter().find(|scheduler| scheduler.name() == name)
    }
}

/// Names of all scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().chain(&PRIMITIVES).map(|(name, _)| *name)
}

fn scenario(name: &str) -> Option<Scenario> {
    SCENARIOS.iter().chain(&PRIMITIVES).find(|(known, _)| *known == name).map(|(_, scenario)| *scenario)
}

/// Runs one block of the scenario called `name`. `None` if there is none; else how many schedules were run, or, if one
/// failed, its number within the block and what is wrong.
pub fn run_block(
    name: &str,
    scheduler: Scheduler,
    seed: u64,
    schedules: usize,
) -> Option<Result<usize, (usize, String)>> {
    let scenario = scenario(name)?;
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    let mut shutdown = UngracefulShutdownConfig::default();
    shutdown.immediately_return_on_panic = true;
    config.ungraceful_shutdown_config = shutdown;
    let started = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&started);
    let body = move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        scenario();
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| match scheduler {
        Scheduler::Random => Runner::new(RandomScheduler::new_from_seed(seed, schedules), config).run(body),
        Scheduler::Pct => {
            Runner::new(PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules), config).run(body)
        }
    }));
    Some(outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let failed = started.load(std::sync::atomic::Ordering::Relaxed);
        (failed, text.unwrap_or_else(|| "a panic without a message".to_owned()))
    }))
}
