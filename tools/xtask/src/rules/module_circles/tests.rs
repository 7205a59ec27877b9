use super::check;
use crate::checkout::sources::Source;

fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> =
        files.iter().map(|(name, text)| Source::new(&format!("substrate/base/src/{name}"), text)).collect();
    check(&sources).iter().map(ToString::to_string).collect()
}

#[test]
fn two_modules_that_import_each_other_are_found() {
    let found = findings(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "use crate::b::B;\n"),
        ("b.rs", "use std::fmt;\nuse crate::{other::{X, Y}, a::A};\n"),
    ]);
    assert_eq!(
        found,
        [
            "substrate/base/src/a.rs:1: `a` imports `b`, which leads back to `a`",
            "substrate/base/src/b.rs:1: `b` imports `a`, which leads back to `b`"
        ]
    );
}

#[test]
fn cycle_through_a_third_module_and_a_re_export_is_found() {
    let found = findings(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::deep::C;\n"),
        ("a.rs", "fn f() { crate::b::g() }\n"),
        ("b.rs", "use crate::C;\n"),
        ("c.rs", "pub(crate) mod deep;\n"),
        ("c/deep.rs", "use super::super::a;\n"),
    ]);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn submodules_and_tests_may_use_their_module() {
    let found = findings(&[
        ("lib.rs", "mod a;\n"),
        ("a.rs", "mod part;\nuse part::P;\nuse self::part::Q;\n"),
        ("a/part.rs", "use super::A;\n"),
        ("a/tests.rs", "use crate::b;\n"),
        ("b.rs", "// use crate::a;\nuse crate::a::A;\n"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn cycle_through_inline_super_path_is_found() {
    let found = findings(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "fn f() { super::b::g() }\n"),
        ("b.rs", "fn g() -> super::a::A { todo() }\n"),
    ]);
    assert_eq!(found.len(), 2, "{found:?}");
}

/// In a module within the file, `super` is the module of the file.
#[test]
fn super_path_of_inline_module_stays_in_its_file() {
    let found = findings(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "mod part {\n    use super::b::B;\n    fn f() { super::b::g() }\n}\nmod b {}\n"),
        ("b.rs", "use super::a::A;\n"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}
