#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Checkpoints: equal to a snapshot despite concurrent writes; an interrupted one is not a store.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use testudo::{CheckpointOptions, ErrorKind};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, FaultyEnv, MemEnv};
use testudo_share::{part_of, some_of};
use testudo_testkit::{
    busy_store::{BusyStore, Contents, contents_of, judge_copy, read_whole},
    configuration::{Configuration, configurations, crash_configurations},
    engine_store::EngineOpener,
};

const SOURCE: &str = "/db";
const TARGET: &str = "/copy";

fn busy(opener: &EngineOpener, env: Arc<dyn Env>, seed: u64) -> BusyStore {
    BusyStore::open(opener, env, Path::new(SOURCE), seed).unwrap()
}

#[test]
fn a_checkpoint_equals_its_snapshot_under_concurrent_writes() {
    // Every seventh configuration covers all trees but two, in alternating shapes.
    for Configuration { name, opener, .. } in some_of(configurations(), 7, 3) {
        for seed in 1..=2 {
            let machine = MemEnv::new(seed);
            let mut store = busy(&opener, machine.clone(), seed);
            store.work(1500).unwrap();
            let snapshot = store.db.snapshot().unwrap();
            let expected = store.contents_at(&snapshot).unwrap();
            let db = store.db.clone();
            let mut calls = 0;
            let report = db
                .checkpoint(CheckpointOptions::new(TARGET).observer(|_| {
                    calls += 1;
                    store.work(20).unwrap();
                    ControlFlow::Continue(())
                }))
                .unwrap();
            assert_eq!(report.seqno, snapshot.seqno(), "{name}");
            assert!(calls >= 2, "the observer is called");
            let found = read_whole(&opener, &machine, TARGET);
            assert!(found == expected, "{name}, seed {seed}: the checkpoint differs from the snapshot");
            assert!(store.contents_at(&snapshot).unwrap() == expected);
            store.db.check_invariants().unwrap();
            // The copy is an independent store, and so is a checkpoint of a checkpoint.
            let copy = opener.open_db(machine.clone(), Path::new(TARGET)).unwrap();
            copy.keyspace("alpha", || opener.options).unwrap().insert("one", "more").unwrap();
            copy.checkpoint("/second").unwrap();
            let second = read_whole(&opener, &machine, "/second");
            assert!(second == contents_of(&copy).unwrap(), "{name}");
            assert_eq!(second["alpha"].len(), expected["alpha"].len() + 1);
        }
    }
}

#[test]
fn a_checkpoint_of_an_empty_store_is_an_empty_store() {
    let Configuration { opener, .. } = crash_configurations().remove(0);
    let machine = MemEnv::new(1);
    let db = opener.open_db(machine.clone(), Path::new(SOURCE)).unwrap();
    db.checkpoint(TARGET).unwrap();
    assert_eq!(read_whole(&opener, &machine, TARGET), Contents::new());
}

#[test]
fn a_target_in_use_is_refused_and_unchanged() {
    let Configuration { opener, .. } = crash_configurations().remove(0);
    let machine = MemEnv::new(1);
    let store = busy(&opener, machine.clone(), 1);
    machine.create_dir(Path::new(TARGET)).unwrap();
    machine.replace("/copy/notes", b"mine").unwrap();
    let before = machine.all_files();
    for target in [SOURCE, TARGET] {
        assert_eq!(store.db.checkpoint(target).unwrap_err().kind(), ErrorKind::Invalid, "{target}");
    }
    assert_eq!(machine.all_files(), before);
}

