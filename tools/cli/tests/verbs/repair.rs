//! Repair of real files: the superblock is rebuilt, other damage is reported.

use std::fs;

use serde_json::Value;

use crate::program::{Place, files_of};

fn place() -> Place {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    place
}

#[test]
fn repair_leaves_a_valid_store_unchanged() {
    let place = place();
    let before = place.store_files();
    let report = place.run(&["repair", "STORE", "--json"]).json();
    assert_eq!((&report["sound"], report["findings"].as_array().unwrap().len()), (&Value::Bool(true), 0));
    assert_eq!(place.store_files(), before);
}

#[test]
fn damaged_superblock_is_rebuilt_and_its_bytes_are_kept() {
    let place = place();
    let expected = place.run(&["dump", "STORE"]).fine();
    let damaged = vec![0x5a; 8192];
    fs::write(place.store().join("superblock"), &damaged).unwrap();
    let before = place.store_files();
    let answer = place.run(&["repair", "STORE", "--dry-run"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""));
    assert!(String::from_utf8(answer.out).unwrap().starts_with("repairable: superblock"));
    assert_eq!(place.store_files(), before);
    let text = place.run(&["repair", "STORE"]).fine();
    assert!(text.starts_with("repaired: superblock") && text.contains("\nvalid"), "{text}");
    assert_eq!(files_of(&place.store())["superblock.before-repair-1"], damaged);
    assert_eq!(place.run(&["dump", "STORE"]).fine(), expected);
    place.run(&["verify", "STORE", "--full"]).fine();
    assert!(place.run(&["repair", "STORE"]).fine().starts_with("valid"));
}

#[test]
fn damaged_page_needs_salvage_and_is_unchanged() {
    let place = place();
    let path = place.store().join("data");
    let mut bytes = fs::read(&path).unwrap();
    let page = bytes.chunks(4096).position(|page| page.windows(3).any(|bytes| bytes == b"v42")).unwrap();
    bytes[page * 4096 + 100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let before = place.store_files();
    let answer = place.run(&["repair", "STORE"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(String::from_utf8(answer.out).unwrap().starts_with("needs salvage: data at offset"));
    assert_eq!(place.store_files(), before);
    place.run(&["repair", "NOWHERE"]).refused(&["NOWHERE", "no such directory"]);
}
