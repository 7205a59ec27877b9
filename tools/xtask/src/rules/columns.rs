//! Rules for line width: a line of Markdown or Rust fits next to another window.
//!
//! Columns are counted in bytes, as the simplest tools count them; a line within the limit is also within it
//! in characters. Tables, code and comments count alike.
//!
//! **Invariants**
//! - Only a line with a single word, such as a link, may be longer: it cannot be wrapped.

use crate::{Finding, checkout::sources::Source};

const MAX_COLUMNS: usize = 110;
/// Folders whose code is wrapped.
const WRAPPED_CODE: [&str; 7] =
    ["substrate/", "trees/", "engine/", "maintenance/", "testudo/", "testing/", "tools/"];

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

/// Whether the line contains a space other than the one after a comment or list marker.
fn can_be_wrapped(line: &str) -> bool {
    let text = line.trim();
    let text = ["//! ", "/// ", "// "].iter().find_map(|mark| text.strip_prefix(mark)).unwrap_or(text);
    let text = text.strip_prefix("- ").unwrap_or(text);
    text.trim().contains(' ')
}

#[cfg(test)]
mod tests;
