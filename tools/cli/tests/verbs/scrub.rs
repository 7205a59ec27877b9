//! Scrubbing and verification levels, on real files.

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use testudo::Db;

use crate::program::{Answer, Place, interrupt, program};

const PAGE: usize = 4096;

/// Store with some hundred pages of records.
fn place() -> Place {
    let place = Place::new();
    let lines: String = (0..4000).map(|number| format!("k{number:05}\t{number:0100}\n")).collect();
    place.feed(lines.as_bytes(), &["load", "STORE", "-", "--format", "tsv", "--create"]).fine();
    place.run(&["compact", "STORE"]).fine();
    place
}

/// Flips a byte in every page that contains `key`; returns the number of pages.
fn damage(place: &Place, key: &[u8]) -> usize {
    let path = place.store().join("data");
    let mut bytes = fs::read(&path).unwrap();
    let hit = |page: &&mut [u8]| page.windows(key.len()).any(|window| window == key);
    let flipped = bytes.chunks_mut(PAGE).filter(hit).map(|page| page[200] ^= 1).count();
    fs::write(&path, bytes).unwrap();
    flipped
}

#[track_caller]
fn document(answer: Answer, code: i32) -> Value {
    assert_eq!(answer.code, Some(code), "{}", answer.err);
    serde_json::from_slice(&answer.out).unwrap()
}

#[test]
fn scrub_reads_everything_and_leaves_no_file() {
    let place = place();
    let before = place.store_files();
    let report = document(place.run(&["scrub", "STORE", "--json"]), 0);
    assert_eq!((&report["sound"], &report["complete"]), (&true.into(), &true.into()));
    assert!(report["bytes"].as_u64().unwrap() > 400_000, "{report}");
    assert!(place.run(&["scrub", "STORE", "--resume"]).fine().starts_with("valid ("));
    assert_eq!(place.store_files(), before);
}

#[test]
fn damage_is_found_and_named() {
    let place = place();
    assert!(damage(&place, format!("{:0100}", 2345).as_bytes()) > 0);
    let report = document(place.run(&["scrub", "STORE", "--json"]), 1);
    let finding = &report["findings"][0];
    assert_eq!((&finding["file"], &finding["keyspace"]), (&"data".into(), &"default".into()), "{report}");
    assert_eq!(report["complete"], true);
    let answer = place.run(&["scrub", "STORE"]);
    assert_eq!(answer.code, Some(1));
    assert!(String::from_utf8(answer.out).unwrap().starts_with("damaged: data at offset "));
    // The data that opening reads is undamaged.
    place.run(&["verify", "STORE", "--level", "fast"]).fine();
    let report = document(place.run(&["verify", "STORE", "--level", "full", "--json"]), 1);
    assert_eq!((&report["sound"], &report["level"]), (&false.into(), &"full".into()));
    fs::write(place.store().join("superblock"), vec![7; 2 * PAGE]).unwrap();
    assert_eq!(document(place.run(&["scrub", "STORE", "--json"]), 1)["sound"], false);
    place.run(&["scrub", "NOWHERE"]).refused(&["NOWHERE"]);
}

#[test]
fn verify_reads_everything_by_default() {
    let place = place();
    assert!(place.run(&["verify", "STORE"]).fine().starts_with("valid (full check of "));
    assert_eq!(place.run(&["verify", "STORE", "--json"]).json()["not_read"], json!([]));
    assert!(damage(&place, format!("{:0100}", 2345).as_bytes()) > 0);
    let report = document(place.run(&["verify", "STORE", "--json"]), 1);
    assert_eq!((&report["sound"], &report["level"]), (&false.into(), &"full".into()));
    assert_eq!(place.run(&["verify", "STORE", "--full"]).code, Some(1));
    // A fast check may miss the damage, and lists the unread parts.
    let text = place.run(&["verify", "STORE", "--level", "fast"]).fine();
    assert!(!text.contains("valid") && text.contains("not read: the pages of runs"), "{text}");
    let report = document(place.run(&["verify", "STORE", "--level", "fast", "--json"]), 0);
    assert_eq!((&report["sound"], &report["level"]), (&Value::Null, &"fast".into()), "{report}");
    assert!(report["not_read"].to_string().contains("the pages of runs"), "{report}");
}

#[test]
fn interrupted_scrub_resumes_where_it_stopped() {
    let place = place();
    let whole = document(place.run(&["scrub", "STORE", "--json"]), 0)["bytes"].as_u64().unwrap();
    let mut command = program();
    command.args(["scrub", "STORE", "--json", "--rate", "30k"]).current_dir(place.path("."));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // At this rate, the whole store takes many seconds.
    interrupt(&mut child);
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert!(answer.err.contains("--resume"), "{}", answer.err);
    let first = document(answer, 2);
    assert_eq!((&first["sound"], &first["complete"]), (&true.into(), &false.into()));
    assert!(place.store().join("scrub").exists());
    // Writes in between do not reach the runs.
    place.run(&["put", "STORE", "k", "v"]).fine();
    let second = document(place.run(&["scrub", "STORE", "--json", "--resume"]), 0);
    assert_eq!((&second["resumed"], &second["complete"]), (&true.into(), &true.into()));
    let sum = first["bytes"].as_u64().unwrap() + second["bytes"].as_u64().unwrap();
    // Superblock, manifest and log are read only at the beginning.
    assert_eq!(sum, whole);
    assert!(!place.store().join("scrub").exists(), "the position is removed at the end");
}

#[test]
fn damaged_scrub_position_is_ignored() {
    let place = place();
    fs::write(place.store().join("scrub"), "testudo-scrub 00 1.2.3 00\n").unwrap();
    let answer = place.run(&["scrub", "STORE", "--resume", "--json"]);
    assert!(answer.err.contains("starting over"), "{}", answer.err);
    assert_eq!(document(answer, 0)["resumed"], false);
}

#[test]
fn store_open_for_writing_is_reported_as_locked() {
    let place = place();
    let db = Db::builder(place.store()).open().unwrap();
    for verb in [
        &["verify", "STORE"][..],
        &["verify", "STORE", "--level", "full"],
        &["scrub", "STORE"],
        &["backup", "create", "STORE", "REPO"],
        &["checkpoint", "STORE", "COPY"],
    ] {
        place.run(verb).refused(&["STORE", "is open for writing in process"]);
    }
    db.close().unwrap();
    place.run(&["verify", "STORE", "--level", "full"]).fine();
}
