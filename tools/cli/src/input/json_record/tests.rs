use super::JsonRecord;
use crate::input::format::{Format, FormatArguments};

fn formats(format: Option<Format>) -> FormatArguments {
    FormatArguments { key_format: format, value_format: format, ..FormatArguments::default() }
}

fn round_trip(key: &[u8], value: &[u8], format: Option<Format>) -> String {
    let line = serde_json::to_string(&JsonRecord::new(key, Some(value), formats(format)).unwrap()).unwrap();
    assert_eq!(JsonRecord::parse(line.as_bytes()), Ok((key.to_vec(), value.to_vec())));
    line
}

#[test]
fn records_round_trip() {
    let all: Vec<u8> = (0..=255).collect();
    for format in [None, Some(Format::Hex), Some(Format::Escaped)] {
        round_trip(b"", b"", format);
        round_trip("grün \"quoted\"\n".as_bytes(), &all, format);
        round_trip(&all, "\0\u{1f}\\".as_bytes(), format);
    }
    let numbers = round_trip(&[0, 0, 0, 0, 0, 0, 0, 7], &[7, 0, 0, 0, 0, 0, 0, 0], Some(Format::U64));
    assert_eq!(numbers, r#"{"key_u64":7,"value_u64":7}"#);
    let documents = round_trip(b"1.50", br#"{"b":1,"a":[]}"#, Some(Format::Json));
    assert_eq!(documents, r#"{"key_json":1.50,"value_json":{"b":1,"a":[]}}"#);
    assert_eq!(round_trip(b"null", b"null", Some(Format::Json)), r#"{"key_json":null,"value_json":null}"#);
    assert!(JsonRecord::new(b"\xff", None, formats(Some(Format::Text))).is_err());
}

#[test]
fn missing_duplicate_and_unknown_fields_are_rejected() {
    for line in [
        &br#"{"value":"v"}"#[..],
        br#"{"key":"k"}"#,
        br#"{"key":"k","key_hex":"00","value":"v"}"#,
        br#"{"key":"k","key_u64":1,"value":"v"}"#,
        br#"{"key":"k","valve":"v"}"#,
        br#"{"key":1,"value":"v"}"#,
        br#"{"key_hex":"0","value":"v"}"#,
        br#"{"key_escaped":"\\q","value":"v"}"#,
        br#"["k","v"]extra"#,
        br#"{"key":"k","value":"v"} {}"#,
        b"",
    ] {
        assert!(JsonRecord::parse(line).is_err(), "{}", String::from_utf8_lossy(line));
    }
}

#[test]
fn errors_name_the_byte_but_no_line() {
    let error = JsonRecord::parse(br#"{"key":"k","value":}"#).unwrap_err();
    assert_eq!(error, "expected value at byte 20");
    let error = JsonRecord::parse(br#"{"key":"k","valve":"v"}"#).unwrap_err();
    assert!(error.contains("unknown field `valve`") && !error.contains("line"), "{error}");
}
