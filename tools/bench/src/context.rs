//! Environment of a run, and its outcome.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use testudo_env::{Env as _, RealEnv};

/// Returns a flag set by SIGINT and SIGTERM, for [`Context::new`]; the second signal exits immediately.
/// Prints a warning to standard error if signals cannot be caught.
#[must_use]
pub fn stop_on_signals() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&stop);
    let installed = ctrlc::set_handler(move || {
        if raised.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    if let Err(error) = installed {
        eprintln!("cannot catch signals ({error}); an interrupted run leaves its directory behind");
    }
    stop
}

/// The environment of a run.
#[derive(Debug)]
pub struct Context {
    stop: Arc<AtomicBool>,
    pub(crate) env: Arc<RealEnv>,
}

impl Context {
    /// Creates a run on the real machine that ends soon and cleanly once `stop` is set.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { stop, env: RealEnv::new() }
    }

    /// Time since an arbitrary start.
    pub fn monotonic(&self) -> Duration {
        self.env.monotonic()
    }

    /// Whether the user requested a stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the flag itself, for loops that poll it at every step.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// No wrong answers, up to the end or a stop.
    Fine,
    /// Number of wrong answers of the store.
    WrongAnswers(u64),
}

impl Outcome {
    /// [`Outcome::Fine`] for zero.
    pub(crate) fn of(wrong_answers: u64) -> Self {
        if wrong_answers == 0 { Self::Fine } else { Self::WrongAnswers(wrong_answers) }
    }

    /// Returns the exit code of the process: 0 or 1.
    pub fn exit_code(self) -> u8 {
        u8::from(self != Self::Fine)
    }
}
