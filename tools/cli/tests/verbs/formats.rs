//! Formats of typed and printed keys and values: one escape syntax for input and output, and optional
//! formats.

use serde_json::json;

use crate::program::Place;

/// Store with keys and values that are not text.
fn place() -> Place {
    let place = Place::new();
    let records = [("00ff0a5c", "095c6e00"), ("6772c3bc6e", "78"), ("00fe", "ff")];
    let line = |(key, value): (&str, &str)| format!("{{\"key_hex\":\"{key}\",\"value_hex\":\"{value}\"}}\n");
    let lines: String = records.into_iter().map(line).collect();
    place.feed(lines.as_bytes(), &["load", "STORE", "-", "--format", "jsonl", "--create"]).fine();
    place
}

#[test]
fn every_verb_reads_the_output_of_scan() {
    let place = place();
    let scanned = place.run(&["scan", "STORE"]).fine();
    assert_eq!(scanned, "\\x00\\xfe\t\\xff\n\\x00\\xff\\n\\\\\t\\t\\\\n\\x00\ngrün\tx\n");
    let key = scanned.lines().nth(1).unwrap().split('\t').next().unwrap();
    assert_eq!(place.run(&["get", "STORE", key]).fine(), "\\t\\\\n\\x00\n");
    for range in
        [&["--prefix", "\\x00\\xff"][..], &["--from", key, "--to", "g"], &["--start", key, "--end", "g"]]
    {
        assert_eq!(
            place.run(&[&["scan", "STORE", "--keys-only"], range].concat()).fine(),
            format!("{key}\n")
        );
        assert_eq!(place.run(&[&["count", "STORE"], range].concat()).fine(), "1\n");
    }
    place.run(&["put", "STORE", key, "\\xff\\\\"]).fine();
    assert_eq!(place.run(&["get", "STORE", key, "--value-format", "hex"]).fine(), "ff5c\n");
    place.run(&["del", "STORE", key]).fine();
    place.run(&["get", "STORE", key]).missing(&["'\\x00\\xff\\n\\\\'"]);
    let dump = place.run(&["dump", "STORE"]).fine();
    place.feed(dump.as_bytes(), &["load", "COPY", "-", "--format", "tsv", "--create"]).fine();
    assert_eq!(place.run(&["scan", "COPY"]).fine(), dump);
}

#[test]
fn keyspace_names_are_escaped() {
    let place = place();
    place.run(&["keyspace", "create", "STORE", "a\\tb"]).fine();
    place.run(&["put", "STORE", "k", "v", "--keyspace", "a\\tb"]).fine();
    for verb in ["ls", "info", "space"] {
        assert!(place.run(&[verb, "STORE"]).fine().contains("a\\tb"), "{verb}");
    }
    assert_eq!(place.run(&["ls", "STORE", "--json"]).json_lines()[0]["keyspace"], "a\tb");
    place.run(&["get", "STORE", "k", "--keyspace", "a\\qb"]).not_understood(&["'\\q'", "character 2"]);
    place.run(&["keyspace", "drop", "STORE", "a\\tb"]).fine();
}

