#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Backups: equal to a snapshot, incremental, whole or absent after any crash; a damaged backup never
//! restores a wrong store.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use testudo::{
    ErrorKind,
    backup::{CreateOptions, Repository},
};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, FaultyEnv, MemEnv, OpenMode, OpenOptions};
use testudo_share::some_of;
use testudo_testkit::{
    busy_store::{BusyStore, Contents, contents_of, judge_copy, read_whole},
    campaign::catch_panic,
    configuration::{Configuration, configurations, crash_configurations},
    engine_store::EngineOpener,
};

const SOURCE: &str = "/db";
const REPOSITORY: &str = "/backups";
const TARGET: &str = "/restored";

fn busy(opener: &EngineOpener, env: Arc<dyn Env>, seed: u64) -> BusyStore {
    BusyStore::open(opener, env, Path::new(SOURCE), seed).unwrap()
}

fn repository(env: Arc<dyn Env>) -> Repository {
    Repository::at(REPOSITORY).env(env)
}

fn restore(repository: &Repository, id: Option<u64>) -> testudo::Result<u64> {
    repository.restore(id, TARGET).map(|info| info.id)
}

fn findings(repository: &Repository) -> Vec<String> {
    let report = repository.verify(None).unwrap();
    report.findings.into_iter().map(|finding| finding.what).collect()
}

/// Removes a store, so that its directory can be reused.
fn remove(machine: &MemEnv, directory: &str) {
    for entry in machine.list_dir(Path::new(directory)).unwrap_or_default() {
        machine.remove_file(&Path::new(directory).join(entry.name)).unwrap();
    }
}

#[test]
fn restored_backups_equal_their_snapshots_under_concurrent_writes() {
    // Every seventh configuration covers all trees but two, in alternating shapes.
    for Configuration { name, opener, .. } in some_of(configurations(), 7, 0) {
        let machine = MemEnv::new(3);
        let mut store = busy(&opener, machine.clone(), 3);
        let repository = repository(machine.clone());
        let mut expected: Vec<Contents> = Vec::new();
        for round in 1..=4 {
            store.work(600).unwrap();
            let before = store.db.snapshot().unwrap();
            expected.push(store.contents_at(&before).unwrap());
            let db = store.db.clone();
            let new = repository
                .create(CreateOptions::new(&db).observer(|_| {
                    store.work(20).unwrap();
                    ControlFlow::Continue(())
                }))
                .unwrap();
            assert_eq!((new.info.id, new.info.seqno), (round, before.seqno()), "{name}");
            assert!(store.contents_at(&new.snapshot).unwrap() == expected[expected.len() - 1]);
        }
        assert_eq!(findings(&repository), Vec::<String>::new(), "{name}");
        assert_eq!(repository.list().unwrap().len(), 4);
        for (id, expected) in (1..).zip(&expected) {
            assert_eq!(restore(&repository, Some(id)).unwrap(), id);
            assert!(read_whole(&opener, &machine, TARGET) == *expected, "{name}: backup {id} differs");
            remove(&machine, TARGET);
        }
        assert_eq!(restore(&repository, None).unwrap(), 4, "the newest by default");
    }
}

#[test]
fn a_second_backup_copies_only_new_runs() {
    let Configuration { opener, .. } = configurations().remove(0);
    let machine = MemEnv::new(5);
    let mut store = busy(&opener, machine.clone(), 5);
    store.work(3000).unwrap();
    store.db.flush().unwrap();
    let repository = repository(machine.clone());
    let first = repository.create(&store.db).unwrap().info;
    assert!(first.runs > 3 && first.new_runs == first.runs && first.tail_operations == 0);
    let run_bytes = first.new_bytes;
    let again = repository.create(&store.db).unwrap().info;
    assert_eq!((again.runs, again.new_runs, again.new_bytes), (first.runs, 0, 0));
    // A small change rewrites one or two runs; the others are shared.
    store.keyspaces[0].insert("key00000", "changed").unwrap();
    store.db.flush().unwrap();
    let files = machine.all_files().len();
    let third = repository.create(&store.db).unwrap().info;
    assert!(third.new_runs >= 1 && third.new_bytes < run_bytes / 2, "{third:?} after {first:?}");
    let added = machine.all_files().len() - files;
    assert_eq!(u64::try_from(added).unwrap(), third.new_runs + 1, "the runs and the backup's own file");
    // The report matches the files on disk.
    let length = |path: &Path| machine.file_bytes(path).unwrap().len() as u64;
    let own: u64 =
        machine.all_files().iter().filter(|path| path.starts_with(REPOSITORY)).map(|path| length(path)).sum();
    assert!(own < run_bytes * 2, "{own} bytes in all");
    assert_eq!(findings(&repository), Vec::<String>::new());
}

