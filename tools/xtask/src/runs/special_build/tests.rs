use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{package_name, tests_in};

#[test]
fn test_programs_are_found_in_cargo_messages() {
    let message = |source: &str, is_test: bool, executable: &str| {
        let target = format!(r#""target":{{"kind":["bin"],"src_path":"{source}","test":true}}"#);
        let profile = format!(r#""profile":{{"opt_level":"1","overflow_checks":true,"test":{is_test}}}"#);
        format!(
            r#"{{"reason":"compiler-artifact",{target},{profile},"executable":{executable},"fresh":true}}"#
        )
    };
    let all = [
        message("/checkout/testudo/src/lib.rs", false, "null"),
        message("/checkout/testudo/src/lib.rs", true, r#""/target/debug/deps/testudo-1""#),
        message("/checkout/tools/cli/src/main.rs", false, r#""/target/debug/testudo""#),
        message("/checkout/tools/cli/tests/verbs.rs", true, r#""/target/debug/deps/verbs-1""#),
        message("/elsewhere/src/lib.rs", true, r#""/target/debug/deps/other-1""#),
    ];
    let program =
        |target: &str, name: &str| (target.to_owned(), PathBuf::from("/target/debug/deps").join(name));
    let expected = [program("testudo/src", "testudo-1"), program("tools/cli/tests/verbs", "verbs-1")];
    assert_eq!(tests_in(&all.join("\n"), Path::new("/checkout")), BTreeMap::from(expected));
}

#[test]
fn package_name_is_read_from_the_manifest() {
    let manifest = "[package]\nname = \"testudo\"\nversion = \"1\"\n\n[[bin]]\nname = \"other\"\n";
    assert_eq!(package_name(manifest), Some("testudo"));
    assert_eq!(package_name("[workspace]\n"), None);
}