#[test]
fn keys_and_values_have_separate_formats() {
    let place = place();
    let forms = ["--key-format", "u64", "--value-format", "json"];
    place
        .run(&[&["put", "STORE", "258", "{ \"b\": [1.50], \"a\": \"\\u0000 \" }"], &forms[..]].concat())
        .fine();
    assert_eq!(place.run(&["get", "STORE", "0000000000000102", "--hex"]).fine().len(), 2 * 31 + 1);
    let get = |more: &[&str]| place.run(&[&["get", "STORE"], more].concat()).fine();
    assert_eq!(get(&[&["258"], &forms[..]].concat()), "{\"b\":[1.50],\"a\":\"\\u0000 \"}\n");
    let record = get(&[&["258", "--json"], &forms[..]].concat());
    assert_eq!(record, "{\"key_u64\":258,\"value_json\":{\"b\":[1.50],\"a\":\"\\u0000 \"}}\n");
    place.feed(record.as_bytes(), &["load", "COPY", "-", "--format", "jsonl", "--create"]).fine();
    assert_eq!(place.run(&[&["scan", "COPY"], &forms[..]].concat()).fine().split('\t').next(), Some("258"));
    // Separate formats, in every verb that reads or prints.
    place.run(&["put", "STORE", "6b", "a\\n", "--key-format", "hex", "--value-format", "text"]).fine();
    assert_eq!(get(&["k"]), "a\\\\n\n");
    assert_eq!(get(&["k", "--value-format", "text"]), "a\\n\n");
    assert_eq!(place.run(&["scan", "STORE", "--prefix", "6b", "--key-format", "hex"]).fine(), "6b\ta\\\\n\n");
    assert_eq!(place.run(&["count", "STORE", "--prefix", "6b", "--key-format", "hex"]).fine(), "1\n");
    place.run(&["del", "STORE", "6b", "--key-format", "hex"]).fine();
    let dump = ["dump", "STORE", "--key-format", "hex", "--value-format", "hex"];
    let hex = place.run(&dump).fine();
    assert!(hex.starts_with("0000000000000102\t7b"), "{hex}");
    let load =
        ["load", "HEX", "-", "--format", "tsv", "--create", "--key-format", "hex", "--value-format", "hex"];
    place.feed(hex.as_bytes(), &load).fine();
    assert_eq!(place.run(&["dump", "HEX"]).fine(), place.run(&["dump", "STORE"]).fine());
    assert_eq!(
        place.run(&[&dump[..], &["--json"]].concat()).json_lines()[1],
        json!({ "key_hex": "00fe", "value_hex": "ff" })
    );
    place.feed(b"6b\n", &["load", "HEX", "-", "--key-format", "hex", "--format", "lines"]).fine();
    assert_eq!(place.run(&["get", "HEX", "k"]).fine(), "1\n");
    let refused = [("lines", "--value-format"), ("jsonl", "--key-format")];
    for (format, option) in refused {
        place.feed(b"", &["load", "HEX", "-", "--format", format, option, "hex"]).refused(&[]);
    }
}

#[test]
fn add_u64_operands_are_numbers_by_default() {
    let place = Place::new();
    place.run(&["keyspace", "create", "STORE", "counts", "--merge-operator", "add-u64", "--create"]).fine();
    let verb = |verb: &[&str], more: &[&str]| place.run(&[verb, &["--keyspace", "counts"], more].concat());
    verb(&["merge", "STORE", "k", "5"], &[]).fine();
    verb(&["merge", "STORE", "k", "0100000000000000"], &["--value-format", "hex"]).fine();
    verb(
        &["merge", "STORE", "k", "\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00"],
        &["--value-format", "escaped"],
    )
    .fine();
    assert_eq!(verb(&["get", "STORE", "k"], &["--value-format", "u64"]).fine(), "8\n");
    let record = json!({ "key": "k", "value_u64": 8 });
    assert_eq!(verb(&["get", "STORE", "k"], &["--value-format", "u64", "--json"]).json(), record);
}

#[test]
fn format_errors_name_the_offending_character() {
    let place = place();
    let before = place.run(&["dump", "STORE"]).fine();
    let refused = |arguments: &[&str], things: &[&str]| place.run(arguments).refused(things);
    refused(&["get", "STORE", "a\\q"], &["key", "a\\\\q", "'\\q'", "character 2"]);
    refused(&["put", "STORE", "k", "v\\x0g"], &["value", "'g'", "character 5"]);
    refused(&["put", "STORE", "k", "12a", "--value-format", "u64"], &["value", "'a'", "character 3"]);
    refused(&["put", "STORE", "k", "[1,]", "--value-format", "json"], &["value", "character 4 of line 1"]);
    refused(&["del", "STORE", "0g", "--key-format", "hex"], &["key", "'g'", "character 2"]);
    refused(&["del", "STORE", "--prefix", "\\"], &["backslash", "character 1"]);
    refused(&["scan", "STORE", "--from", "\\z"], &["--from", "'\\z'"]);
    let load = ["load", "STORE", "-", "--format", "tsv"];
    place.feed(b"good\t1\nbad\t\\y\n", &load).refused(&["line 2", "'\\y'", "character 1"]);
    assert_eq!(place.run(&["dump", "STORE"]).fine(), before);
    // Bytes that do not fit a format cannot be printed in it.
    refused(&["get", "STORE", "grün", "--value-format", "u64"], &["value 'x'", "1 bytes, not 8"]);
    refused(&["get", "STORE", "\\x00\\xfe", "--value-format", "text"], &["value '\\xff'", "0xff"]);
    refused(&["get", "STORE", "\\x00\\xfe", "--value-format", "text", "--json"], &["value '\\xff'"]);
}

