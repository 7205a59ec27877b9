use std::sync::{Arc, atomic::AtomicBool};

use testudo_share::some_of;

use super::*;
use crate::Scale;

#[test]
fn names_match_whole_by_prefix_or_all() {
    assert!(matches("all", "turtle-latency") && matches("turtle-*", "turtle-latency"));
    assert!(matches("turtle-latency", "turtle-latency"));
    assert!(!matches("turtle", "turtle-latency") && !matches("splinter-*", "turtle-latency"));
}

fn arguments() -> PaperArgs {
    let (name, scale, threads) = (String::new(), Scale::Smoke, 1);
    PaperArgs { name, scale, threads, json: None, plot: None, tmp: None, keys: Vec::new() }
}

fn run_all(start: &str, charts: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let args = PaperArgs {
        name: format!("{start}*"),
        scale: Scale::Smoke,
        threads: 2,
        json: Some(directory.path().join("points.json")),
        plot: Some(directory.path().to_owned()),
        tmp: Some(directory.path().to_owned()),
        keys: Vec::new(),
    };
    let outcome = run(&args, &Context::new(Arc::new(AtomicBool::new(false)))).unwrap();
    assert_eq!(outcome, Outcome::Fine);
    let points = std::fs::read_to_string(directory.path().join("points.json")).unwrap();
    for (name, ..) in EXPERIMENTS.iter().filter(|(name, ..)| name.starts_with(start)) {
        assert!(points.contains(&format!("\"experiment\":\"{name}\"")), "{name}");
    }
    for chart in charts {
        assert!(directory.path().join(format!("{chart}.svg")).exists(), "{chart}");
    }
}

/// Charts of the experiments of each paper, by the start of their names.
const CHARTS: [(&str, &[&str]); 5] = [
    ("turtle-", &["turtle-write-memory", "turtle-memory-writes", "turtle-memory-held"]),
    ("splinter-", &["splinter-sequential-rate", "splinter-scans-after-idling"]),
    (
        "lsbm-",
        &[
            "lsbm-hits-1000",
            "lsbm-rate-1000",
            "lsbm-zipf-hits-1000",
            "lsbm-scans-1000",
            "lsbm-size",
            "lsbm-summary",
        ],
    ),
    (
        "treeline-",
        &[
            "treeline-factors",
            "treeline-scans-64",
            "treeline-scans-1024",
            "treeline-forecast",
            "treeline-writes",
        ],
    ),
    (
        "parallax-",
        &[
            "parallax-mixes-load-io",
            "parallax-mixes-a-rate",
            "parallax-mixes-load-a-io",
            "parallax-mixes-sd-cpu",
            "parallax-classes-a-io",
            "parallax-levels-load-io",
            "parallax-model",
        ],
    ),
];

#[test]
fn experiments_complete_and_write_charts() {
    for (start, charts) in some_of(CHARTS, 3, 1) {
        run_all(start, charts);
    }
}

#[test]
fn unknown_name_error_lists_the_experiments() {
    let mut args = arguments();
    args.name = "fig1".into();
    let error = run(&args, &Context::new(Arc::new(AtomicBool::new(false)))).unwrap_err();
    assert!(error.to_string().contains("turtle-write-memory"), "{error}");
}
