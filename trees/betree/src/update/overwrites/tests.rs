use super::*;

#[test]
fn a_share_is_stored_as_it_is_and_one_beyond_all_is_refused() {
    assert_eq!(Overwrites::UNKNOWN.stored(), None);
    for (incoming, dropped) in [(7, 0), (7, 3), (1 << 60, 1 << 60)] {
        let seen = Overwrites::UNKNOWN.after(incoming, dropped);
        assert_eq!(seen.stored().and_then(Overwrites::of_stored), Some(seen));
    }
    assert_eq!(Overwrites::of_stored(257), None);
}
