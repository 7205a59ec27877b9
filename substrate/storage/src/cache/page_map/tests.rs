use super::*;

#[test]
fn traces_round_trip_through_a_word() {
    for trace in [Trace::Unknown, Trace::In(0), Trace::In(77), Trace::Gone(0), Trace::Gone(GONE - 1)] {
        assert_eq!(Trace::of(trace.word()), trace);
    }
}

#[test]
fn an_entry_changes_only_from_the_expected_state() {
    let map = PageMap::new();
    assert!(map.entry(5).is_none());
    let entry = map.make_entry(5).unwrap();
    assert!(entry.change(Trace::Unknown, Trace::In(1)));
    assert!(!entry.change(Trace::Unknown, Trace::In(2)));
    assert_eq!(map.entry(5).unwrap().clear(), Trace::In(1));
    assert_eq!(entry.get(), Trace::Unknown);
    assert!(map.make_entry(TABLE_PAGES * TABLE_COUNT).is_none());
}

#[test]
fn ages_wrap_around() {
    assert_eq!(age(7, 3), 4);
    assert_eq!(age(GONE + 2, GONE - 1), 3);
}