#[test]
fn a_cancelled_checkpoint_leaves_nothing() {
    let Configuration { opener, .. } = crash_configurations().remove(0);
    let machine = MemEnv::new(1);
    let mut store = busy(&opener, machine.clone(), 1);
    store.work(1500).unwrap();
    let before = machine.all_files();
    for calls in 0..4 {
        let mut left = calls;
        let outcome = store.db.checkpoint(CheckpointOptions::new(TARGET).observer(|_| {
            left -= 1;
            if left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(machine.all_files(), before);
        assert!(machine.list_dir(Path::new(TARGET)).is_err(), "the directory must be removed too");
    }
    store.db.checkpoint(TARGET).unwrap();
}

#[test]
fn a_crash_at_any_operation_leaves_a_whole_checkpoint_or_none() {
    for (index, Configuration { name, opener, .. }) in crash_configurations().into_iter().enumerate() {
        let (mut crashes, mut whole) = (0, 0);
        for after in some_of(0.., 10, index) {
            let machine = MemEnv::new(1);
            let mut store = busy(&opener, machine.clone(), 1);
            store.work(500).unwrap();
            let expected = store.contents_at(&store.db.snapshot().unwrap()).unwrap();
            machine.crash_after(after);
            let outcome = store.db.checkpoint(TARGET);
            for (index, policy) in
                [CrashPolicy::KEEP_ALL, CrashPolicy::LOSE_ALL, CrashPolicy::random(after)].iter().enumerate()
            {
                let image = machine.crash_image(policy, after);
                let what = format!("{name}, crash after {after}, policy {index}");
                let is_whole = judge_copy(&opener, &image, TARGET, &expected, &what);
                assert!(is_whole || outcome.is_err(), "{what}: an acknowledged checkpoint is missing");
                whole += usize::from(is_whole);
                let source = opener.open_db(image.clone(), Path::new(SOURCE)).unwrap();
                if !is_whole {
                    source.checkpoint(TARGET).unwrap_or_else(|error| panic!("{what}: {error}"));
                    let copied = contents_of(&source).unwrap();
                    assert!(read_whole(&opener, &image, TARGET) == copied, "{what}");
                }
            }
            crashes += 1;
            if outcome.is_ok() {
                break;
            }
        }
        println!("{name}: {crashes} crashes, {whole} whole");
        assert!(crashes > part_of(10) && whole > 0);
    }
}

#[test]
fn any_failed_call_leaves_a_valid_source_and_no_partial_checkpoint() {
    for Configuration { name, opener, .. } in crash_configurations().into_iter().take(1) {
        for error in [FaultError::Device, FaultError::NoSpace] {
            for skip in 0.. {
                let machine = MemEnv::new(1);
                let faulty = FaultyEnv::new(machine.clone());
                let mut store = busy(&opener, faulty.clone(), 1);
                store.work(500).unwrap();
                let expected = store.contents_at(&store.db.snapshot().unwrap()).unwrap();
                faulty.set_plan(Some(FaultPlan::once(skip, error).with_partial_writes()));
                let outcome = store.db.checkpoint(TARGET);
                let struck = !faulty.failures().is_empty();
                faulty.set_plan(None);
                let what = format!("{name}, {error:?}, call {skip}");
                let is_whole = judge_copy(&opener, &machine, TARGET, &expected, &what);
                assert!(is_whole || outcome.is_err(), "{what}: a partial checkpoint was acknowledged");
                store.work(50).unwrap_or_else(|error| panic!("{what}: the source was harmed: {error}"));
                store.db.check_invariants().unwrap();
                if !struck {
                    outcome.unwrap();
                    assert!(skip > 10);
                    break;
                }
            }
        }
    }
}

#[test]
fn a_damaged_source_page_is_named_and_no_checkpoint_remains() {
    let Configuration { opener, .. } = crash_configurations().remove(0);
    let machine = MemEnv::new(1);
    let mut store = busy(&opener, machine.clone(), 1);
    store.work(1500).unwrap();
    store.db.flush().unwrap();
    let bytes = machine.file_bytes("/db/data").unwrap();
    let page = (0..bytes.len() / 4096).find(|page| bytes[page * 4096..][..40] != [0; 40]).unwrap();
    for page in (page..bytes.len() / 4096).step_by(1) {
        machine.corrupt("/db/data", u64::try_from(page * 4096 + 60).unwrap(), 4).unwrap();
    }
    let error = store.db.checkpoint(TARGET).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.location().unwrap().0, "data");
    assert!(machine.list_dir(Path::new(TARGET)).is_err());
}
