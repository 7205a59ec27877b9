//! Strips comments, and optionally the contents of literals, from Rust source.
//!
//! Understands just enough of the language: nested block comments, raw strings, lifetimes.
//!
//! **Invariants**
//! - Stripped text is replaced by spaces and line ends are kept, so that line numbers do not change.

/// Treatment of string and character literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Literals {
    Keep,
    Blank,
}

/// Returns `text` without its comments.
pub(crate) fn code_of(text: &str, literals: Literals) -> String {
    let mut lexer = Lexer { rest: text, out: String::with_capacity(text.len()), literals };
    while let Some(next) = lexer.rest.chars().next() {
        lexer.step(next);
    }
    lexer.out
}

struct Lexer<'a> {
    rest: &'a str,
    out: String,
    literals: Literals,
}

impl Lexer<'_> {
    fn step(&mut self, next: char) {
        if self.rest.starts_with("//") {
            self.blank(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.blank(block_comment_bytes(self.rest));
        } else if next == '"' {
            self.literal(quoted_bytes(self.rest, '"'));
        } else if next == '\'' {
            match char_literal_bytes(self.rest) {
                Some(bytes) => self.literal(bytes),
                None => self.keep(1),
            }
        } else if let Some(bytes) = raw_string_bytes(self.rest) {
            self.literal(bytes);
        } else if next.is_alphanumeric() || next == '_' {
            // Skips a whole word: the `r` of `for"` does not begin a raw string.
            let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            self.keep(end.unwrap_or(self.rest.len()));
        } else {
            self.keep(next.len_utf8());
        }
    }

    fn keep(&mut self, bytes: usize) {
        let (kept, rest) = self.rest.split_at(bytes);
        self.out.push_str(kept);
        self.rest = rest;
    }

    fn blank(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }

    fn literal(&mut self, bytes: usize) {
        match self.literals {
            Literals::Keep => self.keep(bytes),
            Literals::Blank => self.blank(bytes),
        }
    }
}

fn block_comment_bytes(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let (step, change) = match rest {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of a literal that begins and ends with `quote`; a backslash escapes one character.
fn quoted_bytes(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        if c == '\\' {
            characters.next();
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

/// Length of a character literal; `None` if the quote begins a lifetime.
fn char_literal_bytes(text: &str) -> Option<usize> {
    let mut characters = text.chars().skip(1);
    let (first, second) = (characters.next()?, characters.next()?);
    (first == '\\' || second == '\'').then(|| quoted_bytes(text, '\''))
}

/// Length of a raw string including its prefix (`r`, `br` or `cr`), if one begins here.
fn raw_string_bytes(text: &str) -> Option<usize> {
    let start = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = start.len() - start.trim_start_matches('#').len();
    let body = start[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let bytes = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(text.len() - body.len() + bytes)
}

#[cfg(test)]
mod tests;
