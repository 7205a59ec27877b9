use super::check;
use crate::checkout::sources::Source;

fn messages(path: &str, text: &str) -> Vec<String> {
    check(&Source::new(path, text)).into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn fallible_method_documents_its_errors() {
    let text = "impl Db {\n    /// Opens.\n    pub fn open(path: &Path) -> Result<Self> {\n    }\n}\n";
    let found = messages("engine/db/src/db.rs", text);
    let expected =
        "engine/db/src/db.rs:3: `open` returns a Result: its comment must name the possible `Errors:`";
    assert_eq!(found, [expected]);
    assert_eq!(messages("engine/db/src/lib.rs", &text.replace("    /// Opens.\n", "")).len(), 1);
    for comment in ["/// Errors: `Closed`.", "/// Opens.\n    ///\n    /// Errors: `Io`.\n    #[must_use]"] {
        let text = text.replace("/// Opens.", comment);
        assert!(messages("engine/db/src/handles/db.rs", &text).is_empty(), "{text}");
    }
}

#[test]
fn multi_line_declarations_are_parsed() {
    for declaration in [
        "pub fn a(\n    &self,\n    k: [u8; 4],\n) -> std::io::Result<()> {\n",
        "pub const fn a<F: Fn(&[u8]) -> u64>(f: F) -> Option<Result<u64, String>>\nwhere\n    F: Copy,\n{\n",
        "pub fn a(f: impl Fn() -> bool) -> Result<()> { f() }\n",
    ] {
        assert_eq!(messages("engine/db/src/read.rs", declaration).len(), 1, "{declaration}");
    }
}

#[test]
fn infallible_and_private_functions_are_exempt() {
    for declaration in [
        "pub fn a(&self, f: impl Fn(u8) -> Result<()>) -> u64 {\n",
        "pub fn a<F: Fn() -> Result<()>>(f: F) {\n",
        "pub fn a<F>(f: F) -> u64\nwhere\n    F: Fn() -> Result<()>,\n{\n",
        "pub(crate) fn a() -> Result<()> {\n",
        "fn a() -> Result<()> {\n",
        "// pub fn a() -> Result<()> {\n",
        "pub type Result<T> = std::result::Result<T, Error>;\n",
    ] {
        assert!(messages("engine/db/src/read.rs", declaration).is_empty(), "{declaration}");
    }
    assert!(messages("substrate/wal/src/wal.rs", "pub fn a() -> Result<()> {\n").is_empty());
}

#[test]
fn methods_of_public_traits_are_public() {
    let text =
        "pub trait Merge {\n    fn a(&self) -> Result<()>;\n}\nimpl X {\n    fn b() -> Result<()> {}\n}\n";
    let found = messages("substrate/base/src/merge_operator.rs", text);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains(":2: `a` returns a Result"), "{}", found[0]);
    assert!(messages("engine/db/src/read.rs", &text.replace("pub trait", "trait")).is_empty());
}
