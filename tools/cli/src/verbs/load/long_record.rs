//! Parses the record of a line that is too long for memory: the key as a whole, the value in chunks.
//!
//! **Invariants**
//! - The result equals that of [`RecordFormat::parse`] for the whole line, including rejections.
//! - Memory holds one key, one chunk of the line, and the memory of [`Spool`].

use testudo_base::MAX_KEY_BYTES;

use crate::{
    context::Context,
    input::{
        format::{FormatArguments, Role},
        line_reader::LongLine,
        long_json::LongJson,
        long_value::LongValue,
        spool::Spool,
    },
    verbs::load::record_format::RecordFormat,
};

/// Maximum bytes of a key's text: four per byte of the key.
const KEY_TEXT_BYTES: usize = 4 * MAX_KEY_BYTES;

/// Parses key and value of the line.
pub(crate) fn parse(
    context: &Context,
    format: RecordFormat,
    line: LongLine<'_>,
    formats: FormatArguments,
) -> Result<(Vec<u8>, Spool), String> {
    let (key, value) = match format {
        RecordFormat::Lines => return Err(key_too_long()),
        RecordFormat::Tsv => parse_tsv(context, line, formats)?,
        RecordFormat::Jsonl => LongJson::new(context, line).parse()?,
    };
    if key.len() > MAX_KEY_BYTES { Err(key_too_long()) } else { Ok((key, value)) }
}

fn key_too_long() -> String {
    format!("the key has more than {MAX_KEY_BYTES} bytes, the maximum")
}

fn parse_tsv(
    context: &Context,
    mut line: LongLine<'_>,
    formats: FormatArguments,
) -> Result<(Vec<u8>, Spool), String> {
    let (mut text, mut chunk) = (Vec::new(), Vec::new());
    let mut value = LongValue::new(formats.chosen_value().unwrap_or_default(), Spool::new(context));
    let mut key = None;
    while line.next_chunk(&mut chunk)? {
        let mut rest = chunk.as_slice();
        if key.is_none() {
            let tab = rest.iter().position(|&byte| byte == b'\t');
            text.extend_from_slice(&rest[..tab.unwrap_or(rest.len())]);
            let Some(tab) = tab else {
                // The error for a line without a tab does not depend on its length.
                text.truncate(KEY_TEXT_BYTES + 1);
                continue;
            };
            if text.len() > KEY_TEXT_BYTES {
                return Err(key_too_long());
            }
            key = Some(formats.chosen_key().unwrap_or_default().parse(&text, Role::Key)?);
            rest = &rest[tab + 1..];
        }
        if rest.contains(&b'\t') {
            return Err("more than one tab; a tab in a value is written \\t".to_owned());
        }
        value.push(rest)?;
    }
    let key = key.ok_or_else(|| "no tab between key and value".to_owned())?;
    Ok((key, value.end()?))
}

#[cfg(test)]
mod tests;
