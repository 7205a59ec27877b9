//! What a run is given from outside, and what it says at its end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use testudo_env::RealEnv;

/// A flag that SIGINT and SIGTERM set, for [`Context::new`]; the second signal ends the process at once.
/// Where signals cannot be caught it says so on standard error.
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
        eprintln!("cannot catch signals ({error}); a run that is interrupted leaves its directory behind");
    }
    stop
}

/// The surroundings of a run.
#[derive(Debug)]
pub struct Context {
    stop: Arc<AtomicBool>,
    pub(crate) env: Arc<RealEnv>,
}

impl Context {
    /// A run on the real machine that ends soon and cleanly once `stop` is set.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { stop, env: RealEnv::new() }
    }

    /// Whether the user asked for the end.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The flag itself, for loops that poll it at every step.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Every answer was right, as far as it got.
    Fine,
    /// The store gave so many wrong answers.
    WrongAnswers(u64),
}

impl Outcome {
    /// [`Outcome::Fine`] for zero.
    pub(crate) fn of(wrong_answers: u64) -> Self {
        if wrong_answers == 0 { Self::Fine } else { Self::WrongAnswers(wrong_answers) }
    }

    /// What the process should exit with: 0 or 1.
    pub fn exit_code(self) -> u8 {
        u8::from(self != Self::Fine)
    }
}
