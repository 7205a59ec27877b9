mod clustered;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::Parser;
use serde_json::Value;

use crate::{BenchArgs, BenchCommand, Context, Outcome};

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    bench: BenchArgs,
}

fn run_with(line: &str, stop: bool) -> testudo::Result<Outcome> {
    let parsed =
        CommandLine::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).unwrap();
    let context = Context::new(Arc::new(AtomicBool::new(stop)));
    crate::run(&parsed.bench.command, &context)
}

fn run(line: &str) -> testudo::Result<Outcome> {
    run_with(line, false)
}

fn results(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_workload_runs_without_wrong_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (path, json, plot) = (dir.path().display(), dir.path().join("out.json"), dir.path().join("plot"));
    let line = format!(
        "ycsb --smoke --tmp {path} --json {} --plot {} --settle-seconds 0.1 --memory 32MiB --keyspaces 2 \
         --workloads load,a,b,c,d,e,f,uniform-a,uniform-c,overwrite,multiget,range,scan,absent,range-hot,seq",
        json.display(),
        plot.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let results = results(&json);
    assert_eq!(results.len(), 16);
    for result in &results {
        assert_eq!(result["wrong_answers"], 0, "{result}");
        assert!(result["ops"].as_u64().unwrap() > 0, "{result}");
    }
    let by_name = |name: &str| results.iter().find(|result| result["workload"] == name).unwrap();
    assert_eq!(by_name("load")["ops"], 2_000);
    assert_eq!(by_name("load")["records"], 2_000);
    assert!(by_name("e")["records"].as_u64().unwrap() > 2_000);
    assert_eq!(by_name("scan")["ops"], by_name("e")["records"]);
    assert!(by_name("load")["space_amplification_settled"].is_number());
    let without_log = |result: &Value| result["write_amplification_without_log"].as_f64().unwrap();
    assert!(without_log(by_name("load")) + 0.9 < by_name("load")["write_amplification"].as_f64().unwrap());
    assert!(without_log(&by_name("load")["settled"]) > 0.9, "{}", by_name("load"));
    assert!(
        by_name("range")["user_bytes_read"].as_u64().unwrap() > 80 * 100 * 124,
        "all scans have that length"
    );
    assert_eq!(
        (&by_name("absent")["user_bytes_read"], &by_name("absent")["ops"]),
        (&0.into(), &2_000.into())
    );
    assert_eq!(by_name("d")["distribution"], "latest");
    let range_hot = by_name("range-hot");
    assert_eq!((&range_hot["distribution"], &range_hot["ops"]), (&"range-hot".into(), &2_000.into()));
    assert_eq!(range_hot["ops_by_class"]["read"], 2_000, "concurrent updates do not count as operations");
    assert!(range_hot["ops_by_class"]["write"].as_u64().unwrap() > 0, "{range_hot}");
    assert!(plot.join("throughput.svg").exists());
    // Only the requested files remain.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn delete_half_keeps_the_other_records() {
    let dir = tempfile::tempdir().unwrap();
    let (path, json) = (dir.path().display(), dir.path().join("out.json"));
    let line = format!(
        "ycsb --smoke --json {} --memory 32MiB --warmup-seconds 0.1 --no-warm-restart \
         --workloads load,delete-half,scan --reopen --dir {path}/store",
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    assert_eq!(results(&json)[1]["ops"], 1_000);
    assert!(!dir.path().join("store/hot-set").exists());
    let db = testudo::Db::open(dir.path().join("store")).unwrap();
    let keyspace = db.open_keyspace(&db.keyspace_names()[0]).unwrap().unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), 1_000);
}

