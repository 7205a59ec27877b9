//! Every available engine answers correctly, alone and side by side. An engine whose library is missing is
//! reported on standard error.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

const RUNNABLE: [&str; 7] = ["testudo", "rocksdb", "blobdb", "rocksdb-tuned", "lmdb", "fjall", "redb"];
const WORKLOADS: &str = "load,a,b,c,d,e,f,uniform-a,uniform-c,overwrite,multiget,range-hot,range-overwrite,\
                         range-scan-10,cluster-overwrite,delete-half,scan";

fn bench_rivals(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-rivals"));
    command.args(arguments.split_whitespace()).output().unwrap()
}

fn results(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ready_engines() -> Vec<String> {
    let listed = bench_rivals("engines");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    for line in text.lines().filter(|line| line.contains(": missing: ")) {
        eprintln!("NOT TESTED: {line}");
    }
    let is_complete = !text.contains(": missing: ");
    assert_eq!(listed.status.code(), Some(if is_complete { 0 } else { 3 }));
    text.lines().filter_map(|line| line.strip_suffix(": ready")).map(str::to_owned).collect()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn available_engines_answer_every_workload_correctly() {
    let dir = tempfile::tempdir().unwrap();
    let ready = ready_engines();
    assert!(["testudo", "lmdb", "fjall", "redb"].iter().all(|name| ready.contains(&(*name).to_owned())));
    for engine in ready {
        // The same store with different trees.
        let name = if engine.starts_with("testudo-") { "testudo" } else { &engine };
        assert!(RUNNABLE.contains(&name), "{engine}");
        // Values long enough for blob files.
        let output = bench_rivals(&format!(
            "run {engine} --smoke --json - --tmp {} --memory 32MiB --value-bytes 600 --settle-seconds 0.1 \
             --warmup-seconds 0.05 --reopen --workloads {WORKLOADS}",
            dir.path().display()
        ));
        assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
        let results = results(&output);
        assert_eq!(results.len(), WORKLOADS.split(',').count(), "{engine}");
        for result in &results {
            assert_eq!((&result["engine"], &result["wrong_answers"]), (&name.into(), &0.into()), "{result}");
            assert!(result["ops"].as_u64().unwrap() > 0, "{result}");
        }
        assert!(results.last().unwrap()["reopen_seconds"].as_f64().unwrap() > 0.0);
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn ordered_load_yields_the_same_records() {
    let dir = tempfile::tempdir().unwrap();
    for engine in ready_engines() {
        let output = bench_rivals(&format!(
            "run {engine} --smoke --json - --tmp {} --memory 32MiB --settle-seconds 0 --ordered-load \
             --workloads load,c,scan",
            dir.path().display()
        ));
        assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
        let results = results(&output);
        assert_eq!(
            (&results[0]["ordered_load"], &results[2]["ops"]),
            (&true.into(), &2000.into()),
            "{engine}"
        );
    }
}

#[test]
fn compare_alternates_engines_and_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench_rivals(&format!(
        "compare --engines testudo,lmdb --workloads load,a --records 2000 --seconds 0.2 --settle-seconds 0.1 \
         --rounds 2 --mix sd --placement hybrid --memory 64MiB --json - --tmp {}",
        dir.path().display()
    ));
    let table = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}");
    let results = results(&output);
    let order: Vec<(&str, u64)> = results
        .iter()
        .filter(|result| result["workload"] == "a")
        .map(|result| (result["engine"].as_str().unwrap(), result["round"].as_u64().unwrap()))
        .collect();
    assert_eq!(order, [("testudo", 1), ("lmdb", 1), ("lmdb", 2), ("testudo", 2)]);
    assert!(results.iter().all(|result| result["memory_limit_enforced"].is_boolean()));
    assert!(table.contains("ratio") && table.contains("testudo"), "{table}");
    assert!(is_empty(dir.path()));
}

#[test]
fn reopen_each_runs_each_workload_in_its_own_process() {
    let dir = tempfile::tempdir().unwrap();
    let ready = ready_engines();
    let output = bench_rivals(&format!(
        "compare --engines {} --workloads load,d,range-hot,scan --records 2000 --seconds 0.2 \
         --warmup-seconds 0 --settle-seconds 0 --reopen-each --memory 64MiB --json - --tmp {}",
        ready.join(","),
        dir.path().display()
    ));
    let table = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}");
    let results = results(&output);
    assert_eq!(results.len(), 4 * ready.len());
    for result in &results {
        assert_eq!(result["wrong_answers"], 0, "{result}");
        assert!(result["open_seconds"].is_number() && result["close_seconds"].is_number(), "{result}");
    }
    assert!(table.contains("first 10 s"), "{table}");
    assert!(is_empty(dir.path()));
}

#[test]
fn missing_library_is_reported_with_an_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let compare = |engines: &str| {
        Command::new(env!("CARGO_BIN_EXE_bench-rivals"))
            .env("ROCKSDB_LIBRARY", dir.path().join("nowhere.so"))
            .args(["compare", "--engines", engines, "--workloads", "load", "--records", "500"])
            .args(["--settle-seconds", "0", "--tmp"])
            .arg(dir.path())
            .output()
            .unwrap()
    };
    let partly = compare("lmdb,rocksdb");
    let said = String::from_utf8_lossy(&partly.stderr).into_owned();
    assert_eq!(partly.status.code(), Some(3), "{said}");
    assert!(said.contains("SKIPPED: rocksdb") && said.contains("fetch-rocksdb"), "{said}");
    assert!(String::from_utf8_lossy(&partly.stdout).contains("lmdb"));
    assert_eq!(compare("rocksdb").status.code(), Some(2));
}
