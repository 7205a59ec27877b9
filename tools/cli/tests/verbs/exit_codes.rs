//! One table of exit codes for all verbs: 0 success, 1 missing (or damaged), 2 failure.

use std::fs;

use serde_json::{Value, json};
use testudo::Db;

use crate::program::{Answer, Place, program};

/// Verbs on a store, with arguments that are valid if the named things exist, and whether they change it.
const VERBS: [(&[&str], bool); 29] = [
    (&["info", "STORE"], false),
    (&["stat", "STORE"], false),
    (&["stat", "STORE", "--keyspace", "default"], false),
    (&["tree", "STORE"], false),
    (&["space", "STORE"], false),
    (&["ls", "STORE"], false),
    (&["get", "STORE", "k00"], false),
    (&["scan", "STORE"], false),
    (&["count", "STORE"], false),
    (&["estimate", "STORE"], false),
    (&["dump", "STORE"], false),
    (&["put", "STORE", "k00", "v"], true),
    (&["merge", "STORE", "k00", "v"], true),
    (&["del", "STORE", "k00"], true),
    (&["del", "STORE", "--prefix", "k"], true),
    (&["load", "STORE", "words", "--format", "lines"], true),
    (&["verify", "STORE"], false),
    (&["scrub", "STORE"], false),
    (&["repair", "STORE", "--dry-run"], false),
    (&["salvage", "STORE", "NEW"], false),
    (&["checkpoint", "STORE", "NEW"], false),
    (&["backup", "create", "STORE", "REPO"], false),
    (&["compact", "STORE"], true),
    (&["compact", "STORE", "--prefix", "k"], true),
    (&["wal", "dump", "STORE"], false),
    (&["manifest", "dump", "STORE"], false),
    (&["page", "dump", "STORE", "0"], false),
    (&["keyspace", "convert", "STORE", "default", "--tree", "turtle"], true),
    (&["keyspace", "drop", "STORE", "default"], true),
];

/// Asserts exit code 1 and one line of text that names `thing`, and the same document from every verb with
/// `--json`.
#[track_caller]
fn missing(place: &Place, verb: &[&str], what: &str, thing: &str) {
    place.run(verb).missing(&[thing]);
    let answer = place.run(&[&["--json"], verb].concat());
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""), "{verb:?}");
    let document: Value = serde_json::from_slice(&answer.out).unwrap();
    assert_eq!(document, json!({ "found": false, "missing": what }), "{verb:?}");
}

/// Whether a verb checks for damage: such a verb cannot check what does not exist.
fn is_check(verb: &[&str]) -> bool {
    ["verify", "scrub", "repair", "salvage"].contains(&verb[0]) || verb[..2] == ["backup", "verify"]
}

#[test]
fn missing_store_is_exit_code_one_except_in_checks() {
    let place = Place::new();
    place.write("words", b"a\n");
    let missing = |place: &Place, verb: &[&str], what: &str, thing: &str| match is_check(verb) {
        true => place.run(verb).refused(&[thing]),
        false => missing(place, verb, what, thing),
    };
    for (verb, _) in VERBS {
        missing(&place, verb, "store", "STORE");
    }
    missing(&place, &["keyspace", "create", "STORE", "new"], "store", "STORE");
    assert!(["STORE", "NEW", "REPO"].iter().all(|name| !place.path(name).exists()));
    // An empty directory does not contain a store either.
    fs::create_dir(place.store()).unwrap();
    for (verb, _) in VERBS {
        missing(&place, verb, "store", "STORE");
    }
    assert!(place.store_files().is_empty());
}

