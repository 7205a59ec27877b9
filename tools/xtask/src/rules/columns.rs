//! Rules for the width of text: a line of Markdown or of Rust fits beside another window.
//!
//! Columns are counted in bytes, as the plainest tools count them; a line that keeps to them also does in
//! characters. Tables, code and comments count alike.
//!
//! **Invariants**
//! - Only a line of a single word, as a link is, may be longer: it cannot be wrapped.

use crate::{Finding, checkout::sources::Source};

const MAX_COLUMNS: usize = 110;
/// Folders of which the code is wrapped.
const WRAPPED_CODE: [&str; 5] = ["substrate/", "trees/", "engine/", "testing/", "tools/"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let is_wrapped_code =
        source.is_rust() && WRAPPED_CODE.iter().any(|folder| source.path.starts_with(folder));
    if !is_wrapped_code && !source.path.ends_with(".md") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(source.text.lines()) {
        let columns = line.len();
        if columns > MAX_COLUMNS && can_be_wrapped(line) {
            let message = format!("{columns} columns (bytes), more than {MAX_COLUMNS}: wrap the line");
            findings.push(Finding::new(&source.path, number, message));
        }
    }
    findings
}

/// Whether there is a space in it, but for that after the mark of a comment or of a list item.
fn can_be_wrapped(line: &str) -> bool {
    let text = line.trim();
    let text = ["//! ", "/// ", "// "].iter().find_map(|mark| text.strip_prefix(mark)).unwrap_or(text);
    let text = text.strip_prefix("- ").unwrap_or(text);
    text.trim().contains(' ')
}

#[cfg(test)]
mod tests;
