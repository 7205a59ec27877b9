//! Record formats that `load` reads, one record per line.
//!
//! | format | line | record |
//! |---|---|---|
//! | lines | any bytes, or a key in a selected format | key: the line; value: its number from 1, in decimal |
//! | tsv | key, tab, value, each in a format of [`crate::input::format`] | as written |
//! | jsonl | an object as in [`crate::input::json_record`]; blank lines are skipped | as written |
//!
//! **Invariants**
//! - Output of `dump` or `scan` in a format reads back as the same bytes.

use std::path::Path;

use clap::ValueEnum;
use testudo_base::MAX_KEY_BYTES;

use crate::input::{
    format::{FormatArguments, Role},
    json_record::JsonRecord,
};

/// Record format that `load` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// Each line is a key, byte for byte unless a format is selected; its value is the line number
    Lines,
    /// Key, tab, value, escaped unless another format is selected
    Tsv,
    /// {"key": …, "value": …}, or key_hex, key_escaped, key_u64, key_json, and likewise for the value
    Jsonl,
}

/// Key and value.
type Record = (Vec<u8>, Vec<u8>);

impl RecordFormat {
    /// Format implied by a file name, if any.
    pub(crate) fn of_file(path: &Path) -> Option<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("tsv") => Some(Self::Tsv),
            Some("jsonl" | "ndjson") => Some(Self::Jsonl),
            _ => None,
        }
    }

    /// Fails if formats were selected that this record format does not allow.
    pub(crate) fn check(self, formats: FormatArguments) -> Result<(), String> {
        let (key, value) = (formats.chosen_key(), formats.chosen_value());
        match self {
            Self::Jsonl if key.or(value).is_some() => {
                Err("in jsonl the field names determine the formats: key_hex, value_u64, …".to_owned())
            }
            Self::Lines if value.is_some() => Err("the value is always the line number".to_owned()),
            _ => Ok(()),
        }
    }

    /// Parses line `number`; returns `None` if it holds no record. The error describes the problem.
    pub(crate) fn parse(
        self,
        line: &[u8],
        number: u64,
        formats: FormatArguments,
    ) -> Result<Option<Record>, String> {
        let (key, value) = match self {
            Self::Lines => {
                let key =
                    formats.chosen_key().map_or(Ok(line.to_vec()), |format| format.parse(line, Role::Key));
                (key?, number.to_string().into_bytes())
            }
            Self::Tsv => parse_tsv(line, formats)?,
            Self::Jsonl if line.trim_ascii().is_empty() => return Ok(None),
            Self::Jsonl => JsonRecord::parse(line)?,
        };
        if key.len() > MAX_KEY_BYTES {
            return Err(format!("the key has {} bytes; at most {MAX_KEY_BYTES} are allowed", key.len()));
        }
        Ok(Some((key, value)))
    }
}

fn parse_tsv(line: &[u8], formats: FormatArguments) -> Result<Record, String> {
    let mut fields = line.split(|&byte| byte == b'\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(key), Some(value), None) => Ok((formats.parse_key(key)?, formats.parse_value(value)?)),
        (Some(_), Some(_), Some(_)) => Err("more than one tab; a tab in a value is written \\t".to_owned()),
        _ => Err("no tab between key and value".to_owned()),
    }
}

#[cfg(test)]
mod tests;