#[test]
fn missing_keyspace_is_exit_code_one_in_every_verb() {
    let place = Place::with_records();
    place.write("words", b"a\n");
    for verb in [
        &["get", "STORE", "k00"][..],
        &["scan", "STORE"],
        &["count", "STORE"],
        &["dump", "STORE"],
        &["put", "STORE", "k00", "v"],
        &["merge", "STORE", "k00", "v"],
        &["del", "STORE", "k00"],
        &["del", "STORE", "--prefix", "k", "--dry-run"],
        &["load", "STORE", "words", "--format", "lines"],
        &["stat", "STORE"],
        &["tree", "STORE"],
    ] {
        missing(&place, &[verb, &["--keyspace", "none"]].concat(), "keyspace", "'none'");
    }
    missing(&place, &["keyspace", "drop", "STORE", "none"], "keyspace", "'none'");
    missing(&place, &["keyspace", "convert", "STORE", "none", "--tree", "turtle"], "keyspace", "'none'");
}

#[test]
fn missing_key_page_or_backup_is_exit_code_one() {
    let place = Place::with_records();
    missing(&place, &["get", "STORE", "absent"], "key", "'absent'");
    missing(&place, &["del", "STORE", "absent"], "key", "'absent'");
    missing(&place, &["del", "STORE", "absent", "--dry-run"], "key", "'absent'");
    missing(&place, &["page", "dump", "STORE", "99999999999"], "page", "no page 99999999999");
    for verb in [&["list", "REPO"][..], &["restore", "REPO", "NEW"], &["delete", "REPO", "1"]] {
        missing(&place, &[&["backup"], verb].concat(), "repository", "REPO");
    }
    place.run(&["backup", "verify", "REPO"]).refused(&["REPO"]);
    place.run(&["backup", "create", "STORE", "REPO"]).fine();
    for verb in [&["restore", "REPO", "NEW", "--id", "7"][..], &["delete", "REPO", "7"]] {
        missing(&place, &[&["backup"], verb].concat(), "backup", "no backup 7");
    }
    place.run(&["backup", "verify", "REPO", "7"]).refused(&["no backup 7"]);
    assert!(!place.path("NEW").exists());
}

#[test]
fn existing_store_is_exit_code_zero_in_every_verb() {
    for (verb, _) in VERBS {
        let place = Place::with_records();
        place.write("words", b"a\n");
        place.run(&["compact", "STORE"]).fine();
        let expected = if verb[0] == "merge" { Some(2) } else { Some(0) };
        let answer = place.run(verb);
        assert_eq!(answer.code, expected, "{verb:?}: {}", answer.err);
    }
}

#[test]
fn locked_store_or_plain_file_is_exit_code_two() {
    let place = Place::with_records();
    place.write("words", b"a\n");
    let reader = Db::builder(place.store()).read_only().open().unwrap();
    for (verb, _) in VERBS.iter().filter(|(_, changes)| *changes) {
        place.run(verb).refused(&["STORE", "STORE is open "]);
    }
    reader.close().unwrap();
    let writer = Db::open(place.store()).unwrap();
    for (verb, changes) in VERBS {
        let beside_a_writer = ["info", "stat", "tree", "space", "ls", "wal", "manifest", "page"];
        if changes || !beside_a_writer.contains(&verb[0]) {
            place.run(verb).refused(&["STORE", "STORE is open "]);
        }
    }
    writer.close().unwrap();
    place.write("FILE", b"");
    for (verb, _) in VERBS {
        let verb: Vec<&str> = verb.iter().map(|word| if *word == "STORE" { "FILE" } else { word }).collect();
        place.run(&verb).refused(&["FILE"]);
    }
    assert_eq!(fs::read(place.path("FILE")).unwrap(), b"");
}

/// Flips a byte in every page of the data file, after the page header.
fn damage_pages(place: &Place) {
    let path = place.store().join("data");
    let mut bytes = fs::read(&path).unwrap();
    bytes.chunks_mut(4096).for_each(|page| page[100] ^= 0x10);
    fs::write(&path, bytes).unwrap();
}

