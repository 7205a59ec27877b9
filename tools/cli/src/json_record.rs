//! A record as one JSON object, the same for `scan --json`, `dump` and `load`.
//!
//! `{"key": …, "value": …}` where the bytes are UTF-8, `key_hex` and `value_hex` in place of them otherwise (or
//! where hex was asked for).
//!
//! **Invariants**
//! - Reading back what was written gives the same bytes.
//! - Fields that are not known are refused, so that a misspelt one is not silently an empty value.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::bytes_text::{from_hex, to_hex};

/// A record as JSON; of the two forms of key and value exactly one is there.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JsonRecord<'a> {
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    key_hex: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    value: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    value_hex: Option<Cow<'a, str>>,
}

impl<'a> JsonRecord<'a> {
    /// A record, or a key alone.
    pub(crate) fn new(key: &'a [u8], value: Option<&'a [u8]>, hex: bool) -> Self {
        let (key, key_hex) = split(key, hex);
        let (value, value_hex) = value.map_or((None, None), |value| split(value, hex));
        Self { key, key_hex, value, value_hex }
    }

    /// Key and value of one line of JSON.
    pub(crate) fn parse(line: &'a [u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
        let record: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let key = join("key", record.key, record.key_hex)?;
        let value = join("value", record.value, record.value_hex)?;
        Ok((key, value))
    }
}

fn split(bytes: &[u8], hex: bool) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
    match std::str::from_utf8(bytes) {
        Ok(text) if !hex => (Some(Cow::Borrowed(text)), None),
        _ => (None, Some(Cow::Owned(to_hex(bytes)))),
    }
}

fn join(name: &str, text: Option<Cow<'_, str>>, hex: Option<Cow<'_, str>>) -> Result<Vec<u8>, String> {
    match (text, hex) {
        (Some(text), None) => Ok(text.into_owned().into_bytes()),
        (None, Some(hex)) => from_hex(&hex).map_err(|reason| format!("{name}_hex: {reason}")),
        (None, None) => Err(format!("neither {name} nor {name}_hex is there")),
        (Some(_), Some(_)) => Err(format!("{name} and {name}_hex are both there")),
    }
}

#[cfg(test)]
mod tests;
