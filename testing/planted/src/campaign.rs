//! Starts a process for each bug and layer, one per core at a time, and prints the layer that caught each
//! bug. A file of tests counts as a layer.
//!
//! **Invariants**
//! - A bug counts as caught only by a layer that reports a failure, a test that fails, or a process that
//!   crashed.
//! - The control run comes first: a layer that fails without a bug proves nothing. A caller that skips it
//!   must run all tests without a bug.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use testudo_base::checksum::checksum64;
use testudo_env::{Env, RealEnv};

use crate::{
    catalogue::{BUGS, Bug},
    test_file::TestFile,
};

/// Maximum search time of a layer per bug. Seeds are tried in order, so the same seed catches it on every
/// machine; the limit allows for machines many times slower than needed.
const SECONDS: u64 = 220;
/// Time that each layer runs without a bug.
const CONTROL_SECONDS: u64 = 4;
/// Schedules of a scenario, with and without a bug.
const SCHEDULES: &str = "6000";
const CONTROL_SCHEDULES: &str = "200";
/// Timeout after which a process with a bug counts as hung and is killed.
const HANGS_AFTER: Duration = Duration::from_secs(240);
/// Timeout without a bug, long enough that a slow machine does not count as a failure.
const CONTROL_HANGS_AFTER: Duration = Duration::from_secs(1200);
const POLL_EVERY: Duration = Duration::from_millis(10);
/// Maximum characters of a failure in the table.
const LINE_WIDTH: usize = 100;

/// One process to run.
struct Trial<'a> {
    /// `None` in the control run.
    bug: Option<&'a Bug>,
    layer: &'a str,
}

/// Outcome of a trial.
struct Verdict {
    has_caught: bool,
    cases: String,
    seconds: f64,
    what: String,
}

/// The bugs of these names, or all.
fn named(names: &[&str]) -> io::Result<Vec<&'static Bug>> {
    if let Some(unknown) = names.iter().find(|name| !BUGS.iter().any(|bug| bug.name == **name)) {
        return Err(io::Error::other(format!("unknown bug {unknown:?}")));
    }
    Ok(BUGS.iter().filter(|bug| names.is_empty() || names.contains(&bug.name)).collect())
}

/// The layers that must catch one of the bugs.
fn layers_for(bugs: &[&'static Bug]) -> BTreeSet<&'static str> {
    bugs.iter().flat_map(|bug| bug.seen_by).copied().collect()
}

/// The test targets that must catch the bugs of these names, or all bugs.
pub(crate) fn targets(names: &[&str]) -> io::Result<BTreeSet<String>> {
    let layers = layers_for(&named(names)?);
    Ok(layers.into_iter().filter_map(TestFile::at).map(|file| file.target_id()).collect())
}

/// Parses `--test TARGET PROGRAM …`; returns the programs and the remaining arguments, the names of bugs.
pub(crate) fn programs<'a>(
    schedules: &Path,
    mut typed: &'a [&'a str],
) -> (io::Result<Programs>, &'a [&'a str]) {
    let mut tests = BTreeMap::new();
    while let ["--test", target, program, rest @ ..] = typed {
        tests.insert((*target).to_owned(), PathBuf::from(program));
        typed = rest;
    }
    let own = env::current_exe();
    (own.map(|own| Programs { own, schedules: schedules.to_owned(), tests }), typed)
}

/// Bugs to run, and whether the control comes first.
#[derive(Default)]
struct Choice<'a> {
    skips_control: bool,
    /// Runs an Nth of the bugs, chosen by the seed.
    one_in: Option<u64>,
    seed: Option<u64>,
    names: Vec<&'a str>,
}

