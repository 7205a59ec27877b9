use super::*;

fn long(tail: &str) -> Vec<u8> {
    [&[b'p'; 300][..], tail.as_bytes()].concat()
}

#[test]
fn short_keys_are_exact_ends() {
    let ends = KeyEnds::of(b"b", b"d");
    assert!(ends.may_hold(b"b") && ends.may_hold(b"c") && ends.may_hold(b"d"));
    assert!(!ends.may_hold(b"a") && !ends.may_hold(b"d\0"));
    assert!(ends.begin_at_or_after(b"b") && !ends.begin_at_or_after(b"b\0"));
    assert!(ends.end_before(b"d\0") && !ends.end_before(b"d"));
    assert_eq!(ends.bounds(), KeyBounds { low: Some(b"b".to_vec()), high: Some(b"d\0".to_vec()) });
}

#[test]
fn cut_ends_include_every_key_between_them() {
    let ends = KeyEnds::of(&long("b"), &long("y"));
    assert!(ends.first_is_cut() && ends.last_is_cut());
    for key in [long("b"), long("m"), long("y")] {
        assert!(ends.may_hold(&key) && ends.bounds().contains(&key));
        assert!(!ends.end_before(&key) && !ends.begin_at_or_after(&key));
    }
    assert!(!ends.may_hold(b"o") && !ends.may_hold(b"q"));
    assert!(ends.end_before(b"q") && ends.begin_at_or_after(b"p"));
}

#[test]
fn an_end_without_a_successor_is_unbounded() {
    let last = [0xff; 400];
    assert_eq!(KeyEnds::of(b"a", &last).bounds(), KeyBounds { low: Some(b"a".to_vec()), high: None });
}

#[test]
fn ends_round_trip_and_inconsistent_ones_are_damage() {
    for (first, last) in [(vec![], vec![]), (b"a".to_vec(), long("x")), (long("a"), long("b"))] {
        let ends = KeyEnds::of(&first, &last);
        let mut bytes = Vec::new();
        ends.encode(&mut bytes);
        assert_eq!(KeyEnds::decode(&mut Reader::new(&bytes)), Ok(ends));
        for cut in 0..bytes.len() {
            assert!(KeyEnds::decode(&mut Reader::new(&bytes[..cut])).is_err());
        }
    }
    for (first, last, cuts) in [("b", "a", 0), ("a", "b", 1), ("a", "b", 2), ("a", "b", 4)] {
        let mut bytes = Vec::new();
        codec::put_bytes(&mut bytes, first.as_bytes());
        codec::put_bytes(&mut bytes, last.as_bytes());
        codec::put_u8(&mut bytes, cuts);
        assert!(KeyEnds::decode(&mut Reader::new(&bytes)).is_err());
    }
}
