//! Help, versions, and errors of the command line, wrapped to the width of a terminal.
//!
//! **Invariants**
//! - Failed output is exit code 2, as for any verb, unless the pipe was closed.
//! - A long line continues at the indentation of its text, not at the margin.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use crate::failure::{Failure, Verdict, exit_code};

/// Maximum columns of a line.
const COLUMNS: usize = 80;

/// Prints clap's answer instead of running a verb.
pub(crate) fn answer(error: &clap::Error) -> ExitCode {
    let is_error = error.use_stderr();
    let text = error.render();
    let has_colors = |is_terminal: bool| is_terminal && std::env::var_os("NO_COLOR").is_none();
    let print = |is_terminal: bool, out: &mut dyn Write| {
        let text = if has_colors(is_terminal) { text.ansi().to_string() } else { text.to_string() };
        out.write_all(wrap(&text).as_bytes()).and_then(|()| out.flush())
    };
    if is_error {
        // Standard error may be closed; then there is nowhere to report it.
        let _ = print(io::stderr().is_terminal(), &mut io::stderr());
        return ExitCode::from(2);
    }
    let printed = print(io::stdout().is_terminal(), &mut io::stdout());
    exit_code(printed.map(|()| Verdict::Fine).map_err(|error| Failure::output(&error)))
}

/// Wraps text into lines of at most [`COLUMNS`].
fn wrap(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        wrap_line(line, &mut out);
        out.push_str(end);
    }
    out
}

fn wrap_line(line: &str, out: &mut String) {
    if columns_of(line) <= COLUMNS {
        return out.push_str(line);
    }
    let indent = indent_of(line);
    let (mut column, mut rest) = (0, line);
    while !rest.is_empty() {
        // A word, with the blanks before it.
        let start = rest.len() - rest.trim_start_matches(' ').len();
        let end = rest[start..].find(' ').map_or(rest.len(), |end| start + end);
        let (blanks, word) = rest[..end].split_at(start);
        let width = columns_of(word);
        if column > indent && column + start + width > COLUMNS {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            out.push_str(blanks);
            column += start;
        }
        out.push_str(word);
        column += width;
        rest = &rest[end..];
    }
}

/// Indentation of continuation lines: the column after the first wide gap, or else the start of the text.
fn indent_of(line: &str) -> usize {
    let plain = without_escapes(line);
    let start = plain.len() - plain.trim_start_matches(' ').len();
    let gap = plain[start..].find("  ").map(|gap| start + gap);
    let text = gap.map(|gap| gap + plain[gap..].len() - plain[gap..].trim_start_matches(' ').len());
    let column = text.map(|text| plain[..text].chars().count());
    column.filter(|column| *column <= COLUMNS / 2).unwrap_or(start)
}

/// Width of a text on a terminal.
fn columns_of(text: &str) -> usize {
    without_escapes(text).chars().count()
}

/// Text without color escapes.
fn without_escapes(text: &str) -> String {
    let (mut out, mut is_escape) = (String::with_capacity(text.len()), false);
    for letter in text.chars() {
        match (is_escape, letter) {
            (false, '\u{1b}') => is_escape = true,
            (false, letter) => out.push(letter),
            (true, letter) => is_escape = !letter.is_ascii_alphabetic(),
        }
    }
    out
}

#[cfg(test)]
mod tests;
