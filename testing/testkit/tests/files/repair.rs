#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Repair: fixes what valid parts determine, despite any crash; reports everything else and leaves it
//! unchanged.

use std::{path::Path, sync::Arc};

use testudo::{
    Db, ErrorKind, KeyspaceOptions, Remedy, RepairOptions, RepairReport, Tree, VerifyLevel, repair,
};
use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, FaultyEnv, MemEnv};
use testudo_testkit::{
    busy_store::{BusyStore, Contents, contents_of},
    engine_store::EngineOpener,
};

const PAGE: usize = 4096;
const SUPERBLOCK: &str = "/db/superblock";

fn open(machine: &Arc<MemEnv>) -> Db {
    Db::builder("/db").memory_bytes(1 << 20).env(machine.clone()).create(false).open().unwrap()
}

/// Creates a closed store with flushed records and a log.
fn store() -> (Arc<MemEnv>, Contents) {
    let machine = MemEnv::new(2);
    let db = Db::builder("/db").memory_bytes(1 << 20).env(machine.clone()).open().unwrap();
    let options = KeyspaceOptions::default().tree(Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4));
    let keyspace = db.keyspace("numbers", || options).unwrap();
    for round in 0..6 {
        for n in 0..100 {
            keyspace.insert(format!("key{:04}", n * 7 % 300), format!("{round} {n} {:0200}", n)).unwrap();
        }
        if round < 5 {
            db.flush().unwrap();
        }
    }
    let contents = contents_of(&db).unwrap();
    db.close().unwrap();
    (machine, contents)
}

fn run(env: Arc<dyn Env>, dry_run: bool) -> testudo::Result<RepairReport> {
    repair(RepairOptions::new("/db").env(env).dry_run(dry_run))
}

fn files(machine: &MemEnv) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let paths = machine.all_files().into_iter();
    paths.map(|path| (path.clone(), machine.file_bytes(&path).unwrap())).collect()
}

fn copy(machine: &MemEnv) -> Arc<MemEnv> {
    machine.crash_image(&CrashPolicy::KEEP_ALL, 1)
}

/// Runs a dry run and a repair, and checks the result.
#[track_caller]
fn check_repaired(machine: &Arc<MemEnv>, expected: &Contents, what: &str) {
    let before = files(machine);
    let dry = run(machine.clone(), true).unwrap();
    assert!(files(machine) == before, "{what}: a dry run writes nothing");
    assert!(
        !dry.is_valid() && dry.findings.iter().all(|f| f.remedy == Remedy::Repairable),
        "{what}: {dry:?}"
    );
    let report = run(machine.clone(), false).unwrap();
    assert!(report.is_valid() && report.findings.len() == dry.findings.len(), "{what}: {report:?}");
    assert_eq!(run(machine.clone(), true).unwrap().findings, [], "{what}");
    let db = open(machine);
    assert!(contents_of(&db).unwrap() == *expected, "{what}");
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, [], "{what}");
    db.open_keyspace("numbers").unwrap().unwrap().insert("more", "and more").unwrap();
    db.close().unwrap();
    open(machine).close().unwrap();
}

#[test]
fn a_valid_store_is_not_modified() {
    let (machine, _) = store();
    let before = files(&machine);
    assert_eq!(run(machine.clone(), false).unwrap().findings, []);
    assert!(files(&machine) == before);
}

#[test]
fn any_superblock_damage_is_repaired() {
    let (machine, expected) = store();
    let bytes = machine.file_bytes(SUPERBLOCK).unwrap();
    for slot in 0..2 {
        let damaged = copy(&machine);
        damaged.corrupt(SUPERBLOCK, (slot * PAGE + 50) as u64, 4).unwrap();
        check_repaired(&damaged, &expected, &format!("slot {slot}"));
        assert_eq!(damaged.file_bytes("/db/superblock.before-repair-1").unwrap().len(), bytes.len());
    }
    let zeroed = copy(&machine);
    zeroed.replace(SUPERBLOCK, &vec![0; bytes.len()]).unwrap();
    check_repaired(&zeroed, &expected, "zeroed");
    for cut in [0, 100, PAGE, PAGE + 10] {
        let cut_short = copy(&machine);
        cut_short.truncate(SUPERBLOCK, cut as u64).unwrap();
        check_repaired(&cut_short, &expected, &format!("cut to {cut}"));
    }
    let missing = copy(&machine);
    missing.remove_file(Path::new(SUPERBLOCK)).unwrap();
    check_repaired(&missing, &expected, "missing");
}

