use std::sync::Arc;

use serde_json::Value;

use super::*;
use crate::{BenchCommand, Context, MicroArgs, Outcome};

fn run_with(change: impl FnOnce(&mut MicroArgs)) -> Result<Vec<Value>> {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let mut args = MicroArgs {
        name: "log-streams".to_owned(),
        ops: 8_000,
        threads: vec![1, 3],
        pages: Vec::new(),
        trace: None,
        case: Vec::new(),
        subject: Vec::new(),
        tmp: Some(directory.path().to_owned()),
        json: Some(json.clone()),
    };
    change(&mut args);
    let outcome = crate::run(&BenchCommand::Micro(args), &Context::new(Arc::default()))?;
    assert_eq!(outcome, Outcome::Fine);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "only the results remain");
    let text = std::fs::read_to_string(json).unwrap();
    Ok(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn every_case_compares_all_subjects_with_one_log() {
    let results = run_with(|_| {}).unwrap();
    let names: Vec<_> = results
        .iter()
        .map(|result| {
            format!("{} {} {}", result["case"], result["threads"], result["subject"]).replace('"', "")
        })
        .collect();
    let mut expected = Vec::new();
    for case in ["append", "insert", "file", "synced"] {
        for threads in [1, 3] {
            expected.extend(SUBJECTS.map(|subject| format!("{case} {threads} {subject}")));
        }
    }
    assert_eq!(names, expected);
    for result in &results {
        assert!(result["ns_per_op"].as_f64().unwrap() > 0.0, "{result}");
        assert_eq!(result["ratio"].is_number(), result["subject"] != "one-log", "{result}");
    }
}

#[test]
fn single_subject_has_no_ratio() {
    let results = run_with(|args| {
        args.case = vec!["append".to_owned()];
        args.subject = vec!["log-each".to_owned()];
    });
    let results = results.unwrap();
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|result| result["ratio"].is_null()), "{results:?}");
}

#[test]
fn unknown_names_are_rejected() {
    let error = run_with(|args| args.subject = vec!["testudo".to_owned()]).unwrap_err();
    assert!(error.to_string().contains("subjects: one-log, log-each, numbered"), "{error}");
}

#[test]
fn all_commits_are_written_before_the_clock_stops() {
    let context = Context::new(Arc::default());
    let directory = tempfile::tempdir().unwrap();
    let log = Wal::create(
        Arc::clone(&context.env) as Arc<dyn Env>,
        directory.path(),
        WalOptions::new(StoreId(1)),
        WalStart::new_store(Incarnation(1)),
        Arc::new(NoListener),
    )
    .unwrap();
    let pool = &ChunkPool::new(1 << 20);
    let memtable = Memtable::new(Arc::clone(pool));
    let (case, directory) = (Case::File, directory.path());
    let plan = Plan { case, threads: 2, commits: 10_000, keys: &[], directory, pool };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (log, memtable) = (&log, &memtable);
            scope.spawn(move || commit_all((log, None), memtable, thread, plan).unwrap());
        }
    });
    let stats = log.stats();
    assert_eq!(stats.commits, 20_000);
    assert!(stats.bytes_written > stats.commits * PAYLOAD.len() as u64);
}

#[test]
fn median_is_the_middle_value() {
    assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&mut []), None);
}
