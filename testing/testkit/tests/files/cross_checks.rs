#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Cross-checks between the files of a store, as users encounter them: a lost log segment, old files next to
//! newer ones, two copies that diverged.

use std::{path::Path, sync::Arc};

use testudo::{
    Db, Durability, ErrorKind, KeyspaceOptions, RepairOptions, SalvageOptions, backup::Repository, repair,
    salvage,
};
use testudo_env::{CrashPolicy, Env, MemEnv};
use testudo_testkit::busy_store::{Contents, contents_of};

fn open(machine: &Arc<MemEnv>) -> testudo::Result<Db> {
    Db::builder("/db").memory_bytes(1 << 20).env(Arc::clone(machine) as Arc<dyn Env>).open()
}

fn put(db: &Db, keyspace: &str, key: &str, value: &str) {
    let keyspace = db.keyspace(keyspace, KeyspaceOptions::default()).unwrap();
    let mut batch = db.batch();
    batch.insert(&keyspace, key, value);
    batch.durability(Durability::Sync).commit().unwrap();
}

fn image(machine: &MemEnv, seed: u64) -> Arc<MemEnv> {
    machine.crash_image(&CrashPolicy::KEEP_ALL, seed)
}

fn newest_segment(machine: &MemEnv) -> std::path::PathBuf {
    let files = machine.all_files().into_iter();
    files.filter(|path| path.to_string_lossy().ends_with(".log")).max().unwrap()
}

/// Fails unless the store is refused, a repair finds the reason, and a salvage does not report itself
/// complete.
fn assert_is_refused(machine: &Arc<MemEnv>, what: &str) {
    let error = open(&image(machine, 9)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
    assert!(error.location().is_some(), "{what}: {error}");
    let env = Arc::clone(machine) as Arc<dyn Env>;
    let options = RepairOptions::new("/db").env(Arc::clone(&env)).dry_run(true);
    assert!(!repair(options).unwrap().is_valid(), "{what}: nothing to repair");
    let options = SalvageOptions::new("/db", "/salvaged").env(env);
    assert!(!salvage(options).unwrap().is_complete(), "{what}: complete");
}

#[test]
fn losing_the_newest_log_segment_of_a_killed_store_is_detected() {
    let machine = MemEnv::new(1);
    let db = open(&machine).unwrap();
    (0..30).for_each(|number| put(&db, "k", &format!("a{number}"), "new"));
    let first_life = image(&machine, 2);
    db.close().unwrap();
    let db = open(&machine).unwrap();
    (0..30).for_each(|number| put(&db, "k", &format!("b{number}"), "again"));
    let second_life = image(&machine, 3);
    for (life, machine) in [("first", first_life), ("second", second_life)] {
        let path = newest_segment(&machine);
        let length = machine.file_bytes(&path).unwrap().len();
        let removed = image(&machine, 4);
        removed.remove_file(&path).unwrap();
        assert_is_refused(&removed, &format!("{life} life, removed"));
        for (what, bytes) in [("emptied", vec![]), ("zeroed", vec![0; length])] {
            let damaged = image(&machine, 5);
            damaged.replace(&path, &bytes).unwrap();
            assert_is_refused(&damaged, &format!("{life} life, {what}"));
        }
    }
}

#[test]
fn an_old_superblock_and_manifest_with_a_newer_log_are_refused() {
    let machine = MemEnv::new(1);
    let db = open(&machine).unwrap();
    put(&db, "first", "a", "1");
    let old: Vec<_> = ["superblock", "manifest-0000000001"]
        .map(|name| Path::new("/db").join(name))
        .map(|path| (machine.file_bytes(&path).unwrap(), path))
        .into();
    let second = db.keyspace("second", KeyspaceOptions::default()).unwrap();
    let first = db.keyspace("first", KeyspaceOptions::default()).unwrap();
    let mut batch = db.batch();
    batch.insert(&first, "b", "2");
    batch.insert(&second, "c", "3");
    batch.durability(Durability::Sync).commit().unwrap();
    // With and without unsynced data, including the file `watermark`.
    for policy in [CrashPolicy::KEEP_ALL, CrashPolicy::LOSE_ALL] {
        let mixed = machine.crash_image(&policy, 2);
        old.iter().for_each(|(bytes, path)| mixed.replace(path, bytes).unwrap());
        assert_is_refused(&mixed, &format!("{policy:?}"));
    }
}

/// Two copies of a store that make the same changes with different values.
fn copies() -> [(Arc<MemEnv>, Contents); 2] {
    let common = MemEnv::new(1);
    let db = open(&common).unwrap();
    (0..50).for_each(|number| put(&db, "k", &format!("{number:02}"), "common"));
    db.flush().unwrap();
    db.close().unwrap();
    [1, 2].map(|seed| {
        let machine = image(&common, seed);
        let db = open(&machine).unwrap();
        (0..50).for_each(|number| put(&db, "k", &format!("{number:02}"), &format!("copy {seed}")));
        db.flush().unwrap();
        put(&db, "k", "99", &format!("copy {seed}"));
        let contents = contents_of(&db).unwrap();
        db.close().unwrap();
        (image(&machine, seed), contents)
    })
}

#[test]
fn a_file_of_a_diverged_copy_never_yields_its_values() {
    let [(one, expected), (other, _)] = copies();
    for path in one.all_files() {
        let Ok(foreign) = other.file_bytes(&path) else { continue };
        if one.file_bytes(&path).unwrap() == foreign {
            continue;
        }
        let mixed = image(&one, 3);
        mixed.replace(&path, &foreign).unwrap();
        let found = open(&mixed).and_then(|db| contents_of(&db));
        match found {
            Ok(found) => assert_eq!(found, expected, "{}", path.display()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{}: {error}", path.display()),
        }
    }
}

#[test]
fn two_copies_of_a_store_can_use_one_repository() {
    let copies = copies();
    let repository_on =
        |machine: &Arc<MemEnv>| Repository::at("/backups").env(Arc::clone(machine) as Arc<dyn Env>);
    let machine = image(&copies[0].0, 7);
    repository_on(&machine).create(&open(&machine).unwrap()).unwrap();
    // The other copy replaces the first one on its machine.
    for path in machine.all_files().into_iter().filter(|path| path.starts_with("/db")) {
        machine.remove_file(&path).unwrap();
    }
    for path in copies[1].0.all_files() {
        machine.replace(&path, &copies[1].0.file_bytes(&path).unwrap()).unwrap();
    }
    let repository = repository_on(&machine);
    repository.create(&open(&machine).unwrap()).unwrap();
    for (id, (_, expected)) in (1..).zip(&copies) {
        let target = format!("/restored-{id}");
        repository.restore(Some(id), Path::new(&target)).unwrap();
        let db = Db::builder(&target).memory_bytes(1 << 20).env(Arc::clone(&machine) as Arc<dyn Env>);
        assert_eq!(contents_of(&db.create(false).open().unwrap()).unwrap(), *expected, "backup {id}");
    }
}