#[test]
fn oversized_value_is_rejected_with_the_required_memory() {
    let place = place();
    let before = place.run(&["dump", "STORE"]).fine();
    let limit = 262_144;
    let put = ["put", "STORE", "k", "--stdin", "--memory", "1MiB"];
    let answer = place.feed(&vec![b'v'; limit + 1], &put);
    answer.refused(&["more than 262144", "--memory", "1048580"]);
    assert_eq!(place.run(&["dump", "STORE"]).fine(), before);
    place.feed(&vec![b'v'; limit], &put).fine();
    assert_eq!(place.run(&["get", "STORE", "k", "--raw"]).out.len(), limit);
}

#[test]
fn values_larger_than_memory_are_dumped_and_loaded() {
    let place = Place::new();
    place.run(&["put", "STORE", "a", "first", "--create"]).fine();
    // Multi-byte characters, which chunk boundaries split, and bytes that are not text.
    let text = "käse\t\"\\ ".repeat(40_000).into_bytes();
    let bytes: Vec<u8> = (0..700_000_u32).map(|at| (at * 7 % 251).to_le_bytes()[0]).collect();
    for (key, value) in [("m text", &text), ("n bytes", &bytes)] {
        place.write("value", value);
        place.run(&["put", "STORE", key, "--file", "value", "--memory", "1MiB"]).fine();
    }
    place.run(&["put", "STORE", "z", "last"]).fine();
    for format in ["tsv", "jsonl"] {
        for form in [&["--value-format", "escaped"][..], &["--value-format", "hex"], &[]] {
            let dump = ["dump", "STORE", "--memory", "1MiB", "--format", format, "--output", "dumped"];
            assert_eq!(place.run(&[&dump[..], form].concat()).fine(), "4 records in dumped\n");
            let load = ["load", "OTHER", "dumped", "--create", "--memory", "1MiB", "--format", format];
            let load = if format == "tsv" { [&load[..], form].concat() } else { load.to_vec() };
            assert!(place.run(&load).fine().starts_with("4 records in "));
            for (key, value) in [("a", &b"first"[..]), ("m text", &text), ("n bytes", &bytes), ("z", b"last")]
            {
                assert!(place.run(&["get", "OTHER", key, "--raw"]).out == value, "{format} {form:?} {key}");
            }
            std::fs::remove_dir_all(place.path("OTHER")).unwrap();
            std::fs::remove_file(place.path("dumped")).unwrap();
        }
    }
    // Values that must be read whole are rejected.
    place.write("value", format!("\"{}\"", "x".repeat(700_000)).as_bytes());
    place.run(&["put", "JSON", "k", "--file", "value", "--memory", "1MiB", "--create"]).fine();
    let text = ["dump", "JSON", "--memory", "1MiB", "--value-format", "json", "--output", "dumped"];
    place.run(&text).refused(&["quarter of the memory"]);
}

#[test]
fn file_larger_than_memory_round_trips() {
    let place = place();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251).to_le_bytes()[0]).collect();
    place.write("film.bin", &bytes);
    let put = ["put", "STORE", "film", "--file", "film.bin", "--memory", "1MiB"];
    place.run(&put).fine();
    assert_eq!(place.run(&[&put[..], &["--json"]].concat()).json_lines()[0]["value_bytes"], 3_000_000);
    let get = ["get", "STORE", "film", "--memory", "1MiB"];
    place.run(&get).refused(&["3000000 bytes", "quarter of the memory"]);
    let out = [&get[..], &["--output", "copy"]].concat();
    place.run(&out).fine();
    assert!(std::fs::read(place.path("copy")).unwrap() == bytes);
    place.run(&out).refused(&["copy"]);
    place.run(&["get", "STORE", "absent", "--output", "nowhere"]).missing(&["absent"]);
    assert!(place.run(&[&get[..], &["--raw"]].concat()).out == bytes);
    assert!(place.run(&["scan", "STORE", "--keys-only"]).fine().contains("film\n"));
    place.run(&["put", "STORE", "k", "v", "--file", "film.bin"]).not_understood(&["--file"]);
    place.run(&["put", "STORE", "k", "--file", "absent-file"]).refused(&["absent-file"]);
    place.run(&["verify", "STORE"]).fine();
}
