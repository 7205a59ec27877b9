use super::{MAX_COLUMNS, check};
use crate::checkout::sources::Source;

fn messages(path: &str, text: &str) -> Vec<String> {
    check(&Source::new(path, text)).into_iter().map(|finding| finding.to_string()).collect()
}

/// A line of words with so many columns, the last of which takes two bytes.
fn line(columns: usize) -> String {
    let mut line = "word ".repeat(columns / 5 + 1);
    line.truncate(columns - 1);
    line + "ε"
}

#[test]
fn lines_that_are_too_long_are_found_with_their_columns() {
    let text = format!("# Title\n{}\n{}\n", line(MAX_COLUMNS), line(MAX_COLUMNS + 1));
    let found = messages("docs/TESTING.md", &text);
    assert_eq!(found, ["docs/TESTING.md:3: 111 columns, more than 110: wrap the line"]);
    assert!(messages("justfile", &text).is_empty());
}

#[test]
fn lists_count_also_where_they_are_indented() {
    let long = line(MAX_COLUMNS);
    for text in [format!("- {long}"), format!("- a\n  - b\n    {long}"), format!("> {long}")] {
        assert_eq!(messages("README.md", &text).len(), 1, "{text}");
    }
}

#[test]
fn tables_code_and_single_links_may_be_longer() {
    let long = line(2 * MAX_COLUMNS);
    let link = format!("https://example.org/{}", "x".repeat(MAX_COLUMNS));
    for text in [
        format!("| {long} |"),
        format!("```sh\n{long}\n```"),
        format!("Text:\n\n    short\n    {long}\n"),
        format!("- {link}"),
        link,
    ] {
        assert!(messages("README.md", &text).is_empty(), "{text}");
    }
}

#[test]
fn text_behind_code_counts_again() {
    let long = line(2 * MAX_COLUMNS);
    let found = messages("README.md", &format!("```sh\n{long}\n```\n{long}\n\n    code\n{long}\n"));
    let lines: Vec<&str> = found.iter().map(|found| found.split(':').nth(1).unwrap_or_default()).collect();
    assert_eq!(lines, ["4", "7"]);
}

#[test]
fn comments_count_with_their_indentation_and_mark() {
    let fits = line(MAX_COLUMNS - 8);
    let text = format!("    /// {fits}\n    //! x{fits}\n");
    let found = messages("substrate/base/src/key.rs", &text);
    assert_eq!(found, ["substrate/base/src/key.rs:2: 111 columns, more than 110: wrap the line"]);
}

#[test]
fn code_literals_and_fences_of_comments_may_be_longer() {
    let long = line(2 * MAX_COLUMNS);
    for text in [
        format!("let x = \"{long}\"; // {long}"),
        format!("let x = r#\"\n// {long}\n\"#;"),
        format!("//! ```text\n//! {long}\n//! ```"),
        format!("/// | {long} |"),
        format!("// https://example.org/{}", "x".repeat(MAX_COLUMNS)),
    ] {
        assert!(messages("tools/cli/src/main.rs", &text).is_empty(), "{text}");
    }
}
