//! Streaming parser of a record in a JSON object that is too long for memory, as [`super::json_record`].
//!
//! **Invariants**
//! - Rejects the objects that [`super::json_record::JsonRecord::parse`] rejects, and parses all others to the
//!   same record.
//! - Memory holds one key and one chunk of the value.

use std::collections::BTreeSet;

use testudo_base::MAX_KEY_BYTES;

use crate::{
    context::Context,
    input::{
        format::{Format, Role, compact},
        line_reader::LongLine,
        long_value::{LongValue, whole_letters},
        spool::Spool,
    },
};

/// Maximum bytes of the text of a key.
const KEY_TEXT_BYTES: usize = 6 * MAX_KEY_BYTES;
/// Maximum bytes of a field name or a number.
const TOKEN_BYTES: usize = 64;
const FIELDS: [(&str, Form); 5] = [
    ("", Form::Text(Format::Text)),
    ("_hex", Form::Text(Format::Hex)),
    ("_escaped", Form::Text(Format::Escaped)),
    ("_u64", Form::Number),
    ("_json", Form::Document),
];

/// Syntax of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A string, in this format.
    Text(Format),
    Number,
    Document,
}

/// Parser of one object.
pub(crate) struct LongJson<'c, 'l> {
    context: &'c Context,
    line: LongLine<'l>,
    chunk: Vec<u8>,
    at: usize,
    /// Bytes of the line before the chunk.
    before: u64,
}

type Pushed = Result<(), String>;

impl<'c, 'l> LongJson<'c, 'l> {
    /// Creates a parser of the object that `line` holds.
    pub(crate) fn new(context: &'c Context, line: LongLine<'l>) -> Self {
        Self { context, line, chunk: Vec::new(), at: 0, before: 0 }
    }

    /// Parses key and value.
    pub(crate) fn parse(mut self) -> Result<(Vec<u8>, Spool), String> {
        let (mut key, mut value, mut names) = (None, None, BTreeSet::new());
        self.skip_blanks()?;
        self.expect(b'{')?;
        loop {
            self.skip_blanks()?;
            self.expect(b'"')?;
            let name = self.name()?;
            if !names.insert(name.clone()) {
                return Err(format!("duplicate field {name}"));
            }
            self.skip_blanks()?;
            self.expect(b':')?;
            self.skip_blanks()?;
            let (role, form) = field_of(&name)?;
            if form != Form::Document && self.peek()? == Some(b'n') {
                self.literal(b"null")?;
            } else if role == Role::Key {
                let found = self.key(form)?;
                only("key", key.replace(found).is_none())?;
            } else {
                let found = self.value(form)?;
                only("value", value.replace(found).is_none())?;
            }
            self.skip_blanks()?;
            match self.next()? {
                Some(b',') => {}
                Some(b'}') => break,
                other => return Err(self.unexpected(other, "a comma or the end of the object")),
            }
        }
        self.skip_blanks()?;
        let behind = self.next()?;
        if behind.is_some() {
            return Err(self.unexpected(behind, "nothing after the object"));
        }
        let missing = |name: &str| format!("no field {name}, {name}_hex or another format of the {name}");
        Ok((key.ok_or_else(|| missing("key"))?, value.ok_or_else(|| missing("value"))?))
    }

