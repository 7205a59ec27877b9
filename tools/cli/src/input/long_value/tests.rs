use std::io::Read;

use super::LongValue;
use crate::{
    context::Context,
    input::{
        format::{Format, Role},
        spool::Spool,
    },
};

fn decode(text: &[u8], format: Format, step: usize) -> Result<Vec<u8>, String> {
    let mut value = LongValue::new(format, Spool::new(&Context::new(false)));
    text.chunks(step).try_for_each(|chunk| value.push(chunk))?;
    let mut bytes = Vec::new();
    value.end()?.reader()?.read_to_end(&mut bytes).unwrap();
    Ok(bytes)
}

#[test]
fn chunkwise_decoding_equals_whole_decoding() {
    let texts: [(Format, &[u8]); 12] = [
        (Format::Escaped, b"a\\x00\\\\x\\xff\\n\\\\\\\\"),
        (Format::Escaped, "k\u{e4}se \\t".as_bytes()),
        (Format::Escaped, b"a\\x0"),
        (Format::Escaped, b"a\\"),
        (Format::Escaped, b"a\\q"),
        (Format::Hex, b"00ffAb"),
        (Format::Hex, b"00f"),
        (Format::Hex, b"0g"),
        (Format::Text, "k\u{e4}se \u{1f422}".as_bytes()),
        (Format::Text, b"k\xc3"),
        (Format::U64, b"18446744073709551615"),
        (Format::Json, b"{\"a\": [1, \"b\"]}"),
    ];
    for (format, text) in texts {
        let whole = format.parse(text, Role::Value);
        for step in 1..=text.len() {
            let chunks = decode(text, format, step);
            assert_eq!(chunks.is_ok(), whole.is_ok(), "{format:?} {text:?} by {step}");
            if let (Ok(chunks), Ok(whole)) = (chunks, &whole) {
                assert_eq!(chunks, *whole, "{format:?} {text:?} by {step}");
            }
        }
    }
    assert!(decode(&[b'1'; 100], Format::U64, 7).is_err());
    assert!(decode(b"[1,]", Format::Json, 2).is_err());
}

#[test]
fn large_values_spill_to_a_file() {
    let text = "0123456789abcdef".repeat(300_000);
    let bytes = decode(text.as_bytes(), Format::Hex, 65_537).unwrap();
    assert_eq!(bytes.len(), text.len() / 2);
    assert!(bytes == Format::Hex.parse(text.as_bytes(), Role::Value).unwrap());
}
