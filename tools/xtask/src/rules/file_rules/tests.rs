use super::check;
use crate::checkout::sources::Source;

fn messages(path: &str, text: &str) -> Vec<String> {
    check(&Source::new(path, text)).into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn valid_file_has_no_findings() {
    assert!(messages("substrate/x/src/run.rs", "//! A run.\n\nstruct Run;\n").is_empty());
    assert!(messages("substrate/x/src/a.rs", "#![expect(\n    unsafe_code,\n)]\n//! Arena.\n").is_empty());
    assert!(messages("docs/common.md", "no header, and not Rust").is_empty());
}

#[test]
fn meaningless_names_are_found() {
    for name in ["util.rs", "common/page.rs", "helpers.rs", "mod.rs", "page_v2.rs", "misc.rs"] {
        let found = messages(&format!("engine/db/src/{name}"), "//! X.\n");
        assert_eq!(found.len(), 1, "{name}");
        assert!(found[0].contains("is banned"));
    }
    assert!(messages("engine/db/src/model_view.rs", "//! X.\n").is_empty());
}

#[test]
fn long_files_need_a_reason() {
    let body = "fn f() {}\n".repeat(600);
    let found = messages("engine/db/src/handles/db.rs", &format!("//! X.\n{body}"));
    assert!(found[0].starts_with("engine/db/src/handles/db.rs:601: 601 lines"));
    assert_eq!(messages("engine/db/src/handles/db.rs", &format!("//! X.\n//! Length: \n{body}")).len(), 1);
    assert!(
        messages("engine/db/src/handles/db.rs", &format!("//! X.\n//! Length: one table.\n{body}"))
            .is_empty()
    );
}

#[test]
fn a_missing_header_is_found_except_in_unit_tests() {
    let found = messages("engine/db/src/handles/db.rs", "\nuse std::io;\n//! late\n");
    assert_eq!(found, ["engine/db/src/handles/db.rs:2: a file must begin with a `//!` header"]);
    assert_eq!(messages("engine/db/src/handles/db.rs", "").len(), 1);
    assert!(messages("engine/db/src/db/tests.rs", "use super::Db;\n").is_empty());
}
