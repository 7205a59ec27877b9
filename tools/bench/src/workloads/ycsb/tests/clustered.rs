//! Workloads on ranges and stretches of consecutive keys, and queues.

use serde_json::Value;

use super::{results, run};
use crate::Outcome;

/// Runs workloads on 20,000 records without wrong answers; returns their results.
fn run_workloads(workloads: &str, flags: &str) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = format!(
        "ycsb --smoke --tmp {} --json {} --settle-seconds 0 --memory 8MiB --records 20k {flags} \
         --workloads {workloads}",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let results = results(&json);
    assert!(results.iter().all(|result| result["wrong_answers"] == 0), "{results:?}");
    results
}

#[test]
fn range_workloads_use_the_hot_fraction() {
    let results =
        run_workloads("load,range-overwrite,range-scan-17,scan", "--hot-fraction 0.1 --keyspaces 2");
    for result in &results[1..3] {
        assert_eq!((&result["distribution"], &result["hot_fraction"]), (&"range-hot".into(), &0.1.into()));
        assert!(result["updates_beside"].is_null(), "{result}");
    }
    assert_eq!(results[1]["ops_by_class"]["write"], 2_000);
    assert_eq!((&results[2]["workload"], &results[2]["ops"]), (&"range-scan-17".into(), &200.into()));
    // Only scans that begin near the end of the key space may be shorter.
    let scanned = results[2]["user_bytes_read"].as_u64().unwrap() / 124;
    assert!((195 * 17..=200 * 17).contains(&scanned), "{scanned} records");
    assert!(results[0]["hot_fraction"].is_null() && results[3]["hot_fraction"].is_null());
}

#[test]
fn cluster_overwrite_updates_whole_stretches() {
    let results = run_workloads("load,cluster-overwrite,d,cluster-overwrite,scan", "--warmup-seconds 0.05");
    for result in [&results[1], &results[3]] {
        // Each of two threads completes its last stretch.
        let ops = result["ops"].as_u64().unwrap();
        assert!((2_000..2_064).contains(&ops), "{result}");
        assert_eq!(result["distribution"], "uniform");
        assert!(result["key_order_bytes"].as_u64().unwrap() >= 4 * 20_000, "{result}");
    }
    assert!(results[2]["key_order_bytes"].is_null(), "the memory is freed");
}

#[test]
fn queues_are_checked_and_stay_as_long() {
    let results = run_workloads("load,queue,seq,queue,scan", "--threads 3 --writers 1");
    for result in [&results[1], &results[3]] {
        assert_eq!((&result["records"], &result["keyspaces"]), (&3_000.into(), &1.into()));
        let (ops, classes) = (result["ops"].as_u64().unwrap(), &result["ops_by_class"]);
        assert!((2_000..2_009).contains(&ops), "{result}");
        assert_eq!(classes["write"].as_u64().unwrap(), 2 * classes["scan"].as_u64().unwrap());
    }
    assert_eq!(results[4]["records"], 20_000);
}

#[test]
fn pages_are_reported_for_treeline_trees() {
    let flags = "--value-bytes 400 --ops 20k --tree";
    let results = run_workloads("load,cluster-overwrite", &format!("{flags} treeline"));
    for result in &results {
        assert!(result["replaced_pages"].is_u64() && result["overflow_pages"].is_u64(), "{result}");
        assert!(result["pages_replaced"].is_u64() && result["runs_rewritten"].is_u64(), "{result}");
        assert!(result["index_bytes"].as_u64().unwrap() > 0, "{result}");
        assert_eq!(result["continued_bytes"], 0, "{result}");
    }
    let results = run_workloads("load", &format!("{flags} turtle"));
    assert!(results[0]["replaced_pages"].is_null() && results[0]["index_bytes"].is_null());
}
