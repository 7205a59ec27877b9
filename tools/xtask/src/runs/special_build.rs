//! Builds of the workspace under a `--cfg` of their own, and many runs of what was built, side by side.
//!
//! **Invariants**
//! - Special builds have a target directory of their own, so that they never make the normal one stale, and
//!   tests that start a program of the workspace start the one that was built with them.
//! - They share what others wrote: only the crates of the workspace see the `--cfg`.
//! - Runs begin in the order of the list; as many run at once as there are cores.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::runs::rustc_with_cfg;

/// Chosen with every package, without building anything of it: it asks for all features of what others wrote
/// that the workspace asks for. With fewer features in one build than in another, all crates above would be
/// built again.
const PACKAGE_WITH_ALL_FEATURES: &str = "testudo-cli";

/// Builds the binary `name` of the package with that name with `--cfg cfg`; returns where it is. `None` if it
/// does not build.
pub(crate) fn build(root: &Path, cfg: &str, name: &str) -> io::Result<Option<PathBuf>> {
    let (mut command, target) = cargo(root, cfg)?;
    command.args(["build", "--quiet", "--package", name, "--bin", name, "--target-dir"]).arg(&target);
    command.args(["--package", PACKAGE_WITH_ALL_FEATURES]);
    let has_built = command.status()?.success();
    Ok(has_built.then(|| target.join("debug").join(name)))
}

/// Builds the tests of a target with `--cfg cfg`: `FOLDER/tests/NAME`, or `FOLDER/src` for those of a
/// library. Returns where they are; `None` if they do not build.
pub(crate) fn build_tests(root: &Path, cfg: &str, target: &str) -> io::Result<Option<PathBuf>> {
    let (mut command, target_dir) = cargo(root, cfg)?;
    command.args(["test", "--no-run", "--quiet", "--message-format", "json-render-diagnostics"]);
    command.arg("--target-dir").arg(&target_dir);
    let package = match target.split_once("/tests/") {
        Some((package, name)) => {
            command.args(["--test", name]);
            package
        }
        None => {
            command.arg("--lib");
            target.trim_end_matches("/src")
        }
    };
    let manifest = fs::read_to_string(root.join(package).join("Cargo.toml"))?;
    let name = package_name(&manifest).ok_or_else(|| io::Error::other(format!("{package} has no name")))?;
    command.args(["--package", name, "--package", PACKAGE_WITH_ALL_FEATURES]);
    let built = command.stderr(Stdio::inherit()).output()?;
    let messages = String::from_utf8_lossy(&built.stdout);
    Ok(tests_in(&messages).filter(|_| built.status.success()))
}

/// What a manifest calls its package.
fn package_name(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// The program with tests that cargo's messages, one JSON document a line, say was built.
fn tests_in(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|message| {
        let (_, profile) = message.split_once(r#""profile":{"#)?;
        let (profile, _) = profile.split_once('}')?;
        let (_, path) = message.split_once(r#""executable":""#)?;
        let (path, _) = path.split_once('"')?;
        profile.contains(r#""test":true"#).then(|| PathBuf::from(path))
    })
}

/// Cargo for a build with `--cfg cfg`, and the target directory of such builds.
fn cargo(root: &Path, cfg: &str) -> io::Result<(Command, PathBuf)> {
    let (wrapper, target) = environment(root, cfg)?;
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    Ok((command, target))
}

/// The program that stands in for rustc in builds with `--cfg cfg`, and their target directory.
pub(crate) fn environment(root: &Path, cfg: &str) -> io::Result<(PathBuf, PathBuf)> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = target.join("special");
    Ok((rustc_with_cfg::put_into(&target, cfg)?, target))
}

/// Builds the binary `name` of the package with that name in a profile of the workspace; returns where it is.
/// `None` if it does not build.
pub(crate) fn build_profile(root: &Path, profile: &str, name: &str) -> io::Result<Option<PathBuf>> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args([
        "build",
        "--quiet",
        "--profile",
        profile,
        "--package",
        name,
        "--bin",
        name,
    ]);
    let has_built = command.status()?.success();
    Ok(has_built.then(|| target.join(profile).join(name)))
}

/// Runs all commands and hands each outcome to `report` as soon as it is there.
pub(crate) fn run_all(commands: Vec<Command>, report: impl Fn(usize, io::Result<Output>) + Sync) {
    let next = AtomicUsize::new(0);
    let commands: Vec<Mutex<Command>> = commands.into_iter().map(Mutex::new).collect();
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(command) = commands.get(index) else { return };
            report(index, command.lock().unwrap_or_else(PoisonError::into_inner).output());
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(worker);
        }
    });
}

#[cfg(test)]
mod tests;
