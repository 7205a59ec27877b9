use super::*;

const MUCH: Retained = Retained { came: 100, bases: 100 };

fn after(repeats: Repeats, entries: u64, repeated: u64) -> Repeats {
    repeats.after(Inflow { entries, repeated }, MUCH)
}

#[test]
fn a_sequence_freezes_at_half_repeated_keys_and_thaws_at_few() {
    let mut repeats = after(Repeats::default(), 1_000, 400);
    assert!(!repeats.is_frozen());
    repeats = after(repeats, 1_000, 800);
    assert!(repeats.is_frozen(), "{repeats:?}");
    repeats = after(repeats, 1_000, 300);
    assert!(repeats.is_frozen(), "{repeats:?}: between the thresholds it keeps its state");
    let mut moves = 0;
    while repeats.is_frozen() {
        repeats = after(repeats, 1_000, 100);
        moves += 1;
    }
    assert!(moves < 5, "{moves} moves are not enough");
}

#[test]
fn a_move_counts_by_its_keys() {
    let many = after(Repeats::default(), 10_000, 100);
    assert!(!after(many, 10, 10).is_frozen());
    assert!(after(Repeats::default(), 10, 10).is_frozen());
}

#[test]
fn no_evidence_never_freezes() {
    assert!(!after(Repeats::default(), 0, 0).is_frozen());
    let frozen = after(Repeats::default(), 10, 10);
    assert!(after(frozen, 0, 0).is_frozen());
}

#[test]
fn a_sequence_freezes_once_incoming_equals_bases_and_thaws_when_empty() {
    let all = Inflow { entries: 1_000, repeated: 1_000 };
    let retained = |came, bases| Retained { came, bases };
    let mut repeats = Repeats::default();
    for (came, bases, is_frozen) in
        [(0, 0, false), (10, 90, false), (90, 90, true), (50, 90, true), (0, 1, true), (0, 0, false)]
    {
        repeats = repeats.after(all, retained(came, bases));
        assert_eq!(repeats.is_frozen(), is_frozen, "{came} came in above {bases}");
    }
}