#[test]
fn delete_most_keeps_one_of_a_hundred_records() {
    let dir = tempfile::tempdir().unwrap();
    let (path, json) = (dir.path().display(), dir.path().join("out.json"));
    let line = format!(
        "ycsb --smoke --json {} --memory 32MiB --warmup-seconds 0 --adjacent 32 \
         --workloads load,overwrite,delete-most,scan --tmp {path}",
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let results = results(&json);
    assert!((2_000..2_100).contains(&results[1]["ops"].as_u64().unwrap()), "32 records at a time");
    assert_eq!((&results[2]["ops"], &results[3]["ops"]), (&1_980.into(), &20.into()));
}

#[test]
fn put_delete_removes_and_restores_records() {
    let dir = tempfile::tempdir().unwrap();
    let (path, json) = (dir.path().display(), dir.path().join("out.json"));
    let line = format!(
        "ycsb --smoke --json {} --memory 32MiB --warmup-seconds 0 --settle-seconds 1 \
         --workloads load,put-delete,scan --reopen --dir {path}/store",
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let result = &results(&json)[1];
    assert_eq!((&result["ops"], &result["ops_by_class"]["write"]), (&2_000.into(), &2_000.into()));
    let db = testudo::Db::open(dir.path().join("store")).unwrap();
    let keyspace = db.open_keyspace(&db.keyspace_names()[0]).unwrap().unwrap();
    let live = keyspace.iter().unwrap().count();
    // 2,000 operations on 2,000 records: the last one is a removal for 0.3 × (1 - 1/e) of the records.
    assert!((1_500..1_750).contains(&live), "{live} of 2,000");
}

#[test]
fn kept_store_is_reused_without_a_load() {
    let dir = tempfile::tempdir().unwrap();
    let (store, json) = (dir.path().join("store"), dir.path().join("out.json"));
    let flags = format!("--smoke --memory 32MiB --settle-seconds 0 --dir {}", store.display());
    assert_eq!(run(&format!("ycsb {flags} --workloads load,a,d --records 500")).unwrap(), Outcome::Fine);
    let again = format!("ycsb {flags} --workloads scan,f,c --seconds 0.05 --json {}", json.display());
    assert_eq!(run(&again).unwrap(), Outcome::Fine);
    let results = results(&json);
    assert_eq!(results.len(), 3);
    assert!(results[0]["records"].as_u64().unwrap() >= 500);

    let error = run(&format!("ycsb {flags} --workloads load")).unwrap_err();
    assert!(error.to_string().contains("already holds"), "{error}");
    let error = run(&format!("ycsb {flags} --workloads c --value-bytes 50")).unwrap_err();
    assert!(error.to_string().contains("--dir"), "{error}");
}

#[test]
fn synced_writes_report_commits() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = format!(
        "ycsb --tmp {} --json {} --workloads load --records 50 --sync --threads 4 --memory 32MiB \
         --settle-seconds 0",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    assert!(results(&json)[0]["commits_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn contradictory_flags_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        ("--value-bytes 8", "--value-bytes"),
        ("--key-bytes 3", "--key-bytes"),
        ("--key-bytes 8 --records 1M", "--key-bytes"),
        ("--workloads load,load", "--workloads"),
        ("--workloads a,load", "--workloads"),
        ("--workloads a", "--workloads"),
        ("--tree oak", "oak"),
        ("--workloads load,b --backup-to repo", "--backup-to"),
        ("--threads 2 --writers 2", "--writers"),
        ("--switch-trees turtle,oak", "--switch-trees"),
        ("--switch-trees turtle,splinter --workloads load,c", "--switch-in"),
        ("--workloads c --sequential-share 50", "--sequential-share"),
        ("--workloads load,delete-half,c", "delete-half"),
        ("--workloads load,cluster-overwrite --keyspaces 2", "cluster-overwrite"),
        ("--workloads queue --key-bytes 8 --threads 16", "--key-bytes"),
        ("--workloads load,put-delete,c", "put-delete"),
    ];
    for (flags, name) in cases {
        let line = format!("ycsb --smoke --memory 32MiB --tmp {} {flags}", dir.path().display());
        let message = run(&line).unwrap_err().to_string();
        assert!(message.contains(name), "{flags}: {message}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "failed runs leave nothing");
}

#[test]
fn stopped_run_leaves_an_openable_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let line = format!("ycsb --dir {} --workloads load,a --memory 32MiB --records 200k", store.display());
    let parsed =
        CommandLine::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let context = Context::new(Arc::clone(&stop));
    std::thread::scope(|scope| {
        let run = scope.spawn(|| crate::run(&parsed.bench.command, &context));
        while !store.exists() {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(run.join().unwrap().unwrap(), Outcome::Fine);
    });
    drop(testudo::Db::builder(&store).open().unwrap());
    assert!(matches!(parsed.bench.command, BenchCommand::Ycsb(_)));
}

#[test]
fn backup_during_a_workload_restores_equal_records() {
    let dir = tempfile::tempdir().unwrap();
    let (path, repository, json) =
        (dir.path().display(), dir.path().join("repo"), dir.path().join("out.json"));
    let line = format!(
        "ycsb --tmp {path} --json {} --backup-to {} --settle-seconds 0 --memory 4MiB --keyspaces 2 \
         --records 30k --ops 60k --workloads load,a,f",
        json.display(),
        repository.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let results = results(&json);
    let result = &results[2];
    assert_eq!((&result["workload"], &result["backup_equal"]), (&"f".into(), &true.into()), "{result}");
    assert_eq!(result["backup_records"], 30_000);
    let began = result["backup_began_at"].as_u64().unwrap();
    assert!((30_000..=60_000).contains(&began), "{result}");
    assert!(results[1]["backup_equal"].is_null());
    let kept: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(kept.len(), 2, "the repository and the measurements are kept: {kept:?}");
}

#[test]
fn damaged_backup_is_a_wrong_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (path, repository) = (dir.path().display(), dir.path().join("repo"));
    let line = format!(
        "ycsb --tmp {path} --backup-to {} --settle-seconds 0 --memory 4MiB --records 100k \
         --workloads load,a,c --seconds 0.8",
        repository.display()
    );
    let is_backup_there = || {
        let names = std::fs::read_dir(&repository).into_iter().flatten();
        names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("backup-"))
    };
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run(&line));
        while !is_backup_there() && !run.is_finished() {
            std::thread::yield_now();
        }
        let mut damaged = 0;
        for entry in std::fs::read_dir(&repository).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("run-") {
                let mut bytes = std::fs::read(entry.path()).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(entry.path(), bytes).unwrap();
                damaged += 1;
            }
        }
        assert!(damaged > 0);
        assert_eq!(run.join().unwrap().unwrap(), Outcome::WrongAnswers(1));
    });
}

