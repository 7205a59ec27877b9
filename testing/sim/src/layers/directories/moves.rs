//! The directory of a store is moved, linked to, removed, or shared with foreign files.

#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]

use std::{fs, os::unix::fs::symlink};

use testudo::{Db, ErrorKind};

use super::place::{Expected, Place, require_lost};

/// Records of a round: with the smallest budget more than write buffers and a log segment hold.
const ROUND: u32 = 500;

pub(super) fn another_store_at_the_old_path(place: &Place) {
    let mut first = place.open("db", Expected::default());
    first.write("first, before", ROUND);
    place.rename("db", "moved");
    let mut second = place.open("db", Expected::default());
    for round in 0..3 {
        first.write(&format!("first, round {round}"), ROUND);
        second.write(&format!("second, round {round}"), ROUND);
        first.db.flush().unwrap();
        second.db.flush().unwrap();
    }
    first.check();
    second.check();
    let (first, second) = (first.close(), second.close());
    place.check("moved", &first);
    place.check("db", &second);
}

pub(super) fn back_and_forth(place: &Place) {
    let mut expected = Expected::default();
    for round in 0..4 {
        let mut store = place.open("db", expected);
        place.rename("db", "moved");
        store.write(&format!("moved {round}"), ROUND / 2);
        place.rename("moved", "db");
        store.write(&format!("back {round}"), ROUND / 2);
        place.rename("db", "moved");
        expected = store.close();
        place.rename("moved", "db");
    }
    place.check("db", &expected);
}

pub(super) fn link_that_leads_elsewhere(place: &Place) {
    let expected = place.open("db", Expected::default()).close();
    let link = place.path("link");
    symlink(place.path("db"), &link).unwrap();
    let mut store = place.open("link", expected);
    store.write("through the link", ROUND);
    fs::remove_file(&link).unwrap();
    fs::create_dir(place.path("other")).unwrap();
    fs::write(place.path("other").join("stranger"), "not a store's").unwrap();
    symlink(place.path("other"), &link).unwrap();
    store.write("without it", ROUND);
    store.db.flush().unwrap();
    let expected = store.close();
    place.check("db", &expected);
    let others = place.contents("other");
    assert_eq!(
        others.into_values().collect::<Vec<_>>(),
        [b"not a store's"],
        "a foreign directory was changed"
    );
    fs::remove_file(&link).unwrap();
    symlink(place.path("nowhere"), &link).unwrap();
    assert_eq!(place.try_open("link").unwrap_err().kind(), ErrorKind::Invalid);
}

pub(super) fn removed_directory(place: &Place) {
    let mut store = place.open("db", Expected::default());
    store.write("before", ROUND);
    fs::remove_dir_all(place.path("db")).unwrap();
    let error = require_lost(store.try_write("after", ROUND));
    assert!(error.to_string().contains(&place.path("db").display().to_string()), "{error}");
    store.close_without_lock();
    assert!(!place.path("db").exists(), "a removed directory was created again");
}

pub(super) fn temporary_among_files_of_others(place: &Place) {
    let path = place.path("db");
    let temporary = || Db::builder(&path).memory_bytes(1 << 20).temporary();
    let refused = |db: testudo::Result<Db>| assert_eq!(db.unwrap_err().kind(), ErrorKind::Invalid);
    refused(temporary().read_only().open());
    refused(temporary().create(false).open());
    assert!(!path.exists());
    fs::create_dir(&path).unwrap();
    refused(temporary().open());
    fs::write(path.join("notes"), "mine").unwrap();
    refused(temporary().open());
    assert_eq!(fs::read(path.join("notes")).unwrap(), b"mine");
    fs::remove_dir_all(&path).unwrap();
    temporary().open().unwrap().close().unwrap();
    assert!(!path.exists(), "the temporary directory remains");
    let db = temporary().open().unwrap();
    let others = ["notes", "wal-notes.log", "manifest-old", "data.bak"];
    others.iter().for_each(|name| fs::write(path.join(name), "mine").unwrap());
    db.close().unwrap();
    assert_eq!(place.contents("db").len(), others.len(), "only foreign files must remain");
}
