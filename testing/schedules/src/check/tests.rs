use super::{Image, check};
use crate::history::{Action, Event, History, Key, Value};

fn value(text: &str) -> Value {
    (text != "-").then(|| text.to_owned())
}

fn cells(text: &str) -> Vec<(Key, Value)> {
    text.split(' ').map(|cell| cell.split_once('=').unwrap()).map(|(k, v)| (k.to_owned(), value(v))).collect()
}

fn event(invoked: u64, returned: u64, action: Action) -> Event {
    Event { client: 0, invoked, returned: Some(returned), action, is_synced: false }
}

fn write(invoked: u64, returned: u64, text: &str) -> Event {
    event(invoked, returned, Action::Write(cells(text)))
}

fn synced(invoked: u64, returned: u64, text: &str) -> Event {
    Event { is_synced: true, ..write(invoked, returned, text) }
}

fn look(invoked: u64, returned: u64, text: &str) -> Event {
    event(invoked, returned, Action::Look(cells(text)))
}

fn get(invoked: u64, returned: u64, key: &str, found: &str) -> Event {
    event(invoked, returned, Action::Get(key.to_owned(), value(found)))
}

fn modify(invoked: u64, returned: u64, key: &str, before: &str, after: &str) -> Event {
    let action = Action::Modify { key: key.to_owned(), before: value(before), after: value(after) };
    event(invoked, returned, action)
}

fn is_valid(events: &[Event]) -> bool {
    check(&History(events.to_vec()), None).is_ok()
}

fn is_valid_with(events: &[Event], image: &str) -> bool {
    let cells = cells(image);
    let keys: Vec<Key> = cells.iter().map(|(key, _)| key.clone()).collect();
    let image: Image = cells.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    check(&History(events.to_vec()), Some((&keys, &image))).is_ok()
}

#[test]
fn a_read_during_a_write_may_see_either_side_of_it() {
    assert!(is_valid(&[write(0, 9, "a=1"), get(1, 2, "a", "-"), get(3, 4, "a", "1")]));
}

#[test]
fn reads_never_go_back_in_time() {
    assert!(!is_valid(&[write(0, 9, "a=1"), get(1, 2, "a", "1"), get(3, 4, "a", "-")]));
}

#[test]
fn a_read_after_a_write_sees_it() {
    assert!(!is_valid(&[write(0, 1, "a=1"), get(2, 3, "a", "-")]));
    assert!(!is_valid(&[write(0, 1, "a=1"), write(2, 3, "a=2"), get(4, 5, "a", "1")]));
}

#[test]
fn a_value_that_was_never_written_is_detected() {
    assert!(!is_valid(&[write(0, 1, "a=1"), get(2, 3, "a", "7")]));
}

#[test]
fn two_swaps_of_the_same_value_cannot_both_succeed() {
    assert!(is_valid(&[modify(0, 9, "a", "-", "1"), modify(1, 8, "a", "1", "2")]));
    assert!(!is_valid(&[modify(0, 9, "a", "-", "1"), modify(1, 8, "a", "-", "2")]));
}

#[test]
fn a_failed_swap_must_have_seen_another_value() {
    assert!(is_valid(&[write(0, 1, "a=1"), write(2, 9, "a=2"), look(3, 4, "a=2")]));
    assert!(!is_valid(&[write(0, 1, "a=1"), look(3, 4, "a=2")]));
}

#[test]
fn a_snapshot_of_a_partial_batch_is_detected() {
    assert!(is_valid(&[write(0, 9, "a=1 b=1"), look(1, 2, "a=- b=-"), look(3, 4, "a=1 b=1")]));
    assert!(!is_valid(&[write(0, 9, "a=1 b=1"), look(1, 2, "a=1 b=-")]));
}

#[test]
fn plain_reads_may_see_a_partial_batch() {
    assert!(is_valid(&[write(0, 9, "a=1 b=1"), get(1, 2, "a", "1"), get(3, 4, "b", "-")]));
}

#[test]
fn snapshots_that_disagree_on_the_order_are_detected() {
    let writes = [write(0, 9, "a=1"), write(0, 9, "b=1")];
    let with = |looks: [Event; 2]| is_valid(&[writes.to_vec(), looks.to_vec()].concat());
    assert!(with([look(1, 2, "a=1 b=-"), look(3, 4, "a=1 b=1")]));
    assert!(!with([look(1, 2, "a=1 b=-"), look(3, 4, "a=- b=1")]));
}

#[test]
fn a_snapshot_older_than_its_creation_is_detected() {
    assert!(!is_valid(&[write(0, 1, "a=1"), look(2, 3, "a=-")]));
}

#[test]
fn a_snapshot_of_later_writes_is_detected() {
    assert!(!is_valid(&[look(0, 1, "a=1"), write(2, 3, "a=1")]));
}

#[test]
fn a_changing_snapshot_is_detected() {
    assert!(!is_valid(&[write(0, 9, "a=1"), look(1, 2, "a=- a=1")]));
}

#[test]
fn an_unanswered_write_may_or_may_not_have_happened() {
    let open = Event { returned: None, ..write(0, 0, "a=1") };
    assert!(is_valid(&[open.clone(), get(5, 6, "a", "-"), get(7, 8, "a", "1")]));
    assert!(!is_valid(&[open, get(5, 6, "a", "1"), get(7, 8, "a", "-")]));
}

#[test]
fn an_image_has_all_synced_writes_and_may_lack_others() {
    let events = [write(0, 1, "a=1"), synced(2, 3, "b=1"), write(4, 5, "a=2")];
    assert!(is_valid_with(&events, "a=1 b=1"));
    assert!(is_valid_with(&events, "a=2 b=1"));
    assert!(!is_valid_with(&events, "a=- b=-"));
    assert!(!is_valid_with(&events, "a=- b=1"), "a hole in the order");
}

#[test]
fn an_image_never_shows_a_partial_batch() {
    assert!(is_valid_with(&[write(0, 1, "a=1 b=1")], "a=- b=-"));
    assert!(!is_valid_with(&[write(0, 1, "a=1 b=1")], "a=1 b=-"));
}

#[test]
fn writes_before_a_persist_are_in_the_image() {
    let persist = Event { is_synced: true, ..event(4, 5, Action::Persist) };
    let events = [write(0, 1, "a=1"), persist, write(6, 7, "a=2")];
    assert!(is_valid_with(&events, "a=1"));
    assert!(!is_valid_with(&events, "a=-"));
}
