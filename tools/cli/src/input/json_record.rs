//! One record as a JSON object, in the format shared by `scan --json`, `dump` and `load`.
//!
//! Field names state the format of the key and the value: `key` is text, `key_hex` hex, `key_escaped` escaped
//! text, `key_u64` a number, `key_json` a JSON document; likewise for values ([`super::format`]). By default,
//! UTF-8 bytes are written as text and all others as hex.
//!
//! **Invariants**
//! - Written records read back as the same bytes.
//! - Unknown fields are rejected, so that a misspelled field is not silently ignored.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::input::{
    bytes_text::{escape, from_hex, to_hex, unescape},
    format::{Format, FormatArguments, Role, compact, number_of},
};

/// Record as JSON, with exactly one format of the key and one of the value.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JsonRecord<'a> {
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    key_hex: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    key_escaped: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_u64: Option<u64>,
    #[serde(default, deserialize_with = "document", skip_serializing_if = "Option::is_none")]
    key_json: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    value: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    value_hex: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    value_escaped: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_u64: Option<u64>,
    #[serde(default, deserialize_with = "document", skip_serializing_if = "Option::is_none")]
    value_json: Option<Box<RawValue>>,
}

/// Deserializes a document; `null` is a document, not an absent field.
fn document<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Describes invalid JSON and its position, without the line number within the record, which is always 1.
fn wrong_json(error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    let what = text.strip_suffix(&format!(" at line {} column {column}", error.line())).unwrap_or(&text);
    if column == 0 { what.to_owned() } else { format!("{what} at byte {column}") }
}

/// Key or value in one of its formats.
enum Field<'a> {
    Text(Cow<'a, str>),
    Hex(Cow<'a, str>),
    Escaped(Cow<'a, str>),
    U64(u64),
    Json(Box<RawValue>),
}

impl<'a> JsonRecord<'a> {
    /// Creates a record, or a key alone. The error says why it does not fit the chosen format.
    pub(crate) fn new(
        key: &'a [u8],
        value: Option<&'a [u8]>,
        formats: FormatArguments,
    ) -> Result<Self, String> {
        let mut record = Self::default();
        match Field::of(key, formats.chosen_key(), Role::Key)? {
            Field::Text(text) => record.key = Some(text),
            Field::Hex(hex) => record.key_hex = Some(hex),
            Field::Escaped(text) => record.key_escaped = Some(text),
            Field::U64(number) => record.key_u64 = Some(number),
            Field::Json(document) => record.key_json = Some(document),
        }
        match value.map(|value| Field::of(value, formats.chosen_value(), Role::Value)).transpose()? {
            Some(Field::Text(text)) => record.value = Some(text),
            Some(Field::Hex(hex)) => record.value_hex = Some(hex),
            Some(Field::Escaped(text)) => record.value_escaped = Some(text),
            Some(Field::U64(number)) => record.value_u64 = Some(number),
            Some(Field::Json(document)) => record.value_json = Some(document),
            None => {}
        }
        Ok(record)
    }

    /// Parses key and value from one line of JSON.
    pub(crate) fn parse(line: &'a [u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
        let record: Self = serde_json::from_slice(line).map_err(|error| wrong_json(&error))?;
        let key = [
            record.key.map(Field::Text),
            record.key_hex.map(Field::Hex),
            record.key_escaped.map(Field::Escaped),
            record.key_u64.map(Field::U64),
            record.key_json.map(Field::Json),
        ];
        let value = [
            record.value.map(Field::Text),
            record.value_hex.map(Field::Hex),
            record.value_escaped.map(Field::Escaped),
            record.value_u64.map(Field::U64),
            record.value_json.map(Field::Json),
        ];
        Ok((only("key", key)?.bytes(Role::Key)?, only("value", value)?.bytes(Role::Value)?))
    }
}

impl<'a> Field<'a> {
    fn of(bytes: &'a [u8], format: Option<Format>, role: Role) -> Result<Self, String> {
        let failed = |why: String| {
            let what = if role == Role::Key { "the key" } else { "the value" };
            format!("{what} '{}': {why}", escape(&bytes[..bytes.len().min(60)]))
        };
        let text = || std::str::from_utf8(bytes).map(|text| Self::Text(Cow::Borrowed(text)));
        let hex = || Self::Hex(Cow::Owned(to_hex(bytes)));
        Ok(match format {
            None => text().unwrap_or_else(|_| hex()),
            Some(Format::Text) => text().map_err(|error| failed(error.to_string()))?,
            Some(Format::Hex) => hex(),
            Some(Format::Escaped) => Self::Escaped(Cow::Owned(escape(bytes))),
            Some(Format::U64) => Self::U64(number_of(bytes, role).map_err(failed)?),
            Some(Format::Json) => {
                let document = compact(bytes).map_err(failed)?;
                Self::Json(RawValue::from_string(document).map_err(|error| failed(error.to_string()))?)
            }
        })
    }

    fn bytes(self, role: Role) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.into_owned().into_bytes()),
            Self::Hex(hex) => from_hex(hex.as_bytes()),
            Self::Escaped(text) => unescape(text.as_bytes()),
            Self::U64(number) => Format::U64.parse(number.to_string().as_bytes(), role),
            Self::Json(document) => Ok(document.get().as_bytes().to_vec()),
        }
    }
}

/// Returns the one format that is present.
fn only<'a>(name: &str, forms: [Option<Field<'a>>; 5]) -> Result<Field<'a>, String> {
    let mut forms = forms.into_iter().flatten();
    match (forms.next(), forms.next()) {
        (Some(form), None) => Ok(form),
        (None, _) => Err(format!("no field {name}, {name}_hex or another format of the {name}")),
        (Some(_), Some(_)) => Err(format!("{name} is given in two formats")),
    }
}

#[cfg(test)]
mod tests;
