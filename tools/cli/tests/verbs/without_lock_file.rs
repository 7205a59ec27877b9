//! Read-only verbs on a store without the file `LOCK`, as in copies and on read-only media.

use std::fs;

use crate::program::Place;

#[test]
fn read_only_verbs_need_no_lock_file_and_create_nothing() {
    let place = Place::with_records();
    fs::remove_file(place.store().join("LOCK")).unwrap();
    let before = place.store_files();
    for verb in [
        &["get", "STORE", "k07"][..],
        &["scan", "STORE", "--limit", "3"],
        &["count", "STORE"],
        &["dump", "STORE"],
        &["verify", "STORE", "--level", "full"],
        &["info", "STORE"],
        &["stat", "STORE"],
        &["ls", "STORE"],
        &["tree", "STORE"],
        &["space", "STORE"],
        &["del", "STORE", "k07", "--dry-run"],
        &["repair", "STORE", "--dry-run"],
        &["checkpoint", "STORE", "COPY"],
    ] {
        let answer = place.run(verb);
        assert_eq!(answer.code, Some(0), "{verb:?}: {}", answer.err);
        assert_eq!(place.store_files(), before, "{verb:?}");
    }
}
