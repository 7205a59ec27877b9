//! Builds the store with planted bugs and runs `testing/planted`, which shows that the tests detect each bug.
//! That program lists the test targets that it needs. It also checks that a release program contains none of
//! the bugs.
//!
//! **Invariants**
//! - These builds write nothing into the normal target directory.

use std::{io, path::Path, process::Command};

use crate::runs::special_build;

/// Cfg that enables planted bugs.
const CFG: &str = "testudo_planted";

/// Runs the control, unless `--without-control` is given, and all bugs, or the named ones. Returns whether
/// every bug was detected, and nothing was detected in the control.
///
/// Errors: a build failed, or a process could not be started.
pub fn planted(root: &Path, arguments: &[String]) -> io::Result<bool> {
    let failed = |what: &str| io::Error::other(format!("the build {what} failed"));
    let program = special_build::build(root, CFG, "testudo-planted")?;
    let program = program.ok_or_else(|| failed("with planted bugs"))?;
    let mut command = Command::new(&program);
    if let ["list"] | ["absent", _] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return Ok(command.args(arguments).status()?.success());
    }
    let schedules = special_build::build(root, "testudo_shuttle", "testudo-schedules")?;
    let schedules = schedules.ok_or_else(|| failed("for the seeded scheduler"))?;
    command.arg("--schedules").arg(schedules);
    let (flags, names): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| argument.starts_with("--"));
    let listed = Command::new(&program).arg("targets").args(&names).output()?;
    let targets: Vec<String> = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
    let tests = special_build::build_tests(root, CFG, &targets)?;
    for (target, program) in tests.ok_or_else(|| failed("of tests with planted bugs"))? {
        command.args(["--test", &target]).arg(program);
    }
    Ok(command.args(flags).args(names).status()?.success())
}

/// Returns the environment of cargo for the same builds, as shell commands. Tests built in it are those that
/// are run against the bugs.
///
/// Errors: the rustc wrapper could not be written.
pub fn planted_environment(root: &Path) -> io::Result<String> {
    let (wrapper, target) = special_build::environment(root, CFG)?;
    let lines = [("RUSTC_WORKSPACE_WRAPPER", wrapper), ("CARGO_TARGET_DIR", target)];
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    Ok(lines.map(|(name, path)| format!("export {name}={}\n", quoted(&path))).concat())
}
