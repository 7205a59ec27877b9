use super::*;
use testudo_sequence::TreeShare;

const OPTIONS: LsmOptions =
    LsmOptions { run_bytes: 100, growth_factor: 10, level1_flushes: 4, ..LsmOptions::new() };

fn level(filling: u64, emptying: u64, began: u64) -> LevelBytes {
    LevelBytes { filling, emptying, began }
}

fn tree(levels: &[LevelBytes], bottom: u64) -> TreeBytes {
    TreeBytes { levels: levels.to_vec(), bottom, flush: 100, ..TreeBytes::default() }
}

/// What has replaced so many of a hundred bytes.
fn replaced(percent: u64) -> Overwrites {
    (0..20).fold(Overwrites::UNKNOWN, |overwrites, _| overwrites.after(100, percent))
}

#[test]
fn levels_appear_as_the_bottom_grows_and_grow_by_one_factor() {
    let capacities = |bottom| OPTIONS.capacities(&tree(&[], bottom));
    assert_eq!(capacities(0), [400]);
    assert_eq!(capacities(4_000), [400]);
    assert_eq!(capacities(40_000), [400, 4_000]);
    assert_eq!(capacities(8_000), [400, 1_788]);
    assert_eq!(capacities(4_000_000).len(), 4);
}

#[test]
fn a_level_that_is_there_stays_until_it_is_far_too_many() {
    let present = [level(0, 0, 0); 2];
    assert_eq!(OPTIONS.capacities(&tree(&present, 3_000)).len(), 2);
    assert_eq!(OPTIONS.capacities(&tree(&present, 1_900)).len(), 1);
}

#[test]
fn what_is_overwritten_has_small_levels_above_the_bottom() {
    let capacities = |bottom, percent| {
        let overwrites = replaced(percent);
        OPTIONS.capacities(&TreeBytes { overwrites, ..tree(&[], bottom) })
    };
    assert_eq!(capacities(2_000, 0), [400]);
    assert!(capacities(2_000, 100)[0] < 210, "{:?}", capacities(2_000, 100));
    let last = *capacities(8_000, 100).last().unwrap();
    assert!(last <= 850, "{last} bytes above 8,000");
}

#[test]
fn where_most_bytes_are_outside_little_waits_and_moves_go_on() {
    let options = LsmOptions { tree_share: TreeShare::of(100, 9_900), ..OPTIONS };
    let tree = TreeBytes { overwrites: replaced(100), ..tree(&[level(20, 200, 400)], 8_000) };
    let (before, with_values_outside) = (OPTIONS.capacities(&tree), options.capacities(&tree));
    let last = |capacities: &[u64]| *capacities.last().unwrap();
    assert!(last(&with_values_outside) * 3 < last(&before), "{before:?}, {with_values_outside:?}");
    let capacities = [400];
    assert_eq!(OPTIONS.next_move(&tree, &capacities), None, "little has come in since");
    assert_eq!(options.next_move(&tree, &capacities), Some((0, 200)));
}

#[test]
fn a_level_is_handed_over_when_it_is_full_and_the_one_above_is_not_being_emptied() {
    let capacities = [400, 2_000];
    let hands_over =
        |number, levels: &[LevelBytes]| OPTIONS.hands_over(number, &tree(levels, 10_000), &capacities);
    assert!(!hands_over(0, &[level(300, 0, 0), level(0, 0, 0)]));
    assert!(hands_over(0, &[level(400, 0, 0), level(0, 0, 0)]));
    assert!(!hands_over(0, &[level(400, 1, 400), level(0, 0, 0)]), "it is being emptied still");
    assert!(hands_over(1, &[level(0, 0, 0), level(1_900, 0, 0)]));
    assert!(!hands_over(1, &[level(0, 10, 400), level(1_900, 0, 0)]), "half of what is above is in it");
    assert!(!hands_over(0, &[level(400, 0, 0), level(2_000, 10, 2_000)]), "the next one waits for its turn");
    assert!(hands_over(0, &[level(400, 0, 0), level(100, 1_500, 2_000)]));
}

