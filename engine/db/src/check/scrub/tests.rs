use std::path::Path;

use testudo_base::PAGE_BYTES;
use testudo_env::{Env, MemEnv};
use testudo_options::{KeyspaceOptions, Tree};
use testudo_storage::DATA_FILE;

use super::*;
use crate::Keyspace;

const RECORDS: u64 = 4_000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:012}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    format!("{number} {round} ").repeat(10).into_bytes()
}

/// The runs that only compaction buffers refer to.
fn spare_runs(db: &Db) -> Vec<Arc<Run>> {
    let runs = runs_from(db.store(), ScrubPosition { run: RunId(0), page: 0, end: RunId(u64::MAX) });
    runs.into_iter().map(|(_, (run, _))| run).filter(|run| is_spare(db.store(), run)).collect()
}

/// A store with retained runs, and the current version of each record.
fn retaining(env: &Arc<MemEnv>) -> (Db, Keyspace, Vec<u64>) {
    let db = Db::builder("/db").memory_bytes(8 << 20).env(Arc::clone(env) as Arc<dyn Env>).open().unwrap();
    let tree = Tree::lsbm()
        .with_run_bytes(64 << 10)
        .with_growth_factor(4)
        .with_level1_flushes(2)
        .with_retained_percent(100);
    let keyspace = db.keyspace("k", KeyspaceOptions::default().tree(tree)).unwrap();
    let mut versions = vec![0; usize::try_from(RECORDS).unwrap()];
    (0..RECORDS).for_each(|number| keyspace.insert(key(number), value(number, 0)).unwrap());
    db.flush().unwrap();
    for round in 1..100 {
        for number in (0..RECORDS).step_by(3) {
            keyspace.get(key(number)).unwrap();
        }
        for number in (round % 7..RECORDS).step_by(7) {
            keyspace.insert(key(number), value(number, round)).unwrap();
            versions[usize::try_from(number).unwrap()] = round;
        }
        db.flush().unwrap();
        if spare_runs(&db).len() > 1 {
            return (db, keyspace, versions);
        }
    }
    panic!("nothing was retained: {:?}", keyspace.stats());
}

#[test]
fn scrub_marks_damage_of_retained_runs_and_drops_them() {
    let env = MemEnv::new(1);
    let (db, keyspace, versions) = retaining(&env);
    let spare = spare_runs(&db);
    for run in &spare {
        let (page, _) = run.reference().locate(0).unwrap();
        env.corrupt(Path::new("/db").join(DATA_FILE), page * PAGE_BYTES + 100, 1).unwrap();
    }
    let ids: Vec<RunId> = spare.iter().map(|run| run.reference().id).collect();
    drop(spare);
    let report = db.scrub(ScrubOptions::new()).unwrap();
    assert!(!report.findings.is_empty());
    assert!(report.findings.iter().all(|finding| finding.what.ends_with(OF_SPARE_RUN)), "{report:?}");
    for round in 0..2 {
        keyspace.insert(key(RECORDS + round), "new").unwrap();
        db.flush().unwrap();
    }
    assert!(spare_runs(&db).iter().all(|run| !ids.contains(&run.reference().id)));
    assert_eq!(keyspace.stats().tree.retained_damaged_runs, u64::try_from(ids.len()).unwrap());
    for (number, round) in (0..).zip(versions) {
        assert_eq!(keyspace.get(key(number)).unwrap().as_deref(), Some(&value(number, round)[..]));
    }
    let report = db.verify(crate::VerifyLevel::Full).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
}

/// While a keyspace moves, each of its two trees determines which of its own runs are spare.
#[test]
fn damaged_retained_runs_change_no_answer_during_a_move() {
    let env = MemEnv::new(1);
    let (db, keyspace, versions) = retaining(&env);
    keyspace.set_tree(Tree::turtle()).unwrap();
    let spare = spare_runs(&db);
    assert!(!spare.is_empty());
    for run in &spare {
        for number in 0..run.reference().data_pages {
            let (page, _) = run.reference().locate(number).unwrap();
            env.corrupt(Path::new("/db").join(DATA_FILE), page * PAGE_BYTES + 100, 1).unwrap();
        }
    }
    drop((spare, keyspace));
    db.close().unwrap();
    let builder = Db::builder("/db").memory_bytes(8 << 20).env(Arc::clone(&env) as Arc<dyn Env>);
    let db = builder.warm_restart(false).record_cache(false).open().unwrap();
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    assert!(keyspace.stats().moving.from.is_some());
    // Spare runs are read only while their filters and indexes are in memory.
    for run in spare_runs(&db) {
        for key in (0..RECORDS).map(key) {
            let _ = run.check_filter(&key);
            run.bytes_between(Some(&key), None).unwrap();
        }
    }
    let keys: Vec<_> = (0..RECORDS).map(key).collect();
    for (round, keys) in keys.chunks(50).enumerate() {
        let found = keyspace.multi_get(keys).unwrap_or_else(|error| panic!("batch {round}: {error}"));
        for (number, found) in (round * 50..).zip(found) {
            let number = u64::try_from(number).unwrap();
            let version = versions[usize::try_from(number).unwrap()];
            assert_eq!(found.as_deref(), Some(&value(number, version)[..]));
        }
    }
}
