//! Reads one exported item from the text of its file: its header, fields, variants, methods, implementations.
//!
//! **Invariants**
//! - Items begin in the first column and their parts in the fifth, as rustfmt formats them. A call of a macro
//!   with braces in the first column counts as its contents.

use crate::checkout::sources::Source;

use super::exports::{Crates, split_at_commas};

const KINDS: [&str; 8] = ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];
/// Indent of the parts of an item.
const INDENT: &str = "    ";

/// An item in the first column.
struct Item<'t> {
    attributes: Vec<&'t str>,
    header: String,
    /// Lines between its braces.
    body: Vec<&'t str>,
}

/// Names of the public items that a file defines.
pub(super) fn defined_names(text: &str) -> Vec<String> {
    lines_of(text).into_iter().filter_map(|line| name_of(line).map(str::to_owned)).collect()
}

/// Lines of the list for the item `name`, defined in `source`, which users know as `path`.
pub(super) fn lines(
    crates: &Crates<'_>,
    source: &Source,
    folder: &str,
    name: &str,
    path: &str,
) -> Vec<String> {
    let Some(item) = items(&source.text, |line| name_of(line) == Some(name)).pop() else { return Vec::new() };
    if item.attributes.iter().any(|attribute| is_hidden(attribute)) {
        return Vec::new();
    }
    let mut parts = Vec::new();
    let kind = item.header.split(' ').find(|word| KINDS.contains(word)).unwrap_or_default();
    match kind {
        "struct" | "union" => parts.extend(fields(&item)),
        "enum" => parts.extend(variants(&item)),
        "trait" => parts.extend(signatures(&item.body, |line| !line.starts_with("pub "))),
        _ => {}
    }
    if ["struct", "enum", "union", "trait"].contains(&kind) {
        for file in crates.files(folder) {
            parts.extend(implementations(crates, folder, &file.text, name));
        }
    }
    parts.push(header(&item));
    parts.into_iter().map(|part| format!("{path}: {part}")).collect()
}

/// Lines of a file; the contents of macro calls in the first column move to the left.
fn lines_of(text: &str) -> Vec<&str> {
    let mut is_call = false;
    let mut lines = Vec::new();
    for whole in text.lines() {
        let begins = whole.ends_with("! {") && !whole.starts_with([' ', '/']);
        if begins {
            is_call = true;
        } else if is_call && whole == "}" {
            is_call = false;
        } else {
            lines.push(if is_call { whole.strip_prefix(INDENT).unwrap_or(whole) } else { whole });
        }
    }
    lines
}

/// Name of the public item that begins in this line.
fn name_of(line: &str) -> Option<&str> {
    let mut words =
        line.strip_prefix("pub ")?.split(' ').skip_while(|word| ["unsafe", "async"].contains(word));
    let kind = words.next().filter(|kind| KINDS.contains(kind))?;
    let mut name = words.next()?;
    if kind == "const" && name == "fn" {
        name = words.next()?;
    }
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// Items whose first line is chosen by `begins`.
fn items(text: &str, begins: impl Fn(&str) -> bool) -> Vec<Item<'_>> {
    let lines = lines_of(text);
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !begins(line) {
            continue;
        }
        let attributes = attributes(&lines[..at]);
        let (header, length) = joined(&lines[at..]);
        let rest = &lines[at + length..];
        let has_body = header.ends_with('{');
        let end = if has_body { rest.iter().position(|line| *line == "}").unwrap_or(0) } else { 0 };
        found.push(Item { attributes, header, body: rest[..end].to_vec() });
    }
    found
}

/// Attributes above an item or a part of one.
fn attributes<'t>(above: &[&'t str]) -> Vec<&'t str> {
    let is_above = |line: &&&str| {
        let line = line.trim_start();
        line.starts_with("#[") || line.starts_with("///") || line.ends_with(")]")
    };
    above.iter().rev().take_while(is_above).map(|line| line.trim_start()).collect()
}