    fn key(&mut self, form: Form) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        let mut keep = |bytes: &[u8]| -> Pushed {
            text.extend_from_slice(bytes);
            if text.len() > KEY_TEXT_BYTES {
                return Err(format!("the key has more than {MAX_KEY_BYTES} bytes"));
            }
            Ok(())
        };
        match form {
            Form::Text(format) => {
                self.string(&mut keep)?;
                format.parse(&text, Role::Key)
            }
            Form::Number => Format::U64.parse(&self.number()?, Role::Key),
            Form::Document => {
                self.document(&mut keep)?;
                compact(&text).map(|_| text)
            }
        }
    }

    fn value(&mut self, form: Form) -> Result<Spool, String> {
        let format = match form {
            Form::Text(format) => format,
            Form::Number => Format::U64,
            Form::Document => Format::Json,
        };
        let mut value = LongValue::new(format, Spool::new(self.context));
        match form {
            Form::Text(_) => self.string(&mut |bytes| value.push(bytes))?,
            Form::Number => value.push(&self.number()?)?,
            Form::Document => self.document(&mut |bytes| value.push(bytes))?,
        }
        value.end()
    }

    /// Parses a string and passes its decoded text to `push`.
    fn string(&mut self, push: &mut dyn FnMut(&[u8]) -> Pushed) -> Pushed {
        self.expect(b'"')?;
        let mut cut = Vec::new();
        loop {
            self.fill()?;
            let rest = &self.chunk[self.at..];
            let plain = rest.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ');
            let plain = plain.unwrap_or(rest.len());
            check_letters(&mut cut, &rest[..plain])?;
            push(&rest[..plain])?;
            self.at += plain;
            match self.peek()? {
                Some(b'"' | b'\\') if !cut.is_empty() => return Err(no_text()),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    let letter = self.escape()?;
                    push(letter.encode_utf8(&mut [0; 4]).as_bytes())?;
                }
                Some(byte) if byte >= b' ' => {}
                other => return Err(self.unexpected(other, "the end of a string")),
            }
        }
    }

    /// Parses an escape after its backslash.
    fn escape(&mut self) -> Result<char, String> {
        Ok(match self.next()? {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut units = vec![self.hex_unit()?];
                if (0xd800..0xdc00).contains(&units[0]) {
                    self.literal(b"\\u")?;
                    units.push(self.hex_unit()?);
                }
                let mut letters = char::decode_utf16(units);
                match (letters.next(), letters.next()) {
                    (Some(Ok(letter)), None) => letter,
                    _ => return Err(self.unexpected(Some(b'u'), "a surrogate pair")),
                }
            }
            other => return Err(self.unexpected(other, "an escape")),
        })
    }

    fn hex_unit(&mut self) -> Result<u16, String> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.next()?;
            let digit = byte.and_then(|byte| char::from(byte).to_digit(16));
            let digit = digit.and_then(|digit| u16::try_from(digit).ok());
            unit = unit << 4 | digit.ok_or_else(|| self.unexpected(byte, "four hex digits"))?;
        }
        Ok(unit)
    }

    /// Passes a document to `push` as written. The receiver validates it.
    fn document(&mut self, push: &mut dyn FnMut(&[u8]) -> Pushed) -> Pushed {
        let (mut depth, mut is_string, mut is_escaped) = (0_u64, false, false);
        loop {
            self.fill()?;
            let (start, mut ended) = (self.at, self.at == self.chunk.len());
            let is_end_of_line = ended;
            while !ended && self.at < self.chunk.len() {
                let byte = self.chunk[self.at];
                if is_string {
                    is_string = is_escaped || byte != b'"';
                    is_escaped = byte == b'\\' && !is_escaped;
                    ended = !is_string && depth == 0;
                } else if depth == 0 && (b",}]".contains(&byte) || byte.is_ascii_whitespace()) {
                    // The document ended before this byte.
                    break;
                } else {
                    is_string = byte == b'"';
                    depth += u64::from(b"{[".contains(&byte));
                    let closes = b"}]".contains(&byte);
                    depth -= u64::from(closes);
                    ended = closes && depth == 0;
                }
                self.at += 1;
            }
            push(&self.chunk[start..self.at])?;
            if ended || is_end_of_line || self.at < self.chunk.len() {
                return Ok(());
            }
        }
    }

    fn number(&mut self) -> Result<Vec<u8>, String> {
        let mut digits = Vec::new();
        while let Some(byte) = self.peek()?.filter(u8::is_ascii_digit) {
            digits.push(byte);
            self.at += 1;
            if digits.len() > TOKEN_BYTES {
                return Err("a number has at most 20 digits".to_owned());
            }
        }
        Ok(digits)
    }

    fn name(&mut self) -> Result<String, String> {
        let mut name = Vec::new();
        loop {
            match self.next()? {
                Some(b'"') => return Ok(String::from_utf8_lossy(&name).into_owned()),
                Some(byte) if name.len() < TOKEN_BYTES => name.push(byte),
                other => return Err(self.unexpected(other, "the end of a field name")),
            }
        }
    }

    fn literal(&mut self, expected: &[u8]) -> Pushed {
        expected.iter().try_for_each(|&byte| self.expect(byte))
    }

    fn expect(&mut self, expected: u8) -> Pushed {
        match self.next()? {
            Some(byte) if byte == expected => Ok(()),
            other => Err(self.unexpected(other, &format!("{:?}", char::from(expected)))),
        }
    }

    fn skip_blanks(&mut self) -> Pushed {
        while self.peek()?.is_some_and(|byte| b" \t\r\n".contains(&byte)) {
            self.at += 1;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<u8>, String> {
        let byte = self.peek()?;
        self.at += usize::from(byte.is_some());
        Ok(byte)
    }

    fn peek(&mut self) -> Result<Option<u8>, String> {
        self.fill()?;
        Ok(self.chunk.get(self.at).copied())
    }

    /// Ensures that the next byte is in the chunk, unless the line is exhausted.
    fn fill(&mut self) -> Pushed {
        while self.at == self.chunk.len() {
            let passed = testudo_base::num::u64_of(self.chunk.len());
            let is_there = self.line.next_chunk(&mut self.chunk)?;
            (self.before, self.at) = (self.before + passed, 0);
            if !is_there {
                break;
            }
        }
        Ok(())
    }

    fn unexpected(&self, found: Option<u8>, expected: &str) -> String {
        let place = self.before + testudo_base::num::u64_of(self.at);
        match found {
            Some(byte) => format!("{:?} at byte {place}, expected {expected}", char::from(byte)),
            None => format!("it ends at byte {place}, expected {expected}"),
        }
    }
}

/// Checks that the bytes after `cut`, the start of a character, are UTF-8; keeps the start of the next one.
fn check_letters(cut: &mut Vec<u8>, bytes: &[u8]) -> Pushed {
    cut.extend_from_slice(bytes);
    let whole = whole_letters(cut);
    std::str::from_utf8(&cut[..whole]).map_err(|_| no_text())?;
    cut.drain(..whole);
    Ok(())
}

fn no_text() -> String {
    "a string is not UTF-8".to_owned()
}

fn field_of(name: &str) -> Result<(Role, Form), String> {
    let of = |start: &str, role: Role| {
        let end = name.strip_prefix(start)?;
        FIELDS.iter().find(|(field, _)| *field == end).map(|(_, form)| (role, *form))
    };
    let found = of("key", Role::Key).or_else(|| of("value", Role::Value));
    found.ok_or_else(|| format!("unknown field `{name}`"))
}

fn only(name: &str, is_first: bool) -> Pushed {
    if is_first { Ok(()) } else { Err(format!("{name} is given in two formats")) }
}
