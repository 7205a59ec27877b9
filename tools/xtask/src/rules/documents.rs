//! Rules that keep the documents accurate: named files exist, dependencies have a reason, decisions are in
//! their index, the glossary is sorted.

use crate::{
    Finding,
    checkout::{manifest::settings, sources::Source},
    rules::code_map::CODE_MAP,
};

/// Documents whose `file.rs` names must exist in the checkout.
const MAPS: [&str; 6] =
    ["ARCHITECTURE.md", "CONTRIBUTING.md", CODE_MAP, "docs/FORMAT.md", "docs/TESTING.md", "docs/papers.md"];
const GLOSSARY: &str = "docs/GLOSSARY.md";
const DECISIONS: &str = "docs/decisions/";
const DECISION_INDEX: &str = "docs/decisions/README.md";
const DEPENDENCY_RECORD: &str = "docs/decisions/0002-dependencies.md";

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = dependency_reasons(sources);
    for path in MAPS {
        match sources.iter().find(|source| source.path == path) {
            Some(map) => findings.extend(named_files(map, sources)),
            None => findings.push(Finding::new(path, 1, "is missing")),
        }
    }
    findings.extend(unlisted_decisions(sources));
    match sources.iter().find(|source| source.path == GLOSSARY) {
        Some(glossary) => findings.extend(unsorted_words(glossary)),
        None => findings.push(Finding::new(GLOSSARY, 1, "is missing")),
    }
    findings
}

/// Decisions that their index does not link.
fn unlisted_decisions(sources: &[Source]) -> Vec<Finding> {
    let index = sources.iter().find(|source| source.path == DECISION_INDEX);
    let index = index.map_or("", |index| &index.text);
    let of = |source: &Source| source.path.strip_prefix(DECISIONS).map(str::to_owned);
    let names = sources.iter().filter(|source| source.path != DECISION_INDEX).filter_map(of);
    let unlisted = names.filter(|name| !index.contains(&format!("({name})")));
    unlisted.map(|name| Finding::new(DECISION_INDEX, 1, format!("does not link `{name}`"))).collect()
}

/// Words of the glossary (`- **word**: …`) that do not sort after the previous word, ignoring case.
fn unsorted_words(glossary: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut before = String::new();
    for (line, content) in (1..).zip(glossary.text.lines()) {
        let Some((word, _)) = content.strip_prefix("- **").and_then(|rest| rest.split_once("**")) else {
            continue;
        };
        let word = word.to_lowercase();
        if word <= before {
            findings.push(Finding::new(&glossary.path, line, format!("`{word}` comes before `{before}`")));
        }
        before = word;
    }
    findings
}

/// Names of missing files. A name exists if some path of the checkout ends with it; `NAME` and `foo` are
/// wildcards.
fn named_files(map: &Source, sources: &[Source]) -> Vec<Finding> {
    let exists = |name: &str| {
        let is_it =
            |path: &str| path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        sources.iter().any(|source| is_it(&source.path))
    };
    let is_name_part = |c: char| c.is_alphanumeric() || "_-./*".contains(c);
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(map.text.lines()) {
        for word in content.split(|c| !is_name_part(c)) {
            let is_file = word.ends_with(".rs") && word != ".rs";
            let is_pattern = word.contains('*') || word.contains("NAME") || word.starts_with("foo");
            if is_file && !is_pattern && !exists(word) {
                findings.push(Finding::new(&map.path, line, format!("names `{word}`, which does not exist")));
            }
        }
    }
    findings
}

fn dependency_reasons(sources: &[Source]) -> Vec<Finding> {
    let text_of = |path: &str| sources.iter().find(|source| source.path == path).map(|s| s.text.as_str());
    let (Some(workspace), Some(record)) = (text_of("Cargo.toml"), text_of(DEPENDENCY_RECORD)) else {
        return vec![Finding::new(DEPENDENCY_RECORD, 1, "is missing, or the root has no Cargo.toml")];
    };
    let mut findings = Vec::new();
    for setting in settings(workspace).iter().filter(|setting| setting.section == "workspace.dependencies") {
        let is_ours = setting.value.contains("path =");
        if !is_ours && !record.contains(&format!("`{}`", setting.key)) {
            let message = format!("`{}` has no reason in {DEPENDENCY_RECORD}", setting.key);
            findings.push(Finding::new("Cargo.toml", setting.line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests;
