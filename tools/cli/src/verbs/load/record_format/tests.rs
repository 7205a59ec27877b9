use std::path::Path;

use super::RecordFormat;
use crate::input::format::FormatArguments;

#[test]
fn format_is_implied_by_the_file_extension() {
    assert_eq!(RecordFormat::of_file(Path::new("a.tsv")), Some(RecordFormat::Tsv));
    assert_eq!(RecordFormat::of_file(Path::new("a.jsonl")), Some(RecordFormat::Jsonl));
    for unknown in ["words", "words.txt", "a.csv", "-"] {
        assert_eq!(RecordFormat::of_file(Path::new(unknown)), None);
    }
}

#[test]
fn each_format_parses_its_record() {
    let parse =
        |format: RecordFormat, line: &[u8]| format.parse(line, 7, FormatArguments::default()).unwrap();
    let record = |key: &[u8], value: &[u8]| Some((key.to_vec(), value.to_vec()));
    assert_eq!(parse(RecordFormat::Lines, b"a\tb"), record(b"a\tb", b"7"));
    assert_eq!(parse(RecordFormat::Tsv, b"a\\tb\t\\xff"), record(b"a\tb", b"\xff"));
    assert_eq!(parse(RecordFormat::Tsv, b"\t"), record(b"", b""));
    assert_eq!(parse(RecordFormat::Jsonl, br#"{"key":"a","value_hex":"00"}"#), record(b"a", b"\0"));
    assert_eq!(parse(RecordFormat::Jsonl, b"  "), None);
}

#[test]
fn bad_lines_are_rejected_with_a_reason() {
    let refused =
        |format: RecordFormat, line: &[u8]| format.parse(line, 1, FormatArguments::default()).unwrap_err();
    assert!(refused(RecordFormat::Tsv, b"no value").contains("no tab"));
    assert!(refused(RecordFormat::Tsv, b"a\tb\tc").contains("more than one tab"));
    assert!(refused(RecordFormat::Tsv, b"a\\q\tb").contains("not an escape"));
    assert!(refused(RecordFormat::Lines, &[b'k'; 65537]).contains("65537"));
}
