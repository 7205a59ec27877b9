//! Banned words and sentence beginnings in comments and documents, each with its replacement.
//!
//! The table of CONTRIBUTING.md in code: forms that no storage engineer would write. Rules for style need a
//! reader; these forms are wrong wherever they occur.
//!
//! **Invariants**
//! - Only prose is checked: comments of Rust files, and Markdown outside code.
//! - Matches are whole words, in any case.

use crate::{Finding, checkout::sources::Source};

/// Banned words, with their replacements.
const BANNED: [(&str, &str); 16] = [
    ("so many", "`up to n`, `the number of`"),
    ("anew", "`again`"),
    ("whoever", "`any caller`"),
    ("whosoever", "`any caller`"),
    ("upon", "`on`"),
    ("beside", "`next to`, `while`"),
    ("nobody", "`no reader`, `no thread`"),
    ("somebody", "the actor"),
    ("won back", "`reclaimed`"),
    ("wins back", "`reclaims`"),
    ("stands nowhere", "`is unpositioned`"),
    ("is told", "`receives`"),
    ("are told", "`receive`"),
    ("knows nothing of", "`does not depend on`"),
    ("it is an assert that", "`panics if`"),
    ("as it comes", "`as is`"),
];
/// Banned first words of a comment, with their replacements.
const BANNED_STARTS: [(&str, &str); 4] = [
    ("What ", "a noun: `Inputs of …`"),
    ("Who ", "the actor: `A caller that …`"),
    ("So many", "`Maximum …`"),
    ("That which", "a noun"),
];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    // This file and its tests contain the words themselves.
    if source.path.starts_with("tools/xtask/src/rules/language") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut is_code = false;
    let mut follows_prose = false;
    for (number, line) in (1..).zip(source.text.lines()) {
        let prose =
            if source.is_rust() { comment_of(line) } else { document_of(&source.path, line, &mut is_code) };
        let Some(prose) = prose else {
            follows_prose = false;
            continue;
        };
        let lower = prose.to_lowercase();
        for (banned, instead) in BANNED {
            if has_words(&lower, banned) {
                findings.push(Finding::new(&source.path, number, format!("`{banned}`: write {instead}")));
            }
        }
        let is_start = source.is_rust() && !follows_prose;
        for (banned, instead) in BANNED_STARTS.iter().filter(|_| is_start) {
            if prose.starts_with(banned) && !prose.ends_with('?') {
                let message = format!("a comment begins with `{}`: write {instead}", banned.trim_end());
                findings.push(Finding::new(&source.path, number, message));
            }
        }
        follows_prose = !prose.is_empty();
    }
    findings
}

/// Text of a comment that fills the line.
fn comment_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = ["///", "//!", "//"].iter().find_map(|mark| line.strip_prefix(mark))?;
    Some(text.trim())
}

/// Line of a Markdown document outside code blocks.
fn document_of<'a>(path: &str, line: &'a str, is_code: &mut bool) -> Option<&'a str> {
    if !path.ends_with(".md") {
        return None;
    }
    if line.trim_start().starts_with("```") {
        *is_code = !*is_code;
        return None;
    }
    (!*is_code && !line.starts_with("    ")).then_some(line)
}

/// Whether `words` occur in `text` with no letter next to them.
fn has_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let is_inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
        let (before, after) = (text[..at].chars().next_back(), text[at + words.len()..].chars().next());
        !is_inside(before) && !is_inside(after)
    })
}

#[cfg(test)]
mod tests;
