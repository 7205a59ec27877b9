//! Rules for the width of text: a line of Markdown fits beside another window.
//!
//! Three kinds of lines cannot be wrapped and may be longer: rows of tables, code, and lines of a single word,
//! as a link is.

use crate::{Finding, checkout::sources::Source};

const MAX_COLUMNS: usize = 110;
/// Documents of which the lines are still to be wrapped.
const UNWRAPPED: [&str; 1] = ["ARCHITECTURE.md"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if !source.path.ends_with(".md") || UNWRAPPED.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut is_fenced = false;
    let mut may_begin_code = true;
    for (line, content) in (1..).zip(source.text.lines()) {
        let text = content.trim_start();
        let is_fence = text.starts_with("```");
        is_fenced ^= is_fence;
        // Code without fences begins after an empty line. Elsewhere, four spaces go on with a list item.
        let is_indented = may_begin_code && content.starts_with("    ");
        may_begin_code = text.is_empty() || is_indented;
        let is_code = is_fenced || is_fence || is_indented;
        let columns = content.chars().count();
        if columns > MAX_COLUMNS && !is_code && !text.starts_with('|') && can_be_wrapped(text) {
            let message = format!("{columns} columns, more than {MAX_COLUMNS}: wrap the line");
            findings.push(Finding::new(&source.path, line, message));
        }
    }
    findings
}

/// Whether there is a space in it, but for that after the mark of a list item.
fn can_be_wrapped(text: &str) -> bool {
    let text = text.strip_prefix("- ").unwrap_or(text);
    text.trim().contains(' ')
}

#[cfg(test)]
mod tests;
