//! Decodes the text of a long value chunk by chunk.
//!
//! **Invariants**
//! - The concatenated chunks equal the output of [`Format::parse`] for the whole text.
//! - Memory holds one chunk and the few bytes of an incomplete token.

use crate::input::{
    bytes_text::{from_hex, unescape},
    format::{Format, Role},
    spool::Spool,
};

/// Maximum bytes of text that are collected for a number.
const NUMBER_BYTES: usize = 64;

/// Decoder of the text of one value.
#[derive(Debug)]
pub(crate) struct LongValue {
    format: Format,
    spool: Spool,
    /// Incomplete token at the end of the last chunk.
    rest: Vec<u8>,
    /// Bytes of text decoded so far, without `rest`.
    position: u64,
}

impl LongValue {
    /// Creates a decoder for this format.
    pub(crate) fn new(format: Format, spool: Spool) -> Self {
        Self { format, spool, rest: Vec::new(), position: 0 }
    }

    /// Decodes the next chunk of the text.
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
                Err(error) => Err(format!("the byte {:#04x} is not UTF-8", text[error.valid_up_to()])),
            },
            Format::Hex => from_hex(text),
            Format::U64 => Format::U64.parse(text, Role::Value),
            // The document is checked as a whole, in `end`.
            Format::Json => return self.add(text, text),
        };
        let position = self.position;
        self.add(text, &decoded.map_err(|why| format!("value, after {position} bytes of its text: {why}"))?)
    }

    fn add(&mut self, text: &[u8], bytes: &[u8]) -> Result<(), String> {
        self.position += testudo_base::num::u64_of(text.len());
        self.spool.push(bytes)?;
        if self.spool.len() > u64::from(u32::MAX) {
            return Err(format!("the value is longer than {} bytes", u32::MAX));
        }
        Ok(())
    }

    /// Returns the value, at the end of its text.
    pub(crate) fn end(mut self) -> Result<Spool, String> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() || self.format == Format::U64 {
            self.decode(&rest)?;
        }
        if self.format == Format::Json {
            let checked = serde_json::from_reader::<_, serde::de::IgnoredAny>(self.spool.reader()?);
            checked.map_err(|error| format!("value: invalid JSON: {error}"))?;
        }
        Ok(self.spool)
    }
}

/// Length of the prefix of `text` that does not end within an escape.
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

/// Length of the prefix of `text` that does not end within a character.
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
