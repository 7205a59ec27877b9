//! `del` (alias `rm`) of many keys: by name, from a file, by prefix.

use serde_json::json;

use crate::program::Place;

fn count(place: &Place) -> u64 {
    place.run(&["count", "STORE"]).fine().trim().parse().unwrap()
}

#[test]
fn all_keys_with_a_prefix_are_removed_and_counted() {
    let place = Place::with_records();
    let before = place.store_files();
    assert_eq!(
        place.run(&["del", "STORE", "--prefix", "k1", "--dry-run"]).fine(),
        "10 keys would be removed\n"
    );
    assert_eq!(place.store_files(), before, "nothing is written");
    assert_eq!(place.run(&["rm", "STORE", "--prefix", "k1"]).fine(), "10 keys removed\n");
    assert_eq!(count(&place), 90);
    assert_eq!(place.run(&["rm", "STORE", "--prefix", "k1"]).fine(), "0 keys removed\n");
    let answer = place.run(&["rm", "STORE", "--prefix", "", "--json"]).json();
    assert_eq!(answer, json!({ "removed": 90, "not_found": 0, "dry_run": false }));
    assert_eq!(count(&place), 0);
}

#[test]
fn many_keys_are_removed_by_name_and_from_a_file() {
    let place = Place::with_records();
    assert_eq!(place.run(&["del", "STORE", "k00", "k01"]).fine(), "2 keys removed\n");
    place.write("keys", b"k02\n\\x6b03\nk04");
    assert_eq!(
        place.run(&["del", "STORE", "--file", "keys", "--dry-run"]).fine(),
        "3 keys would be removed\n"
    );
    assert_eq!(place.run(&["del", "STORE", "--file", "keys"]).fine(), "3 keys removed\n");
    assert_eq!(place.feed(b"6b3035\n", &["del", "STORE", "--file", "-", "--hex"]).fine(), "1 keys removed\n");
    assert_eq!(count(&place), 94);
    // Missing keys are reported, and a key named twice counts once.
    let answer = place.feed(b"k06\nk06\nk00\nk07\n", &["del", "STORE", "--file", "-"]);
    assert_eq!((answer.code, answer.out.as_slice()), (Some(1), &b"2 keys removed\n"[..]));
    assert!(answer.err.contains("1 of the keys do not exist, such as 'k00'"), "{}", answer.err);
    let answer = place.run(&["del", "STORE", "k08", "k00", "--json"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""));
    assert!(String::from_utf8(answer.out).unwrap().contains("\"removed\":1"));
    assert_eq!(count(&place), 91);
}

#[test]
fn failed_removal_reports_the_number_of_removed_keys() {
    let place = Place::with_records();
    place
        .feed(b"k00\nk01\n\\q\nk02\n", &["del", "STORE", "--file", "-"])
        .refused(&["line 3", "2 keys were removed"]);
    assert_eq!(count(&place), 98);
    place.run(&["del", "STORE", "--file", "absent"]).refused(&["absent"]);
    place.run(&["del", "STORE"]).not_understood(&["KEY", "--prefix"]);
    place.run(&["del", "STORE", "k02", "--prefix", "k"]).not_understood(&["--prefix"]);
    assert_eq!(count(&place), 98);
}

#[test]
fn estimate_takes_a_range_a_prefix_or_everything() {
    let place = Place::with_records();
    let estimate = |more: &[&str]| {
        let lines = place.run(&[&["estimate", "STORE", "--json"], more].concat()).json_lines();
        lines[0]["bytes"].as_u64().unwrap()
    };
    let all = estimate(&[]);
    assert!(all > 0);
    assert!((all / 20..all / 5).contains(&estimate(&["--prefix", "k1"])), "a tenth");
    assert!((all / 40..all / 10).contains(&estimate(&["--from", "k10", "--to", "k15"])), "a twentieth");
    assert_eq!(estimate(&["--prefix", "x"]), 0);
    assert!(place.run(&["estimate", "STORE"]).fine().ends_with("B\n"));
}

#[test]
fn count_takes_a_range_a_prefix_or_everything() {
    let place = Place::with_records();
    let count = |more: &[&str]| place.run(&[&["count", "STORE"], more].concat()).fine();
    assert_eq!(count(&[]), "100\n");
    assert_eq!(count(&["--prefix", "k1"]), "10\n");
    assert_eq!(count(&["--from", "k10", "--to", "k15"]), "5\n");
    assert_eq!(count(&["--prefix", "x"]), "0\n");
    assert_eq!(count(&["--json"]), "{\"count\":100}\n");
}
