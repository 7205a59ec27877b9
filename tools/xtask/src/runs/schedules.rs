//! Builds the store for the seeded scheduler and runs all scenarios of `testing/schedules`.
//!
//! **Invariants**
//! - The last output of a failure is the command that replays it.

use std::{
    io,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::runs::special_build;

/// Schedules per scenario in CI, and in a long run.
const SCHEDULES: [u32; 2] = [2000, 100_000];
/// Scenarios that flush several times before their clients start, and run a part of the schedules.
const LONG_SCENARIOS: [&str; 2] = ["two-jobs", "dropped-jobs"];
const LONG_SCENARIO_PARTS: u32 = 8;
/// A long run tries other seeds than CI.
const LONG_FIRST_SEED: &str = "1000000";

/// Runs all scenarios (`[]`, `["--long"]`), or one scenario, given its name and options. Returns whether no
/// schedule failed.
///
/// Errors: the build failed, or a process could not be started.
pub fn schedules(root: &Path, arguments: &[String]) -> io::Result<bool> {
    let failed = || io::Error::other("the build for the seeded scheduler failed");
    let program = special_build::build(root, "testudo_shuttle", "testudo-schedules")?;
    let program = program.ok_or_else(failed)?;
    let is_long = arguments == ["--long"];
    if !arguments.is_empty() && !is_long {
        return Ok(Command::new(program).args(arguments).status()?.success());
    }
    let listed = Command::new(&program).arg("list").output()?;
    let names = String::from_utf8_lossy(&listed.stdout);
    let command = |name: &str| {
        let mut command = Command::new(&program);
        let parts = if LONG_SCENARIOS.contains(&name) { LONG_SCENARIO_PARTS } else { 1 };
        let schedules = (SCHEDULES[usize::from(is_long)] / parts).to_string();
        command.args([name, "--schedules", &schedules]).env("RUST_BACKTRACE", "0");
        if is_long {
            command.args(["--first-seed", LONG_FIRST_SEED]);
        }
        command
    };
    let commands: Vec<Command> = names.lines().map(command).collect();
    if commands.is_empty() {
        return Err(io::Error::other("there are no scenarios"));
    }
    let is_valid = AtomicBool::new(true);
    special_build::run_all(commands, |_, output| match output {
        Ok(output) if output.status.success() => print!("{}", String::from_utf8_lossy(&output.stdout)),
        Ok(output) => {
            is_valid.store(false, Ordering::Relaxed);
            print!("{}", String::from_utf8_lossy(&output.stderr));
            print!("{}", String::from_utf8_lossy(&output.stdout));
        }
        Err(error) => {
            is_valid.store(false, Ordering::Relaxed);
            eprintln!("a scenario could not be run: {error}");
        }
    });
    Ok(is_valid.into_inner())
}