fn is_hidden(attribute: &str) -> bool {
    attribute.starts_with("#[doc(hidden)")
        || attribute.starts_with("#[cfg(test)")
        || attribute.contains("shuttle")
}

/// Joins lines up to the end of a declaration; returns it with the number of lines.
fn joined(lines: &[&str]) -> (String, usize) {
    let mut text = String::new();
    for (count, line) in (1..).zip(lines) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(line.trim());
        if text.ends_with(['{', ';']) || text.ends_with("{}") {
            return (squeezed(&text), count);
        }
    }
    (squeezed(&text), lines.len())
}

/// Removes the spaces and commas of line breaks, and `mut`, which is not part of a signature.
fn squeezed(text: &str) -> String {
    let text = text.replace("(mut ", "(").replace(", mut ", ", ").replace("( mut ", "(");
    text.replace("( ", "(").replace(", )", ")").replace(" )", ")").replace("< ", "<").replace(", >", ">")
}

/// Header with the attributes that users depend on.
fn header(item: &Item<'_>) -> String {
    let text = item.header.trim_end_matches(['{', '}', ';', ' ']);
    let text = match text.split_once(" = ") {
        Some((declared, _)) if text.starts_with("pub const ") || text.starts_with("pub static ") => declared,
        _ => text,
    };
    let mut marks = Vec::new();
    for attribute in &item.attributes {
        if let Some(traits) = attribute.strip_prefix("#[derive(") {
            marks.extend(split_at_commas(traits.trim_end_matches(")]")));
        } else if attribute.starts_with("#[non_exhaustive]") {
            marks.push("non_exhaustive");
        } else if attribute.starts_with("#[deprecated") {
            marks.push("deprecated");
        }
    }
    if item.header.contains("struct ") && item.body.iter().any(|line| is_private_field(line)) {
        marks.push("has private fields");
    }
    marks.sort_unstable();
    let text = hide_private(text);
    if marks.is_empty() { text } else { format!("{text} [{}]", marks.join(", ")) }
}

/// The header of a tuple struct with `_` for private fields.
fn hide_private(header: &str) -> String {
    let Some((head, fields)) = header.split_once('(').filter(|(head, _)| head.starts_with("pub struct "))
    else {
        return header.to_owned();
    };
    let fields = fields.trim_end_matches(')');
    let shown = |field| if str::starts_with(field, "pub ") { field } else { "_" };
    format!("{head}({})", split_at_commas(fields).into_iter().map(shown).collect::<Vec<_>>().join(", "))
}

/// Whether the line is a part of the item, rather than of one of its parts.
fn part(line: &str) -> Option<&str> {
    line.strip_prefix(INDENT).filter(|part| !part.starts_with([' ', '#', '/', '}', ')']))
}

fn is_private_field(line: &str) -> bool {
    part(line).is_some_and(|part| !part.starts_with("pub ") && part.contains(':'))
}

fn fields(item: &Item<'_>) -> Vec<String> {
    let fields = item.body.iter().enumerate().filter_map(|(at, line)| Some((at, part(line)?)));
    let public = fields.filter(|(_, part)| part.starts_with("pub "));
    public.map(|(at, _)| whole_part(&item.body[at..])).collect()
}

fn variants(item: &Item<'_>) -> Vec<String> {
    let variants = item.body.iter().enumerate().filter_map(|(at, line)| Some((at, part(line)?)));
    variants.map(|(at, _)| format!("variant {}", whole_part(&item.body[at..]))).collect()
}

/// A field or variant, up to the comma after it; without comments and attributes inside.
fn whole_part(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let line = line.trim();
        if line.starts_with("//") || line.starts_with('#') {
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(line);
        if text.ends_with(',') && is_closed(&text) {
            break;
        }
    }
    squeezed(text.trim_end_matches(','))
}

/// Whether each bracket of the text is closed.
fn is_closed(text: &str) -> bool {
    let opened = text.matches(['{', '(', '[']).count();
    opened == text.matches(['}', ')', ']']).count()
}

