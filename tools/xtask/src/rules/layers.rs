//! The crate layers as a table: allowed dependencies between crates.
//!
//! **Invariants**
//! - Every crate is in the table or in a folder with a rule; any other crate is a finding until it is added.
//! - Dev-dependencies are unrestricted: they may point upwards.

use crate::{
    Finding,
    checkout::{
        manifest::{Setting, dependencies, package_name, settings},
        sources::Source,
    },
};

/// Crates of the substrate, with the workspace crates that each may use.
pub(crate) const SUBSTRATE: [(&str, &[&str]); 9] = [
    ("testudo-base", &[]),
    ("testudo-env", &["testudo-base"]),
    ("testudo-storage", &["testudo-base", "testudo-env"]),
    ("testudo-wal", &["testudo-base", "testudo-env"]),
    ("testudo-memtable", &["testudo-base"]),
    ("testudo-records", &["testudo-base"]),
    ("testudo-filter", &["testudo-base"]),
    ("testudo-run", &["testudo-base", "testudo-env", "testudo-storage", "testudo-filter"]),
    ("testudo-values", &["testudo-base", "testudo-env", "testudo-storage", "testudo-run"]),
];
/// Crates that the contract of the trees may use.
const CONTRACT: &[&str] = &["testudo-base", "testudo-storage", "testudo-run", "testudo-values"];
/// Crates that the sequences of runs, of which trees consist, may use.
const SEQUENCE: &[&str] = &["testudo-base", "testudo-storage", "testudo-run", "testudo-contract"];
/// Crates that a tree may use: never another tree, the log, the write buffer or the engine.
const TREE: &[&str] = &[
    "testudo-base",
    "testudo-storage",
    "testudo-filter",
    "testudo-run",
    "testudo-values",
    "testudo-contract",
    "testudo-sequence",
];
/// Crates of the engine from the lowest to the highest; each may use those before it.
pub(crate) const ENGINE: [&str; 6] =
    ["testudo-options", "testudo-store", "testudo-flush", "testudo-write", "testudo-recovery", "testudo-db"];

/// Package of the workspace.
struct Package<'a> {
    source: &'a Source,
    name: &'a str,
    settings: Vec<Setting<'a>>,
}

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut packages = Vec::new();
    for source in sources.iter().filter(|source| source.file_name() == "Cargo.toml") {
        let settings = settings(&source.text);
        match package_name(&settings) {
            Some(name) => packages.push(Package { source, name, settings }),
            None if source.path == "Cargo.toml" => {}
            None => findings.push(Finding::new(&source.path, 1, "has no package name")),
        }
    }
    for package in &packages {
        findings.extend(lints(package));
        findings.extend(missing_packages(package, &packages));
        for (line, dependency) in dependencies(&package.settings) {
            let Some(used) = packages.iter().find(|other| other.name == dependency) else { continue };
            if !may_use(package, used) {
                let message = format!("{} must not use {dependency}: {}", package.name, rule_of(package));
                findings.push(Finding::new(&package.source.path, line, message));
            }
        }
        if !has_place(package) {
            let message = format!("{} has no place in tools/xtask/src/rules/layers.rs", package.name);
            findings.push(Finding::new(&package.source.path, 1, message));
        }
    }
    findings
}

fn lints(package: &Package<'_>) -> Option<Finding> {
    let has = package.settings.iter().any(|s| (s.section, s.key, s.value) == ("lints", "workspace", "true"));
    let message = "lacks `[lints] workspace = true`";
    (!has).then(|| Finding::new(&package.source.path, 1, message))
}

/// Dependencies by a path at which there is no package. Cargo notices that only where it builds the package,
/// which may be outside the workspace.
fn missing_packages(package: &Package<'_>, packages: &[Package<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for setting in &package.settings {
        let Some((_, path)) = setting.value.split_once("path = \"../") else { continue };
        let path = path.split('"').next().unwrap_or_default();
        let mut folders: Vec<&str> = package.source.path.split('/').collect();
        folders.truncate(folders.len().saturating_sub(2));
        for part in path.split('/') {
            if part == ".." {
                folders.pop();
            } else {
                folders.push(part);
            }
        }
        let manifest = format!("{}/Cargo.toml", folders.join("/"));
        if packages.iter().all(|other| other.source.path != manifest) {
            let message = format!("{} depends on {manifest}, which does not exist", package.name);
            findings.push(Finding::new(&package.source.path, setting.line, message));
        }
    }
    findings
}

fn folder<'a>(package: &Package<'a>) -> &'a str {
    package.source.path.split('/').next().unwrap_or_default()
}

fn substrate_row(name: &str) -> Option<&'static [&'static str]> {
    SUBSTRATE.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, may)| *may)
}

fn has_place(package: &Package<'_>) -> bool {
    match folder(package) {
        "substrate" => substrate_row(package.name).is_some(),
        "engine" => ENGINE.contains(&package.name),
        "trees" | "maintenance" | "testudo" | "testing" | "tools" | "bindings" => true,
        _ => false,
    }
}

fn may_use(package: &Package<'_>, used: &Package<'_>) -> bool {
    match folder(package) {
        "substrate" => substrate_row(package.name).is_none_or(|may| may.contains(&used.name)),
        "trees" if package.name == "testudo-contract" => CONTRACT.contains(&used.name),
        "trees" if package.name == "testudo-sequence" => SEQUENCE.contains(&used.name),
        "trees" => TREE.contains(&used.name),
        "engine" if folder(used) == "engine" => is_before(used.name, package.name),
        "engine" => matches!(folder(used), "substrate" | "trees"),
        "maintenance" => matches!(folder(used), "substrate" | "trees" | "engine"),
        "testudo" => !matches!(folder(used), "testing" | "tools"),
        _ => true,
    }
}

/// Whether `lower` comes before `name` among the crates of the engine.
fn is_before(lower: &str, name: &str) -> bool {
    let place = |name: &str| ENGINE.iter().position(|crate_name| *crate_name == name);
    place(lower) < place(name)
}

fn rule_of(package: &Package<'_>) -> &'static str {
    match folder(package) {
        "substrate" => "the substrate uses only lower layers and no trees",
        "trees" => "a tree uses the substrate and the contract, no other tree, no log, no engine",
        "engine" => "a crate of the engine uses the substrate, trees, and lower crates of the engine",
        "maintenance" => "maintenance uses the engine and lower layers, and no other crate of maintenance",
        _ => "the public crate uses neither tools nor tests",
    }
}

#[cfg(test)]
mod tests;
