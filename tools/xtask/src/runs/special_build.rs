//! Builds of the workspace with their own `--cfg`, and concurrent runs of the built programs.
//!
//! **Invariants**
//! - Special builds have their own target directory. They never make the normal one stale, and tests that
//!   start a workspace program start the one built with them.
//! - They share external crates: only workspace crates see the `--cfg`.
//! - Runs start in list order; as many run concurrently as there are cores.

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

/// Package that is selected in every build without being built: it enables all features of external crates
/// that the workspace uses. With fewer features in one build than in another, all dependent crates would be
/// rebuilt.
const PACKAGE_WITH_ALL_FEATURES: &str = "testudo-cli";

/// Builds the binary `name` of the package of the same name with `--cfg cfg`; returns its path, or `None` if
/// the build fails.
pub(crate) fn build(root: &Path, cfg: &str, name: &str) -> io::Result<Option<PathBuf>> {
    let (mut command, target) = cargo(root, cfg)?;
    command.args(["build", "--quiet", "--package", name, "--bin", name, "--target-dir"]).arg(&target);
    command.args(["--package", PACKAGE_WITH_ALL_FEATURES]);
    let has_built = command.status()?.success();
    Ok(has_built.then(|| target.join("debug").join(name)))
}

/// Builds the tests of these targets with `--cfg cfg`: `FOLDER/tests/NAME`, or `FOLDER/src` for the tests of
/// a library. Returns their paths by target, or `None` if the build fails.
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

/// Builds all tests as `cargo test --workspace` does. Returns their paths by target, or `None` if the build
/// fails.
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

/// Package name in a manifest.
fn package_name(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// Test programs by target, from cargo's messages, which are one JSON document per line.
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

/// Text between `start` and the next quotation mark.
fn text_after<'t>(message: &'t str, start: &str) -> Option<&'t str> {
    let (_, rest) = message.split_once(start)?;
    rest.split_once('"').map(|(text, _)| text)
}

/// Returns cargo for a build with `--cfg cfg`, and the target directory of such builds.
fn cargo(root: &Path, cfg: &str) -> io::Result<(Command, PathBuf)> {
    let (wrapper, target) = environment(root, cfg)?;
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    Ok((command, target))
}

/// Returns the rustc wrapper for builds with `--cfg cfg`, and their target directory.
pub(crate) fn environment(root: &Path, cfg: &str) -> io::Result<(PathBuf, PathBuf)> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = target.join("special");
    Ok((rustc_with_cfg::put_into(&target, cfg)?, target))
}

/// Builds the binary `name` of the package of the same name in a profile of the workspace; returns its path,
/// or `None` if the build fails.
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

/// Runs all commands and passes each outcome to `report` as soon as it is available.
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
