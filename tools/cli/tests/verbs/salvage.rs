//! Salvage of real files, through the command line.

use std::fs;

use serde_json::Value;

use crate::program::{Answer, Place};

const PAGE: usize = 4096;

/// Store with flushed records, and some that are only in the log.
fn place() -> Place {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    place.feed(b"k200\tlate\n", &["load", "STORE", "-", "--format", "tsv"]).fine();
    place
}

fn remove(place: &Place, prefix: &str) {
    let name = place.store_files().into_keys().rfind(|name| name.starts_with(prefix)).unwrap();
    fs::remove_file(place.store().join(name)).unwrap();
}

#[track_caller]
fn report(answer: Answer, code: i32) -> Value {
    assert_eq!((answer.code, answer.err.as_str()), (Some(code), ""));
    serde_json::from_slice(&answer.out).unwrap()
}

fn contents(place: &Place, store: &str) -> String {
    place.run(&["dump", store]).fine()
}

#[test]
fn valid_store_is_copied_and_reported_complete() {
    let place = place();
    let before = place.store_files();
    let report = report(place.run(&["salvage", "STORE", "NEW", "--json"]), 0);
    assert_eq!((&report["complete"], &report["method"]), (&Value::Bool(true), &"manifest".into()));
    assert_eq!(report["keyspaces"][0]["records"], 101);
    assert_eq!(place.store_files(), before);
    assert_eq!(contents(&place, "NEW"), contents(&place, "STORE"));
    place.run(&["verify", "NEW", "--full"]).fine();
}

#[test]
fn lost_metadata_files_lose_no_record() {
    for (files, code, method) in [
        (&["superblock"][..], 0, "manifest"),
        (&["manifest-"], 1, "scan"),
        (&["superblock", "manifest-"], 1, "scan"),
    ] {
        let place = place();
        let expected = contents(&place, "STORE");
        files.iter().for_each(|prefix| remove(&place, prefix));
        let report = report(place.run(&["salvage", "STORE", "NEW", "--json"]), code);
        assert_eq!(report["method"], method, "{files:?}: {report}");
        assert_eq!(contents(&place, "NEW"), expected, "{files:?}");
    }
}

#[test]
fn damaged_page_is_reported_as_a_key_range() {
    let place = place();
    let path = place.store().join("data");
    let mut bytes = fs::read(&path).unwrap();
    for page in bytes.chunks_mut(PAGE).filter(|page| page.windows(3).any(|bytes| bytes == b"v42")) {
        page[100] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    let answer = place.run(&["salvage", "STORE", "NEW"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""));
    let text = String::from_utf8(answer.out).unwrap();
    assert!(text.starts_with("lost: default, from k00 to ") && text.contains("data at offset"), "{text}");
    assert_eq!(contents(&place, "NEW").lines().filter(|line| line.contains("late")).count(), 1);
}

#[test]
fn failed_salvage_is_reported_and_leaves_nothing() {
    let place = place();
    place.run(&["salvage", "NOWHERE", "NEW"]).refused(&["NOWHERE", "no such directory"]);
    place.run(&["salvage", "STORE", "STORE"]).refused(&["STORE", "not empty"]);
    for name in
        place.store_files().into_keys().filter(|name| name != "LOCK" && !name.starts_with("manifest-"))
    {
        fs::remove_file(place.store().join(name)).unwrap();
    }
    place.run(&["salvage", "STORE", "NEW"]).refused(&["STORE", "the store cannot be identified"]);
    assert!(!place.path("NEW").exists());
}

#[test]
fn value_with_a_lost_piece_is_named_and_the_new_store_is_valid() {
    let place = place();
    for (name, byte) in [("a-film", 1u8), ("b-film", 2), ("c-film", 3)] {
        // No page of one film equals a page of another.
        let film: Vec<u8> =
            (0..50_000_u32).flat_map(|at| [byte, at.to_le_bytes()[0], at.to_le_bytes()[1], byte]).collect();
        place.write(name, &film);
        place.run(&["put", "STORE", name, "--file", name, "--keyspace", "films", "--create"]).fine();
    }
    place.run(&["compact", "STORE"]).fine();
    // The log of the next opening replaces the one that contains all of it.
    place.run(&["put", "STORE", "late", "one"]).fine();
    place.run(&["compact", "STORE"]).fine();
    let mut is_done = false;
    for (name, mut bytes) in place.store_files() {
        let film = fs::read(place.path("b-film")).unwrap();
        let found = bytes.windows(64).position(|window| *window == film[100_000..100_064]);
        let Some(at) = found else { continue };
        bytes[at..at + 64].fill(0);
        fs::write(place.store().join(name), bytes).unwrap();
        is_done = true;
    }
    assert!(is_done);
    let damaged = place.run(&["verify", "STORE"]);
    let text = String::from_utf8(damaged.out).unwrap();
    assert_eq!(damaged.code, Some(1));
    assert!(text.contains("key \"b-film\"") && text.contains("keyspace \"films\""), "{text}");
    let salvaged = place.run(&["salvage", "STORE", "NEW"]);
    let text = String::from_utf8(salvaged.out).unwrap();
    assert_eq!(salvaged.code, Some(1), "{}", salvaged.err);
    let lost: Vec<&str> = text.lines().filter(|line| line.starts_with("lost: ")).collect();
    assert!(lost.len() == 1 && lost[0].starts_with("lost: films, the key b-film (data at offset "), "{text}");
    assert!(text.is_ascii() && !text.contains("pieces:"), "{text}");
    place.run(&["verify", "NEW"]).fine();
    place.run(&["get", "NEW", "b-film", "--keyspace", "films"]).missing(&["'b-film'"]);
    for name in ["a-film", "c-film"] {
        place.run(&["get", "NEW", name, "--keyspace", "films", "--output", "copy"]).fine();
        assert!(fs::read(place.path("copy")).unwrap() == fs::read(place.path(name)).unwrap(), "{name}");
        fs::remove_file(place.path("copy")).unwrap();
    }
}
