//! Builds of the workspace under a `--cfg` of their own, and many runs of what was built, side by side.
//!
//! **Invariants**
//! - A special build has a target directory of its own, so that it never makes the normal one stale.
//! - Runs begin in the order of the list; as many run at once as there are cores.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Builds the binary `name` of the package with that name with `--cfg cfg`; returns where it is. `None` if it
/// does not build.
pub(crate) fn build(root: &Path, cfg: &str, folder: &str, name: &str) -> io::Result<Option<PathBuf>> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = target.join(folder);
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).env("RUSTFLAGS", format!("{flags} --cfg {cfg}"));
    command.args(["build", "--quiet", "--package", name, "--bin", name, "--target-dir"]).arg(&target);
    let has_built = command.status()?.success();
    Ok(has_built.then(|| target.join("debug").join(name)))
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
