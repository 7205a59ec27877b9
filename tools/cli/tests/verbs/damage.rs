//! Damaged stores and stores of another format: rejected or reported, never changed.

use std::fs;

use testudo_base::checksum::checksum64;

use crate::program::Place;

const SLOT_BYTES: usize = 4096;
const CHECKED_BYTES: usize = 80;

/// Modifies both slots of the superblock.
fn change_superblock(place: &Place, change: impl Fn(&mut [u8])) {
    let path = place.store().join("superblock");
    let mut bytes = fs::read(&path).unwrap();
    for slot in bytes.chunks_mut(SLOT_BYTES) {
        if slot.iter().any(|&byte| byte != 0) {
            change(slot);
        }
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn older_or_newer_format_is_rejected_and_unchanged() {
    for version in [1u32, 3] {
        let place = Place::with_records();
        change_superblock(&place, |slot| {
            slot[8..12].copy_from_slice(&version.to_le_bytes());
            let checksum = checksum64(&slot[..CHECKED_BYTES], 0);
            slot[CHECKED_BYTES..CHECKED_BYTES + 8].copy_from_slice(&checksum.to_le_bytes());
        });
        let before = place.store_files();
        for verb in
            [&["get", "STORE", "k00"][..], &["verify", "STORE"], &["put", "STORE", "k00", "v", "--create"]]
        {
            place.run(verb).refused(&["STORE", &format!("version {version}")]);
        }
        assert_eq!(place.store_files(), before);
    }
}

#[test]
fn damaged_superblock_is_found_by_verify_and_fails_other_verbs() {
    let place = Place::with_records();
    change_superblock(&place, |slot| slot[40] ^= 1);
    let before = place.store_files();
    for verb in [&["get", "STORE", "k00"][..], &["put", "STORE", "k00", "v", "--create"], &["ls", "STORE"]] {
        place.run(verb).missing(&["superblock", "testudo repair STORE"]);
    }
    let answer = place.run(&["verify", "STORE"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(String::from_utf8(answer.out).unwrap().starts_with("damaged: "));
    assert_eq!(place.store_files(), before);
}

#[test]
fn a_missing_file_is_found() {
    for prefix in ["superblock", "data", "manifest-"] {
        let place = Place::with_records();
        place.run(&["compact", "STORE"]).fine();
        let name = place.store_files().into_keys().rfind(|name| name.starts_with(prefix)).unwrap();
        fs::remove_file(place.store().join(&name)).unwrap();
        let before = place.store_files();
        let answer = place.run(&["verify", "STORE", "--full"]);
        assert_eq!(answer.code, Some(1), "{name}: {}", answer.err);
        place.run(&["get", "STORE", "k00"]).missing(&["STORE"]);
        assert_eq!(place.store_files(), before, "{name}");
    }
}

#[test]
fn full_verification_detects_a_flipped_byte_in_a_page() {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    let path = place.store().join("data");
    let valid = fs::read(&path).unwrap();
    let pages: Vec<usize> = (0..valid.len() / SLOT_BYTES)
        .filter(|page| valid[page * SLOT_BYTES..][..SLOT_BYTES].windows(3).any(|bytes| bytes == b"v42"))
        .collect();
    assert!(!pages.is_empty(), "the record is on some page");
    let mut damaged = valid.clone();
    pages.iter().for_each(|page| damaged[page * SLOT_BYTES + 100] ^= 0x10);
    fs::write(&path, &damaged).unwrap();
    let answer = place.run(&["verify", "STORE", "--full"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(String::from_utf8(answer.out).unwrap().contains("data at offset"));
    let answer = place.run(&["verify", "STORE", "--full", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&answer.out).unwrap();
    assert_eq!((answer.code, &document["sound"]), (Some(1), &serde_json::json!(false)));
    place.run(&["get", "STORE", "k42"]).missing(&["data at offset"]);
    assert_eq!(fs::read(&path).unwrap(), damaged);
    fs::write(&path, &valid).unwrap();
    place.run(&["verify", "STORE", "--full"]).fine();
}
