//! `load` of various files: the record format is explicit, not guessed.

use std::process::Command;

use testudo_share::some_of;

use crate::program::{Answer, Place};

const TSV: [&str; 5] = ["load", "STORE", "-", "--format", "tsv"];

#[test]
fn file_without_a_known_extension_needs_a_format() {
    let place = Place::new();
    for name in ["words", "words.txt", "words.csv", "words.TSV.gz"] {
        place.write(name, b"a\t1\n");
        let load = ["load", "STORE", name, "--create"];
        place.run(&load).refused(&[name, "--format", "lines", "tsv", "jsonl"]);
        assert!(!place.store().exists(), "{name}");
        place.run(&[&load[..], &["--format", "tsv"]].concat()).fine();
        std::fs::remove_dir_all(place.store()).unwrap();
    }
    place.feed(b"a\t1\n", &["load", "STORE", "-", "--create"]).refused(&["standard input", "--format"]);
    assert!(!place.store().exists());
    for (name, bytes) in [("a.tsv", &b"a\t1\n"[..]), ("b.jsonl", b"{\"key\":\"b\",\"value\":\"2\"}\n")] {
        place.write(name, bytes);
        place.run(&["load", "STORE", name, "--create"]).fine();
    }
    assert_eq!(place.run(&["scan", "STORE"]).fine(), "a\t1\nb\t2\n");
}

#[test]
fn foreign_line_endings_and_byte_order_marks_need_a_choice() {
    let place = Place::with_records();
    let before = place.run(&["dump", "STORE"]).fine();
    let utf16: Vec<u8> = "\u{feff}a\t1\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let refused: [(&[u8], &[&str]); 4] = [
        (b"a\t1\r\nb\t2\r\n", &["line 1", "CRLF", "--newline crlf"]),
        (b"\xef\xbb\xbfa\t1\n", &["line 1", "byte order mark", "--newline"]),
        (&utf16, &["line 1", "UTF-16", "iconv"]),
        (b"a\t1\rb\t2\r", &["line 1", "carriage returns"]),
    ];
    for (bytes, things) in refused {
        place.feed(bytes, &TSV).refused(things);
        place.feed(bytes, &["load", "STORE", "-", "--format", "lines"]).refused(things);
        place.feed(bytes, &["del", "STORE", "--file", "-"]).refused(things);
        assert_eq!(place.run(&["dump", "STORE"]).fine(), before);
    }
    // Also after lines with another ending.
    place.feed(b"y\t1\nz\t2\r\n", &TSV).refused(&["line 2", "CRLF"]);
    let crlf = |bytes: &[u8]| place.feed(bytes, &[&TSV[..], &["--newline", "crlf"]].concat());
    crlf(b"\xef\xbb\xbfa\t1\r\nb\t2\n").fine();
    assert_eq!(place.run(&["scan", "STORE", "--to", "c"]).fine(), "a\t1\nb\t2\n");
    place.feed(b"a\r\n", &["del", "STORE", "--file", "-", "--newline", "crlf"]).fine();
    place.feed(b"\xef\xbb\xbfa\t1\r\n", &[&TSV[..], &["--newline", "lf"]].concat()).fine();
    assert_eq!(place.run(&["get", "STORE", "\\xef\\xbb\\xbfa"]).fine(), "1\\r\n");
    // A dump is read back, including a leading byte order mark and trailing carriage returns.
    place.run(&["keyspace", "create", "STORE", "odd"]).fine();
    place.run(&["put", "STORE", "\\xef\\xbb\\xbf", "\\r", "--keyspace", "odd"]).fine();
    for format in ["tsv", "jsonl"] {
        let dump = place.run(&["dump", "STORE", "--keyspace", "odd", "--format", format]).fine();
        place.feed(dump.as_bytes(), &["load", format, "-", "--format", format, "--create"]).fine();
        assert_eq!(place.run(&["dump", format]).fine(), "\\xef\\xbb\\xbf\t\\r\n");
    }
    // In JSON, they are not part of any record.
    let jsonl = b"\xef\xbb\xbf{\"key\":\"k\",\"value\":\"v\"}\r\n";
    place.feed(jsonl, &["load", "JSON", "-", "--format", "jsonl", "--create"]).fine();
    assert_eq!(place.run(&["dump", "JSON"]).fine(), "k\tv\n");
}

#[test]
fn jsonl_errors_name_a_single_line() {
    let place = Place::with_records();
    let load = ["load", "STORE", "-", "--format", "jsonl"];
    let answer = place.feed(b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":}\n", &load);
    answer.refused(&["standard input line 2: expected value at byte 20", "nothing is stored"]);
    let answer = place.feed(b"\n\nword\n", &load);
    answer.refused(&["standard input line 3: "]);
    assert_eq!(answer.err.matches("line").count(), 1, "{}", answer.err);
}

/// Runs the program with a limit on its data memory, including the stacks of its threads.
fn run_within(place: &Place, mebibytes: u64, arguments: &[&str]) -> Answer {
    let mut command = Command::new("sh");
    let script = format!("ulimit -d {}; exec \"$@\"", mebibytes << 10);
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_testudo")]).args(arguments);
    Answer::of(command.current_dir(place.path(".")).output().unwrap())
}

#[test]
fn long_values_are_dumped_and_loaded_within_the_memory_limit() {
    let place = Place::new();
    place.run(&["put", "STORE", "a", "first", "--create"]).fine();
    // Each zero is escaped as four characters, so the line is longer than the memory limit.
    let zeros = vec![0; 20 << 20];
    let text = "k\u{e4}se \\ \"\t\u{1f422}".repeat(200_000).into_bytes();
    for (key, value) in [("zeros", &zeros), ("text", &text)] {
        place.write("value", value);
        place.run(&["put", "STORE", key, "--file", "value", "--memory", "16MiB"]).fine();
    }
    for format in some_of(["tsv", "jsonl"], 2, 1) {
        let file = format!("dumped.{format}");
        let dump = ["dump", "STORE", "--memory", "16MiB", "--format", format, "--output", &file];
        run_within(&place, 72, &dump).fine();
        run_within(&place, 72, &["load", format, &file, "--memory", "16MiB", "--create"]).fine();
        for (key, value) in [("zeros", &zeros), ("text", &text)] {
            place.run(&["get", format, key, "--memory", "16MiB", "--output", "copy"]).fine();
            assert!(std::fs::read(place.path("copy")).unwrap() == *value, "{format} {key}");
            std::fs::remove_file(place.path("copy")).unwrap();
        }
        assert_eq!(place.run(&["count", format]).fine(), "3\n");
    }
    // Text stays text, however long it is.
    let json = std::fs::read_to_string(place.path("dumped.jsonl")).unwrap();
    assert!(json.contains(r#""key":"text","value":"k"#) && json.contains(r#""key":"zeros","value":""#));
}
