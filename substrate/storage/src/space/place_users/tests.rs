use super::*;

fn set(places: &[u32]) -> PlaceSet {
    let mut set = PlaceSet::default();
    places.iter().for_each(|place| set.insert(*place));
    set
}

#[test]
fn a_place_is_in_use_while_a_version_lists_it() {
    let users = PlaceUsers::default();
    let take = |places: &[u32]| users.use_places(|used, _| (Arc::new(set(places)), used.clone()));
    let (first, used) = take(&[0, 64, 130]);
    assert_eq!(used, PlaceSet::default(), "no place is in use yet");
    let (second, used) = take(&[1]);
    assert_eq!(used, set(&[0, 64, 130]), "places of the first version");
    drop(first);
    let (_third, used) = take(&[2]);
    assert!(used.contains(1), "a place of an existing version");
    assert!(!used.contains(0) && !used.contains(130), "places of a dropped version");
    drop(second);
}

#[test]
fn versions_without_replaced_pages_are_counted() {
    let users = PlaceUsers::default();
    let has_plain = || users.use_places(|_, has_plain| (Arc::default(), has_plain)).1;
    assert!(!has_plain(), "no version exists");
    users.add_plain();
    users.add_plain();
    users.remove_plain();
    assert!(has_plain(), "one of two still exists");
    users.remove_plain();
    assert!(!has_plain(), "both are dropped");
}