/// Signatures of the functions, types and constants in a body whose line passes `is_wanted`.
fn signatures(body: &[&str], is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (at, line) in body.iter().enumerate() {
        let Some(begin) = part(line).filter(|part| is_wanted(part) && is_declaration(part)) else { continue };
        let attributes = attributes(&body[..at]);
        if !attributes.iter().any(|attribute| is_hidden(attribute)) {
            let is_deprecated = attributes.iter().any(|attribute| attribute.starts_with("#[deprecated"));
            found.push(signature(begin, &body[at..], is_deprecated));
        }
    }
    found
}

fn is_declaration(part: &str) -> bool {
    let words = ["fn ", "const ", "type ", "unsafe fn "];
    words.iter().any(|word| part.strip_prefix("pub ").unwrap_or(part).starts_with(word))
}

fn signature(begin: &str, lines: &[&str], is_deprecated: bool) -> String {
    let (text, _) = joined(lines);
    let is_provided = !begin.starts_with("pub ") && text.ends_with(['{', '}']);
    let text = text.trim_end_matches("{}").trim_end_matches(['{', ';', ' ']);
    let is_value = begin.contains("const ") && !begin.contains("fn ");
    let text = if is_value { text.split(" = ").next().unwrap_or(text) } else { text };
    match (is_deprecated, is_provided) {
        (true, _) => format!("{text} [deprecated]"),
        (false, true) => format!("{text} [provided]"),
        (false, false) => text.to_owned(),
    }
}

/// Implementations for the type `name` in one file: public methods, and the traits.
fn implementations(crates: &Crates<'_>, folder: &str, text: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for item in items(text, |line| line.starts_with("impl") && !line.contains("impl_")) {
        if item.attributes.iter().any(|attribute| is_hidden(attribute)) {
            continue;
        }
        let header = item.header.trim_end_matches(['{', '}', ' ']);
        let (generics, rest) = without_generics(header.trim_start_matches("impl"));
        match rest.split_once(" for ") {
            Some((of, to)) if base_name(to) == name && !crates.is_hidden_trait(base_name(of)) => {
                found.push(format!("impl{generics} {rest}"));
            }
            None if base_name(rest) == name => {
                found.extend(signatures(&item.body, |line| line.starts_with("pub ")));
                found.extend(item.body.iter().flat_map(|line| expanded(crates, folder, line)));
            }
            _ => {}
        }
    }
    found
}

/// Splits leading generics from the rest.
fn without_generics(text: &str) -> (&str, &str) {
    let mut depth = 0_i32;
    for (at, character) in text.char_indices() {
        depth += match character {
            '<' => 1,
            '>' if !text[..at].ends_with(['-', '=']) => -1,
            _ => 0,
        };
        if depth == 0 {
            let end = if character == '>' { at + 1 } else { at };
            return (&text[..end], text[end..].trim());
        }
    }
    ("", text.trim())
}

/// Name of a type without references, path and generics.
fn base_name(of: &str) -> &str {
    let of = of.split(" where ").next().unwrap_or(of);
    let of = of.trim_start_matches(['&', ' ']).trim_start_matches("dyn ");
    let end = of.find('<').unwrap_or(of.len());
    of[..end].rsplit("::").next().unwrap_or(of).trim()
}

/// Methods in the definition of a macro of the same crate that is called in an impl.
fn expanded(crates: &Crates<'_>, folder: &str, line: &str) -> Vec<String> {
    let call = part(line).and_then(|part| part.split_once('!')).map(|(name, _)| name);
    let Some(name) = call.filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_')) else {
        return Vec::new();
    };
    let begin = format!("macro_rules! {name} {{");
    let definitions = crates.files(folder).flat_map(|file| items(&file.text, |line| line == begin));
    definitions.flat_map(|item| methods_of_macro(&item.body)).collect()
}

fn methods_of_macro(body: &[&str]) -> Vec<String> {
    let begins = body.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("pub fn "));
    begins.map(|(at, line)| signature(line.trim_start(), &body[at..], false)).collect()
}
