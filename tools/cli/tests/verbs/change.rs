//! Verbs that change a store, and round trips of records.

use std::{fs, os::unix::fs::symlink, sync::Arc};

use serde_json::{Value, json};
use testudo::{Db, Error, KeyspaceOptions, MergeFunction};

use crate::program::Place;

#[test]
fn put_and_del_persist_across_processes() {
    let place = Place::new();
    place.run(&["put", "STORE", "key", "value", "--create"]).fine();
    assert_eq!(place.run(&["get", "STORE", "key"]).fine(), "value\n");
    place.run(&["put", "STORE", "key", "other"]).fine();
    place.run(&["put", "STORE", "-7", "-1"]).fine();
    assert_eq!(place.run(&["get", "STORE", "-7"]).fine(), "-1\n");
    place.run(&["del", "STORE", "-7"]).fine();
    assert_eq!(place.run(&["get", "STORE", "key"]).fine(), "other\n");
    place.run(&["del", "STORE", "key"]).fine();
    assert_eq!(place.run(&["get", "STORE", "key"]).code, Some(1));
    place.run(&["put", "STORE", "--hex", "", ""]).fine();
    assert_eq!(place.run(&["scan", "STORE"]).fine(), "\t\n");
    let answer = place.run(&["put", "STORE", "key", "value", "--json"]).json();
    assert_eq!(answer, json!({ "keyspace": "default", "value_bytes": 5 }));
    assert_eq!(
        place.run(&["del", "STORE", "key", "--json"]).json(),
        json!({ "removed": 1, "not_found": 0, "dry_run": false })
    );
}

