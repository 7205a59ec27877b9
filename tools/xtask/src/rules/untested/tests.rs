use super::check;
use crate::checkout::sources::Source;

fn findings(manifest: &str, path: &str, text: &str) -> Vec<String> {
    let sources = [Source::new("tools/a/Cargo.toml", manifest), Source::new(path, text)];
    check(&sources).iter().map(ToString::to_string).collect()
}

#[test]
fn documentation_tests_that_are_not_run_are_found() {
    let manifest = "[lib]\ndoctest = false\n";
    let text = "//! ```text\n//! a -> b\n//! ```\n/// ```\n/// f();\n/// ```\nfn f() {}\n";
    let found = findings(manifest, "tools/a/src/lib.rs", text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("tools/a/src/lib.rs:4"), "{found:?}");
    assert!(findings(manifest, "tools/b/src/lib.rs", text).is_empty(), "another package");
    assert!(findings("[lib]\nname = \"a\"\n", "tools/a/src/lib.rs", text).is_empty());
}

#[test]
fn tests_that_are_not_run_are_found() {
    let text = "fn f() {}\n\n#[test]\nfn g() {}\n";
    assert_eq!(findings("[lib]\ntest = false\n", "tools/a/src/b.rs", text).len(), 1);
    assert_eq!(findings("[[bin]]\nname = \"a\"\ntest = false\n", "tools/a/src/main.rs", text).len(), 1);
    assert!(findings("[[bin]]\nname = \"a\"\ntest = false\n", "tools/a/src/b.rs", text).is_empty());
}
