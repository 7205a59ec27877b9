//! Numbers of records and of entries: the output says which is which, and repeated numbers agree.

use crate::program::Place;

/// Store with records in its write buffers only; after compaction, in trees only.
fn place() -> Place {
    let place = Place::with_records();
    let again: String = (0..50).map(|number| format!("k{number:02}\tnew\n")).collect();
    place.feed(again.as_bytes(), &["load", "STORE", "-", "--format", "tsv"]).fine();
    place
}

#[test]
fn tree_entries_records_and_buffered_entries_are_distinguished() {
    let place = place();
    let ls = place.run(&["ls", "STORE", "--json"]).json();
    let verify = place.run(&["verify", "STORE", "--json"]).json();
    assert_eq!(place.run(&["count", "STORE"]).fine(), "100\n");
    assert_eq!(
        (&verify["entries"], &verify["buffered_entries"]),
        (&ls["tree_entries"], &ls["buffer_entries"])
    );
    assert_eq!(verify["entries"], 0);
    assert!(verify["buffered_entries"].as_u64().unwrap() >= 100, "{verify}");
    let text = place.run(&["verify", "STORE"]).fine();
    assert!(
        text.contains("1 keyspaces, 0 entries in trees and 1") && text.contains("in write buffers"),
        "{text}"
    );
    let text = place.run(&["ls", "STORE"]).fine();
    assert!(text.contains("in trees") && text.contains("in buffers"), "{text}");
    assert!(text.contains("older versions") && text.contains("`testudo count` counts records"), "{text}");
    place.run(&["compact", "STORE"]).fine();
    let verify = place.run(&["verify", "STORE", "--json"]).json();
    assert_eq!((&verify["entries"], &verify["buffered_entries"]), (&100.into(), &0.into()));
    // The internal keyspace of values in pieces is not counted.
    place.write("film", &vec![7; 300_000]);
    place.run(&["put", "STORE", "film", "--file", "film"]).fine();
    place.run(&["compact", "STORE"]).fine();
    let verify = place.run(&["verify", "STORE", "--json"]).json();
    assert_eq!((&verify["keyspaces"], &verify["entries"]), (&1.into(), &101.into()));
}

#[test]
fn statistics_of_a_closed_store_omit_zeros() {
    let place = place();
    let text = place.run(&["stat", "STORE"]).fine();
    assert!(text.starts_with("not open in any process"), "{text}");
    assert!(!text.lines().any(|line| line.ends_with(" 0") || line.ends_with(" 0 B")), "{text}");
    assert!(text.lines().any(|line| line.contains("seqno")), "{text}");
    let all = place.run(&["stat", "STORE", "--json"]).json();
    assert!(all["store"].as_object().unwrap().len() > 60);
}
