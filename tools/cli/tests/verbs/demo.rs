//! The demo on few records: every answer is correct, nothing is left behind.

use crate::program::Place;

#[test]
fn demo_answers_are_correct_and_nothing_is_left() {
    let place = Place::new();
    let document = place.run(&["demo", "--records", "20000", "--memory", "32MiB", "--json"]).json();
    assert_eq!(document["wrong_answers"], 0);
    assert_eq!(document["turtle"]["operations"], 352_812);
    assert_eq!(document["verify"]["sound"], true);
    assert!(document["killing"]["survived_batches_3"].as_u64().unwrap() > 0);
    assert_eq!(std::fs::read_dir(place.path(".")).unwrap().count(), 0);
}

#[test]
fn a_named_directory_is_kept() {
    let place = Place::new();
    let answer = place.run(&["demo", "--records", "1000", "--memory", "32MiB", "--dir", "STORE"]).fine();
    assert!(answer.contains("Every answer was correct."), "{answer}");
    assert_eq!(place.run(&["scan", "STORE", "--keyspace", "synthetic", "--count"]).fine(), "1000\n");
    place.run(&["verify", "STORE", "--full"]).fine();
}
