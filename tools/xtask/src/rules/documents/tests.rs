use super::{DECISION_INDEX, DEPENDENCY_RECORD, GLOSSARY, MAPS, check};
use crate::checkout::sources::Source;

fn findings(map_text: &str, dependencies: &str) -> Vec<String> {
    let mut sources: Vec<Source> = MAPS.iter().map(|path| Source::new(path, map_text)).collect();
    sources.push(Source::new("Cargo.toml", &format!("[workspace.dependencies]\n{dependencies}\n")));
    sources.push(Source::new(DEPENDENCY_RECORD, "- `serde` – results as JSON."));
    sources.push(Source::new(DECISION_INDEX, "- [0002](0002-dependencies.md) – libraries"));
    sources.push(Source::new(GLOSSARY, "# Glossary\n\n- **batch**: …\n  more\n- **Buffered**: …"));
    sources.push(Source::new("substrate/run/src/format/block.rs", ""));
    check(&sources).iter().map(ToString::to_string).collect()
}

#[test]
fn files_that_exist_and_dependencies_with_a_reason_pass() {
    let map = "`block.rs`, `run/src/format/block.rs`, `*_format.rs`, `trees/NAME/tree.rs`: one page each.";
    assert!(findings(map, "serde = \"1\"\ntestudo = { path = \"engine\" }").is_empty());
}

#[test]
fn a_file_that_does_not_exist_is_found() {
    let found = findings("first line\nput -> `lock.rs`", "");
    assert_eq!(found.len(), MAPS.len());
    assert_eq!(found[0], "ARCHITECTURE.md:2: names `lock.rs`, which does not exist");
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let found = findings("", "serde = \"1\"\nrand = \"0.9\"");
    assert_eq!(found, [format!("Cargo.toml:3: `rand` has no reason in {DEPENDENCY_RECORD}")]);
}

#[test]
fn decision_missing_from_the_index_is_found() {
    let sources = [
        Source::new(DECISION_INDEX, "- [0001](0001-layers.md) – layers"),
        Source::new("docs/decisions/0001-layers.md", ""),
        Source::new("docs/decisions/0002-words.md", "see [0001](0001-layers.md)"),
    ];
    let found: Vec<String> = check(&sources).iter().map(ToString::to_string).collect();
    let found: Vec<&String> = found.iter().filter(|finding| finding.contains("not link")).collect();
    assert_eq!(found, ["docs/decisions/README.md:1: does not link `0002-words.md`"]);
}

#[test]
fn missing_documents_are_found() {
    assert_eq!(check(&[]).len(), MAPS.len() + 2);
}

#[test]
fn unsorted_and_duplicate_glossary_words_are_found() {
    let glossary = "- **cut**: …\n- **batch**: …\n- **Batch**: …\n- **run**: …";
    let found = check(&[Source::new(GLOSSARY, glossary)]);
    let of_glossary = found.iter().map(ToString::to_string).filter(|finding| finding.starts_with(GLOSSARY));
    assert_eq!(
        of_glossary.collect::<Vec<_>>(),
        [
            "docs/GLOSSARY.md:2: `batch` comes before `cut`",
            "docs/GLOSSARY.md:3: `batch` comes before `batch`"
        ]
    );
}
