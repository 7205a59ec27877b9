//! Verbs that inspect: their output, and that they change nothing.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use serde_json::json;

use crate::program::{Place, program};

#[test]
fn get_prints_text_hex_raw_and_json() {
    let place = Place::new();
    place.feed(b"\xff\tx\n", &["put", "STORE", "grün", "--stdin", "--create"]).fine();
    assert_eq!(place.run(&["get", "STORE", "grün"]).fine(), "\\xff\\tx\\n\n");
    assert_eq!(place.run(&["get", "STORE", "--hex", "6772c3bc6e"]).fine(), "ff09780a\n");
    assert_eq!(place.run(&["get", "STORE", "grün", "--raw"]).out, b"\xff\tx\n");
    let document = place.run(&["get", "STORE", "grün", "--json"]).json();
    assert_eq!(document, json!({ "key": "grün", "value_hex": "ff09780a" }));
}

#[test]
fn missing_key_is_exit_code_one() {
    let place = Place::with_records();
    for verb in ["get", "del"] {
        let answer = place.run(&[verb, "STORE", "absent"]);
        assert_eq!((answer.code, answer.out.as_slice()), (Some(1), &b""[..]));
        assert!(answer.err.contains("no key 'absent'"), "{}", answer.err);
        let answer = place.run(&[verb, "STORE", "absent", "--json"]);
        assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""));
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&answer.out).unwrap(),
            json!({ "found": false, "missing": "key" })
        );
    }
}

#[test]
fn scan_returns_the_requested_range() {
    let place = Place::with_records();
    let scan = |more: &[&str]| place.run(&[&["scan", "STORE"], more].concat()).fine();
    assert_eq!(scan(&["--from", "k10", "--to", "k12"]), "k10\tv10\nk11\tv11\n");
    assert_eq!(scan(&["--prefix", "k4", "--limit", "1"]), "k40\tv40\n");
    assert_eq!(scan(&["--reverse", "--limit", "2", "--keys-only"]), "k99\nk98\n");
    assert_eq!(scan(&["--prefix", "k4", "--reverse", "--limit", "1"]), "k49\tv49\n");
    assert_eq!(scan(&["--from", "k98", "--raw"]), "v98v99");
    assert_eq!(scan(&["--hex", "--from", "6b3938", "--limit", "1"]), "6b3938\t763938\n");
    assert_eq!(scan(&["--count"]), "100\n");
    assert_eq!(scan(&["--count", "--prefix", "k1"]), "10\n");
    assert_eq!(scan(&["--from", "x"]), "");
    assert_eq!(scan(&["--from", "k1", "--to", "k1"]), "");
    assert_eq!(scan(&["--json", "--limit", "1"]), "{\"key\":\"k00\",\"value\":\"v00\"}\n");
    assert_eq!(scan(&["--json", "--count"]), "{\"count\":100}\n");
}

#[test]
fn every_inspecting_verb_prints_json() {
    let place = Place::with_records();
    let info = place.run(&["info", "STORE", "--json"]).json();
    assert_eq!(info["format_version"], 2);
    assert_eq!(info["store_id"].as_str().unwrap().len(), 32);
    assert_eq!(info["keyspaces"], json!([{ "keyspace": "default", "tree": "turtle" }]));
    assert!(info["files"].as_array().unwrap().iter().any(|file| file["name"] == "superblock"));
    let stat = place.run(&["stat", "STORE", "--json"]).json();
    assert!(stat["store"]["seqno"].as_u64().unwrap() >= 100);
    assert!(stat["keyspaces"]["default"].is_object());
    assert!(place.run(&["stat", "STORE", "--json", "--keyspace", "default"]).json()["tree"].is_string());
    let ls = place.run(&["ls", "STORE", "--json"]).json();
    assert_eq!((&ls["keyspace"], &ls["tree"]), (&json!("default"), &json!("turtle")));
    assert_eq!(place.run(&["keyspace", "list", "STORE", "--json"]).json(), ls);
    let space = place.run(&["space", "STORE", "--json"]).json();
    assert!(space["disk_bytes"].as_u64().unwrap() > 0 && space["keyspaces"]["default"].is_u64());
    let settings = json!({ "tree": "turtle", "leaf_bytes": 2 << 20, "max_pivots": 64 });
    for tree in [&["tree", "STORE", "--json"][..], &["tree", "STORE", "--json", "--full"]] {
        let lines = place.run(tree).json_lines();
        assert_eq!(lines[0], settings);
        assert_eq!((&lines[1]["depth"], &lines[1]["what"]), (&json!(0), &json!("node")));
    }
    for level in [&["verify", "STORE", "--json"][..], &["verify", "STORE", "--json", "--full"]] {
        assert_eq!(place.run(level).json()["sound"], true);
    }
    assert_eq!(place.run(&["scan", "STORE", "--json"]).json_lines().len(), 100);
    assert_eq!(place.run(&["dump", "STORE", "--json"]).json_lines().len(), 100);
}

#[test]
fn every_inspecting_verb_prints_human_readable_text() {
    let place = Place::with_records();
    assert!(place.run(&["info", "STORE"]).fine().contains("default (turtle)"));
    assert!(place.run(&["stat", "STORE"]).fine().contains("seqno"));
    assert!(place.run(&["ls", "STORE"]).fine().starts_with("keyspace"));
    assert!(place.run(&["space", "STORE"]).fine().contains("write-ahead log"));
    let settings = "turtle: leaf_bytes 2.0 MiB, max_pivots 64\n";
    assert!(place.run(&["tree", "STORE"]).fine().starts_with(&format!("{settings}depth")));
    assert!(place.run(&["tree", "STORE", "--full"]).fine().starts_with(settings));
    assert!(place.run(&["verify", "STORE", "--full"]).fine().starts_with("valid"));
    assert!(place.run(&["--help"]).fine().contains("Exit codes"));
    assert!(place.run(&["--version"]).fine().starts_with("testudo "));
}

#[test]
fn inspecting_verbs_change_no_file() {
    let place = Place::with_records();
    let before = place.store_files();
    for verb in ["info", "stat", "ls", "space", "tree", "scan", "dump", "verify"] {
        place.run(&[verb, "STORE"]).fine();
        assert!(place.store_files() == before, "{verb} changed a file");
    }
    place.run(&["get", "STORE", "k00"]).fine();
    place.run(&["get", "STORE", "absent"]);
    place.run(&["verify", "STORE", "--full"]).fine();
    assert!(place.store_files() == before);
}

#[test]
fn closed_output_pipe_ends_the_program_quietly() {
    let place = Place::new();
    let lines: String = (0..200_000).map(|number| format!("{number:020}\n")).collect();
    place.write("many", lines.as_bytes());
    place.run(&["load", "STORE", "many", "--create", "--format", "lines"]).fine();
    for verb in ["scan", "dump"] {
        let mut command = program();
        command.arg(verb).arg(place.store()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = String::new();
        BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert_eq!(first, format!("{:020}\t1\n", 0));
        let status = child.wait().unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((status.code(), err.as_str()), (Some(0), ""));
    }
}
