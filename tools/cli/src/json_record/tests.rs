use super::JsonRecord;

fn round_trip(key: &[u8], value: &[u8], hex: bool) {
    let line = serde_json::to_vec(&JsonRecord::new(key, Some(value), hex)).unwrap();
    assert_eq!(JsonRecord::parse(&line), Ok((key.to_vec(), value.to_vec())));
}

#[test]
fn what_is_written_reads_back() {
    let all: Vec<u8> = (0..=255).collect();
    for hex in [false, true] {
        round_trip(b"", b"", hex);
        round_trip("grün \"quoted\"\n".as_bytes(), &all, hex);
        round_trip(&all, "\0\u{1f}\\".as_bytes(), hex);
    }
}

#[test]
fn records_with_missing_double_or_unknown_fields_are_refused() {
    for line in [
        &br#"{"value":"v"}"#[..],
        br#"{"key":"k"}"#,
        br#"{"key":"k","key_hex":"00","value":"v"}"#,
        br#"{"key":"k","valve":"v"}"#,
        br#"{"key":1,"value":"v"}"#,
        br#"{"key_hex":"0","value":"v"}"#,
        br#"["k","v"]extra"#,
        br#"{"key":"k","value":"v"} {}"#,
        b"",
    ] {
        assert!(JsonRecord::parse(line).is_err(), "{}", String::from_utf8_lossy(line));
    }
}
