//! Blocks of schedules: many runs of one scenario under one scheduler and one seed.
//!
//! **Invariants**
//! - One block runs at a time in a process: some sync points of the store are process-wide.

use std::{
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

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
/// Depth of the probabilistic scheduler: changes of priority in a schedule, plus one.
const PCT_DEPTH: usize = 4;
/// Maximum steps of a schedule; a longer one is an endless loop.
const STEPS_MAX: usize = 1_000_000;
const STACK_BYTES: usize = 512 << 10;

/// Choice of the next thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Any thread, uniformly.
    Random,
    /// The thread with the highest priority; priorities change a few times (Burckhardt and others, ASPLOS
    /// 2010).
    Pct,
}

impl Scheduler {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Pct => "pct",
        }
    }

    /// Finds a scheduler by name.
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

/// Runs one block of the scenario called `name`. Returns `None` if there is none; otherwise the number of
/// schedules run or, on a failure, its number within the block and its message.
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
    note_panics();
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let body = move || {
        count.fetch_add(1, Relaxed);
        scenario();
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| match scheduler {
        Scheduler::Random => Runner::new(RandomScheduler::new_from_seed(seed, schedules), config).run(body),
        Scheduler::Pct => {
            Runner::new(PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules), config).run(body)
        }
    }));
    Some(outcome.map_err(|_| {
        let message = FIRST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
        (started.load(Relaxed), message.unwrap_or_else(|| "a panic without a message".to_owned()))
    }))
}

/// Message of the first panic of a block; later panics are consequences of it.
static FIRST_PANIC: Mutex<Option<String>> = Mutex::new(None);

fn note_panics() {
    static ONCE: Once = Once::new();
    *FIRST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = None;
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let mut first = FIRST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
            let text = info.payload_as_str().unwrap_or("a panic without a message");
            let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
            first.get_or_insert_with(|| format!("{text}{}", place.unwrap_or_default()));
        }));
    });
}
