//! Checks that targets which manifests exclude from `cargo test` contain no tests.
//!
//! Each library scanned for documentation tests, and each binary built as a test, costs a build. Targets
//! without tests therefore opt out: `doctest = false`, `test = false`.
//!
//! **Invariants**
//! - The sources of a package without documentation tests contain none: every fence in a comment names
//!   another language, such as `text`.
//! - Neither a library with `test = false` nor the main file of such a binary has a `#[test]`.

use crate::{
    Finding,
    checkout::{manifest::settings, sources::Source},
};

/// Words after a fence that make it a documentation test.
const TESTED_FENCES: [&str; 6] = ["", "rust", "should_panic", "no_run", "ignore", "compile_fail"];

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let manifests = sources.iter().filter(|source| source.file_name() == "Cargo.toml");
    manifests.flat_map(|manifest| untested(manifest, sources)).collect()
}

fn untested(manifest: &Source, sources: &[Source]) -> Vec<Finding> {
    let folder = format!("{}src/", manifest.path.trim_end_matches("Cargo.toml"));
    let own = || sources.iter().filter(|source| source.is_rust() && source.path.starts_with(&folder));
    let mut findings = Vec::new();
    for setting in settings(&manifest.text) {
        match (setting.section, setting.key, setting.value) {
            ("lib", "doctest", "false") => findings.extend(own().flat_map(tested_fences)),
            ("lib", "test", "false") => findings.extend(own().flat_map(tests)),
            ("[bin]", "test", "false") => {
                let main = own().filter(|source| source.path == format!("{folder}main.rs"));
                findings.extend(main.flat_map(tests));
            }
            _ => {}
        }
    }
    findings
}

fn tested_fences(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_open = false;
    for (number, line) in (1..).zip(source.text.lines()) {
        let line = line.trim_start();
        let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
        let Some(word) = comment.and_then(|comment| comment.trim().strip_prefix("```")) else { continue };
        is_open = !is_open;
        let language = word.split([',', ' ']).next().unwrap_or_default();
        if is_open && TESTED_FENCES.contains(&language) {
            let message = "is a test that is never run: its Cargo.toml says `doctest = false`";
            findings.push(Finding::new(&source.path, number, message));
        }
    }
    findings
}

fn tests(source: &Source) -> Vec<Finding> {
    let lines = (1..).zip(source.text.lines());
    let of_tests = lines.filter(|(_, line)| line.trim() == "#[test]" || line.trim() == "mod tests;");
    let message = "is a test that is never run: its Cargo.toml says `test = false`";
    of_tests.map(|(number, _)| Finding::new(&source.path, number, message)).collect()
}

#[cfg(test)]
mod tests;
