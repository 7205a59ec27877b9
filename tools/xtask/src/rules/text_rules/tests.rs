use super::{MACHINE_PATH, UNSAFE_FILES, check, check_list};
use crate::checkout::sources::Source;

fn messages(path: &str, text: &str) -> Vec<String> {
    check(&Source::new(path, text)).into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn banned_code_is_found_with_its_line() {
    let cases =
        ["todo!()", "unimplemented!(\"x\")", "#[ignore]", "#[ignore = \"slow\"]", "#[allow(dead_code)]"];
    for case in cases {
        let found = messages("engine/db/src/handles/db.rs", &format!("//! X.\n    {case}\n"));
        assert_eq!(found.len(), 1, "{case}");
        assert!(found[0].starts_with("engine/db/src/handles/db.rs:2: "), "{}", found[0]);
    }
}

#[test]
fn banned_code_in_comments_literals_and_longer_words_is_ignored() {
    let text = "// todo!()\nlet x = \"#[allow(\";\nnot_todo!();\n#[expect(dead_code, reason = \"x\")]\n";
    assert!(messages("engine/db/src/handles/db.rs", text).is_empty());
}

#[test]
fn unsafe_code_is_found_outside_the_list() {
    let found = messages("engine/db/src/handles/db.rs", "//! X.\nfn f() {\n    unsafe { g() }\n}\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("engine/db/src/handles/db.rs:3: unsafe code"));
    assert!(
        messages("engine/db/src/handles/db.rs", "// unsafe\n#![deny(unsafe_code)]\nlet unsafe_to_free = 1;")
            .is_empty()
    );
}

#[test]
fn a_listed_file_needs_its_attribute_and_its_unsafe_code() {
    let path = UNSAFE_FILES[0].0;
    assert!(messages(path, "unsafe { g() }")[0].contains("lacks #![expect(unsafe_code"));
    assert!(messages(path, "fn f() {}")[0].contains("remove it from the list"));
    assert!(messages(path, "#![expect(unsafe_code, reason = \"x\")]\nunsafe { g() }").is_empty());
    assert_eq!(check_list(&[]).len(), UNSAFE_FILES.len());
}

#[test]
fn machine_specific_paths_are_found() {
    for path in ["README.md", "engine/db/src/handles/db.rs", "Cargo.toml"] {
        let found = messages(path, &format!("//! X.\n// see {MACHINE_PATH}x\n"));
        assert_eq!(found, [format!("{path}:2: names a machine-specific path")]);
    }
    assert!(messages("README.md", &format!("trees{MACHINE_PATH}x and src{MACHINE_PATH}tests.rs")).is_empty());
}