#[test]
fn as_much_goes_out_as_has_come_in() {
    let options = LsmOptions { run_bytes: 10, ..OPTIONS };
    let due = |filling, emptying| {
        options.next_move(&tree(&[level(filling, emptying, 400)], 4_000), &[400]).map(|(_, bytes)| bytes)
    };
    assert_eq!(due(0, 400), None);
    assert_eq!(due(100, 400), Some(100), "no more than a flush at a time");
    assert_eq!(due(100, 300), None, "a quarter has come, a quarter has gone");
    assert_eq!(due(200, 300), Some(100));
    assert_eq!(due(400, 30), Some(30), "all of it when the level is full");
    let late = tree(&[level(0, 900, 900)], 4_000);
    assert_eq!(options.next_move(&late, &[400]), Some((0, 100)), "too much was handed over");
}

#[test]
fn a_lower_level_is_emptied_first() {
    let first = |levels: &[LevelBytes]| {
        let options = LsmOptions { run_bytes: 10, ..OPTIONS };
        options.next_move(&tree(levels, 40_000), &[400, 4_000]).map(|(level, _)| level)
    };
    assert_eq!(first(&[level(300, 400, 400), level(1_000, 4_000, 4_000)]), Some(1));
    assert_eq!(first(&[level(300, 400, 400), level(100, 3_000, 4_000)]), Some(0), "it has kept pace");
    assert_eq!(first(&[level(0, 0, 0), level(0, 4_000, 4_000)]), None);
}

#[test]
fn flushes_wait_for_moves_in_equal_parts() {
    let is_behind = |filling, emptying| {
        OPTIONS.behind_bytes(&tree(&[level(filling, emptying, 1_600)], 16_000), &[400]) > 0
    };
    assert!(is_behind(1_600, 0) && !is_behind(1_500, 0), "the next level is not ready for it");
    assert!(!is_behind(300, 1_600));
    assert!(is_behind(400, 1_600), "nothing has gone, and the level is full");
    assert!(!is_behind(400, 1_450));
    assert!(is_behind(901, 800) && !is_behind(900, 800), "half of it has gone");
    assert!(is_behind(1_600, 10));
}

#[test]
fn small_flushes_are_merged_with_each_other_and_large_ones_are_not() {
    assert_eq!(OPTIONS.parts_to_join(100, &[100, 400]), 1);
    assert_eq!(OPTIONS.parts_to_join(100, &[100, 150]), 2);
    assert_eq!(OPTIONS.parts_to_join(100, &[200, 100]), 0);
    assert_eq!(OPTIONS.parts_to_join(300, &[300]), 0);
}

#[test]
fn a_flush_goes_to_the_bottom_if_there_is_hardly_more() {
    assert!(OPTIONS.goes_to_bottom(100, &tree(&[], 0)));
    assert!(OPTIONS.goes_to_bottom(100, &tree(&[], 100)));
    assert!(!OPTIONS.goes_to_bottom(100, &tree(&[], 101)));
    assert!(!OPTIONS.goes_to_bottom(100, &tree(&[level(1, 0, 0)], 50)));
}

#[test]
fn an_idle_tree_keeps_little_above_its_bottom_if_that_replaces_something() {
    let idle = |upper, percent| {
        let overwrites = replaced(percent);
        OPTIONS.has_idle_work(&TreeBytes { overwrites, ..tree(&[level(upper, 0, 0)], 10_000) })
    };
    assert!(!idle(9_000, 0) && idle(11_000, 0));
    assert!(idle(600, 100) && !idle(400, 100));
}

#[test]
fn an_idle_tree_brings_down_nearly_all_where_pages_are_updated_and_only_there() {
    let options = LsmOptions { updates_pages: true, ..OPTIONS };
    let idle = |upper, bottom_entry| {
        options.has_idle_work(&TreeBytes { bottom_entry, ..tree(&[level(upper, 0, 0)], 100_000) })
    };
    assert!(idle(800, 124) && !idle(700, 124));
    assert!(!idle(90_000, 1_024) && idle(110_000, 1_024), "few of a kilobyte fit into a page");
}

#[test]
fn settings_have_bounds() {
    assert_eq!(LsmOptions::new().validate(), Ok(()));
    let wrong = [
        LsmOptions { run_bytes: 1, ..LsmOptions::new() },
        LsmOptions { growth_factor: 1, ..LsmOptions::new() },
        LsmOptions { level1_flushes: 0, ..LsmOptions::new() },
    ];
    assert!(wrong.iter().all(|options| options.validate().is_err()));
}
