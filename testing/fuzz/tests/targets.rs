//! Every target: many runs of one fixed seed, a second of a fresh one that is printed, and every input that
//! ever failed. The README's command takes a tenth of the runs and of the second.

use std::{io::Write, path::Path, time::Duration};

use testudo_env::{Env, RealEnv};
use testudo_fuzz::{Amount, CountingAllocator, Session, TARGETS, find, run_once};
use testudo_share::Share;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The fixed seed runs a fixed number of times on any machine; the fresh seed does not count as coverage.
fn survives(name: &str, runs: u64) {
    let target = find(name).expect("a target");
    let fresh = RealEnv::new().random_u64() >> 16;
    // Bypasses the harness, which hides the output of passing tests.
    let _ = writeln!(std::io::stderr(), "{name}: fresh seed {fresh}");
    let share = Share::from_environment();
    let fresh_time = Duration::from_millis(share.of(1000));
    for (seed, amount) in [(1, Amount::Runs(share.of(runs))), (fresh, Amount::Time(fresh_time))] {
        if let Err(failure) = (Session { target, seed, amount, corpus: Vec::new() }).run(|_, _| {}) {
            let (run, message, input) = (failure.run, failure.message, failure.input);
            panic!("{name}, seed {seed}, run {run}: {message}\ninput: {input:?}");
        }
    }
}

#[test]
fn hostile_superblocks_are_read_or_refused() {
    survives("superblock", 15_000);
}

#[test]
fn hostile_manifests_are_read_or_refused() {
    survives("manifest", 10_000);
}

#[test]
fn hostile_logs_are_replayed_in_order_or_refused() {
    survives("wal", 3_500);
}

#[test]
fn hostile_pages_are_read_or_refused() {
    survives("page", 3_000);
}

#[test]
fn hostile_nodes_are_read_or_refused() {
    survives("node", 1_600);
}

#[test]
fn hostile_directories_are_opened_or_refused() {
    survives("open-directory", 1_200);
}

#[test]
fn hostile_directories_are_repaired_and_salvaged() {
    survives("salvage", 350);
}

#[test]
fn scripts_of_any_bytes_match_a_map() {
    survives("script", 3_000);
}

#[test]
fn inputs_that_once_failed_pass() {
    let mut count = 0;
    for target in TARGETS {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let outcome = run_once(target, &std::fs::read(&path).unwrap());
            assert_eq!(outcome, Ok(()), "{}", path.display());
            count += 1;
        }
    }
    assert!(count > 0, "the corpus is not found");
}

#[test]
fn memory_beyond_the_bound_is_detected() {
    let greedy = testudo_fuzz::Target {
        name: "greedy",
        about: "",
        run: |_| drop(std::hint::black_box(vec![1u8; 8 << 20])),
        seeds: Vec::new,
        memory_bytes_max: 4 << 20,
    };
    assert!(run_once(&greedy, b"").unwrap_err().contains("bytes at once"));
}

#[test]
fn a_failing_input_is_minimized() {
    let picky = testudo_fuzz::Target {
        name: "picky",
        about: "",
        run: |input| assert!(!input.contains(&7)),
        seeds: || vec![(0..200).collect()],
        memory_bytes_max: 1 << 20,
    };
    let session = Session { target: &picky, seed: 1, amount: Amount::Runs(1), corpus: Vec::new() };
    assert_eq!(session.run(|_, _| {}).unwrap_err().input, [7]);
}
