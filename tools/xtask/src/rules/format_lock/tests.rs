use super::{DOCUMENT, check, hash_of};
use crate::checkout::sources::Source;

const PATH: &str = "substrate/wal/src/segment/wal_format.rs";
const CODE: &str = "//! Table.\nconst MAGIC: &[u8] = b\"A\";\n";

fn findings(document: &str, code: &str) -> Vec<String> {
    let sources = [Source::new(DOCUMENT, document), Source::new(PATH, code)];
    check(&sources).iter().map(ToString::to_string).collect()
}

#[test]
fn suggested_line_resolves_the_finding() {
    let missing = findings("# Format\n", CODE);
    assert!(missing[0].starts_with("docs/FORMAT.md:1: format code is not covered"));
    let line = missing[0].split_once("write: ").unwrap().1;
    assert!(findings(&format!("# Format\n{line}\n"), CODE).is_empty());
}

#[test]
fn changed_code_is_found_at_the_line_of_its_hash() {
    let document = format!("# Format\n\n- `{PATH}` {}\n", hash_of(CODE));
    let found = findings(&document, &CODE.replace("\"A\"", "\"B\""));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("docs/FORMAT.md:3: format code changed"));
}

#[test]
fn comments_and_layout_do_not_count() {
    assert_eq!(hash_of(CODE), hash_of("const MAGIC : &[u8]\n    = b\"A\"; // the same\n"));
}

#[test]
fn lines_for_other_files_and_a_missing_document_are_found() {
    let document = format!("- `{PATH}` {}\n- `engine/db/src/db.rs` 0123456789abcdef\n", hash_of(CODE));
    assert_eq!(
        findings(&document, CODE),
        ["docs/FORMAT.md:2: `engine/db/src/db.rs` is not a file with format code"]
    );
    assert_eq!(check(&[]).len(), 1);
}

#[test]
fn hash_ignores_imports_but_not_the_code_after_them() {
    let imports = "use std::{\n    fmt,\n    io,\n};\npub(crate) use crate::a::B;\n";
    assert_eq!(hash_of(&format!("{imports}{CODE}")), hash_of(CODE));
    assert_ne!(hash_of(&format!("{imports}{CODE}const MORE: u8 = 1;\n")), hash_of(CODE));
}
