//! Directories above a store: creating a store creates them, and their entries survive a power loss.

use std::{path::Path, sync::Arc};

use testudo::{
    Db, DbBuilder, Durability, ErrorKind, KeyspaceOptions, SalvageOptions, backup::Repository, salvage,
};
use testudo_env::{CrashPolicy, Env, MemEnv};

const DEEP: &str = "/above/deep/store";

fn builder(machine: &Arc<MemEnv>, directory: &str) -> DbBuilder {
    Db::builder(Path::new(directory)).env(machine.clone()).memory_bytes(4 << 20)
}

#[test]
fn a_store_in_a_directory_that_does_not_exist_survives_a_power_loss() {
    let machine = MemEnv::new(1);
    let db = builder(&machine, DEEP).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    keyspace.insert("key", "value").unwrap();
    db.persist(Durability::Sync).unwrap();
    let after = machine.crash_image(&CrashPolicy::LOSE_ALL, 1);
    let db = builder(&after, DEEP).create(false).open().unwrap();
    assert_eq!(db.open_keyspace("k").unwrap().unwrap().get("key").unwrap().unwrap(), "value");
}

#[test]
fn copies_also_create_their_parent_directories() {
    let machine = MemEnv::new(1);
    let db = builder(&machine, "/db").open().unwrap();
    db.keyspace("k", KeyspaceOptions::default()).unwrap().insert("key", "value").unwrap();
    db.checkpoint("/a/b/checkpoint").unwrap();
    let repository = Repository::at("/c/d/backups").env(machine.clone());
    repository.create(&db).unwrap();
    repository.restore(None, "/e/f/restored").unwrap();
    db.close().unwrap();
    let options = SalvageOptions::new("/db", "/g/h/saved").env(machine.clone());
    salvage(options).unwrap();
    let after = machine.crash_image(&CrashPolicy::LOSE_ALL, 1);
    for directory in ["/a/b/checkpoint", "/e/f/restored", "/g/h/saved"] {
        let db = builder(&after, directory).create(false).open().unwrap();
        assert_eq!(db.open_keyspace("k").unwrap().unwrap().get("key").unwrap().unwrap(), "value");
    }
    let repository = Repository::at("/c/d/backups").env(after);
    assert!(repository.verify(None).unwrap().is_valid());
}

#[test]
fn an_open_that_may_not_create_a_store_creates_no_directory() {
    let machine = MemEnv::new(1);
    for builder in [builder(&machine, DEEP).create(false), builder(&machine, DEEP).read_only()] {
        assert_eq!(builder.open().unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(builder(&machine, DEEP).temporary().open().is_err());
    assert!(machine.list_dir(Path::new("/above")).is_err());
}
