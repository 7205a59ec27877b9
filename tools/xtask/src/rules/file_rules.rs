//! Rules for whole files: name, length, header.

use crate::{Finding, checkout::sources::Source};

const MAX_LINES: usize = 600;
/// A reason for more lines must be within this many lines from the top.
const HEADER_LINES: usize = 15;
/// Names that do not describe the contents.
const BANNED_NAMES: [&str; 11] =
    ["util", "utils", "utility", "common", "helper", "helpers", "manager", "inner", "misc", "mod", "shared"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    [name(source), length(source), header(source)].into_iter().flatten().collect()
}

fn name(source: &Source) -> Option<Finding> {
    let mut parts = source.path.trim_end_matches(".rs").split('/');
    let banned = parts.find(|part| BANNED_NAMES.contains(part) || is_numbered_version(part))?;
    let message = format!("the name `{banned}` is banned: name it for its main type or its one operation");
    Some(Finding::new(&source.path, 1, message))
}

/// Whether the name ends in a version such as `_v2`.
fn is_numbered_version(name: &str) -> bool {
    let digits = name.rsplit_once("_v").map_or("", |(_, digits)| digits);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn length(source: &Source) -> Option<Finding> {
    let lines = source.text.lines().count();
    let has_reason = |line: &str| line.strip_prefix("//! Length:").is_some_and(|why| !why.trim().is_empty());
    if lines <= MAX_LINES || source.text.lines().take(HEADER_LINES).any(has_reason) {
        return None;
    }
    let message =
        format!("{lines} lines, more than {MAX_LINES}: split it, or state `//! Length: <reason>` at the top");
    Some(Finding::new(&source.path, MAX_LINES + 1, message))
}

fn header(source: &Source) -> Option<Finding> {
    if source.file_name() == "tests.rs" {
        return None;
    }
    let mut open_brackets = 0;
    for (line, content) in (1..).zip(source.text.lines()) {
        if content.starts_with("//!") {
            return None;
        }
        let starts_attribute = content.starts_with("#![");
        if !content.is_empty() && open_brackets == 0 && !starts_attribute {
            return Some(Finding::new(&source.path, line, "a file must begin with a `//!` header"));
        }
        open_brackets += content.matches('[').count();
        open_brackets = open_brackets.saturating_sub(content.matches(']').count());
    }
    Some(Finding::new(&source.path, 1, "the file has no `//!` header"))
}

#[cfg(test)]
mod tests;
