//! Copies of a store: checkpoints.

use std::fs;

use crate::program::Place;

#[test]
fn a_checkpoint_is_a_store_with_the_same_records() {
    let place = Place::with_records();
    let before = place.store_files();
    let answer = place.run(&["checkpoint", "STORE", "COPY", "--json"]).json();
    assert_eq!((&answer["keyspaces"], &answer["tail_operations"]), (&1.into(), &100.into()));
    assert_eq!(place.store_files(), before, "the store itself is only read");
    assert_eq!(place.run(&["dump", "COPY"]).fine(), place.run(&["dump", "STORE"]).fine());
    place.run(&["verify", "COPY", "--full"]).fine();
    let id = |dir: &str| place.run(&["info", dir, "--json"]).json()["store_id"].clone();
    assert_ne!(id("STORE"), id("COPY"));
    place.run(&["put", "COPY", "new", "1"]).fine();
    place.run(&["compact", "COPY"]).fine();
    let text = place.run(&["checkpoint", "COPY", "AGAIN"]).fine();
    assert!(text.contains("1 keyspaces") && text.contains("AGAIN"), "{text}");
    assert_eq!(place.run(&["get", "AGAIN", "new"]).fine(), "1\n");
}

#[test]
fn a_checkpoint_refuses_a_directory_in_use_and_an_unfinished_one_is_no_store() {
    let place = Place::with_records();
    fs::create_dir(place.path("COPY")).unwrap();
    place.write("COPY/mine", b"keep");
    place.run(&["checkpoint", "STORE", "COPY"]).refused(&["COPY", "not empty"]);
    assert_eq!(fs::read(place.path("COPY/mine")).unwrap(), b"keep");
    place.run(&["checkpoint", "STORE", "HALF"]).fine();
    place.write("HALF/UNFINISHED", b"");
    for verb in [&["get", "HALF", "k00"][..], &["put", "HALF", "k00", "v", "--create"]] {
        place.run(verb).refused(&["HALF", "not finished"]);
    }
    // Made again, it is whole.
    place.run(&["checkpoint", "STORE", "HALF"]).fine();
    assert_eq!(place.run(&["get", "HALF", "k07"]).fine(), "v07\n");
}
