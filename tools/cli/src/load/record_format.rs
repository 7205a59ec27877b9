//! The formats that `load` reads, one record a line.
//!
//! | format | line | record |
//! |---|---|---|
//! | lines | any bytes | key: the line; value: its number, from 1, as decimal text |
//! | tsv | key, tab, value, with the escapes of [`crate::bytes_text`] | as written |
//! | jsonl | an object as in [`crate::json_record`]; blank lines are passed over | as written |
//!
//! **Invariants**
//! - What `dump` or `scan` wrote in a format reads back as the same bytes.

use std::path::Path;

use clap::ValueEnum;
use testudo_base::MAX_KEY_BYTES;

use crate::{bytes_text::unescape, json_record::JsonRecord};

/// A format that `load` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// Each line is a key; its value is the line's number
    Lines,
    /// Key, tab, value; \t \n \r \\ \xNN are escapes
    Tsv,
    /// {"key": …, "value": …}, or key_hex and value_hex
    Jsonl,
}

/// Key and value.
type Record = (Vec<u8>, Vec<u8>);

impl RecordFormat {
    /// The format that the name of a file promises.
    pub(crate) fn of_file(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("tsv") => Self::Tsv,
            Some("jsonl" | "ndjson") => Self::Jsonl,
            _ => Self::Lines,
        }
    }

    /// The record of line `number`; `None` if the line holds none. The error says what is wrong.
    pub(crate) fn parse(self, line: &[u8], number: u64) -> Result<Option<Record>, String> {
        let (key, value) = match self {
            Self::Lines => (line.to_vec(), number.to_string().into_bytes()),
            Self::Tsv => parse_tsv(line)?,
            Self::Jsonl if line.trim_ascii().is_empty() => return Ok(None),
            Self::Jsonl => JsonRecord::parse(line)?,
        };
        if key.len() > MAX_KEY_BYTES {
            return Err(format!("the key has {} bytes; at most {MAX_KEY_BYTES} are allowed", key.len()));
        }
        Ok(Some((key, value)))
    }
}

fn parse_tsv(line: &[u8]) -> Result<Record, String> {
    let mut fields = line.split(|&byte| byte == b'\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(key), Some(value), None) => Ok((unescape(key)?, unescape(value)?)),
        (Some(_), Some(_), Some(_)) => Err("more than one tab; a tab in a value is written \\t".to_owned()),
        _ => Err("no tab between key and value".to_owned()),
    }
}

#[cfg(test)]
mod tests;