#[test]
fn leftovers_are_removed() {
    let (machine, expected) = store();
    for name in ["CREATING", "manifest-0000000099", "superblock.new", "wal-00000000000000000001.log.copy"] {
        let damaged = copy(&machine);
        damaged.replace(Path::new("/db").join(name), b"left over").unwrap();
        check_repaired(&damaged, &expected, name);
        assert!(!damaged.all_files().contains(&Path::new("/db").join(name)), "{name}");
    }
    let strange = copy(&machine);
    strange.replace("/db/notes", b"mine").unwrap();
    assert_eq!(run(strange.clone(), false).unwrap().findings, []);
    assert_eq!(strange.file_bytes("/db/notes").unwrap(), b"mine");
}

#[test]
fn damage_that_needs_salvage_is_reported_and_unchanged() {
    let (machine, _) = store();
    let data = machine.file_bytes("/db/data").unwrap();
    let full = |page: &usize| data[page * PAGE..][..PAGE].iter().any(|&byte| byte != 0);
    let mut needs = 0;
    for page in (0..data.len() / PAGE).filter(full) {
        let damaged = copy(&machine);
        damaged.corrupt("/db/data", (page * PAGE + 45) as u64, 1).unwrap();
        let before = files(&damaged);
        let report = run(damaged.clone(), false).unwrap();
        assert!(files(&damaged) == before, "page {page}");
        needs += usize::from(!report.is_valid());
        for finding in report.findings {
            assert_eq!((finding.remedy, finding.offset), (Remedy::NeedsSalvage, (page * PAGE) as u64));
        }
    }
    assert!(needs > 10, "{needs}");
    for path in machine.all_files() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name == "data" || name.starts_with("manifest-") || name.starts_with("wal-") {
            let damaged = copy(&machine);
            damaged.remove_file(&path).unwrap();
            let before = files(&damaged);
            let report = run(damaged.clone(), false).unwrap();
            assert!(!report.is_valid(), "{name}");
            assert!(files(&damaged) == before, "{name}");
        }
    }
}

#[test]
fn crash_leftovers_are_not_damage() {
    let options = KeyspaceOptions::default().tree(Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4));
    let opener = EngineOpener { options, memory_bytes: 1 << 20 };
    let mut images = 0;
    for (seed, policy) in (1..).zip(CrashPolicy::all().chain(CrashPolicy::all())) {
        let machine = MemEnv::new(seed);
        let mut busy = BusyStore::open(&opener, machine.clone(), Path::new("/db"), seed).unwrap();
        for step in 0..4 {
            busy.work(60).unwrap();
            let crashed = machine.crash_image(&policy, seed * 10 + step);
            let (untouched, what) = (copy(&crashed), format!("seed {seed}, step {step}, {policy:?}"));
            let report = run(crashed.clone(), false).unwrap();
            assert!(report.is_valid(), "{what}: {report:?}");
            assert_eq!(run(crashed.clone(), true).unwrap().findings, [], "{what}");
            assert!(
                contents_of(&open(&crashed)).unwrap() == contents_of(&open(&untouched)).unwrap(),
                "{what}"
            );
            images += 1;
        }
    }
    assert!(images >= 100, "{images}");
}

#[test]
fn a_repair_can_be_repeated_after_failing_at_any_call() {
    let (machine, expected) = store();
    machine.replace(SUPERBLOCK, &vec![7; 2 * PAGE]).unwrap();
    for call in 0..4000 {
        let damaged = copy(&machine);
        let faulty = FaultyEnv::new(damaged.clone());
        faulty.set_plan(Some(FaultPlan::once(call, FaultError::Device).for_good()));
        let outcome = run(faulty.clone(), false);
        if faulty.failures().is_empty() {
            assert!(outcome.unwrap().is_valid() && call > 20, "{call}");
            return;
        }
        for policy in [CrashPolicy::KEEP_ALL, CrashPolicy::LOSE_ALL] {
            let after = damaged.crash_image(&policy, call);
            let report = run(after.clone(), false).unwrap();
            assert!(report.is_valid(), "call {call}: {report:?}");
            assert!(contents_of(&open(&after)).unwrap() == expected, "call {call}");
        }
    }
    panic!("the calls never end");
}

#[test]
fn a_store_in_use_and_a_directory_without_a_store_are_refused() {
    let (machine, _) = store();
    let db = open(&machine);
    assert_eq!(run(machine.clone(), false).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(run(machine.clone(), true).unwrap_err().kind(), ErrorKind::Locked);
    drop(db);
    let nothing = RepairOptions::new("/nowhere").env(machine);
    assert_eq!(repair(nothing).unwrap_err().kind(), ErrorKind::Invalid);
}
