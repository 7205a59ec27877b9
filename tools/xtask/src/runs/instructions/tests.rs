use super::*;

fn counts(pairs: &[(&str, f64)]) -> Counts {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn recorded_counts_round_trip() {
    let written = counts(&[("a/b", 10.5), ("c/d", 2000.0)]);
    assert_eq!(parse(&lines(&written)).unwrap(), written);
    assert!(parse("{\"case\":\"a\"}").is_err());
}

#[test]
fn losses_new_and_missing_cases_fail_and_gains_are_reported() {
    let before = counts(&[("same", 100.0), ("slow", 100.0), ("fast", 100.0), ("gone", 1.0)]);
    let now = counts(&[("same", 104.0), ("slow", 120.0), ("fast", 80.0), ("new", 1.0)]);
    let Findings { complaints, gains } = compare(&before, &now);
    assert_eq!(complaints.len(), 3, "{complaints:?}");
    assert_eq!(gains.len(), 1, "{gains:?}");
    assert!(gains[0].starts_with("fast:") && gains[0].contains("--update"));
    assert!(complaints.iter().any(|c| c.starts_with("slow:") && c.contains("slower")));
    assert!(!complaints.iter().any(|c| c.starts_with("same")));
}

#[test]
fn difference_of_two_runs_excludes_setup() {
    assert!((per_operation(1_000_000, 1_000_000 + OPERATIONS * 250) - 250.0).abs() < 1e-9);
    assert_eq!(collected("x\n==12== Collected : 123456\n"), Some(123_456));
}