#[test]
fn ordered_load_warmup_and_reopening_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (path, json) = (dir.path().display(), dir.path().join("out.json"));
    let line = format!(
        "ycsb --smoke --tmp {path} --json {} --settle-seconds 0 --memory 8MiB --ordered-load \
         --warmup-seconds 0.05 --reopen --workloads load,a,d,scan",
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let results = results(&json);
    let (load, scan) = (&results[0], &results[3]);
    assert_eq!((&load["ordered_load"], &load["threads"]), (&true.into(), &1.into()), "{load}");
    assert!(load["warmup_seconds"].is_null(), "{load}");
    assert_eq!(results[1]["warmup_seconds"], 0.05);
    assert_eq!(results[1]["ops"], 2_000, "the warm-up is not counted");
    assert!(results[2]["records"].as_u64().unwrap() > 2_150, "but its inserts persist");
    assert_eq!(scan["ops"], results[2]["records"]);
    assert!(results[2]["reopen_seconds"].is_null());
    assert!(scan["reopen_seconds"].as_f64().unwrap() > 0.0, "{scan}");

    let error = run(&format!("ycsb --smoke --tmp {path} --ordered-load --keyspaces 2")).unwrap_err();
    assert!(error.to_string().contains("--ordered-load"), "{error}");
}

#[test]
fn partly_sequential_load_writes_each_record_once() {
    for share in [0, 1, 60, 100] {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("out.json");
        let line = format!(
            "ycsb --smoke --tmp {} --json {} --settle-seconds 0 --memory 8MiB --sequential-share {share} \
             --records 5000 --threads 3 --keyspaces 2 --workloads load,scan",
            dir.path().display(),
            json.display()
        );
        assert_eq!(run(&line).unwrap(), Outcome::Fine);
        let results = results(&json);
        assert_eq!((&results[0]["ops"], &results[1]["ops"]), (&5_000.into(), &5_000.into()));
        assert_eq!(results[0]["sequential_share"], share);
        assert!(results[1]["sequential_share"].is_null());
    }
}

#[test]
fn writers_update_concurrently_with_the_workload() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = format!(
        "ycsb --smoke --tmp {} --json {} --settle-seconds 0 --memory 8MiB --threads 3 --writers 1 --ops 3000 \
         --workloads load,c,range,scan",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let results = results(&json);
    assert!(results[0]["writers"].is_null());
    assert_eq!(results[1]["ops_by_class"]["read"], 3_000);
    assert_eq!(results[2]["ops_by_class"]["scan"], 3_000);
    for result in &results[1..] {
        assert!(result["ops_by_class"]["write"].as_u64().unwrap() > 0, "{result}");
        assert_eq!((&result["writers"], &result["wrong_answers"]), (&1.into(), &0.into()));
    }
}

