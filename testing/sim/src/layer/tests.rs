use super::{LayerFailure, LayerReport, Limits};

#[test]
fn a_failure_names_its_replay_command() {
    let message = "a wrong answer\n".into();
    let mut failure =
        LayerFailure { layer: "crash", configuration: None, seed: None, is_tenth: false, message };
    assert_eq!(failure.to_string(), "a wrong answer\nreplay with: testudo-sim crash");
    failure.seed = Some(7);
    failure.configuration = Some("turtle/crash".into());
    assert_eq!(failure.replay(), "testudo-sim crash --seed 7 --configuration turtle/crash");
    failure.is_tenth = true;
    assert_eq!(failure.replay(), "testudo-sim crash --seed 7 --configuration turtle/crash --tenth");
}

#[test]
fn a_configuration_is_selected_by_name_or_tree() {
    let limits = |wanted: &str| Limits { configuration: Some(wanted.into()), ..Limits::default() };
    assert!(Limits::default().selects("turtle/crash"));
    assert!(limits("turtle/crash").selects("turtle/crash"));
    assert!(limits("turtle").selects("turtle/crash"));
    assert!(!limits("turtle").selects("turtle-small/crash"));
    assert!(!limits("turtle/plain").selects("turtle/crash"));
}

#[test]
fn reports_add_up() {
    let mut report = LayerReport::default();
    report.add("ops", 2);
    let counts = [("ops".into(), 3), ("kills".into(), 1)].into();
    report.merge(LayerReport { counts, ..LayerReport::default() });
    assert_eq!((report.count("ops"), report.count("kills"), report.count("none")), (5, 1, 0));
}
