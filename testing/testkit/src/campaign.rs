//! Many seeds over one kind of store; on a failure the small script and the command that replays it.
//!
//! **Invariants**
//! - A panic of the store is a failure like a wrong answer.
//! - `TESTUDO_SEED` and `TESTUDO_CONFIGURATION` replace the seeds and pick the configuration of a run.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::{
        Mutex, Once,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use testudo_env::{Env, RealEnv};

use crate::{Failure, Generator, Profile, Report, Runner, Script, shrink, store::Opener};

/// Runs spent on making a failing script small.
const SHRINK_RUNS_MAX: usize = 2_000;

/// Random scripts of one kind for one kind of store.
#[derive(Debug)]
pub struct Campaign<'a> {
    /// The integration test, for the command that replays.
    pub test: &'a str,
    /// The name of the configuration, for the same.
    pub configuration: &'a str,
    /// Makes the store.
    pub opener: &'a dyn Opener,
    /// Shapes the scripts.
    pub profile: &'a Profile,
    /// Ops of each script.
    pub op_count: usize,
}

impl Campaign<'_> {
    /// Runs one seed; panics with all that is needed to replay it.
    pub fn run(&self, seed: u64) -> Report {
        let script = Generator::new(self.profile, seed).script(self.op_count);
        let failure = match run_script(self.opener, seed, &script) {
            Ok(report) => return report,
            Err(failure) => failure,
        };
        let mut failing = script;
        failing.0.truncate(failure.step + 1);
        let small =
            shrink(&failing, SHRINK_RUNS_MAX, |script| run_script(self.opener, seed, script).is_err());
        let message = match run_script(self.opener, seed, &small) {
            Err(failure) => failure.to_string(),
            Ok(_) => "the small script runs well now: the run depends on more than its seed".into(),
        };
        panic!(
            "{failure}\n\nconfiguration {}, seed {seed}; replay with\n  TESTUDO_SEED={seed} \
             TESTUDO_CONFIGURATION={} cargo test -p testudo-testkit --test {}\n\nsmall script of {} ops \
             ({message}):\n{small}",
            self.configuration,
            self.configuration,
            self.test,
            small.0.len(),
        );
    }

    /// Whether `TESTUDO_CONFIGURATION` leaves this configuration in.
    pub fn is_selected(configuration: &str) -> bool {
        std::env::var("TESTUDO_CONFIGURATION").map_or(true, |wanted| wanted == configuration)
    }

    /// The seed of `TESTUDO_SEED`, else `fixed` and a fresh one, which is printed.
    pub fn seeds(fixed: impl IntoIterator<Item = u64>) -> Vec<u64> {
        if let Ok(seed) = std::env::var("TESTUDO_SEED") {
            return vec![seed.parse().expect("TESTUDO_SEED is a number")];
        }
        let fresh = RealEnv::new().random_u64() >> 16;
        println!("fresh seed {fresh}");
        fixed.into_iter().chain([fresh]).collect()
    }
}

/// Runs every item on a few threads and adds up what they report. Each run is still a function of its seed.
pub fn run_in_parallel<T: Sync>(items: &[T], run: impl Fn(&T) -> Report + Sync) -> Report {
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Report::default());
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(8));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = run(item);
                    *total.lock().expect("a run that panics holds no lock") += report;
                }
            });
        }
    });
    total.into_inner().expect("a run that panics holds no lock")
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

/// Runs `body`; a panic becomes its message and is not printed.
pub fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    thread_local! {
        static QUIET: Cell<bool> = const { Cell::new(false) };
        static MESSAGE: Cell<Option<String>> = const { Cell::new(None) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                MESSAGE.set(Some(info.to_string()));
            } else {
                loud(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    QUIET.set(before);
    result.map_err(|_| MESSAGE.take().unwrap_or_else(|| "a panic without a message".into()))
}
