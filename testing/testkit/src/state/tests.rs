use std::ops::Bound;

use super::{Delta, State};
use crate::store::{RawMove, RawScan, RawWalk};

fn write(state: &mut State, keyspace: u8, key: &str, value: Option<&str>) {
    let value = value.map(|value| value.as_bytes().into());
    state.apply(&Delta::Write { keyspace, key: key.as_bytes().into(), value });
}

fn keys(state: &State, scan: &RawScan) -> String {
    let pairs = state.scan(0, scan);
    pairs.iter().map(|(key, _)| String::from_utf8_lossy(key)).collect::<Vec<_>>().join(" ")
}

fn abc() -> State {
    let mut state = State::default();
    state.apply(&Delta::Create(0));
    for key in ["a", "b", "c", "d", "e"] {
        write(&mut state, 0, key, Some("v"));
    }
    state
}

fn range(lower: Bound<&str>, upper: Bound<&str>, walk: RawWalk) -> RawScan {
    let bytes = |bound: Bound<&str>| bound.map(|key| key.as_bytes().to_vec());
    RawScan { lower: bytes(lower), upper: bytes(upper), ..RawScan::all(walk) }
}

#[test]
fn the_fingerprint_depends_on_the_content_only() {
    let mut state = abc();
    let before = state.fingerprint();
    state.apply(&Delta::Create(1));
    write(&mut state, 1, "x", Some("1"));
    write(&mut state, 0, "b", Some("2"));
    write(&mut state, 0, "z", Some("3"));
    assert_ne!(state.fingerprint(), before);
    write(&mut state, 0, "z", None);
    write(&mut state, 0, "z", None);
    write(&mut state, 0, "b", Some("v"));
    state.apply(&Delta::Create(1));
    state.apply(&Delta::Drop(1));
    state.apply(&Delta::Drop(1));
    assert_eq!(state.fingerprint(), before);
    assert_eq!(state, abc());
}

#[test]
fn empty_keyspaces_and_empty_values_count() {
    let mut state = State::default();
    state.apply(&Delta::Create(0));
    let empty = state.fingerprint();
    assert_ne!(empty, State::default().fingerprint());
    write(&mut state, 0, "", Some(""));
    assert_ne!(state.fingerprint(), empty);
}

#[test]
fn scans_walk_in_the_requested_order() {
    let state = abc();
    let all = Bound::Unbounded;
    assert_eq!(keys(&state, &range(all, all, RawWalk::Backward)), "e d c b a");
    assert_eq!(keys(&state, &range(all, all, RawWalk::Zigzag)), "a e b d c");
    assert_eq!(keys(&state, &range(Bound::Excluded("a"), Bound::Included("d"), RawWalk::Forward)), "b c d");
    assert_eq!(keys(&state, &range(Bound::Included("d"), Bound::Included("a"), RawWalk::Forward)), "");
    assert_eq!(keys(&state, &range(Bound::Excluded("b"), Bound::Excluded("b"), RawWalk::Forward)), "");
    let prefix = RawScan { prefix: Some(b"c".to_vec()), ..RawScan::all(RawWalk::Backward) };
    assert_eq!(keys(&state, &prefix), "c");
}

#[test]
fn a_seek_stays_within_the_bounds() {
    let state = abc();
    let seek = |key: &str| {
        let walk = RawWalk::Seek(key.as_bytes().to_vec());
        keys(&state, &range(Bound::Excluded("a"), Bound::Excluded("e"), walk))
    };
    assert_eq!(seek("c"), "b c d");
    assert_eq!(seek(""), "b b c d");
    assert_eq!(seek("a"), "b b c d");
    assert_eq!(seek("z"), "b");
}

#[test]
fn moves_of_both_ends_stay_within_the_range_of_the_last_seek() {
    let state = abc();
    let all = Bound::Unbounded;
    let seek = |key: &str| RawMove::Seek(key.as_bytes().to_vec());
    let walk = |moves: &[RawMove]| keys(&state, &range(all, all, RawWalk::Moves(moves.to_vec())));
    assert_eq!(walk(&[seek("c"), RawMove::Back(9)]), "e d c");
    let moves = [RawMove::Front(2), RawMove::Back(1), seek("b"), RawMove::Back(1), RawMove::Front(9)];
    assert_eq!(walk(&moves), "a b e d b c");
}

#[test]
fn a_prefix_of_0xff_bytes_has_no_upper_bound() {
    let mut state = State::default();
    state.apply(&Delta::Create(0));
    for key in [&[255][..], &[255, 255], &[255, 255, 1], &[254]] {
        state.apply(&Delta::Write { keyspace: 0, key: key.into(), value: Some([].into()) });
    }
    let prefix = |bytes: &[u8]| RawScan { prefix: Some(bytes.to_vec()), ..RawScan::all(RawWalk::Forward) };
    assert_eq!(state.scan(0, &prefix(&[255, 255])).len(), 2);
    assert_eq!(state.scan(0, &prefix(&[254])).len(), 1);
    assert_eq!(state.scan(0, &prefix(&[])).len(), 4);
}
