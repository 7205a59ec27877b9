//! Foreign files next to those of a store, or in the target of a new one: foreign files are never removed,
//! unfinished stores are never opened, and every kind of check finds damage.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo::{
    Db, ErrorKind, Keyspace, KeyspaceOptions, SalvageOptions, ScrubOptions, Tree, VerifyLevel,
    backup::Repository, salvage,
};
use testudo_env::{CrashPolicy, Env, MemEnv, OpenMode, OpenOptions};

const KEYS: u32 = 3_000;

fn open(machine: &Arc<MemEnv>) -> Db {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20).open().unwrap()
}

fn fill(keyspace: &Keyspace) {
    (0..KEYS).for_each(|number| keyspace.insert(number.to_be_bytes(), [7; 300]).unwrap());
}

/// A closed store.
fn machine_with_store() -> Arc<MemEnv> {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    fill(&db.keyspace("k", KeyspaceOptions::default()).unwrap());
    db.close().unwrap();
    machine
}

fn touch(machine: &MemEnv, path: PathBuf) {
    machine.open(&path, OpenOptions { mode: OpenMode::CreateNew, direct: false }).unwrap();
    machine.sync_dir(path.parent().unwrap()).unwrap();
}

fn salvage_to(machine: &Arc<MemEnv>, target: &str) -> testudo::Result<()> {
    let options = SalvageOptions::new("/db", target).env(machine.clone());
    salvage(options).map(drop)
}

fn names(machine: &MemEnv, directory: &str) -> Vec<String> {
    machine.list_dir(Path::new(directory)).unwrap().into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_target_filled_concurrently_is_left_unchanged() {
    let machine = machine_with_store();
    machine.create_dir(Path::new("/saved")).unwrap();
    for name in ["UNFINISHED", "data", "manifest-0000000001"] {
        touch(&machine, Path::new("/saved").join(name));
    }
    let lock = machine.lock(Path::new("/saved/LOCK"), true, true).unwrap();
    let before = names(&machine, "/saved");
    assert_eq!(salvage_to(&machine, "/saved").unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(names(&machine, "/saved"), before);
    drop(lock);
    salvage_to(&machine, "/saved").unwrap();
    let saved = Db::builder(Path::new("/saved")).env(machine.clone()).open().unwrap();
    assert_eq!(saved.open_keyspace("k").unwrap().unwrap().iter().unwrap().count(), 3_000);
}

#[test]
fn a_salvage_cut_short_by_power_loss_does_not_open() {
    let original = machine_with_store();
    for count in 0.. {
        let machine = original.live_image();
        machine.crash_after(count);
        let outcome = salvage_to(&machine, "/saved");
        for policy in [CrashPolicy::KEEP_ALL, CrashPolicy::LOSE_ALL] {
            let image = machine.crash_image(&policy, count);
            let opened = Db::builder(Path::new("/saved")).env(image).create(false).open();
            let Ok(db) = opened else { continue };
            let keyspace = db.open_keyspace("k").unwrap();
            let records = keyspace.map_or(0, |keyspace| keyspace.iter().unwrap().count());
            assert_eq!(records, 3_000, "after {count} calls");
        }
        if outcome.is_ok() {
            assert!(count > 20, "{count} calls");
            return;
        }
    }
}

#[test]
fn a_failed_salvage_removes_only_its_own_files() {
    let machine = machine_with_store();
    machine.create_dir(Path::new("/other")).unwrap();
    touch(&machine, PathBuf::from("/other/notes.txt"));
    assert_eq!(salvage_to(&machine, "/other").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(names(&machine, "/other"), ["notes.txt"]);
}

#[test]
fn foreign_files_are_left_unchanged() {
    let machine = machine_with_store();
    let foreign = ["manifest-0000000007.bak", "manifest-notes", "wal-notes.copy", "wal-1.log.copy"];
    for name in foreign {
        touch(&machine, Path::new("/db").join(name));
    }
    machine.create_dir(Path::new("/db/manifest-old")).unwrap();
    let db = open(&machine);
    db.open_keyspace("k").unwrap().unwrap().insert("a", "1").unwrap();
    drop(db);
    drop(open(&machine));
    let present = names(&machine, "/db");
    for name in foreign.iter().chain(&["manifest-old"]) {
        assert!(present.iter().any(|there| there == name), "{name} of {present:?}");
    }
}

/// A reader's writes have numbers that no writer assigns, and so has a copy that it makes.
#[test]
fn a_scrub_covers_all_of_a_copy_made_by_a_reader() {
    let machine = MemEnv::new(3);
    let db = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(64 << 20).open().unwrap();
    let tree = Tree::turtle().with_run_bytes(64 << 10);
    fill(&db.keyspace("k", KeyspaceOptions::default().tree(tree)).unwrap());
    db.persist(testudo::Durability::Sync).unwrap();
    // Everything is in the log, which exceeds the memory of a reader with a small budget.
    let machine = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
    let reader = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20).read_only();
    reader.open().unwrap().checkpoint(Path::new("/copy")).unwrap();
    let scrub = |number: u64| {
        let reader = Db::builder(Path::new("/copy")).env(machine.clone()).memory_bytes(1 << 20).read_only();
        let db = reader.open().unwrap();
        let report = db.scrub(ScrubOptions::new()).unwrap();
        assert!(report.runs > 0, "reader {number}");
        report.runs
    };
    let runs: Vec<u64> = (0..8).map(scrub).collect();
    assert!(runs.iter().all(|count| *count == runs[0]), "{runs:?}");
}

/// With a damaged newest slot nothing proves that the store was closed, and a crash may have torn the slot.
#[test]
fn readers_also_check_the_older_slot_of_a_closed_store() {
    let damage_is_found = |offset: u64| {
        let machine = machine_with_store();
        machine.corrupt("/db/superblock", offset, 1).unwrap();
        let db = Db::builder(Path::new("/db")).env(machine.clone()).read_only().open().unwrap();
        let report = db.verify(VerifyLevel::Full).unwrap();
        report.findings.iter().any(|finding| finding.file == "superblock")
    };
    assert_eq!([100, 4096 + 100].into_iter().filter(|offset| damage_is_found(*offset)).count(), 1);
}

#[test]
fn a_rechecking_backup_repairs_damaged_runs_in_the_repository() {
    let machine = machine_with_store();
    let db = open(&machine);
    db.compact().unwrap();
    let repository = Repository::at("/backups").env(machine.clone());
    repository.create(&db).unwrap();
    let run = names(&machine, "/backups").into_iter().find(|name| name.starts_with("run-")).unwrap();
    let file = Path::new("/backups").join(run);
    let bytes = machine.file_bytes(&file).unwrap().len() as u64;
    machine.corrupt(&file, bytes / 2, 1).unwrap();
    assert_eq!(repository.verify(None).unwrap().findings.len(), 1);
    // A backup without the recheck trusts and references the damaged run.
    assert_eq!(repository.create(&db).unwrap().info.new_runs, 0);
    assert_eq!(repository.restore(None, "/restored").unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(repository.clone().recheck(true).create(&db).unwrap().info.new_runs, 1);
    assert_eq!(repository.verify(None).unwrap().findings.len(), 0);
    for id in 1..=3 {
        let target = format!("/restored-{id}");
        repository.restore(Some(id), &target).unwrap();
        let restored = Db::builder(Path::new(&target)).env(machine.clone()).open().unwrap();
        assert_eq!(restored.open_keyspace("k").unwrap().unwrap().iter().unwrap().count(), 3_000);
    }
}
