use super::TestFile;

fn target_and_filter(path: &str) -> Option<(String, String)> {
    TestFile::at(path).map(|file| (file.target_id(), file.filter()))
}

#[test]
fn a_path_determines_the_target_and_the_tests() {
    let of = |target: &str, filter: &str| Some((target.to_owned(), filter.to_owned()));
    for (path, expected) in [
        ("tools/cli/tests/verbs/formats.rs", of("tools/cli/tests/verbs", "formats::")),
        ("testudo/tests/long_keys.rs", of("testudo/tests/long_keys", "")),
        ("engine/db/src/tests/long_merges.rs", of("engine/db/src", "tests::long_merges::")),
        ("trees/betree/src/tree/tests/idle.rs", of("trees/betree/src", "tree::tests::idle::")),
        ("engine/write/src/long_merges.rs", None),
        ("testudo/tests/seek", None),
        ("schedules/flushes", None),
        ("model", None),
    ] {
        assert_eq!(target_and_filter(path), expected, "{path}");
    }
}
