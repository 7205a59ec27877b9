use std::sync::{Arc, atomic::AtomicBool};

use super::*;

#[test]
fn best_scores_one_and_half_the_rate_scores_half() {
    let scores = scores(&[[2.0; PHASES.len()], [1.0; PHASES.len()]]);
    assert!((scores[0] - 1.0).abs() < 1e-9 && (scores[1] - 0.5).abs() < 1e-9, "{scores:?}");
}

#[test]
fn all_phases_run_for_each_division() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = YcsbArgs::defaults().unwrap().store;
    store.smoke = true;
    store.memory = 16 << 20;
    store.tmp = Some(directory.path().to_owned());
    store.json = Some(directory.path().join("lines.json"));
    let plot = Some(directory.path().to_owned());
    let args = PhasesArgs { store, records: Some(3_000), seconds: 0.05, threads: 2, rounds: 1, plot };
    let outcome = run(&args, &Context::new(Arc::new(AtomicBool::new(false)))).unwrap();
    assert_eq!(outcome, Outcome::Fine);
    let lines = std::fs::read_to_string(directory.path().join("lines.json")).unwrap();
    assert_eq!(lines.lines().count(), PHASES.len() * DIVISIONS.len());
    assert!(lines.contains("\"division\":\"auto\""));
    assert!(directory.path().join("phases.svg").exists());
    let over_time = std::fs::read_to_string(directory.path().join("memory-over-time.svg")).unwrap();
    assert!(over_time.contains("write memory") && over_time.contains("polyline"));
}
