use std::io::{BufReader, Cursor, Read};

use testudo_share::some_of;

use super::*;
use crate::input::{
    format::Format,
    json_record::JsonRecord,
    line_reader::{Line, LineReader, Newline, WHOLE_LINE_BYTES},
};

type Parsed = Result<(Vec<u8>, Vec<u8>), String>;

/// Parses the record of a line, which leading blanks make too long.
fn parse_long(format: RecordFormat, line: &[u8], formats: FormatArguments, buffer: usize) -> Parsed {
    let context = Context::new(false);
    let source = BufReader::with_capacity(buffer, Cursor::new(line.to_vec()));
    let mut reader = LineReader::of_source(Box::new(source), Some(Newline::Crlf));
    let Some(Line::Long(line)) = reader.next_line()? else { panic!("the line is long") };
    let (key, mut value) = parse(&context, format, line, formats)?;
    let mut bytes = Vec::new();
    value.reader()?.read_to_end(&mut bytes).unwrap();
    Ok((key, bytes))
}

#[test]
fn long_objects_parse_like_short_ones() {
    let lines = [
        r#"{"key":"k","value":"v"}"#,
        r#" { "value_hex" : "00ff" , "key_hex" : "6b" } "#,
        r#"{"value":"k\u00e4se \ud83d\udc22 \"\\\/\b\f\n\r\t","key":"\u0000"}"#,
        r#"{"key_escaped":"a\\x00","value_escaped":"\\xff\\n\\\\"}"#,
        r#"{"key_u64":258,"value_u64":18446744073709551615}"#,
        r#"{"key_json":[1,"]"],"value_json":{"a":[1,{"b":"}\\\"]"}],"c":null}}"#,
        r#"{"key_json":null,"value_json":null}"#,
        r#"{"key_json":1.5e3,"value_json": true }"#,
        r#"{"key_json":"a\\","value_json":"\""}"#,
        r#"{"key":null,"key_hex":"6b","value":"v"}"#,
        r#"{"key":"","value":""}"#,
        r#"{"value":"v"}"#,
        r#"{"key":"k"}"#,
        r#"{"key":null,"value":"v"}"#,
        r#"{"key":"k","key_hex":"00","value":"v"}"#,
        r#"{"key":"k","key":"k","value":"v"}"#,
        r#"{"key":"k","valve":"v"}"#,
        r#"{"key":1,"value":"v"}"#,
        r#"{"key_u64":"1","value":"v"}"#,
        r#"{"key_u64":-1,"value":"v"}"#,
        r#"{"key_hex":"0","value":"v"}"#,
        r#"{"key_escaped":"\\q","value":"v"}"#,
        r#"{"key":"\ud83d","value":"v"}"#,
        r#"{"key":"\udc22\ud83d","value":"v"}"#,
        r#"{"key":"\q","value":"v"}"#,
        r#"{"key":"k","value_json":[1,}"#,
        r#"{"key":"k","value_json":}"#,
        r#"{"key":"k","value_json":1 2}"#,
        r#"{"key":"k","value":"v""#,
        r#"{"key":"k","value":"v"} {}"#,
        r#"{"key":"k","value":"v",}"#,
        r#"["k","v"]"#,
        "{\"key\":\"a\tb\",\"value\":\"v\"}",
        "",
        "{",
        "{}",
    ];
    let blanks = " ".repeat(WHOLE_LINE_BYTES);
    for (index, line) in lines.into_iter().enumerate() {
        let whole = JsonRecord::parse(line.as_bytes());
        let long = format!("{blanks}{line}");
        for buffer in some_of([1, 2, 3, 64], 4, index) {
            let parsed = parse_long(RecordFormat::Jsonl, long.as_bytes(), FormatArguments::default(), buffer);
            match &whole {
                Ok(record) => assert_eq!(parsed.as_ref(), Ok(record), "{line}"),
                Err(_) => assert!(parsed.is_err(), "{line}: {parsed:?}"),
            }
        }
    }
}

#[test]
fn long_tsv_lines_parse_like_short_ones() {
    let letters = "v".repeat(WHOLE_LINE_BYTES);
    let of = |line: String| parse_long(RecordFormat::Tsv, line.as_bytes(), FormatArguments::default(), 4096);
    let (key, value) = of(format!("k\\tey\t{letters}\\x00\r\n")).unwrap();
    assert_eq!(key, b"k\tey");
    assert!(value == format!("{letters}\0").into_bytes());
    assert!(of(letters.clone()).unwrap_err().contains("no tab"));
    assert!(of(format!("{letters}\tv")).unwrap_err().contains("the key has more than 65536 bytes"));
    assert!(of(format!("k\t{letters}\tv")).unwrap_err().contains("more than one tab"));
    assert!(of(format!("k\t{letters}\\q")).unwrap_err().contains("is not an escape"));
    let hex = FormatArguments { value_format: Some(Format::Hex), ..FormatArguments::default() };
    let line = format!("k\t{}", "6b".repeat(WHOLE_LINE_BYTES));
    let (_, value) = parse_long(RecordFormat::Tsv, line.as_bytes(), hex, 4096).unwrap();
    assert!(value == vec![b'k'; WHOLE_LINE_BYTES]);
    let lines = parse_long(RecordFormat::Lines, letters.as_bytes(), FormatArguments::default(), 4096);
    assert!(lines.unwrap_err().contains("65536"));
}