#[test]
fn leveled_trees_answer_every_workload_correctly() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = format!(
        "ycsb --tree leveled --tmp {} --json {} --settle-seconds 0 --memory 4MiB --leaf-bytes 64KiB \
         --records 20k --ops 2k --workloads load,a,b,c,d,e,f",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    for result in results(&json) {
        assert_eq!((&result["tree"], &result["wrong_answers"]), (&"leveled".into(), &0.into()));
    }
}

#[test]
fn trees_alternate_while_a_workload_runs() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = format!(
        "ycsb --tmp {} --json {} --settle-seconds 0 --memory 4MiB --leaf-bytes 64KiB --records 20k \
         --keyspaces 2 \
         --seconds 0.6 --switch-trees turtle,splinter --switches 5 --switch-in f --workloads load,f,scan",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let results = results(&json);
    assert!(results[0]["tree_switches"].is_null(), "{}", results[0]);
    let switches = &results[1]["tree_switches"];
    assert_eq!(switches["switches"], 5);
    for name in ["turtle", "splinter"] {
        assert!(switches["ops_per_second_by_tree"][name].as_f64().unwrap() > 0.0, "{switches}");
    }
    let trees: Vec<_> = results.iter().map(|result| result["tree"].as_str().unwrap()).collect();
    assert_eq!(trees, ["turtle", "turtle", "splinter"], "the last tree remains set");
    assert_eq!(results[2]["wrong_answers"], 0);
}

#[test]
fn fixed_rate_limits_throughput() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = format!(
        "ycsb --tmp {} --json {} --settle-seconds 0 --memory 32MiB --records 400 --workloads load --rate \
         2000",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let result = &results(&json)[0];
    assert_eq!(result["ops"], 400);
    assert!(result["seconds"].as_f64().unwrap() > 0.18, "{result}");
}

#[test]
fn snapshots_are_held_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = format!(
        "ycsb --tmp {} --json {} --settle-seconds 0 --memory 4MiB --records 2k --ops 100k \
         --hold-snapshots 0.001 --workloads load,overwrite,c",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    for result in results(&json) {
        let held = result["snapshots_held"].as_u64();
        assert!(held.is_some_and(|held| held >= 1) && result["wrong_answers"] == 0, "{result}");
    }
}

#[test]
fn concurrent_updates_run_at_their_rate() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = format!(
        "ycsb --tmp {} --json {} --settle-seconds 0 --memory 32MiB --records 20k --seconds 0.5 \
         --warmup-seconds 0.2 --workloads load,range-hot",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let result = &results(&json)[1];
    // A busy machine may do fewer; it catches up, but never exceeds the rate.
    let updates = result["ops_by_class"]["write"].as_u64().unwrap();
    assert!((100..=510).contains(&updates), "{result}");
    let (reads, seconds) = (result["ops"].as_f64().unwrap(), result["seconds"].as_f64().unwrap());
    let (rate, last) =
        (result["ops_per_second"].as_f64().unwrap(), result["last_10s_rate"].as_f64().unwrap());
    assert!((rate * seconds / reads - 1.0).abs() < 0.01, "{result}");
    assert!(last > 0.0 && result["first_10s_rate"] == result["last_10s_rate"], "whole run: {result}");
    assert_eq!((&result["updates_beside"], &result["hot_fraction"]), (&1_000.into(), &0.05.into()));
}

#[test]
fn workloads_draw_different_records() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    // Each run picks one record in four hundred, which fit in memory: repeated picks would all be cached.
    let line = format!(
        "ycsb --tmp {} --json {} --settle-seconds 0 --memory 64MiB --records 400k --ops 1k --threads 2 \
         --workloads load,uniform-c,uniform-c",
        dir.path().display(),
        json.display()
    );
    assert_eq!(run(&line).unwrap(), Outcome::Fine);
    let results = results(&json);
    let reads = |at: usize| results[at]["page_reads"].as_u64().unwrap();
    assert!(reads(2) * 4 > reads(1) * 3, "{} page reads, then {}", reads(1), reads(2));
}
