//! A store without the file `LOCK`, as in copies and on read-only media: it can be read, nothing is created
//! in its directory, and it cannot be written meanwhile.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, ops::ControlFlow, path::Path, sync::Arc};

use testudo::{
    Db, Durability, ErrorKind, KeyspaceOptions, RepairOptions, SalvageOptions, VerifyLevel,
    backup::{Repository, VerifyOptions},
    repair, salvage,
};
use testudo_env::{Env, MemEnv};

fn reader(machine: &Arc<MemEnv>) -> testudo::Result<Db> {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20).read_only().open()
}

fn writer(machine: &Arc<MemEnv>) -> testudo::Result<Db> {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20).open()
}

fn names(machine: &MemEnv) -> Vec<String> {
    machine.list_dir(Path::new("/db")).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// A closed store with a record and without its lock file.
fn machine_with_store() -> Arc<MemEnv> {
    let machine = MemEnv::new(1);
    let db = writer(&machine).unwrap();
    db.keyspace("k", KeyspaceOptions::default()).unwrap().insert("a", "1").unwrap();
    db.persist(Durability::Sync).unwrap();
    db.close().unwrap();
    machine.remove_file(Path::new("/db/LOCK")).unwrap();
    machine
}

fn require_locked<T: std::fmt::Debug>(outcome: testudo::Result<T>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
}

#[test]
fn a_store_without_lock_file_is_read_and_nothing_is_created() {
    let machine = machine_with_store();
    let before = (names(&machine), machine.operation_count());
    let db = reader(&machine).unwrap();
    let second = reader(&machine).unwrap();
    assert_eq!(db.open_keyspace("k").unwrap().unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(second.verify(VerifyLevel::Full).unwrap().is_valid());
    drop((db, second));
    assert_eq!(names(&machine), before.0);
}

#[test]
fn a_store_without_lock_file_cannot_be_written_while_it_is_read() {
    let machine = machine_with_store();
    let db = reader(&machine).unwrap();
    let before = names(&machine);
    require_locked(writer(&machine));
    let options = RepairOptions::new("/db").env(machine.clone());
    require_locked(repair(options));
    assert_eq!(names(&machine), before, "a refused open must create no file either");
    db.close().unwrap();
    writer(&machine).unwrap().close().unwrap();
}

#[test]
fn removing_the_lock_file_admits_no_second_owner() {
    let machine = machine_with_store();
    let db = writer(&machine).unwrap();
    machine.remove_file(Path::new("/db/LOCK")).unwrap();
    require_locked(reader(&machine));
    require_locked(writer(&machine));
    let options = SalvageOptions::new("/db", "/saved").env(machine.clone());
    require_locked(salvage(options));
    drop(db);
    reader(&machine).unwrap();
}

#[test]
fn a_repository_without_lock_file_cannot_change_while_it_is_read() {
    let machine = machine_with_store();
    let repository = Repository::at("/backups").env(machine.clone());
    let db = writer(&machine).unwrap();
    repository.create(&db).unwrap();
    machine.remove_file(Path::new("/backups/LOCK")).unwrap();
    let mut looks = 0;
    let mut look = |_| {
        looks += 1;
        require_locked(repository.create(&db));
        ControlFlow::Continue(())
    };
    assert!(repository.verify(VerifyOptions::new(None).observer(&mut look)).unwrap().findings.is_empty());
    assert!(looks > 0, "a concurrent change must have been attempted");
    assert!(!machine.all_files().contains(&Path::new("/backups/LOCK").to_owned()));
    repository.create(&db).unwrap();
}

#[test]
fn a_read_only_directory_is_readable() {
    use std::os::unix::fs::PermissionsExt;

    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("db");
    let db = Db::open(&directory).unwrap();
    db.keyspace("k", KeyspaceOptions::default()).unwrap().insert("a", "1").unwrap();
    db.close().unwrap();
    fs::remove_file(directory.join("LOCK")).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o500)).unwrap();
    let db = Db::builder(&directory).read_only().open().unwrap();
    assert!(db.open_keyspace("k").unwrap().unwrap().contains_key("a").unwrap());
    db.close().unwrap();
    assert!(!directory.join("LOCK").exists());
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
}
