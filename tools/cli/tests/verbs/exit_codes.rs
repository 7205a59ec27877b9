//! One table of exit codes for all verbs: 0 done, 1 not there (or damaged), 2 could not.

use std::fs;

use serde_json::{Value, json};
use testudo::Db;

use crate::program::Place;

/// Verbs about a store, with arguments that would do if what they name were there; whether they change it.
const VERBS: [(&[&str], bool); 28] = [
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
    (&["load", "STORE", "words"], true),
    (&["verify", "STORE"], false),
    (&["scrub", "STORE"], false),
    (&["repair", "STORE", "--dry-run"], false),
    (&["salvage", "STORE", "NEW"], false),
    (&["checkpoint", "STORE", "NEW"], false),
    (&["backup", "create", "STORE", "REPO"], false),
    (&["compact", "STORE"], true),
    (&["wal", "dump", "STORE"], false),
    (&["manifest", "dump", "STORE"], false),
    (&["page", "dump", "STORE", "0"], false),
    (&["keyspace", "convert", "STORE", "default", "--tree", "turtle"], true),
    (&["keyspace", "drop", "STORE", "default"], true),
];

/// Exit code 1 and one line of text that names `thing`; with `--json` the same document from every verb.
#[track_caller]
fn missing(place: &Place, verb: &[&str], what: &str, thing: &str) {
    place.run(verb).missing(&[thing]);
    let answer = place.run(&[&["--json"], verb].concat());
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""), "{verb:?}");
    let document: Value = serde_json::from_slice(&answer.out).unwrap();
    assert_eq!(document, json!({ "found": false, "missing": what }), "{verb:?}");
}

#[test]
fn a_store_that_is_not_there_is_exit_code_one_in_every_verb() {
    let place = Place::new();
    place.write("words", b"a\n");
    for (verb, _) in VERBS {
        missing(&place, verb, "store", "STORE");
    }
    missing(&place, &["keyspace", "create", "STORE", "new"], "store", "STORE");
    assert!(["STORE", "NEW", "REPO"].iter().all(|name| !place.path(name).exists()));
    // An empty directory holds no store either.
    fs::create_dir(place.store()).unwrap();
    for (verb, _) in VERBS {
        missing(&place, verb, "store", "STORE");
    }
    assert!(place.store_files().is_empty());
}

#[test]
fn a_keyspace_that_is_not_there_is_exit_code_one_in_every_verb() {
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
        &["load", "STORE", "words"],
        &["stat", "STORE"],
        &["tree", "STORE"],
    ] {
        missing(&place, &[verb, &["--keyspace", "none"]].concat(), "keyspace", "'none'");
    }
    missing(&place, &["keyspace", "drop", "STORE", "none"], "keyspace", "'none'");
    missing(&place, &["keyspace", "convert", "STORE", "none", "--tree", "turtle"], "keyspace", "'none'");
}

#[test]
fn other_things_that_are_not_there_are_exit_code_one_too() {
    let place = Place::with_records();
    missing(&place, &["get", "STORE", "absent"], "key", "'absent'");
    missing(&place, &["del", "STORE", "absent"], "key", "'absent'");
    missing(&place, &["del", "STORE", "absent", "--dry-run"], "key", "'absent'");
    missing(&place, &["page", "dump", "STORE", "99999999999"], "page", "no page 99999999999");
    for verb in
        [&["list", "REPO"][..], &["verify", "REPO"], &["restore", "REPO", "NEW"], &["delete", "REPO", "1"]]
    {
        missing(&place, &[&["backup"], verb].concat(), "repository", "REPO");
    }
    place.run(&["backup", "create", "STORE", "REPO"]).fine();
    for verb in
        [&["verify", "REPO", "7"][..], &["restore", "REPO", "NEW", "--id", "7"], &["delete", "REPO", "7"]]
    {
        missing(&place, &[&["backup"], verb].concat(), "backup", "no backup 7");
    }
    assert!(!place.path("NEW").exists());
}

#[test]
fn a_store_that_is_there_is_exit_code_zero_in_every_verb() {
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
fn what_cannot_be_done_is_exit_code_two_in_every_verb() {
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
