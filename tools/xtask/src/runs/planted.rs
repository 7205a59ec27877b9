//! Builds the store with bugs in it and runs `testing/planted`, which shows that the tests see each of them.
//! It says which targets of tests it needs built for that.
//!
//! **Invariants**
//! - Nothing of these builds gets into the normal target directory.

use std::{io, path::Path, process::Command};

use crate::runs::special_build;

/// Runs the control and all bugs, or those named. Whether every bug was seen, and nothing where there was
/// none.
///
/// Errors: a build failed, or a process could not be started.
pub fn planted(root: &Path, arguments: &[String]) -> io::Result<bool> {
    let failed = |what: &str| io::Error::other(format!("the build {what} failed"));
    let schedules = special_build::build(root, "testudo_shuttle", "testudo-schedules")?;
    let schedules = schedules.ok_or_else(|| failed("for the seeded scheduler"))?;
    let program = special_build::build(root, "testudo_planted", "testudo-planted")?;
    let program = program.ok_or_else(|| failed("with planted bugs"))?;
    let mut command = Command::new(&program);
    if arguments == ["list"] {
        return Ok(command.arg("list").status()?.success());
    }
    command.arg("--schedules").arg(schedules);
    let listed = Command::new(&program).arg("targets").args(arguments).output()?;
    for target in String::from_utf8_lossy(&listed.stdout).lines() {
        let tests = special_build::build_tests(root, "testudo_planted", target)?;
        let tests = tests.ok_or_else(|| failed("of tests with planted bugs"))?;
        command.args(["--test", target]).arg(tests);
    }
    Ok(command.args(arguments).status()?.success())
}
