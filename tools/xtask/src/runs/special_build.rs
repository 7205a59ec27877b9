//! Builds of the workspace under a `--cfg` of their own, and many runs of what was built, side by side.
//!
//! **Invariants**
//! - Special builds have a target directory of their own, so that they never make the normal one stale, and
//!   tests that start a program of the workspace start the one that was built with them.
//! - They share what others wrote: only the crates of the workspace see the `--cfg`.
//! - Runs begin in the order of the list; as many run at once as there are cores.

use std::{
    collections::{BTreeMap, BTreeSet},
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

/// Builds the tests of these targets with `--cfg cfg`: `FOLDER/tests/NAME`, or `FOLDER/src` for those of a
/// library. Returns where they are, by target; `None` if they do not build.
pub(crate) fn build_tests(
    root: &Path,
    cfg: &str,
    targets: &[String],
) -> io::Result<Option<BTreeMap<String, PathBuf>>> {
    let (mut command, target_dir) = cargo(root, cfg)?;
    command.args(["test", "--no-run", "--quiet", "--message-format", "json-render-diagnostics"]);
    command.arg("--target-dir").arg(&target_dir);
    let mut packages = BTreeSet::from([PACKAGE_WITH_ALL_FEATURES.to_owned()]);
    let mut selected = BTreeSet::new();
    for target in targets {
        let folder = match target.split_once("/tests/") {
            Some((folder, name)) => {
                selected.insert(format!("--test={name}"));
                folder
            }
            None => {
                selected.insert("--lib".to_owned());
                target.trim_end_matches("/src")
            }
        };
        let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml"))?;
        let name = package_name(&manifest);
        packages.insert(name.ok_or_else(|| io::Error::other(format!("{folder} has no name")))?.to_owned());
    }
    command.args(selected).args(packages.iter().flat_map(|name| ["--package", name]));
    let built = command.stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        return Ok(None);
    }
    let programs = tests_in(&String::from_utf8_lossy(&built.stdout), &root.canonicalize()?);
    let found = |target: &String| Some((target.clone(), programs.get(target)?.clone()));
    Ok(targets.iter().map(found).collect())
}

/// Builds all tests as `cargo test --workspace` does. Returns where they are, by target; `None` if they do
/// not build.
pub(crate) fn build_all_tests(root: &Path) -> io::Result<Option<BTreeMap<String, PathBuf>>> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([
        "test",
        "--workspace",
        "--no-run",
        "--quiet",
        "--message-format",
        "json-render-diagnostics",
    ]);
    let built = command.current_dir(root).stderr(Stdio::inherit()).output()?;
    let messages = String::from_utf8_lossy(&built.stdout);
    Ok(built.status.success().then(|| tests_in(&messages, root)))
}

/// What a manifest calls its package.
fn package_name(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// The programs with tests that cargo's messages, one JSON document a line, say were built, by target.
fn tests_in(messages: &str, root: &Path) -> BTreeMap<String, PathBuf> {
    let tests = messages.lines().filter_map(|message| {
        let (_, profile) = message.split_once(r#""profile":{"#)?;
        let (profile, _) = profile.split_once('}')?;
        let source = Path::new(text_after(message, r#""src_path":""#)?).strip_prefix(root).ok()?;
        let target = source.to_str()?.trim_end_matches(".rs").trim_end_matches("/lib");
        let program = text_after(message, r#""executable":""#)?;
        profile.contains(r#""test":true"#).then(|| (target.to_owned(), PathBuf::from(program)))
    });
    tests.collect()
}

/// The text between `start` and the next quotation mark.
fn text_after<'t>(message: &'t str, start: &str) -> Option<&'t str> {
    let (_, rest) = message.split_once(start)?;
    rest.split_once('"').map(|(text, _)| text)
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
