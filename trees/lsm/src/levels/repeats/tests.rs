use super::*;

fn after(repeats: Repeats, entries: u64, repeated: u64) -> Repeats {
    repeats.after(Inflow { entries, repeated })
}

#[test]
fn a_sequence_freezes_when_half_repeats_and_thaws_when_little_does() {
    let mut repeats = after(Repeats::default(), 1_000, 400);
    assert!(!repeats.is_frozen());
    repeats = after(repeats, 1_000, 800);
    assert!(repeats.is_frozen(), "{repeats:?}");
    repeats = after(repeats, 1_000, 300);
    assert!(repeats.is_frozen(), "{repeats:?}: between the two borders it stays");
    let moves = (0..).take_while(|_| {
        repeats = after(repeats, 1_000, 100);
        repeats.is_frozen()
    });
    assert!(moves.count() < 4, "a few moves show it");
}

#[test]
fn a_move_counts_by_what_it_brings() {
    let many = after(Repeats::default(), 10_000, 100);
    assert!(!after(many, 10, 10).is_frozen());
    assert!(after(Repeats::default(), 10, 10).is_frozen());
}

#[test]
fn nothing_says_nothing() {
    assert!(!after(Repeats::default(), 0, 0).is_frozen());
    let frozen = after(Repeats::default(), 10, 10);
    assert!(after(frozen, 0, 0).is_frozen());
}
