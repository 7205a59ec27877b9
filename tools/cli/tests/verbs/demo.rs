//! The demo on few records: every answer is correct; a temporary directory is removed, a named one is kept.

use testudo_share::some_of;

use crate::program::Place;

#[test]
fn demo_answers_are_correct_and_only_a_named_directory_is_kept() {
    for named in some_of([&[][..], &["--dir", "STORE"]], 2, 1) {
        let place = Place::new();
        let demo = ["demo", "--records", "20000", "--memory", "32MiB", "--json"];
        let document = place.run(&[&demo, named].concat()).json();
        assert_eq!(document["wrong_answers"], 0);
        assert_eq!(document["turtle"]["operations"], 352_812);
        assert_eq!(document["verify"]["sound"], true);
        assert!(document["killing"]["survived_batches_3"].as_u64().unwrap() > 0);
        assert_eq!(std::fs::read_dir(place.path(".")).unwrap().count(), usize::from(!named.is_empty()));
        if !named.is_empty() {
            assert_eq!(place.run(&["scan", "STORE", "--keyspace", "synthetic", "--count"]).fine(), "20000\n");
            place.run(&["verify", "STORE", "--full"]).fine();
        }
    }
}