#[test]
fn keyspaces_are_created_listed_and_dropped() {
    let place = Place::with_records();
    place.run(&["keyspace", "create", "STORE", "other", "--tree", "turtle"]).fine();
    place.run(&["put", "STORE", "key", "in other", "--keyspace", "other"]).fine();
    assert_eq!(place.run(&["scan", "STORE", "--keyspace", "other"]).fine(), "key\tin other\n");
    let names = place.run(&["keyspace", "list", "STORE", "--json"]).json_lines();
    assert_eq!(names.len(), 2);
    place
        .run(&["keyspace", "create", "STORE", "other"])
        .refused(&["STORE", "already has a keyspace 'other'"]);
    place.run(&["keyspace", "convert", "STORE", "other", "--tree", "splinter"]).fine();
    let answer = place.run(&["info", "STORE", "--json"]).json();
    assert!(
        answer["keyspaces"].to_string().contains(r#"{"keyspace":"other","tree":"splinter"}"#),
        "{answer}"
    );
    let tree = place.run(&["tree", "STORE", "--keyspace", "other"]).fine();
    assert!(tree.starts_with("splinter: leaf_bytes 2.0 MiB"), "{tree}");
    assert_eq!(place.run(&["keyspace", "convert", "STORE", "none", "--tree", "turtle"]).code, Some(1));
    place.run(&["keyspace", "drop", "STORE", "other"]).fine();
    assert_eq!(place.run(&["keyspace", "drop", "STORE", "other"]).code, Some(1));
    place.run(&["get", "STORE", "key", "--keyspace", "other"]).missing(&["STORE", "no keyspace 'other'"]);
    assert_eq!(place.run(&["scan", "STORE", "--count"]).fine(), "100\n");
}

#[test]
fn leveled_keyspace_is_created_and_persisted() {
    let place = Place::with_records();
    place.run(&["keyspace", "create", "STORE", "levels", "--tree", "leveled"]).fine();
    place.run(&["put", "STORE", "key", "value", "--keyspace", "levels"]).fine();
    place.run(&["compact", "STORE"]).fine();
    assert_eq!(place.run(&["get", "STORE", "key", "--keyspace", "levels"]).fine(), "value\n");
    let tree = place.run(&["tree", "STORE", "--keyspace", "levels", "--json"]).json_lines();
    assert_eq!((&tree[0]["tree"], &tree[0]["run_bytes"]), (&json!("leveled"), &json!(2 << 20)));
    place.run(&["verify", "STORE", "--full"]).fine();
}

#[test]
fn keyspace_converts_to_another_tree_family_and_back() {
    let place = Place::with_records();
    let convert = |tree: &str, flags: &[&str]| {
        let arguments = ["keyspace", "convert", "STORE", "default", "--tree", tree];
        place.run(&[&arguments, flags].concat())
    };
    for tree in ["leveled", "splinter"] {
        assert_eq!(convert(tree, &["--wait"]).fine(), "");
        let stats = &place.run(&["stat", "STORE", "--keyspace", "default", "--json"]).json_lines()[0];
        assert_eq!((&stats["tree"], &stats["moving_from"]), (&json!(tree), &Value::Null));
        assert_eq!(place.run(&["scan", "STORE", "--count"]).fine(), "100\n");
        place.run(&["verify", "STORE", "--full"]).fine();
    }
    // Without `--wait`, the move may or may not be complete when the store is closed.
    convert("leveled", &[]).fine();
    let told = &convert("leveled", &["--wait", "--json"]).json_lines()[0];
    assert_eq!((&told["tree"], &told["moving_from"]), (&json!("leveled"), &Value::Null));
    assert!(!place.run(&["stat", "STORE", "--keyspace", "default"]).fine().contains("moving_from"));
    assert_eq!(convert("rings", &[]).code, Some(2));
    // A preset of tree and placement, as for `keyspace create`.
    let told = &convert("parallax", &["--wait", "--json"]).json_lines()[0];
    assert_eq!((&told["tree"], &told["placement"]), (&json!("leveled"), &json!("automatic")));
    // Thresholds in bytes of a value.
    let thresholds = "large=4096,medium=64,moving";
    let create = ["keyspace", "create", "STORE", "placed", "--placement", thresholds, "--json"];
    assert_eq!(place.run(&create).json_lines()[0]["placement"], json!(thresholds));
    let convert = ["keyspace", "convert", "STORE", "placed", "--placement", "medium=64,large=32"];
    place.run(&convert).not_understood(&["from 64 bytes", "from 32"]);
}

#[test]
fn operands_use_the_merge_operator_of_their_keyspace() {
    let place = Place::with_records();
    place.run(&["keyspace", "create", "STORE", "counts", "--merge-operator", "add-u64"]).fine();
    place.run(&["keyspace", "create", "STORE", "lists", "--merge-operator", "append"]).fine();
    place.run(&["keyspace", "create", "STORE", "x", "--merge-operator", "y"]).refused(&["\"y\"", "add-u64"]);
    for _ in 0..3 {
        place.run(&["merge", "STORE", "k", "5", "--keyspace", "counts"]).fine();
        place.run(&["merge", "STORE", "k", "ab", "--keyspace", "lists"]).fine();
    }
    let sum = place.run(&["get", "STORE", "k", "--keyspace", "counts", "--hex"]);
    assert_eq!(sum.code, Some(2), "the key is hex too");
    assert_eq!(
        place.run(&["get", "STORE", "6b", "--keyspace", "counts", "--hex"]).fine(),
        "0f00000000000000\n"
    );
    assert_eq!(place.run(&["get", "STORE", "k", "--keyspace", "lists"]).fine(), "ababab\n");
    assert!(place.run(&["wal", "dump", "STORE"]).fine().contains("merge k + ab"));
    place.run(&["merge", "STORE", "k", "five", "--keyspace", "counts"]).refused(&["five"]);
    place.run(&["merge", "STORE", "k", "5"]).refused(&["no merge operator"]);
    place.run(&["compact", "STORE"]).fine();
    assert_eq!(place.run(&["scan", "STORE", "--keyspace", "lists"]).fine(), "k\tababab\n");
}

#[test]
fn compact_keeps_every_record() {
    let place = Place::with_records();
    let stats = place.run(&["compact", "STORE", "--json"]).json();
    assert!(stats["disk_bytes_after"].is_u64());
    place.run(&["compact", "STORE"]).fine();
    assert_eq!(place.run(&["scan", "STORE", "--count"]).fine(), "100\n");
    place.run(&["verify", "STORE", "--full"]).fine();
}

#[test]
fn compact_takes_a_keyspace_a_range_or_a_prefix() {
    let place = Place::with_records();
    place.run(&["del", "STORE", "--prefix", "k1"]).fine();
    let answer = place.run(&["compact", "STORE", "--prefix", "k1", "--json"]).json();
    assert!(answer["disk_bytes_after"].is_u64());
    assert!(place.run(&["compact", "STORE", "--from", "k2", "--to", "k3"]).fine().ends_with("s\n"));
    place.run(&["compact", "STORE", "--keyspace", "default"]).fine();
    place.run(&["compact", "STORE", "--from", "6b32", "--hex"]).fine();
    let stats = &place.run(&["stat", "STORE", "--keyspace", "default", "--json"]).json_lines()[0];
    assert_eq!((&stats["entries"], &stats["buffered_runs"]), (&json!(90), &json!(0)), "{stats}");
    assert_eq!(place.run(&["scan", "STORE", "--count"]).fine(), "90\n");
    place.run(&["verify", "STORE", "--full"]).fine();
    place.run(&["compact", "STORE", "--from", "b", "--to", "a"]).refused(&["--from is greater than --to"]);
    place.run(&["compact", "STORE", "--from", "a", "--to", "a"]).refused(&["--from and --to are equal"]);
    place.run(&["compact", "STORE", "--from", "a", "--prefix", "a"]).not_understood(&["--prefix"]);
    place.run(&["compact", "STORE", "--keyspace", "absent"]).missing(&["no keyspace 'absent'"]);
}

#[test]
fn lines_become_keys_with_line_numbers_as_values() {
    let place = Place::new();
    place.write("words", b"pear\napple\n\nlast");
    assert!(
        place
            .run(&["load", "STORE", "words", "--create", "--format", "lines"])
            .fine()
            .starts_with("4 records")
    );
    assert_eq!(place.run(&["scan", "STORE"]).fine(), "\t3\napple\t2\nlast\t4\npear\t1\n");
    let answer = place.run(&["load", "STORE", "words", "--json", "--format", "lines"]).json();
    assert_eq!((&answer["records"], &answer["bytes_read"]), (&json!(4), &json!(16)));
}

/// Records with every byte, empty records, and one that is longer than typical pages and leaves.
fn awkward_records() -> String {
    let mut lines =
        String::from("{\"key\":\"\",\"value\":\"\"}\n{\"key\":\"\\u0000\\t\\n\\\\\",\"value\":\"grün\"}\n");
    for byte in 0..=255u8 {
        lines.push_str(&format!(
            "{{\"key_hex\":\"{byte:02x}6b\",\"value_hex\":\"{byte:02x}0a09{byte:02x}\"}}\n"
        ));
    }
    lines.push_str(&format!(
        "{{\"key\":\"{}\",\"value_hex\":\"{}\"}}\n",
        "long".repeat(1000),
        "00ff".repeat(1 << 20)
    ));
    lines
}

#[test]
fn dump_and_load_round_trip_every_byte() {
    let place = Place::new();
    place.feed(awkward_records().as_bytes(), &["load", "STORE", "-", "--format", "jsonl", "--create"]).fine();
    for format in ["jsonl", "tsv"] {
        let dump = place.run(&["dump", "STORE", "--format", format]).fine();
        assert_eq!(dump.lines().count(), 259);
        let file = format!("copy.{format}");
        let answer = place.run(&["dump", "STORE", "--output", &file, "--format", format]).fine();
        assert!(answer.starts_with("259 records"));
        assert_eq!(fs::read_to_string(place.path(&file)).unwrap(), dump);
        let copy = format!("STORE-{format}");
        place.run(&["load", &copy, &file, "--create"]).fine();
        assert_eq!(place.run(&["dump", &copy, "--format", format]).fine(), dump);
        assert_eq!(
            place.run(&["scan", &copy, "--hex"]).fine(),
            place.run(&["scan", "STORE", "--hex"]).fine()
        );
    }
    let scanned = place.run(&["scan", "STORE", "--json"]).fine();
    assert_eq!(scanned, place.run(&["dump", "STORE", "--json"]).fine());
}

#[test]
fn bad_line_is_named_and_earlier_batches_stay() {
    let place = Place::new();
    let mut lines: String = (0..2500).map(|number| format!("{number}\tv\n")).collect();
    lines.push_str("no tab here\nnever\treached\n");
    place.write("in.tsv", lines.as_bytes());
    let answer = place.run(&["load", "STORE", "in.tsv", "--create"]);
    answer.refused(&["in.tsv line 2501", "no tab", "2000 records of lines 1 to 2000 are stored"]);
    assert_eq!(place.run(&["scan", "STORE", "--count"]).fine(), "2000\n");
    let answer = place.feed(b"{\"key\":\"a\"}\n", &["load", "STORE", "-", "--format", "jsonl"]);
    answer.refused(&["standard input line 1", "value", "nothing is stored"]);
    let key = vec![b'k'; 65_537];
    place
        .feed(&key, &["load", "STORE", "-", "--format", "lines"])
        .refused(&["standard input line 1", "65537"]);
    assert_eq!(place.run(&["scan", "STORE", "--count"]).fine(), "2000\n");
}

#[test]
fn dump_never_overwrites_a_file() {
    let place = Place::with_records();
    place.write("precious", b"mine");
    symlink("nowhere", place.path("link")).unwrap();
    place.run(&["dump", "STORE", "--output", "precious"]).refused(&["precious"]);
    place.run(&["dump", "STORE", "--output", "link"]).refused(&["link"]);
    assert_eq!(fs::read(place.path("precious")).unwrap(), b"mine");
    assert!(!place.path("nowhere").exists());
}

#[test]
fn records_rejected_by_their_operator_are_dumped_raw_and_removed() {
    let place = Place::new();
    let refuse = |_: &[u8], _: Option<&[u8]>, _: &[&[u8]]| Err(Error::invalid("refused"));
    let operator = Arc::new(MergeFunction::new("refusing", refuse));
    let db = Db::builder(place.store()).merge_operator(operator).open().unwrap();
    let keyspace = db.keyspace("default", || KeyspaceOptions::default().merge_operator("refusing")).unwrap();
    keyspace.insert("a", "whole").unwrap();
    keyspace.insert("b", "base").unwrap();
    keyspace.merge("b", "one").unwrap();
    keyspace.merge("b", [0xff]).unwrap();
    keyspace.merge("c", "two").unwrap();
    db.close().unwrap();
    place.run(&["dump", "STORE", "--output", "all.tsv"]).refused(&["key 'b'", "dump --raw"]);
    let lines = place.run(&["dump", "STORE", "--raw"]).json_lines();
    let expected = [
        json!({ "key": "a", "value": "whole" }),
        json!({ "key": "b", "base_hex": "62617365", "operands_hex": ["6f6e65", "ff"] }),
        json!({ "key": "c", "base": null, "operands": ["two"] }),
    ];
    assert_eq!(lines, expected);
    assert_eq!(place.run(&["scan", "STORE", "--keys-only"]).fine(), "a\nb\nc\n");
    place.run(&["verify", "STORE"]).fine();
    place.run(&["del", "STORE", "b"]).fine();
    place.run(&["put", "STORE", "c", "whole"]).fine();
    assert_eq!(place.run(&["dump", "STORE"]).fine(), "a\twhole\nc\twhole\n");
}
