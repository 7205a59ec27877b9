//! Text forms of keys and values: escapes and hex, in both directions.
//!
//! Text form: valid UTF-8 other than control characters and U+FEFF is literal. `\` is written `\\`; tab, line
//! feed and carriage return are `\t`, `\n`, `\r`; every other byte is `\xNN`.
//!
//! **Invariants**
//! - `unescape(escape(bytes)) == bytes` and `from_hex(to_hex(bytes)) == bytes` for all bytes.
//! - Escaped text contains neither a tab nor a line ending, so that both can separate texts.

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
                    // A byte order mark is invisible, and at the beginning of a file it is not content.
                    if letter.is_control() || letter == '\u{feff}' {
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

/// Escapes `bytes`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape_into(&mut out, bytes);
    String::from_utf8_lossy(&out).into_owned()
}

fn escape_byte(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

/// Parses escaped text; the error names the offending character.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(next) = text[at..].iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&text[at..at + next]);
        at += next;
        let (byte, taken) = match &text[at + 1..] {
            [b'\\', ..] => (b'\\', 2),
            [b't', ..] => (b'\t', 2),
            [b'n', ..] => (b'\n', 2),
            [b'r', ..] => (b'\r', 2),
            [b'x', high, low, ..] => (digit(text, at + 2, *high)? << 4 | digit(text, at + 3, *low)?, 4),
            [b'x', ..] => {
                return Err(format!("the \\x at character {} needs two hex digits", character_at(text, at)));
            }
            rest => {
                let what = match String::from_utf8_lossy(rest).chars().next() {
                    Some(letter) => format!("'\\{letter}'"),
                    None => "the backslash".to_owned(),
                };
                let place = character_at(text, at);
                return Err(format!(
                    "{what} at character {place} is not an escape; the escapes are \\\\ \\t \\n \\r \\xNN"
                ));
            }
        };
        out.push(byte);
        at += taken;
    }
    out.extend_from_slice(&text[at..]);
    Ok(out)
}

/// 1-based number of the character at byte `at` of `text`.
pub(crate) fn character_at(text: &[u8], at: usize) -> usize {
    String::from_utf8_lossy(&text[..at]).chars().count() + 1
}

/// Encodes bytes as two hex digits each.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

/// Decodes the output of [`to_hex`], in either case; the error names the offending character.
pub(crate) fn from_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    let nibbles = (0..).zip(text).map(|(at, &byte)| digit(text, at, byte)).collect::<Result<Vec<u8>, _>>()?;
    if !nibbles.len().is_multiple_of(2) {
        return Err(format!("an odd number of hex digits ({})", nibbles.len()));
    }
    Ok(nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Value of the hex digit `byte`, which is at `at` in `text`.
fn digit(text: &[u8], at: usize, byte: u8) -> Result<u8, String> {
    nibble(byte).ok_or_else(|| {
        let letter = String::from_utf8_lossy(&text[at..]).chars().next().unwrap_or_default();
        format!("{letter:?} at character {} is not a hex digit", character_at(text, at))
    })
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
