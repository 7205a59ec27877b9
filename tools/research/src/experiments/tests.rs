use std::sync::{Arc, atomic::AtomicBool};

use testudo_bench::Scale;

use super::*;

fn arguments(name: &str, directory: &std::path::Path) -> PaperArgs {
    PaperArgs {
        name: name.to_owned(),
        scale: Scale::Smoke,
        threads: 1,
        json: Some(directory.join("points.json")),
        plot: Some(directory.to_owned()),
        tmp: None,
        keys: Vec::new(),
    }
}

#[test]
fn experiments_complete_and_write_charts() {
    let directory = tempfile::tempdir().unwrap();
    let context = Context::new(Arc::new(AtomicBool::new(false)));
    let outcome = run(&arguments("all", directory.path()), &context).unwrap();
    assert_eq!(outcome, Outcome::Fine);
    let points = std::fs::read_to_string(directory.path().join("points.json")).unwrap();
    for (name, ..) in EXPERIMENTS {
        assert!(points.contains(&format!("\"experiment\":\"{name}\"")), "{name}");
    }
    for chart in [
        "splinter-policies",
        "treeline-groups-epsilon",
        "treeline-groups-goal",
        "treeline-epochs",
        "treeline-carried",
    ] {
        assert!(directory.path().join(format!("{chart}.svg")).exists(), "{chart}");
    }
}

#[test]
fn the_bench_names_this_program_for_each_of_its_experiments() {
    let directory = tempfile::tempdir().unwrap();
    let context = Context::new(Arc::new(AtomicBool::new(false)));
    for (name, ..) in EXPERIMENTS {
        let command = testudo_bench::BenchCommand::Paper(arguments(name, directory.path()));
        let error = testudo_bench::run(&command, &context).unwrap_err().to_string();
        assert!(error.contains("testudo-research") && error.contains(name), "{error}");
    }
}
