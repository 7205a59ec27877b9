use super::check;
use crate::checkout::sources::Source;

fn messages(path: &str, text: &str) -> Vec<String> {
    check(&Source::new(path, text)).iter().map(ToString::to_string).collect()
}

#[test]
fn banned_words_are_found_in_comments_and_documents_only() {
    let code = "//! X.\n/// Writes it anew.\nlet anew = \"so many\";\n// Nobody waits.\n";
    let found = messages("engine/db/src/lib.rs", code);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("engine/db/src/lib.rs:2: `anew`"), "{found:?}");
    assert!(found[1].starts_with("engine/db/src/lib.rs:4: `nobody`"), "{found:?}");
    let document = "So many words.\n\n    so many in code\n\n```sh\nbeside\n```\nBesides, hereupon.\n";
    assert_eq!(messages("docs/X.md", document).len(), 1);
    assert!(messages("Cargo.toml", "# so many\n").is_empty());
}

#[test]
fn a_comment_does_not_begin_with_what_or_who() {
    for line in ["/// What a flush needs.", "    // Who waits is woken."] {
        assert_eq!(messages("engine/db/src/lib.rs", &format!("//! X.\n\n{line}\n")).len(), 1, "{line}");
    }
    for lines in ["/// It says\n/// What follows.", "/// What is this?", "/// Whatever it is."] {
        assert!(messages("engine/db/src/lib.rs", &format!("//! X.\n\n{lines}\n")).is_empty(), "{lines}");
    }
}
