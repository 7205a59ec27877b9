//! Rules for the width of text: a line of Markdown or of a comment fits beside another window.
//!
//! Three kinds of lines cannot be wrapped and may be longer: rows of tables, code, and lines of a single
//! word, as a link is. In Rust only lines that are nothing but comment are looked at; code is the
//! formatter's.

use crate::{
    Finding,
    checkout::{
        lexer::{Literals, code_of},
        sources::Source,
    },
};

const MAX_COLUMNS: usize = 110;
/// Folders of which the comments are wrapped.
const WRAPPED_CODE: [&str; 5] = ["substrate/", "trees/", "engine/", "testing/", "tools/"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if source.path.ends_with(".md") {
        let lines = (1..).zip(source.text.lines()).map(|(number, text)| Line { number, before: 0, text });
        return check_text(source, lines);
    }
    if source.is_rust() && WRAPPED_CODE.iter().any(|folder| source.path.starts_with(folder)) {
        let code = code_of(&source.text, Literals::Keep);
        let lines = (1..).zip(source.text.lines().zip(code.lines()));
        return check_text(source, lines.map(|(number, (text, code))| comment_line(number, text, code)));
    }
    Vec::new()
}

/// A line of text, without what stands before it on the line.
struct Line<'t> {
    number: usize,
    /// Columns that are taken by indentation and the mark of the comment.
    before: usize,
    text: &'t str,
}

/// The text of a comment; nothing for a line of code, which ends it.
fn comment_line<'t>(number: usize, line: &'t str, code: &str) -> Line<'t> {
    let comment = line.trim_start();
    let marks = ["//!", "///", "//"];
    let text = marks.iter().find_map(|mark| comment.strip_prefix(mark)).filter(|_| code.trim().is_empty());
    let text = text.map(|text| text.strip_prefix(' ').unwrap_or(text)).unwrap_or_default();
    Line { number, before: line.chars().count() - text.chars().count(), text }
}

fn check_text<'t>(source: &Source, lines: impl Iterator<Item = Line<'t>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_fenced = false;
    let mut may_begin_code = true;
    for Line { number, before, text: content } in lines {
        let text = content.trim_start();
        let is_fence = text.starts_with("```");
        is_fenced ^= is_fence;
        // Code without fences begins after an empty line. Elsewhere, four spaces go on with a list item.
        let is_indented = may_begin_code && content.starts_with("    ");
        may_begin_code = text.is_empty() || is_indented;
        let is_code = is_fenced || is_fence || is_indented;
        let columns = before + content.chars().count();
        if columns > MAX_COLUMNS && !is_code && !text.starts_with('|') && can_be_wrapped(text) {
            let message = format!("{columns} columns, more than {MAX_COLUMNS}: wrap the line");
            findings.push(Finding::new(&source.path, number, message));
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
