use super::check;
use crate::checkout::sources::Source;

fn package(path: &str, name: &str, dependencies: &str) -> Source {
    let text = format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{dependencies}");
    Source::new(&format!("{path}/Cargo.toml"), &text)
}

/// Findings of a small repository, with `extra` in place of or in addition to its packages.
fn findings(extra: &[Source]) -> Vec<String> {
    let mut sources = vec![
        package("substrate/base", "testudo-base", ""),
        package("substrate/env", "testudo-env", "[dependencies]\ntestudo-base.workspace = true\n"),
        package("substrate/wal", "testudo-wal", "[dependencies]\ntestudo-env.workspace = true\n"),
        package("trees/contract", "testudo-contract", ""),
        package("trees/betree", "testudo-betree", "[dependencies]\ntestudo-contract.workspace = true\n"),
        package("engine/store", "testudo-store", "[dependencies]\ntestudo-betree.workspace = true\n"),
        package("engine/flush", "testudo-flush", "[dependencies]\ntestudo-store.workspace = true\n"),
        package("maintenance/repair", "testudo-repair", "[dependencies]\ntestudo-flush.workspace = true\n"),
        package("testudo", "testudo", "[dependencies]\ntestudo-repair.workspace = true\n"),
        package("tools/bench", "testudo-bench", "[dependencies]\ntestudo-base = { path = \"x\" }\n"),
    ];
    sources.retain(|source| extra.iter().all(|other| other.path != source.path));
    sources.extend_from_slice(extra);
    check(&sources).iter().map(ToString::to_string).collect()
}

#[test]
fn current_layers_have_no_findings() {
    assert!(findings(&[]).is_empty());
}

#[test]
fn upward_and_sideways_dependencies_are_found() {
    let cases = [
        package("substrate/base", "testudo-base", "[dependencies]\ntestudo-env.workspace = true\n"),
        package("substrate/env", "testudo-env", "[dependencies.testudo-contract]\npath = \"x\"\n"),
        package("substrate/wal", "testudo-wal", "[build-dependencies]\ntestudo = { path = \"x\" }\n"),
        package("trees/contract", "testudo-contract", "[dependencies]\ntestudo-betree.workspace = true\n"),
        package("trees/sequence", "testudo-sequence", "[dependencies]\ntestudo-betree.workspace = true\n"),
        package("trees/lsm", "testudo-lsm", "[dependencies]\ntestudo-betree.workspace = true\n"),
        package(
            "trees/lsm",
            "testudo-lsm",
            "[target.'cfg(unix)'.dependencies]\ntestudo-wal.workspace = true\n",
        ),
        package("engine/store", "testudo-store", "[dependencies]\ntestudo-flush.workspace = true\n"),
        package("engine/store", "testudo-store", "[dependencies]\ntestudo-repair.workspace = true\n"),
        package("maintenance/backup", "testudo-backup", "[dependencies]\ntestudo-repair.workspace = true\n"),
        package("testudo", "testudo", "[dependencies]\ntestudo-bench.workspace = true\n"),
    ];
    for case in cases {
        let found = findings(std::slice::from_ref(&case));
        assert_eq!(found.len(), 1, "{case:?}: {found:?}");
        assert!(found[0].contains("must not use"));
        let line = if case.text.contains("[dependencies.") { 5 } else { 6 };
        assert!(found[0].starts_with(&format!("{}:{line}: ", case.path)), "{}", found[0]);
    }
}

#[test]
fn paths_without_a_package_are_found() {
    let path = |path| {
        let dependency = format!("[dependencies]\ntestudo = {{ path = \"{path}\" }}\n");
        findings(&[package("tools/bench-rivals", "testudo-bench-rivals", &dependency)])
    };
    assert!(path("../../testudo").is_empty());
    let found = path("../../engine");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("depends on engine/Cargo.toml, which does not exist"), "{}", found[0]);
}

#[test]
fn dev_dependencies_are_unrestricted() {
    let up = package("substrate/base", "testudo-base", "[dev-dependencies]\ntestudo.workspace = true\n");
    assert!(findings(&[up]).is_empty());
}

#[test]
fn a_crate_without_a_place_and_one_without_lints_are_found() {
    let stray = package("substrate/cache", "testudo-cache", "");
    assert!(findings(&[stray])[0].contains("has no place"));
    let loose = Source::new("tools/cli/Cargo.toml", "[package]\nname = \"testudo-cli\"\n");
    assert!(findings(&[loose])[0].contains("lacks `[lints]"));
}