#[test]
fn deleting_a_backup_keeps_runs_that_other_stores_share() {
    let Configuration { opener, .. } = configurations().remove(0);
    let machine = MemEnv::new(6);
    let mut store = busy(&opener, machine.clone(), 6);
    store.work(1500).unwrap();
    let repository = repository(machine.clone());
    repository.create(&store.db).unwrap();
    restore(&repository, None).unwrap();
    let other = opener.open_db(machine.clone(), Path::new(TARGET)).unwrap();
    other.keyspace("alpha", || opener.options).unwrap().insert("only", "here").unwrap();
    let expected = contents_of(&other).unwrap();
    repository.create(&other).unwrap();
    drop(other);
    store.work(500).unwrap();
    repository.create(&store.db).unwrap();
    assert!(repository.delete(9).is_err());
    let deleted = repository.delete(1).unwrap();
    assert!(deleted.files >= 1 && deleted.bytes > 0);
    assert_eq!(findings(&repository), Vec::<String>::new());
    remove(&machine, TARGET);
    restore(&repository, Some(2)).unwrap();
    assert!(read_whole(&opener, &machine, TARGET) == expected);
    repository.delete(2).unwrap();
    repository.delete(3).unwrap();
    let left: Vec<_> = machine.list_dir(Path::new(REPOSITORY)).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(left, ["LOCK", "repository"]);
    assert_eq!(restore(&repository, None).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_foreign_directory_is_refused_and_unchanged() {
    let Configuration { opener, .. } = configurations().remove(0);
    let machine = MemEnv::new(1);
    let store = busy(&opener, machine.clone(), 1);
    machine.create_dir(Path::new(REPOSITORY)).unwrap();
    machine.replace("/backups/letters", b"mine").unwrap();
    let before = machine.all_files();
    let repository = repository(machine.clone());
    assert_eq!(repository.create(&store.db).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(repository.list().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(machine.all_files(), before);
    let nowhere = Repository::at("/nowhere").env(machine.clone());
    assert_eq!(nowhere.list().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(nowhere.delete(1).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(machine.all_files(), before);
}

#[test]
fn the_next_backup_reuses_runs_of_a_cancelled_one() {
    let Configuration { opener, .. } = configurations().remove(0);
    let machine = MemEnv::new(1);
    let mut store = busy(&opener, machine.clone(), 1);
    store.work(3000).unwrap();
    store.db.flush().unwrap();
    let repository = repository(machine.clone());
    let mut calls = 0;
    let stopped = repository.create(CreateOptions::new(&store.db).observer(|_| {
        calls += 1;
        if calls == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }));
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(repository.list().unwrap().is_empty());
    assert_eq!(repository.verify(None).unwrap().unused_files.len(), 2);
    let temporary = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(".tmp");
    assert!(!machine.all_files().iter().any(temporary));
    let info = repository.create(&store.db).unwrap().info;
    assert_eq!(info.new_runs, info.runs - 2);
}

/// Interrupted steps: two backups with work between them, then a restore.
fn steps(
    store: &mut BusyStore,
    repository: &Repository,
    expected: &mut Vec<Contents>,
) -> testudo::Result<()> {
    for _ in 0..2 {
        store.work(60)?;
        store.db.persist(testudo::Durability::Sync)?;
        expected.push(store.contents_at(&store.db.snapshot()?)?);
        repository.create(&store.db)?;
    }
    restore(repository, Some(2)).map(drop)
}

/// Checks that every listed backup is whole and restores the right content, and that another backup works.
fn judge_repository(
    opener: &EngineOpener,
    machine: &Arc<MemEnv>,
    expected: &[Contents],
    done: usize,
    what: &str,
) {
    let env: Arc<dyn Env> = machine.clone();
    let repository = repository(env.clone());
    let ids: Vec<u64> = match repository.list() {
        Ok(listed) => {
            assert!(listed.iter().all(|backup| backup.info.is_ok()), "{what}: {listed:?}");
            assert_eq!(findings(&repository), Vec::<String>::new(), "{what}");
            listed.into_iter().map(|backup| backup.id).collect()
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
            Vec::new()
        }
    };
    assert!(ids.len() >= done, "{what}: an acknowledged backup is missing");
    judge_copy(opener, machine, TARGET, expected.last().unwrap_or(&Contents::new()), what);
    for &id in &ids {
        remove(machine, TARGET);
        restore(&repository, Some(id)).unwrap_or_else(|error| panic!("{what}: backup {id}: {error}"));
        let index = usize::try_from(id).unwrap() - 1;
        assert!(read_whole(opener, machine, TARGET) == expected[index], "{what}: backup {id} differs");
    }
    let source = opener.open_db(env, Path::new(SOURCE)).unwrap();
    let id = repository.create(&source).unwrap_or_else(|error| panic!("{what}: {error}")).info.id;
    remove(machine, TARGET);
    restore(&repository, Some(id)).unwrap();
    assert!(read_whole(opener, machine, TARGET) == contents_of(&source).unwrap(), "{what}");
}

#[test]
fn a_crash_at_any_operation_leaves_only_whole_backups() {
    // The narrow tree has more runs, and so more operations; the other one crashes at every second one.
    for (Configuration { name, opener, .. }, stride) in crash_configurations().into_iter().zip([7, 2]) {
        let mut crashes = 0;
        for after in (0..).step_by(stride) {
            let machine = MemEnv::new(1);
            let mut store = busy(&opener, machine.clone(), 1);
            store.work(300).unwrap();
            store.db.flush().unwrap();
            let mut expected = Vec::new();
            machine.crash_after(after);
            let outcome = steps(&mut store, &repository(machine.clone()), &mut expected);
            for (index, policy) in [CrashPolicy::LOSE_ALL, CrashPolicy::random(after)].iter().enumerate() {
                let image = machine.crash_image(policy, after);
                let what = format!("{name}, crash after {after}, policy {index}");
                let done = if outcome.is_ok() { 2 } else { 0 };
                judge_repository(&opener, &image, &expected, done, &what);
            }
            crashes += 1;
            if outcome.is_ok() {
                break;
            }
        }
        println!("{name}: {crashes} crashes");
        assert!(crashes > 15);
    }
}

#[test]
fn any_failed_call_leaves_only_whole_backups_and_a_valid_source() {
    let Configuration { name, opener, .. } = crash_configurations().remove(1);
    for (error, first) in [(FaultError::Device, 0), (FaultError::NoSpace, 1)] {
        for skip in (first..).step_by(2) {
            let machine = MemEnv::new(1);
            let faulty = FaultyEnv::new(machine.clone());
            let mut store = busy(&opener, machine.clone(), 1);
            store.work(300).unwrap();
            store.db.flush().unwrap();
            let mut expected = Vec::new();
            // Only calls on the repository and the target fail: the source has its own tests.
            let plan = FaultPlan::once(skip, error).with_partial_writes();
            faulty.set_plan(Some(plan));
            let outcome = steps(&mut store, &repository(faulty.clone()), &mut expected);
            let struck = !faulty.failures().is_empty();
            let what = format!("{name}, {error:?}, call {skip}");
            store.work(20).unwrap();
            store.db.check_invariants().unwrap();
            drop(store);
            judge_repository(&opener, &machine, &expected, 0, &what);
            if !struck {
                outcome.unwrap();
                assert!(skip > 30);
                break;
            }
        }
    }
}

/// Creates a small repository with two backups, the second with a tail.
fn small_repository() -> (EngineOpener, Arc<MemEnv>, Contents) {
    let Configuration { opener, .. } = crash_configurations().remove(1);
    let machine = MemEnv::new(2);
    let mut store = busy(&opener, machine.clone(), 2);
    let repository = repository(machine.clone());
    store.work(120).unwrap();
    store.db.flush().unwrap();
    repository.create(&store.db).unwrap();
    store.work(30).unwrap();
    let expected = store.contents_at(&store.db.snapshot().unwrap()).unwrap();
    let info = repository.create(&store.db).unwrap().info;
    assert!(info.tail_operations > 0 && info.runs > 0);
    (opener, machine.clone(), expected)
}

#[test]
fn every_flipped_byte_is_detected_and_never_restores_a_wrong_store() {
    let (opener, machine, expected) = small_repository();
    let (mut found, mut refused) = (0, 0);
    for path in machine.all_files().into_iter().filter(|path| path.starts_with(REPOSITORY)) {
        let length = machine.file_bytes(&path).unwrap().len();
        for offset in 0..length {
            // Every byte near the ends, where the formats are; a sample of the bytes inside pages.
            if offset > 400 && offset % 31 > 0 && offset + 400 < length {
                continue;
            }
            let damaged = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
            damaged.corrupt(&path, u64::try_from(offset).unwrap(), 1 << (offset % 8)).unwrap();
            let repository = repository(damaged.clone());
            let what = format!("{} at {offset}", path.display());
            let report = catch_panic(|| repository.verify(None)).unwrap_or_else(|e| panic!("{what}: {e}"));
            match report {
                Ok(report) => assert!(!report.is_valid(), "{what}: not found"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error}"),
            }
            found += 1;
            if offset % 11 == 0 {
                match catch_panic(|| restore(&repository, Some(2))).unwrap_or_else(|e| panic!("{what}: {e}"))
                {
                    Ok(_) => {
                        assert!(read_whole(&opener, &damaged, TARGET) == expected, "{what}: a wrong store");
                    }
                    Err(_) => {
                        refused += 1;
                        assert!(damaged.list_dir(Path::new(TARGET)).is_err(), "{what}: leftovers remain");
                    }
                }
            }
        }
    }
    println!("{found} flips found, {refused} restores refused");
    assert!(found > 1000 && refused > 30);
}

#[test]
fn every_missing_or_truncated_file_is_detected() {
    let (_, machine, _) = small_repository();
    for path in machine.all_files().into_iter().filter(|path| path.starts_with(REPOSITORY)) {
        let length = machine.file_bytes(&path).unwrap().len() as u64;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "LOCK" {
            continue;
        }
        for cut in [0, 1, length / 2, length - 1] {
            let damaged = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
            damaged.truncate(&path, cut).unwrap();
            assert!(!findings(&repository(damaged)).is_empty(), "{name} cut to {cut}");
        }
        let damaged = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
        damaged.remove_file(&path).unwrap();
        let outcome = repository(damaged.clone()).verify(None);
        match outcome {
            // A missing backup file removes only that backup; its files show that it existed.
            Ok(report) if name.starts_with("backup-") => {
                assert!(report.backups == 1 && report.is_valid(), "{name}");
            }
            Ok(report) => assert!(!report.is_valid(), "{name} removed"),
            Err(error) => assert_eq!((name.as_str(), error.kind()), ("repository", ErrorKind::Invalid)),
        }
    }
}

#[test]
fn a_repository_in_use_is_locked() {
    let (opener, machine, _) = small_repository();
    let store = busy(&opener, machine.clone(), 2);
    let held = machine.lock(Path::new("/backups/LOCK"), false, true).unwrap();
    let repository = repository(machine.clone());
    assert_eq!(repository.create(&store.db).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(repository.list().unwrap_err().kind(), ErrorKind::Locked);
    drop(held);
    let _reader = machine.lock(Path::new("/backups/LOCK"), false, false).unwrap();
    assert_eq!(repository.create(&store.db).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(repository.list().unwrap().len(), 2, "readers share it");
}

#[test]
fn a_damaged_run_is_replaced_when_its_header_shows_it() {
    let (_, machine, _) = small_repository();
    let opener = crash_configurations().remove(1).opener;
    let is_run = |path: &std::path::PathBuf| path.to_string_lossy().contains("/run-");
    let path = machine.all_files().into_iter().find(is_run).unwrap();
    machine.corrupt(&path, 20, 1).unwrap();
    let repository = repository(machine.clone());
    assert!(!findings(&repository).is_empty());
    let store = busy(&opener, machine.clone(), 2);
    let used_before =
        machine.open(&path, OpenOptions { mode: OpenMode::Read, direct: false }).unwrap().len().unwrap();
    let info = repository.create(&store.db).unwrap().info;
    assert!(info.new_bytes > 0);
    assert_eq!(machine.file_bytes(&path).unwrap().len() as u64, used_before);
    assert_eq!(findings(&repository), Vec::<String>::new(), "the backup repaired it for the older ones too");
}