#[test]
fn damaged_store_is_exit_code_one_and_names_the_next_step() {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    damage_pages(&place);
    for verb in [
        &["get", "STORE", "k42"][..],
        &["scan", "STORE"],
        &["count", "STORE"],
        &["scan", "STORE", "--count"],
        &["dump", "STORE", "--output", "dumped"],
        &["del", "STORE", "k42"],
        &["checkpoint", "STORE", "NEW"],
        &["backup", "create", "STORE", "REPO"],
    ] {
        place.run(verb).missing(&["STORE", "data at offset", "testudo repair STORE --dry-run", "salvage"]);
        let answer = place.run(&[&["--json"], verb].concat());
        assert_eq!(answer.code, Some(1), "{verb:?}");
        let document: Value = serde_json::from_slice(&answer.out).unwrap();
        assert_eq!(document["damaged"], true, "{verb:?}");
        assert!(document["error"].as_str().unwrap().contains("data at offset"), "{verb:?}: {document}");
        assert!(answer.err.contains("testudo repair STORE"), "{verb:?}: {}", answer.err);
    }
    for verb in [&["verify", "STORE"][..], &["scrub", "STORE"], &["repair", "STORE", "--dry-run"]] {
        let answer = place.run(verb);
        assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""), "{verb:?}");
        let text = String::from_utf8(answer.out).unwrap();
        assert!(text.contains("next: ") && text.contains("`testudo salvage STORE NEW`"), "{verb:?}: {text}");
    }
}

#[test]
fn missing_superblock_is_repairable_damage() {
    let place = Place::with_records();
    fs::remove_file(place.store().join("superblock")).unwrap();
    for (verb, _) in VERBS {
        // Verbs that read the raw files, and those that repair.
        if ["wal", "manifest", "page", "repair", "salvage"].contains(&verb[0]) {
            continue;
        }
        if ["verify", "scrub"].contains(&verb[0]) {
            let answer = place.run(verb);
            assert_eq!(answer.code, Some(1), "{verb:?}: {}", answer.err);
            assert!(String::from_utf8(answer.out).unwrap().contains("testudo repair STORE"), "{verb:?}");
            continue;
        }
        place.write("words", b"a\n");
        place.run(verb).missing(&["superblock", "is missing", "testudo repair STORE"]);
    }
    place.run(&["repair", "STORE"]).fine();
    assert_eq!(place.run(&["get", "STORE", "k42"]).fine(), "v42\n");
}

#[test]
fn failed_output_is_exit_code_two_in_every_verb() {
    let place = Place::with_records();
    place.run(&["backup", "create", "STORE", "REPO"]).fine();
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["help"],
        &["help", "load"],
        &["load", "--help"],
        &["keyspace", "create", "--help"],
        &["bench", "ycsb", "--help"],
        &["man"],
        &["completions", "bash"],
        &["info", "STORE"],
        &["stat", "STORE"],
        &["tree", "STORE"],
        &["space", "STORE"],
        &["ls", "STORE"],
        &["keyspace", "list", "STORE"],
        &["get", "STORE", "k00"],
        &["get", "STORE", "absent", "--json"],
        &["scan", "STORE"],
        &["count", "STORE"],
        &["estimate", "STORE"],
        &["dump", "STORE"],
        &["verify", "STORE"],
        &["scrub", "STORE"],
        &["repair", "STORE", "--dry-run"],
        &["backup", "list", "REPO"],
        &["backup", "verify", "REPO"],
        &["wal", "dump", "STORE"],
        &["manifest", "dump", "STORE"],
        &["put", "STORE", "k", "v", "--json"],
        &["del", "STORE", "k00", "k01"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = program().args(arguments).current_dir(place.path(".")).stdout(full).output().unwrap();
        let answer = Answer::of(output);
        assert_eq!(answer.code, Some(2), "{arguments:?}: {}", answer.err);
        assert!(answer.err.contains("standard output"), "{arguments:?}: {}", answer.err);
    }
    // A reader that closes the pipe has all the output it wanted.
    let output = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Answer::of(program().args(arguments).current_dir(place.path(".")).stdout(writer).output().unwrap())
    };
    for arguments in [&["--help"][..], &["--version"], &["scan", "STORE"]] {
        let answer = output(arguments);
        assert_eq!((answer.code, answer.err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
