//! Formats in which keys and values are typed and printed.
//!
//! | format | reads and prints |
//! |---|---|
//! | escaped | UTF-8 text with `\\`, `\t`, `\n`, `\r` and `\xNN` for bytes; see [`super::bytes_text`] |
//! | text | UTF-8 text without escapes; a backslash is a backslash |
//! | hex | two hex digits per byte |
//! | u64 | a decimal number in 8 bytes: big-endian in keys, little-endian in values |
//! | json | a JSON document; stored as typed, printed without white space between tokens |
//!
//! Numeric keys therefore sort numerically, and values have the encoding of the merge operator `add-u64`.
//!
//! **Invariants**
//! - Printed output reads back in the same format as the same bytes, except for white space in JSON.
//! - Input that does not fit is rejected with the offending character; bytes that do not fit a format are
//!   never printed in it.

use clap::{Args, ValueEnum};
use testudo_base::planted;

use crate::input::bytes_text::{character_at, escape, escape_into, from_hex, to_hex, unescape};

/// Format in which bytes are typed and printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text with the escapes \\ \t \n \r and \xNN (the default)
    #[default]
    Escaped,
    /// UTF-8 text without escapes; a backslash is a backslash
    Text,
    /// Two hex digits per byte
    Hex,
    /// A number in 8 bytes: big-endian in keys, little-endian in values (as add-u64 stores them)
    U64,
    /// A JSON document, stored as typed
    Json,
}

/// Role of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A key.
    Key,
    /// A value or an operand.
    Value,
}

/// Formats of keys and values.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct FormatArguments {
    /// Format of keys on the command line, in files and in the output
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) key_format: Option<Format>,
    /// Format of values on the command line, in files and in the output
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) value_format: Option<Format>,
    /// The same as `--key-format hex --value-format hex`
    #[arg(long, conflicts_with_all = ["key_format", "value_format"])]
    pub(crate) hex: bool,
}

impl FormatArguments {
    /// Format chosen for keys, if any.
    pub(crate) fn chosen_key(self) -> Option<Format> {
        self.key_format.or(self.hex.then_some(Format::Hex))
    }

    /// Format chosen for values, if any.
    pub(crate) fn chosen_value(self) -> Option<Format> {
        self.value_format.or(self.hex.then_some(Format::Hex))
    }

    /// Parses the key `text`.
    pub(crate) fn parse_key(self, text: &[u8]) -> Result<Vec<u8>, String> {
        self.chosen_key().unwrap_or_default().parse(text, Role::Key)
    }

    /// Parses the value `text`.
    pub(crate) fn parse_value(self, text: &[u8]) -> Result<Vec<u8>, String> {
        self.chosen_value().unwrap_or_default().parse(text, Role::Value)
    }

    /// Appends a key in its printed form.
    pub(crate) fn show_key(self, out: &mut Vec<u8>, key: &[u8]) -> Result<(), String> {
        self.chosen_key().unwrap_or_default().show(out, key, Role::Key)
    }

    /// Appends a value in its printed form.
    pub(crate) fn show_value(self, out: &mut Vec<u8>, value: &[u8]) -> Result<(), String> {
        self.chosen_value().unwrap_or_default().show(out, value, Role::Value)
    }
}

impl Format {
    /// Parses `text`; the error names the text and the offending character.
    pub(crate) fn parse(self, text: &[u8], role: Role) -> Result<Vec<u8>, String> {
        let parsed = match self {
            Self::Escaped if planted!("typed-escapes-kept") => Ok(text.to_vec()),
            Self::Escaped => unescape(text),
            Self::Text => check_text(text).map(|()| text.to_vec()),
            Self::Hex => from_hex(text),
            Self::U64 => parse_number(text).map(|number| match role {
                Role::Key => number.to_be_bytes().to_vec(),
                Role::Value => number.to_le_bytes().to_vec(),
            }),
            Self::Json => compact(text).map(|_| text.to_vec()),
        };
        parsed.map_err(|why| format!("{} '{}': {why}", role.name(), shortened(text)))
    }

    /// Appends `bytes` in their printed form; the error says why they do not fit.
    pub(crate) fn show(self, out: &mut Vec<u8>, bytes: &[u8], role: Role) -> Result<(), String> {
        let failed = |why: String| {
            let what = format!("{} '{}'", role.name(), shortened(bytes));
            format!("{what} is not {}: {why}; escaped and hex print all bytes", self.name())
        };
        match self {
            Self::Escaped => escape_into(out, bytes),
            Self::Text => {
                check_text(bytes).map_err(failed)?;
                out.extend_from_slice(bytes);
            }
            Self::Hex => out.extend_from_slice(to_hex(bytes).as_bytes()),
            Self::U64 => {
                let number = number_of(bytes, role).map_err(failed)?;
                out.extend_from_slice(number.to_string().as_bytes());
            }
            Self::Json => out.extend_from_slice(compact(bytes).map_err(failed)?.as_bytes()),
        }
        Ok(())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Escaped => "escaped text",
            Self::Text => "text",
            Self::Hex => "hex",
            Self::U64 => "u64",
            Self::Json => "JSON",
        }
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
        }
    }
}

/// Decodes the number in a key or value of 8 bytes.
pub(crate) fn number_of(bytes: &[u8], role: Role) -> Result<u64, String> {
    let all = bytes.try_into().map_err(|_| format!("it has {} bytes, not 8", bytes.len()))?;
    Ok(match role {
        Role::Key => u64::from_be_bytes(all),
        Role::Value => u64::from_le_bytes(all),
    })
}

fn check_text(text: &[u8]) -> Result<(), String> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(error) => {
            let at = error.valid_up_to();
            Err(format!("the byte {:#04x} at character {} is not UTF-8", text[at], character_at(text, at)))
        }
    }
}

fn parse_number(text: &[u8]) -> Result<u64, String> {
    if let Some(at) = text.iter().position(|byte| !byte.is_ascii_digit()) {
        let letter = String::from_utf8_lossy(&text[at..]).chars().next().unwrap_or_default();
        return Err(format!("{letter:?} at character {} is not a digit", character_at(text, at)));
    }
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) if text.is_empty() => Err("a number is expected".to_owned()),
        Err(_) => Err(format!("it is larger than {}", u64::MAX)),
    }
}

/// Returns a JSON document without white space between tokens.
pub(crate) fn compact(document: &[u8]) -> Result<String, String> {
    let wrong = |error: serde_json::Error| {
        let (text, line, column) = (error.to_string(), error.line(), error.column());
        let what = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        match column {
            0 => format!("invalid JSON: {what}"),
            column => format!("invalid JSON at character {column} of line {line}: {what}"),
        }
    };
    serde_json::from_slice::<serde::de::IgnoredAny>(document).map_err(wrong)?;
    let text = std::str::from_utf8(document).map_err(|error| error.to_string())?;
    let mut out = String::with_capacity(text.len());
    let (mut is_string, mut is_escaped) = (false, false);
    for letter in text.chars() {
        if is_string || !letter.is_ascii_whitespace() {
            out.push(letter);
        }
        match letter {
            '"' if !is_escaped => is_string = !is_string,
            '\\' => is_escaped = !is_escaped,
            _ => {}
        }
        if letter != '\\' {
            is_escaped = false;
        }
    }
    Ok(out)
}

/// Start of the offending text, for messages.
fn shortened(text: &[u8]) -> String {
    const SHOWN_BYTES: usize = 60;
    match text.get(..SHOWN_BYTES) {
        Some(head) if text.len() > SHOWN_BYTES => format!("{}…", escape(head)),
        _ => escape(text),
    }
}

#[cfg(test)]
mod tests;