impl<'a> Choice<'a> {
    /// Errors: an unknown flag, or a number that is none.
    fn parse(arguments: &[&'a str]) -> io::Result<Self> {
        let number = |typed: &str| {
            typed.parse::<u64>().map_err(|_| io::Error::other(format!("{typed:?} is not a number")))
        };
        let mut choice = Self::default();
        for argument in arguments {
            match argument.split_once('=') {
                None if *argument == "--without-control" => choice.skips_control = true,
                None if !argument.starts_with("--") => choice.names.push(argument),
                Some(("--one-in", every)) => choice.one_in = Some(number(every)?.max(1)),
                Some(("--seed", seed)) => choice.seed = Some(number(seed)?),
                _ => return Err(io::Error::other(format!("unknown argument {argument:?}"))),
            }
        }
        Ok(choice)
    }

    /// Returns the chosen bugs. A fresh seed is printed; it chooses the same bugs again.
    fn bugs(&self) -> io::Result<Vec<&'static Bug>> {
        let mut bugs = named(&self.names)?;
        if let Some(every) = self.one_in {
            let seed = self.seed.unwrap_or_else(|| RealEnv::new().random_u64());
            println!("one bug in {every}, chosen by --seed={seed}");
            let count = bugs.len().div_ceil(usize::try_from(every).unwrap_or(usize::MAX));
            bugs.sort_by_cached_key(|bug| checksum64(bug.name.as_bytes(), seed));
            bugs.truncate(count);
        }
        Ok(bugs)
    }
}

/// Runs the control and the named bugs, or all; returns whether everything was as required.
/// `--without-control` skips the control, for callers that run all tests without a bug themselves.
/// `--one-in=N` runs an Nth of the bugs, chosen by `--seed=S` or by a fresh seed.
pub(crate) fn run(programs: &Programs, arguments: &[&str]) -> io::Result<bool> {
    let choice = Choice::parse(arguments)?;
    let bugs = choice.bugs()?;
    let has_control = !choice.skips_control;
    let layers = layers_for(&bugs);
    println!("{:<30} | {:<20} | {:>16} | first line of the failure", "bug", "caught by", "after");
    let control = layers.iter().map(|layer| Trial { bug: None, layer }).collect();
    if has_control && run_all(programs, control)? > 0 {
        println!("\nlayers fail without a bug: nothing else was run");
        return Ok(false);
    }
    let of_bug = |bug: &&'static Bug| {
        let bug: &'static Bug = bug;
        bug.seen_by.iter().map(move |layer| Trial { bug: Some(bug), layer })
    };
    let trials: Vec<Trial<'_>> = bugs.iter().flat_map(of_bug).collect();
    let count = trials.len();
    let missed = run_all(programs, trials)?;
    println!("\n{} bugs, {} trials: {} caught, {missed} missed", bugs.len(), count, count - missed);
    Ok(missed == 0)
}

/// Programs to run.
pub(crate) struct Programs {
    own: PathBuf,
    schedules: PathBuf,
    /// Test programs by target.
    tests: BTreeMap<String, PathBuf>,
}

/// Kind of program that detects a bug, which determines how its output is parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Layer,
    Scenario,
    Tests,
    /// Tests that start no processes: the first failure stops them.
    UnitTests,
}

/// Runs the trials, prints a line for each, and returns the number of wrong outcomes.
fn run_all(programs: &Programs, trials: Vec<Trial<'_>>) -> io::Result<usize> {
    let next = AtomicUsize::new(0);
    let wrong = AtomicUsize::new(0);
    let error: Mutex<Option<io::Error>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(|| {
                while let Some(trial) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match run_trial(programs, trial) {
                        Ok(verdict) => {
                            wrong.fetch_add(usize::from(report(trial, &verdict)), Ordering::Relaxed);
                        }
                        Err(failed) => *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed),
                    }
                }
            });
        }
    });
    let error = error.into_inner().unwrap_or_else(PoisonError::into_inner);
    error.map_or(Ok(wrong.into_inner()), Err)
}

