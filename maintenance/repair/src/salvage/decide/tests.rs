use super::*;
use crate::salvage::key_ranges::Age;

fn logged(kind: Kind, seqno: u64, value: &str) -> Logged {
    Logged { seqno: Seqno(seqno), kind, value: value.as_bytes().to_vec(), lost: None }
}

fn age(seqno: u64) -> Age {
    (Seqno(seqno), testudo_base::RunId(1))
}

/// An answer of the runs: `value`, as of `seqno`.
fn run(value: &str, seqno: u64) -> Answer {
    let entry = Some((Kind::Value, value.as_bytes().to_vec()));
    Answer { entry, age: Some(age(seqno)), ..Answer::default() }
}

/// The verdict as text; the tree holds the log up to 10, and no part of the log is lost after 20.
fn verdict(answer: Answer, operations: Vec<Logged>) -> String {
    let log = LogReach { flushed: Seqno(10), whole_after: Seqno(20) };
    match decide(answer, operations, log).0 {
        None => "gone".to_owned(),
        Some(Verdict { kind, value, is_older, is_uncertain }) => {
            let value = String::from_utf8_lossy(&value).into_owned();
            let older = if is_older { " older" } else { "" };
            let uncertain = if is_uncertain { " uncertain" } else { "" };
            format!("{kind:?} {value}{older}{uncertain}")
        }
    }
}

fn with_gap(answer: Answer, seqno: u64) -> Answer {
    Answer { gap: Some(age(seqno)), is_uncertain: true, ..answer }
}

#[test]
fn runs_decide_without_a_log_operation() {
    assert_eq!(verdict(run("r", 5), vec![]), "Value r");
    assert_eq!(verdict(with_gap(run("r", 5), 7), vec![]), "Value r older uncertain");
    assert_eq!(verdict(Answer::default(), vec![]), "gone");
    let tombstone = Answer { entry: Some((Kind::Tombstone, Vec::new())), ..run("", 5) };
    assert_eq!(verdict(tombstone, vec![]), "gone");
}

#[test]
fn log_operation_newer_than_the_runs_wins() {
    assert_eq!(verdict(run("r", 5), vec![logged(Kind::Value, 11, "l")]), "Value l");
    // Already in the tree, possibly superseded there.
    assert_eq!(verdict(run("r", 5), vec![logged(Kind::Value, 10, "l")]), "Value r");
    assert_eq!(verdict(run("r", 15), vec![logged(Kind::Value, 15, "l")]), "Value r");
    assert_eq!(verdict(run("r", 5), vec![logged(Kind::Tombstone, 11, "")]), "gone");
}

#[test]
fn log_operation_after_the_last_hole_is_authoritative() {
    assert_eq!(verdict(with_gap(run("r", 30), 40), vec![logged(Kind::Value, 21, "l")]), "Value l");
    // Up to there an unreadable run may have a newer version.
    assert_eq!(
        verdict(with_gap(run("r", 5), 40), vec![logged(Kind::Value, 20, "l")]),
        "Value l older uncertain"
    );
    assert_eq!(verdict(with_gap(run("r", 5), 12), vec![logged(Kind::Value, 20, "l")]), "Value l uncertain");
}

#[test]
fn operands_are_applied_once() {
    let operands = || vec![logged(Kind::Operands, 10, "a"), logged(Kind::Operands, 11, "b")];
    for answer in [Answer::default(), run("r", 5)] {
        let on_top = verdict(answer, operands());
        assert!(on_top.starts_with("Unmerged") && on_top.ends_with('b'), "{on_top}");
        assert!(!on_top.contains('a'), "already in the tree: {on_top}");
    }
}

fn range(why: &str) -> Option<LostRange> {
    let (low, high) = (b"k".to_vec(), Some(b"k\0".to_vec()));
    let (file, why) = ("data".to_owned(), why.to_owned());
    Some(LostRange { low, high, records_about: 1, bytes_about: 1, file, offset: 0, why })
}

/// A write whose value was in a value log and was not found.
fn lost(seqno: u64) -> Logged {
    Logged { lost: range("of the log"), ..logged(Kind::Reference, seqno, "reference") }
}

/// The reason of the reported loss.
fn lost_of(answer: Answer, operations: Vec<Logged>) -> Option<String> {
    let log = LogReach { flushed: Seqno(10), whole_after: Seqno(20) };
    decide(answer, operations, log).1.map(|lost| lost.why)
}

#[test]
fn write_with_missing_value_leaves_no_current_version() {
    for seqno in [11, 21] {
        assert_eq!(verdict(run("r", 5), vec![lost(seqno)]), "Value r older");
        assert_eq!(verdict(Answer::default(), vec![lost(seqno)]), "gone");
        let changed = vec![lost(seqno), logged(Kind::Operands, seqno + 1, "a")];
        assert_eq!(verdict(run("r", 5), changed), "Value r older");
        assert_eq!(lost_of(run("r", 5), vec![lost(seqno)]).as_deref(), Some("of the log"));
    }
    // Already in the tree.
    for (run_seqno, seqno) in [(5, 10), (15, 15), (30, 25)] {
        assert_eq!(verdict(run("r", run_seqno), vec![lost(seqno)]), "Value r");
        assert_eq!(lost_of(run("r", run_seqno), vec![lost(seqno)]), None);
    }
}

#[test]
fn value_missing_in_runs_is_reported_unless_the_log_is_newer() {
    let missing = || Answer { entry: None, gap: Some(age(5)), lost: range("of the runs"), ..run("", 5) };
    assert_eq!(lost_of(missing(), vec![]).as_deref(), Some("of the runs"));
    let operand = vec![logged(Kind::Operands, 11, "a")];
    assert_eq!(lost_of(missing(), operand).as_deref(), Some("of the runs"));
    assert_eq!(lost_of(missing(), vec![lost(11)]).as_deref(), Some("of the log"));
    for newer in [logged(Kind::Value, 11, "l"), logged(Kind::Tombstone, 21, "")] {
        assert_eq!(lost_of(missing(), vec![newer]), None);
    }
}
