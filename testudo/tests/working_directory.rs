//! A relative path is resolved when the store is opened. A separate process, because it changes its working
//! directory.

use testudo::{Db, Durability, KeyspaceOptions, VerifyLevel};

#[test]
fn a_store_opened_by_a_relative_path_keeps_its_directory() {
    let place = tempfile::tempdir().unwrap();
    std::env::set_current_dir(place.path()).unwrap();
    let db = Db::builder("db").memory_bytes(1 << 20).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default).unwrap();
    let elsewhere = place.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::env::set_current_dir(&elsewhere).unwrap();
    for n in 0..4000u32 {
        keyspace.insert(n.to_be_bytes(), vec![b'v'; 1000]).unwrap();
    }
    db.persist(Durability::Sync).unwrap();
    db.flush().unwrap();
    db.keyspace("another", KeyspaceOptions::default).unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), 4000);
    db.close().unwrap();
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "nothing must be created here");
    let db = Db::builder(place.path().join("db")).memory_bytes(1 << 20).create(false).open().unwrap();
    assert_eq!(db.open_keyspace("k").unwrap().unwrap().iter().unwrap().count(), 4000);
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
}