/// Prints a line; returns whether the outcome was wrong.
fn report(trial: &Trial<'_>, verdict: &Verdict) -> bool {
    let after = format!("{}, {:.1} s", verdict.cases, verdict.seconds);
    let name = trial.bug.map_or("(none)", |bug| bug.name);
    let is_wrong = verdict.has_caught != trial.bug.is_some();
    let layer = match (is_wrong, trial.bug) {
        (true, Some(_)) => format!("MISSED by {}", trial.layer),
        (true, None) => format!("{}: FAILS", trial.layer),
        _ => trial.layer.to_owned(),
    };
    let what = if verdict.has_caught { verdict.what.as_str() } else { "-" };
    let what: String = what.chars().take(LINE_WIDTH).collect();
    println!("{name:<30} | {layer:<20} | {after:>16} | {what}");
    is_wrong
}

fn run_trial(programs: &Programs, trial: &Trial<'_>) -> io::Result<Verdict> {
    let (kind, mut command) = command_of(programs, trial)?;
    command.env("RUST_BACKTRACE", "0").env_remove("TESTUDO_PLANTED");
    // A single bug must run under the same conditions as in the whole campaign.
    command.env(testudo_share::VARIABLE, testudo_share::SHORT);
    if let Some(bug) = trial.bug {
        command.env("TESTUDO_PLANTED", bug.name);
    }
    let clock = RealEnv::new();
    let started = clock.monotonic();
    let hangs_after = if trial.bug.is_some() { HANGS_AFTER } else { CONTROL_HANGS_AFTER };
    let ended = run_bounded(&mut command, &clock, hangs_after, kind == Kind::UnitTests)?;
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    let Some((is_success, output)) = ended else {
        let what = "the process hung".to_owned();
        return Ok(Verdict { has_caught: true, cases: "-".to_owned(), seconds, what });
    };
    Ok(match kind {
        Kind::Layer => judge_layer(is_success, &output, seconds),
        Kind::Scenario => judge_scenario(is_success, &output, seconds),
        Kind::Tests | Kind::UnitTests => judge_tests(is_success, &output, seconds)?,
    })
}

fn command_of(programs: &Programs, trial: &Trial<'_>) -> io::Result<(Kind, Command)> {
    let seconds = if trial.bug.is_some() { SECONDS } else { CONTROL_SECONDS }.to_string();
    let schedules = if trial.bug.is_some() { SCHEDULES } else { CONTROL_SCHEDULES };
    if let Some(scenario) = trial.layer.strip_prefix("schedules/") {
        let mut command = Command::new(&programs.schedules);
        command.args([scenario, "--schedules", schedules]);
        return Ok((Kind::Scenario, command));
    }
    if let Some(file) = TestFile::at(trial.layer) {
        let program = programs.tests.get(&file.target_id());
        let not_built = || io::Error::other(format!("the tests of {} were not built", file.target_id()));
        let mut command = Command::new(program.ok_or_else(not_built)?);
        // As cargo does: tests look up files relative to the directory of their package.
        command.current_dir(checkout().join(file.package));
        command.arg(file.filter()).args(["--test-threads", "1"]);
        if !file.is_of_library() {
            return Ok((Kind::Tests, command));
        }
        // Otherwise the message of a failed test is printed only after all others.
        command.arg("--nocapture");
        return Ok((Kind::UnitTests, command));
    }
    let mut command = Command::new(&programs.own);
    command.args(["trial", trial.layer, &seconds]);
    Ok((Kind::Layer, command))
}

