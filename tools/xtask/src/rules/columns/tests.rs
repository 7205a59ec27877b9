use super::{MAX_COLUMNS, check};
use crate::checkout::sources::Source;

fn messages(path: &str, text: &str) -> Vec<String> {
    check(&Source::new(path, text)).into_iter().map(|finding| finding.to_string()).collect()
}

/// Line of words with this many columns; the last two are one two-byte character.
fn line(columns: usize) -> String {
    let mut line = "word ".repeat(columns / 5 + 1);
    line.truncate(columns - 2);
    line + "ε"
}

#[test]
fn long_lines_are_reported_with_their_columns() {
    let text = format!("# Title\n{}\n{}\n", line(MAX_COLUMNS), line(MAX_COLUMNS + 1));
    let found = messages("docs/TESTING.md", &text);
    assert_eq!(found, ["docs/TESTING.md:3: 111 columns (bytes), more than 110: wrap the line"]);
    assert!(messages("justfile", &text).is_empty());
}

#[test]
fn lists_tables_and_code_of_documents_count() {
    let long = line(MAX_COLUMNS);
    for text in [
        format!("- {long}"),
        format!("- a\n  - b\n    {long}"),
        format!("> {long}"),
        format!("| {long} |"),
        format!("```sh\n {long}\n```"),
        format!("Text:\n\n    {long}\n"),
    ] {
        assert_eq!(messages("README.md", &text).len(), 1, "{text}");
    }
}

#[test]
fn code_literals_and_comments_count() {
    let long = line(MAX_COLUMNS);
    for text in [
        format!("    /// {long}"),
        format!("let x = \"{long}\";"),
        format!("let x = r#\"\n// {long}\n\"#;"),
        format!("//! ```text\n//! {long}\n//! ```"),
        format!("/// | {long} |"),
    ] {
        assert_eq!(messages("tools/cli/src/main.rs", &text).len(), 1, "{text}");
    }
}

#[test]
fn a_single_word_may_be_longer() {
    let link = format!("https://example.org/{}", "x".repeat(MAX_COLUMNS));
    for text in [link.clone(), format!("- {link}")] {
        assert!(messages("README.md", &text).is_empty(), "{text}");
    }
    for text in [format!("// {link}"), format!("    //! - {link}")] {
        assert!(messages("tools/cli/src/main.rs", &text).is_empty(), "{text}");
    }
}
