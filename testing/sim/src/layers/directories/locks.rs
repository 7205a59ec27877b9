//! The file `LOCK` of an open store is removed or replaced.

#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]

use std::fs;

use testudo::ErrorKind;

use super::place::{Expected, Place, require_lost};

pub(super) fn second_owner_after_removal(place: &Place) {
    let mut first = place.open("db", Expected::default());
    first.write("first", 500);
    fs::remove_file(place.path("db").join("LOCK")).unwrap();
    // The directory itself is locked as well.
    let error = place.try_open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert!(!place.path("db").join("LOCK").exists(), "a refused open creates no file");
    require_lost(first.try_write("too late", 500));
    require_lost(first.db.flush());
    require_lost(first.db.keyspace("too late", Default::default));
    let expected = first.close_without_lock();
    let mut second = place.open("db", expected);
    second.write("second, alone", 500);
    second.db.flush().unwrap();
    let expected = second.close();
    place.check("db", &expected);
}

pub(super) fn replaced_lock(place: &Place) {
    let mut store = place.open("db", Expected::default());
    store.write("before", 100);
    replace_lock(place);
    require_lost(store.try_write("after", 1));
    let files = place.contents("db");
    // Moving it back is too late: another owner may have used it meanwhile.
    fs::rename(place.path("aside"), place.path("db").join("LOCK")).unwrap();
    require_lost(store.try_write("after", 1));
    assert_eq!(place.contents("db").len(), files.len());
    let expected = store.close_without_lock();
    place.check("db", &expected);
}

pub(super) fn replaced_before_a_flush(place: &Place) {
    let mut store = place.open("db", Expected::default());
    store.write("before", 100);
    replace_lock(place);
    let files = place.settled_contents("db");
    require_lost(store.db.flush());
    assert!(place.contents("db") == files, "something was written without the lock");
    let expected = store.close_without_lock();
    place.check("db", &expected);
}

pub(super) fn refusal_names_the_owner(place: &Place) {
    let store = place.open("db", Expected::default());
    let refused = |what: &str| {
        let error = place.try_open("db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    refused(&format!("open for writing by this process already (process {})", std::process::id()));
    store.close();
    let reader = testudo::Db::builder(place.path("db")).memory_bytes(1 << 20).read_only().open().unwrap();
    refused("open for reading");
    reader.close().unwrap();
}

fn replace_lock(place: &Place) {
    let lock = place.path("db").join("LOCK");
    fs::rename(&lock, place.path("aside")).unwrap();
    fs::write(&lock, "").unwrap();
}
