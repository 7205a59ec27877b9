//! Keys and values as short recipes, so that a script with a 300 KiB value still fits on one line of text.
//!
//! **Invariants**
//! - A recipe yields the same bytes on every machine and in every version.
//! - `parse(print(recipe)) == recipe`.

use std::{fmt, str::FromStr};

use testudo_base::{checksum::checksum64, num::usize_of};
use testudo_env::SplitMix;

/// Byte that pads long keys.
const PAD: u8 = b'p';
/// Text of the empty stem.
const EMPTY: &str = "@";

/// A key: a stem, a number of padding bytes after it, and a tail.
///
/// As text, letters, digits, `/`, `_` and `-` of the stem are literal, other bytes are `%` and two hex
/// digits, and the empty stem is `@`. Padding follows as `+count`; a tail follows as `+tail`, encoded like
/// the stem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// Leading bytes.
    pub stem: Vec<u8>,
    /// Number of padding bytes after the stem.
    pub pad: u32,
    /// Trailing bytes.
    pub tail: Vec<u8>,
}

impl Key {
    /// Creates a key without padding.
    pub fn of(stem: impl AsRef<[u8]>) -> Self {
        Self::padded(stem, 0)
    }

    /// Creates a key without a tail.
    pub fn padded(stem: impl AsRef<[u8]>, pad: u32) -> Self {
        Self { stem: stem.as_ref().to_vec(), pad, tail: Vec::new() }
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> usize {
        self.stem.len() + usize_of(self.pad.into()) + self.tail.len()
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.stem.clone();
        bytes.resize(bytes.len() + usize_of(self.pad.into()), PAD);
        bytes.extend_from_slice(&self.tail);
        bytes
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stem.is_empty() {
            f.write_str(EMPTY)?;
        }
        write_bytes(f, &self.stem)?;
        if self.pad > 0 || !self.tail.is_empty() {
            write!(f, "+{}", self.pad)?;
        }
        if !self.tail.is_empty() {
            f.write_str("+")?;
            write_bytes(f, &self.tail)?;
        }
        Ok(())
    }
}

fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for &byte in bytes {
        if is_plain(byte) {
            write!(f, "{}", char::from(byte))?;
        } else {
            write!(f, "%{byte:02x}")?;
        }
    }
    Ok(())
}

fn parse_bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if is_plain(first) {
            bytes.push(first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (b'%', Some(byte)) = (first, byte) else {
            return Err(format!("{text:?} is not a key"));
        };
        bytes.push(byte);
        rest = &after[2..];
    }
    Ok(bytes)
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '+');
        let stem = parts.next().unwrap_or_default();
        let pad = parts.next().unwrap_or("0");
        let pad = pad.parse().map_err(|_| format!("padding {pad:?} of a key is not a number"))?;
        let tail = parse_bytes(parts.next().unwrap_or_default())?;
        let stem = if stem == EMPTY {
            ""
        } else {
            Some(stem).filter(|stem| !stem.is_empty()).ok_or("a key is missing")?
        };
        Ok(Self { stem: parse_bytes(stem)?, pad, tail })
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-')
}

/// A value: `length` bytes that depend on `seed`. As text `seed:length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    /// Distinguishes values of one length.
    pub seed: u32,
    /// Length in bytes.
    pub length: u32,
}

impl Value {
    /// Returns the bytes of the value.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; usize_of(self.length.into())];
        SplitMix::new(self.seed.into()).fill(&mut bytes);
        bytes
    }

    /// Returns bytes that depend on `old`, for writes that must depend on the previous value.
    pub fn after(self, old: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = vec![0; usize_of(self.length.into())];
        let seed = old.map_or(1, |old| checksum64(old, 2));
        SplitMix::new(seed ^ u64::from(self.seed)).fill(&mut bytes);
        bytes
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.length)
    }
}

impl FromStr for Value {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':').map(|(seed, length)| (seed.parse(), length.parse()));
        match parts {
            Some((Ok(seed), Ok(length))) => Ok(Self { seed, length }),
            _ => Err(format!("{text:?} is not a value such as 7:100")),
        }
    }
}

#[cfg(test)]
mod tests;
