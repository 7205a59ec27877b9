//! Rules for documented errors: a fallible function documents the kinds of its errors.
//!
//! Covers the public methods of the engine, the methods of its public traits, and merge operators, which
//! users write.
//!
//! **Invariants**
//! - A method is fallible if its return type names a `Result`.
//! - The contents of its comment are not judged, except that it must mention `Errors`, directly or by a
//!   reference.

use crate::{
    Finding,
    checkout::{
        lexer::{Literals, code_of},
        sources::Source,
    },
};

/// Paths of the public interface.
const PUBLIC: [&str; 4] =
    ["engine/db/src/", "engine/options/src/", "maintenance/", "substrate/base/src/merge_operator.rs"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if !source.is_rust() || !PUBLIC.iter().any(|path| source.path.starts_with(path)) {
        return Vec::new();
    }
    let code = code_of(&source.text, Literals::Blank);
    let (code, text): (Vec<&str>, Vec<&str>) = (code.lines().collect(), source.text.lines().collect());
    let mut findings = Vec::new();
    let mut is_in_trait = false;
    for (at, line) in code.iter().enumerate() {
        is_in_trait = if is_in_trait { *line != "}" } else { line.starts_with("pub trait ") };
        let Some(name) = public_function(line, is_in_trait) else { continue };
        if can_fail(&code[at..]) && !comment_above(&text[..at]).any(|line| line.contains("Errors")) {
            let message = format!("`{name}` returns a Result: its comment must name the possible `Errors:`");
            findings.push(Finding::new(&source.path, at + 1, message));
        }
    }
    findings
}

/// Name of the public function whose declaration begins on this line.
fn public_function(line: &str, is_in_trait: bool) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    let is_public = words.next_if_eq(&"pub").is_some();
    if !is_public && !is_in_trait {
        return None;
    }
    let qualifiers = ["const", "async", "unsafe"];
    let keyword = words.find(|word| !qualifiers.contains(word))?;
    let name = words.next().filter(|_| keyword == "fn")?;
    name.split(['(', '<']).next()
}

/// Whether the declaration at the start of `code` returns a `Result`.
fn can_fail(code: &[&str]) -> bool {
    let declaration = code.join(" ");
    let mut words = returned(&declaration).split(|c: char| !c.is_alphanumeric() && c != '_');
    words.by_ref().take_while(|word| *word != "where").any(|word| word == "Result")
}

/// Text between the function's own arrow and its body; bounds of its parameters also have arrows.
fn returned(declaration: &str) -> &str {
    let (mut depth, mut before, mut arrow) = (0, ' ', None);
    for (at, c) in declaration.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            '>' if before == '-' && depth == 0 => arrow = arrow.or(Some(at + 1)),
            '>' if before == '-' => {}
            ')' | ']' | '>' => depth -= 1,
            '{' | ';' if depth == 0 => return &declaration[arrow.unwrap_or(at)..at],
            _ => {}
        }
        before = c;
    }
    ""
}

/// Comment lines of the comment and attributes directly above.
fn comment_above<'t>(text: &'t [&'t str]) -> impl Iterator<Item = &'t str> {
    let lines = text.iter().rev().map(|line| line.trim_start());
    lines
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .filter(|line| line.starts_with("///"))
}

#[cfg(test)]
mod tests;
