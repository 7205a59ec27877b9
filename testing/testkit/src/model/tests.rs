use super::{Model, Outcome};
use crate::state::{Delta, State};

fn put(key: &str, value: &str) -> Delta {
    Delta::Write { keyspace: 0, key: key.as_bytes().into(), value: Some(value.as_bytes().into()) }
}

fn state(deltas: &[Delta]) -> State {
    let mut state = State::default();
    state.apply(&Delta::Create(0));
    deltas.iter().for_each(|delta| state.apply(delta));
    state
}

/// A durable `a`, then two unsynced commits of which the second is a batch.
fn model() -> Model {
    let mut model = Model::default();
    model.commit(vec![Delta::Create(0)], Outcome::Synced);
    model.commit(vec![put("a", "1")], Outcome::Synced);
    model.commit(vec![put("b", "1")], Outcome::Buffered);
    model.commit(vec![put("c", "1"), put("d", "1")], Outcome::Buffered);
    model
}

#[test]
fn every_prefix_from_the_durable_commit_on_is_allowed() {
    let all = [put("a", "1"), put("b", "1"), put("c", "1"), put("d", "1")];
    for (kept, lost) in [(1, 2), (2, 1), (4, 0)] {
        assert_eq!(model().recover(&state(&all[..kept])), Ok(lost));
    }
}

#[test]
fn lost_durable_commits_holes_and_partial_batches_are_detected() {
    for found in [
        vec![],
        vec![put("a", "2")],
        vec![put("a", "1"), put("c", "1"), put("d", "1")],
        vec![put("a", "1"), put("b", "1"), put("c", "1")],
        vec![put("a", "1"), put("x", "1")],
    ] {
        let error = model().recover(&state(&found)).unwrap_err();
        assert!(error.contains("not an allowed prefix"), "{error}");
    }
}

#[test]
fn recovered_content_is_durable() {
    let mut model = model();
    let found = state(&[put("a", "1"), put("b", "1")]);
    assert_eq!(model.recover(&found), Ok(1));
    assert_eq!(model.live(), &found);
    assert!(model.recover(&state(&[put("a", "1")])).is_err());
}

#[test]
fn a_sync_makes_every_earlier_commit_durable() {
    let mut model = model();
    model.sync();
    assert_eq!(model.unsynced_count(), 0);
    assert!(model.recover(&state(&[put("a", "1"), put("b", "1")])).is_err());
}

#[test]
fn a_failed_commit_may_be_present_or_absent() {
    for with in [false, true] {
        let mut model = model();
        model.commit(vec![put("a", "2")], Outcome::Failed);
        model.commit(vec![put("e", "1")], Outcome::Synced);
        let mut found = state(&[put("a", "1"), put("b", "1"), put("c", "1"), put("d", "1"), put("e", "1")]);
        if with {
            found.apply(&put("a", "2"));
        }
        assert!(model.allows(0, b"a", Some(b"1")) && model.allows(0, b"a", Some(b"2")));
        assert!(!model.allows(0, b"a", None) && !model.allows(0, b"b", Some(b"2")));
        assert_eq!(model.recover(&found), Ok(0));
        assert!(!model.has_doubts());
    }
}

#[test]
fn a_successful_write_makes_its_key_certain() {
    let mut model = model();
    model.commit(vec![put("a", "2")], Outcome::Failed);
    model.commit(vec![put("a", "3")], Outcome::Buffered);
    assert!(!model.has_doubts());
    assert!(model.allows(0, b"a", Some(b"3")) && !model.allows(0, b"a", Some(b"2")));
}

#[test]
fn durable_commits_are_checked_despite_many_failed_ones() {
    let mut model = model();
    model.sync();
    for number in 0..40 {
        model.commit(vec![put(&format!("maybe{number}"), "1")], Outcome::Failed);
    }
    let mut found = state(&[put("a", "1"), put("b", "1"), put("c", "1"), put("d", "1"), put("maybe7", "1")]);
    assert!(model.clone().recover(&found).is_ok());
    found.apply(&put("b", "2"));
    assert!(model.recover(&found).is_err());
}
