//! Each workload in its own process: results are collected, and the expected record state is passed along.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, process::Command};

use serde_json::Value;

fn bench(dir: &Path, flags: &str) -> (Vec<Value>, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testudo-bench"));
    command.args(flags.split_whitespace()).args(["--memory", "8MiB", "--settle-seconds", "0", "--json", "-"]);
    let output = command.current_dir(dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let results = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (results, String::from_utf8(output.stderr).unwrap(), output.status.code())
}

fn names_in(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn each_workload_runs_correctly_in_its_own_process() {
    let dir = tempfile::tempdir().unwrap();
    let (results, table, code) = bench(
        dir.path(),
        "ycsb --smoke --records 100k --reopen-each --reopen --keyspaces 2 --workloads \
         load,a,d,range-hot,range-hot,f,scan",
    );
    assert_eq!(code, Some(0), "{table}");
    let workloads: Vec<&str> = results.iter().map(|result| result["workload"].as_str().unwrap()).collect();
    assert_eq!(workloads, ["load", "a", "d", "range-hot", "range-hot", "f", "scan"]);
    for result in &results {
        assert_eq!(result["wrong_answers"], 0, "{result}");
        assert!(result["open_seconds"].as_f64().unwrap() > 0.0, "{result}");
        assert!(result["close_seconds"].as_f64().unwrap() > 0.0, "{result}");
        assert!(result["first_10s_rate"].as_f64().unwrap() > 0.0, "{result}");
    }
    let records = |index: usize| results[index]["records"].as_u64().unwrap();
    assert_eq!((records(0), records(1)), (100_000, 100_000));
    assert!(records(2) > 100_000 && records(6) == records(2), "the next process must see the inserts");
    assert_eq!(results[6]["ops"].as_u64(), Some(records(6)));
    // Process caches do not carry over: each process reads the store again.
    assert!(results[4]["cache_misses"].as_u64().unwrap() > 0, "{}", results[4]);
    assert!(results[6]["reopen_seconds"].is_number() && results[5]["reopen_seconds"].is_null());
    assert!(table.contains("range-hot: opened in") && table.contains("last_10s_rate"), "{table}");
    assert_eq!(names_in(dir.path()), Vec::<String>::new());
}

#[test]
fn kept_store_is_scanned_before_the_first_process() {
    let dir = tempfile::tempdir().unwrap();
    let (loaded, table, code) =
        bench(dir.path(), "ycsb --smoke --dir store --records 1000 --workloads load,overwrite,d");
    assert_eq!(code, Some(0), "{table}");
    let (results, table, code) =
        bench(dir.path(), "ycsb --smoke --dir store --reopen-each --workloads c,overwrite,scan");
    assert_eq!(code, Some(0), "{table}");
    assert_eq!(results.len(), 3);
    assert!(results.iter().all(|result| result["wrong_answers"] == 0));
    assert_eq!(results[2]["records"], loaded[2]["records"]);
    assert_eq!(names_in(dir.path()), ["store"]);
}

#[test]
fn unfinished_process_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (results, message, code) =
        bench(dir.path(), "ycsb --smoke --reopen-each --tree oak --workloads load,c");
    assert_eq!((results.len(), code), (0, Some(2)));
    assert!(message.contains("oak") && message.contains("workload load did not finish"), "{message}");
    assert_eq!(names_in(dir.path()), Vec::<String>::new());
}
