//! Turns the text of a long value into its bytes, piece by piece.
//!
//! **Invariants**
//! - The pieces together give what [`Format::parse`] gives of the whole text.
//! - Memory for a piece and a few bytes that one of them cuts in two.

use crate::input::{
    bytes_text::{from_hex, unescape},
    format::{Format, Role},
    spool::Spool,
};

/// The text of a number has at most as many bytes as are looked at here.
const NUMBER_BYTES: usize = 64;

/// Decodes the text of one value.
#[derive(Debug)]
pub(crate) struct LongValue {
    format: Format,
    spool: Spool,
    /// What the last piece cut in two.
    rest: Vec<u8>,
    /// Bytes of text so far, without the rest.
    position: u64,
}

impl LongValue {
    /// Nothing yet of a value in this form.
    pub(crate) fn new(format: Format, spool: Spool) -> Self {
        Self { format, spool, rest: Vec::new(), position: 0 }
    }

    /// The next piece of the text.
    pub(crate) fn push(&mut self, text: &[u8]) -> Result<(), String> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(text);
        let whole = match self.format {
            Format::Escaped => whole_escapes(&all),
            Format::Text => whole_letters(&all),
            Format::Hex => all.len() / 2 * 2,
            Format::U64 if all.len() > NUMBER_BYTES => {
                Format::U64.parse(&all[..NUMBER_BYTES], Role::Value)?;
                return Err("value: a number has at most 20 digits".to_owned());
            }
            Format::U64 => 0,
            Format::Json => all.len(),
        };
        self.rest = all.split_off(whole);
        if all.is_empty() { Ok(()) } else { self.decode(&all) }
    }

    fn decode(&mut self, text: &[u8]) -> Result<(), String> {
        let decoded = match self.format {
            Format::Escaped => unescape(text),
            Format::Text => match std::str::from_utf8(text) {
                Ok(_) => return self.add(text, text),
                Err(error) => Err(format!("the byte {:#04x} is no UTF-8", text[error.valid_up_to()])),
            },
            Format::Hex => from_hex(text),
            Format::U64 => Format::U64.parse(text, Role::Value),
            // It is checked as a whole.
            Format::Json => return self.add(text, text),
        };
        let position = self.position;
        self.add(text, &decoded.map_err(|why| format!("value, behind {position} bytes of its text: {why}"))?)
    }

    fn add(&mut self, text: &[u8], bytes: &[u8]) -> Result<(), String> {
        self.position += testudo_base::num::u64_of(text.len());
        self.spool.push(bytes)?;
        if self.spool.len() > u64::from(u32::MAX) {
            return Err(format!("the value is longer than {} bytes", u32::MAX));
        }
        Ok(())
    }

    /// The value, at the end of its text.
    pub(crate) fn end(mut self) -> Result<Spool, String> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() || self.format == Format::U64 {
            self.decode(&rest)?;
        }
        if self.format == Format::Json {
            let checked = serde_json::from_reader::<_, serde::de::IgnoredAny>(self.spool.reader()?);
            checked.map_err(|error| format!("value: no JSON: {error}"))?;
        }
        Ok(self.spool)
    }
}

/// How much of a text does not end within an escape.
fn whole_escapes(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) = text[at..].iter().position(|&byte| byte == b'\\') {
        let escape = at + next;
        let length = match text.get(escape + 1) {
            Some(b'x') => 4,
            Some(_) => 2,
            None => return escape,
        };
        if escape + length > text.len() {
            return escape;
        }
        at = escape + length;
    }
    text.len()
}

/// How much of a text does not end within a letter.
pub(crate) fn whole_letters(text: &[u8]) -> usize {
    for (back, &byte) in (1..=3).zip(text.iter().rev()) {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if length > back { text.len() - back } else { text.len() };
    }
    text.len()
}

#[cfg(test)]
mod tests;
