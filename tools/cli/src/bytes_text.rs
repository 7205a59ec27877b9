//! Keys and values are bytes, people type and read text: escapes, hex, and back.
//!
//! Text form: bytes that are valid UTF-8 and not control characters stand for themselves; `\` is written `\\`,
//! tab, line feed and carriage return are `\t`, `\n`, `\r`; every other byte is `\xNN`.
//!
//! **Invariants**
//! - `unescape(escape(bytes)) == bytes` and `from_hex(to_hex(bytes)) == bytes` for all bytes.
//! - An escaped text holds neither a tab nor the end of a line, so that both can separate texts.

use crate::failure::Failure;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends the text form of `bytes`.
pub(crate) fn escape_into(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => out.extend_from_slice(b"\\\\"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                _ => {
                    let mut encoded = [0; 4];
                    let encoded = letter.encode_utf8(&mut encoded).as_bytes();
                    if letter.is_control() {
                        encoded.iter().for_each(|&byte| escape_byte(out, byte));
                    } else {
                        out.extend_from_slice(encoded);
                    }
                }
            }
        }
        chunk.invalid().iter().for_each(|&byte| escape_byte(out, byte));
    }
}

/// The text form of `bytes`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape_into(&mut out, bytes);
    String::from_utf8_lossy(&out).into_owned()
}

fn escape_byte(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

/// The bytes of a text form; the error says what is wrong.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let escape = &rest[at + 1..];
        let (byte, taken) = match escape {
            [b'\\', ..] => (b'\\', 1),
            [b't', ..] => (b'\t', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b'x', high, low, ..] => match (nibble(*high), nibble(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => return Err("\\x needs two hex digits"),
            },
            _ => return Err("a backslash must begin one of \\\\ \\t \\n \\r \\xNN"),
        };
        out.push(byte);
        rest = &escape[taken..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

/// Two hex digits a byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

/// The bytes of [`to_hex`], either case; the error says what is wrong.
pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>, &'static str> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return Err("hex needs an even number of digits");
    }
    let byte = |pair: &[u8]| Some(nibble(pair[0])? << 4 | nibble(pair[1])?);
    digits.chunks_exact(2).map(byte).collect::<Option<_>>().ok_or("hex has only the digits 0-9 and a-f")
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The bytes of an argument named `name`: UTF-8 text as typed, or hex.
pub(crate) fn from_argument(name: &str, text: &str, hex: bool) -> Result<Vec<u8>, Failure> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    from_hex(text).map_err(|reason| Failure::new(format!("{name} '{}': {reason}", escape(text.as_bytes()))))
}

/// Appends `bytes` for people: hex if asked for, else the text form.
pub(crate) fn show_into(out: &mut Vec<u8>, bytes: &[u8], hex: bool) {
    if hex {
        out.extend_from_slice(to_hex(bytes).as_bytes());
    } else {
        escape_into(out, bytes);
    }
}

#[cfg(test)]
mod tests;