/// The directory of all packages.
fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the output of a process and whether it succeeded; `None` if it hung. With `ends_with_failure` the
/// process is stopped at the first failed test.
fn run_bounded(
    command: &mut Command,
    clock: &RealEnv,
    hangs_after: Duration,
    ends_with_failure: bool,
) -> io::Result<Option<(bool, String)>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut stderr = child.stderr.take().expect("it is piped");
    let has_failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let drain = |stream: &mut dyn io::Read| {
            let mut text = Vec::new();
            let _ = stream.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        let has_failed = &has_failed;
        let out = scope.spawn(move || {
            if !ends_with_failure {
                return drain(&mut stdout);
            }
            let mut text = String::new();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                text = text + &line + "\n";
                has_failed.fetch_or(line.ends_with("FAILED"), Ordering::Relaxed);
            }
            text
        });
        let errors = scope.spawn(move || drain(&mut stderr));
        let deadline = clock.monotonic() + hangs_after;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if has_failed.load(Ordering::Relaxed) {
                child.kill()?;
                break Some(child.wait()?);
            }
            if clock.monotonic() > deadline {
                child.kill()?;
                child.wait()?;
                break None;
            }
            clock.sleep(POLL_EVERY);
        };
        let text = |thread: thread::ScopedJoinHandle<'_, String>| thread.join().unwrap_or_default();
        let (out, errors) = (text(out), text(errors));
        let printed = if out.is_empty() || ends_with_failure { out + &errors } else { out };
        Ok(status.map(|status| (status.success(), printed)))
    })
}

fn judge_scenario(is_success: bool, output: &str, seconds: f64) -> Verdict {
    let first = output.lines().next().unwrap_or_default();
    // `name: after N schedules, …` or `name: N schedules, …`
    let cases = first.split_once(": ").map_or("", |(_, rest)| rest.trim_start_matches("after "));
    let cases = cases.split(' ').next().unwrap_or_default().to_owned();
    let what = first.split_once("fails: ").map_or(first, |(_, what)| what).to_owned();
    Verdict { has_caught: !is_success, cases, seconds, what }
}

/// Errors: no test was run, so there is no verdict.
fn judge_tests(is_success: bool, output: &str, seconds: f64) -> io::Result<Verdict> {
    // `test result: ok. 7 passed; 0 failed; …`
    let result = output.lines().rev().find_map(|line| line.strip_prefix("test result: ")).unwrap_or_default();
    let count = |what: &str| -> u64 {
        let before = result.split_once(what).map_or("", |(before, _)| before.trim_end());
        before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let (passed, mut failed) = (count("passed"), count("failed"));
    if is_success && passed == 0 {
        return Err(io::Error::other("there are no such tests"));
    }
    let lines: Vec<&str> = output.lines().collect();
    let is_panic = |line: &&str| line.contains("panicked at");
    let mut at = lines.iter().position(is_panic);
    if result.is_empty() {
        // It was stopped at its first failure; an earlier panic is one that a test expects.
        failed = lines.iter().filter(|line| line.ends_with("... ok")).count() as u64 + 1;
        at = lines.iter().rposition(is_panic);
    }
    let said = at.and_then(|at| lines.get(at + 1).copied());
    let what = said.unwrap_or("the tests crashed").to_owned();
    Ok(Verdict { has_caught: !is_success, cases: (passed + failed).to_string(), seconds, what })
}

fn judge_layer(is_success: bool, output: &str, seconds: f64) -> Verdict {
    let first = output.lines().next().unwrap_or_default();
    let mut fields = first.split('\t');
    let (verdict, cases, taken) = (fields.next(), fields.next(), fields.next());
    let seconds = taken.and_then(|taken| taken.parse().ok()).unwrap_or(seconds);
    match verdict {
        Some("nothing") if is_success => Verdict {
            has_caught: false,
            cases: cases.unwrap_or_default().to_owned(),
            seconds,
            what: String::new(),
        },
        Some("caught") => {
            let what = fields.find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
            Verdict { has_caught: true, cases: cases.unwrap_or_default().to_owned(), seconds, what }
        }
        _ => {
            let last = output.lines().last().unwrap_or_default();
            Verdict {
                has_caught: true,
                cases: "-".to_owned(),
                seconds,
                what: format!("the process crashed: {last}"),
            }
        }
    }
}
