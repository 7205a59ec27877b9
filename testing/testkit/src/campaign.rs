//! Random scripts of one kind for one kind of store; a failure yields a minimized script.
//!
//! **Invariants**
//! - A panic of the store is a failure, like a wrong answer.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

use crate::{Failure, Generator, Profile, Report, Runner, Script, shrink, store::Opener};

/// Maximum runs spent minimizing a failing script.
const SHRINK_RUNS_MAX: usize = 2_000;

/// Random scripts of one kind for one kind of store.
#[derive(Debug)]
pub struct Campaign<'a> {
    /// Makes the store.
    pub opener: &'a dyn Opener,
    /// Shapes the scripts.
    pub profile: &'a Profile,
    /// Ops of each script.
    pub op_count: usize,
}

impl Campaign<'_> {
    /// Runs one seed; the error describes the failure and holds a minimized script.
    pub fn run(&self, seed: u64) -> Result<Report, String> {
        let script = Generator::new(self.profile, seed).script(self.op_count);
        let failure = match run_script(self.opener, seed, &script) {
            Ok(report) => return Ok(report),
            Err(failure) => failure,
        };
        let mut failing = script;
        failing.0.truncate(failure.step + 1);
        let small =
            shrink(&failing, SHRINK_RUNS_MAX, |script| run_script(self.opener, seed, script).is_err());
        let message = match run_script(self.opener, seed, &small) {
            Err(failure) => failure.to_string(),
            Ok(_) => "the minimized script passes now: the run depends on more than its seed".into(),
        };
        let count = small.0.len();
        Err(format!("{failure}\n\nminimized script of {count} ops ({message}):\n{small}"))
    }
}

/// Runs a script on a fresh machine; a panic becomes a failure.
pub fn run_script(opener: &dyn Opener, seed: u64, script: &Script) -> Result<Report, Failure> {
    catch(script, || Runner::new(opener, seed).run(script))
}

/// Runs `body`; a panic becomes a failure.
pub fn catch<T>(script: &Script, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    match catch_panic(body) {
        Ok(result) => result,
        Err(message) => Err(Failure { step: script.0.len(), op: "somewhere".into(), message }),
    }
}

/// Runs `body`; returns a panic as its message, which is not printed.
pub fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    thread_local! {
        static IDLE: Cell<bool> = const { Cell::new(false) };
        static MESSAGE: Cell<Option<String>> = const { Cell::new(None) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IDLE.get() {
                MESSAGE.set(Some(info.to_string()));
            } else {
                loud(info);
            }
        }));
    });
    let before = IDLE.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    IDLE.set(before);
    result.map_err(|_| MESSAGE.take().unwrap_or_else(|| "a panic without a message".into()))
}
