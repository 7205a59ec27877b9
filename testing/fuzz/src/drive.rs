//! Runs a target on inputs, checks each run, and minimizes a failing input.
//!
//! **Invariants**
//! - A target, a seed and a number of runs determine the inputs.
//! - A panic, and memory beyond the target's bound, are failures.

use std::time::Duration;

use testudo_base::num::u64_of;
use testudo_env::{Env, RealEnv};
use testudo_testkit::campaign::catch_panic;

use crate::{Mutator, Target, counting_allocator::peak_bytes_of};

/// Maximum seconds of a run; a longer one counts as a hang.
const RUN_SECONDS_MAX: u64 = 20;
/// Maximum runs spent minimizing a failing input.
const SHRINK_RUNS_MAX: usize = 400;

/// Length of a session.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// Until this much time has passed.
    Time(Duration),
    /// This many runs.
    Runs(u64),
}

/// A failing input.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Description of the failure.
    pub message: String,
    /// The minimized input.
    pub input: Vec<u8>,
    /// Number of the run that found it.
    pub run: u64,
}

/// One target under one seed.
#[derive(Debug)]
pub struct Session<'a> {
    /// Target to run.
    pub target: &'a Target,
    /// Seed that determines the inputs.
    pub seed: u64,
    /// Length of the session.
    pub amount: Amount,
    /// Inputs to start from, in addition to the target's own.
    pub corpus: Vec<Vec<u8>>,
}

impl Session<'_> {
    /// Runs the seeds, then mutations of them. `before` gets each input and its number before the run.
    pub fn run(&self, mut before: impl FnMut(u64, &[u8])) -> Result<u64, Box<Failure>> {
        let clock = RealEnv::new();
        let started = clock.monotonic();
        let mut corpus = (self.target.seeds)();
        corpus.extend(self.corpus.iter().cloned());
        let mut mutator = Mutator::new(self.seed, corpus.clone());
        let mut seeds = corpus.into_iter();
        let mut runs = 0;
        loop {
            let goes_on = match self.amount {
                Amount::Time(time) => clock.monotonic().saturating_sub(started) < time,
                Amount::Runs(count) => runs < count,
            };
            if !goes_on {
                return Ok(runs);
            }
            let input = seeds.next().unwrap_or_else(|| mutator.next_input());
            before(runs, &input);
            if let Err(message) = run_once(self.target, &input) {
                let input = shrink(self.target, input);
                return Err(Box::new(Failure { message, input, run: runs }));
            }
            runs += 1;
        }
    }
}

/// Runs a target once; the error describes the violated invariant.
pub fn run_once(target: &Target, input: &[u8]) -> Result<(), String> {
    let clock = RealEnv::new();
    let started = clock.monotonic();
    let (outcome, peak) = peak_bytes_of(|| catch_panic(|| (target.run)(input)));
    outcome?;
    if u64_of(peak) > target.memory_bytes_max {
        return Err(format!("held {peak} bytes at once, more than {}", target.memory_bytes_max));
    }
    let seconds = clock.monotonic().saturating_sub(started).as_secs();
    if seconds > RUN_SECONDS_MAX {
        return Err(format!("took {seconds} s, more than {RUN_SECONDS_MAX}"));
    }
    Ok(())
}

/// Removes chunks of the input as long as it still fails.
fn shrink(target: &Target, mut input: Vec<u8>) -> Vec<u8> {
    let (mut chunk, mut runs) = (input.len() / 2, 0);
    while chunk > 0 {
        let mut at = 0;
        while at < input.len() {
            runs += 1;
            if runs > SHRINK_RUNS_MAX {
                return input;
            }
            let mut smaller = input.clone();
            smaller.drain(at..(at + chunk).min(input.len()));
            if run_once(target, &smaller).is_err() { input = smaller } else { at += chunk }
        }
        chunk /= 2;
    }
    input
}
