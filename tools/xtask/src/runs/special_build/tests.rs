use std::path::PathBuf;

use super::{package_name, tests_in};

#[test]
fn of_what_cargo_built_the_program_with_tests_is_found() {
    let message = |name: &str, is_test: bool, executable: &str| {
        let target = format!(r#""target":{{"kind":["bin"],"name":"{name}","test":true}}"#);
        let profile = format!(r#""profile":{{"opt_level":"1","overflow_checks":true,"test":{is_test}}}"#);
        format!(
            r#"{{"reason":"compiler-artifact",{target},{profile},"executable":{executable},"fresh":true}}"#
        )
    };
    let library = message("testudo", true, "null");
    let program = message("testudo", false, r#""/target/debug/testudo""#);
    let tests = message("verbs", true, r#""/target/debug/deps/verbs-1""#);
    let all = [&library, &program, &tests].map(String::as_str).join("\n");
    assert_eq!(tests_in(&all), Some(PathBuf::from("/target/debug/deps/verbs-1")));
    assert_eq!(tests_in(&[library, program].join("\n")), None);
}

#[test]
fn a_package_is_called_what_its_manifest_says() {
    let manifest = "[package]\nname = \"testudo\"\nversion = \"1\"\n\n[[bin]]\nname = \"other\"\n";
    assert_eq!(package_name(manifest), Some("testudo"));
    assert_eq!(package_name("[workspace]\n"), None);
}
