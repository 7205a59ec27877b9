//! Costs of tests: the CPU time of every test of the workspace, each run alone.
//!
//! **Invariants**
//! - CPU time includes the processes and threads that a test starts. It is about the same on a busy machine.
//! - One test runs at a time.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

use crate::runs::special_build;

/// Maximum CPU seconds of one test under the README's command, and of all tests together.
const OF_TEST_MAX: f64 = 10.0;
const OF_ALL_MAX: f64 = 450.0;
/// Minimum CPU seconds of a listed test.
const LISTED_FROM: f64 = 1.0;
/// Ticks per second of the CPU times in `/proc`, on every Linux machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// Cost of one test.
#[derive(Clone, Debug, PartialEq)]
struct Cost {
    target: String,
    test: String,
    seconds: f64,
}

/// Runs all tests, or those of the targets whose names begin with one of `arguments`, and prints their costs.
/// Returns whether all tests passed and stayed within their limits.
///
/// Errors: the build failed, or a process could not be started.
pub fn costs(root: &Path, arguments: &[String]) -> io::Result<bool> {
    let root = root.canonicalize()?;
    let programs = special_build::build_all_tests(&root)?;
    let programs = programs.ok_or_else(|| io::Error::other("the build of the tests failed"))?;
    let is_wanted = |target: &str| arguments.is_empty() || arguments.iter().any(|a| target.starts_with(a));
    let mut all = Vec::new();
    let mut has_passed = true;
    for (target, program) in programs.iter().filter(|(target, _)| is_wanted(target)) {
        for test in tests_of(program)? {
            let before = seconds_of_children()?;
            let mut command = Command::new(program);
            if !test.is_empty() {
                command.args([&test, "--exact"]);
            }
            command.current_dir(root.join(folder_of(target))).stdin(Stdio::null());
            let output = command.output()?;
            let cost = Cost { target: target.clone(), test, seconds: seconds_of_children()? - before };
            if !output.status.success() {
                println!("FAILED {} {}\n{}", target, cost.test, String::from_utf8_lossy(&output.stdout));
                has_passed = false;
            }
            all.push(cost);
        }
    }
    print!("{}", table(&all));
    Ok(has_passed & is_within(&all))
}

/// Folder of the package that a target belongs to.
fn folder_of(target: &str) -> &str {
    ["/src", "/tests/", "/examples/"]
        .iter()
        .find_map(|part| Some(target.split_once(part)?.0))
        .unwrap_or(target)
}

/// Names of the tests in a program; a single empty name for a program that is itself a test.
fn tests_of(program: &Path) -> io::Result<Vec<String>> {
    if program.parent().is_some_and(|folder| folder.ends_with("examples")) {
        return Ok(vec![String::new()]);
    }
    let listed = Command::new(program).args(["--list", "--format", "terse"]).output()?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// CPU time of all child processes that have ended.
fn seconds_of_children() -> io::Result<f64> {
    ticks_of_children(&fs::read_to_string("/proc/self/stat")?)
        .map(|ticks| ticks as f64 / TICKS_PER_SECOND)
        .ok_or_else(|| io::Error::other("cannot parse /proc/self/stat"))
}

/// Parses a line of `/proc/self/stat`: fields 16 and 17. Field 2 is the name in parentheses.
fn ticks_of_children(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(13);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Formats the most expensive tests, then all targets and their sum.
fn table(all: &[Cost]) -> String {
    let mut longest: Vec<&Cost> = all.iter().filter(|cost| cost.seconds >= LISTED_FROM).collect();
    longest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut targets: BTreeMap<&str, f64> = BTreeMap::new();
    for cost in all {
        *targets.entry(&cost.target).or_default() += cost.seconds;
    }
    let line = |seconds: f64, name: &str| format!("{seconds:>8.2}  {name}\n");
    let mut text: String =
        longest.iter().map(|cost| line(cost.seconds, &format!("{} {}", cost.target, cost.test))).collect();
    text += "\n";
    text.extend(targets.iter().map(|(target, seconds)| line(*seconds, target)));
    text + &line(total(all), "seconds of CPU time in total")
}

fn total(all: &[Cost]) -> f64 {
    all.iter().map(|cost| cost.seconds).sum()
}

fn is_within(all: &[Cost]) -> bool {
    total(all) <= OF_ALL_MAX && all.iter().all(|cost| cost.seconds <= OF_TEST_MAX)
}

#[cfg(test)]
mod tests;
