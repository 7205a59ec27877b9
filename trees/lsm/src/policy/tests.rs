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

/// Overwrites at this percentage.
fn replaced(percent: u64) -> Overwrites {
    (0..20).fold(Overwrites::UNKNOWN, |overwrites, _| overwrites.after(100, percent))
}

#[test]
fn levels_are_added_as_the_bottom_grows_by_one_factor() {
    let capacities = |bottom| OPTIONS.capacities(&tree(&[], bottom));
    assert_eq!(capacities(0), [400]);
    assert_eq!(capacities(4_000), [400]);
    assert_eq!(capacities(40_000), [400, 4_000]);
    assert_eq!(capacities(8_000), [400, 1_788]);
    assert_eq!(capacities(4_000_000).len(), 4);
}

#[test]
fn an_existing_level_stays_until_there_are_far_too_many() {
    let present = [level(0, 0, 0); 2];
    assert_eq!(OPTIONS.capacities(&tree(&present, 3_000)).len(), 2);
    assert_eq!(OPTIONS.capacities(&tree(&present, 1_900)).len(), 1);
}

#[test]
fn overwrites_make_levels_above_the_bottom_small() {
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
fn with_most_bytes_separated_levels_are_small_and_moves_continue() {
    let options = LsmOptions { tree_share: TreeShare::of(100, 9_900), ..OPTIONS };
    let tree = TreeBytes { overwrites: replaced(100), ..tree(&[level(20, 200, 400)], 8_000) };
    let (before, with_separated_values) = (OPTIONS.capacities(&tree), options.capacities(&tree));
    let last = |capacities: &[u64]| *capacities.last().unwrap();
    assert!(last(&with_separated_values) * 3 < last(&before), "{before:?}, {with_separated_values:?}");
    let capacities = [400];
    assert_eq!(OPTIONS.next_move(&tree, &capacities), None, "little new data");
    assert_eq!(options.next_move(&tree, &capacities), Some((0, 200)));
}

#[test]
fn a_full_level_is_handed_over_unless_the_one_above_is_emptying() {
    let capacities = [400, 2_000];
    let hands_over =
        |number, levels: &[LevelBytes]| OPTIONS.hands_over(number, &tree(levels, 10_000), &capacities);
    assert!(!hands_over(0, &[level(300, 0, 0), level(0, 0, 0)]));
    assert!(hands_over(0, &[level(400, 0, 0), level(0, 0, 0)]));
    assert!(!hands_over(0, &[level(400, 1, 400), level(0, 0, 0)]), "it is still being emptied");
    assert!(hands_over(1, &[level(0, 0, 0), level(1_900, 0, 0)]));
    assert!(!hands_over(1, &[level(0, 10, 400), level(1_900, 0, 0)]), "half of the level above is in it");
    assert!(
        !hands_over(0, &[level(400, 0, 0), level(2_000, 10, 2_000)]),
        "the next one waits to be handed over"
    );
    assert!(hands_over(0, &[level(400, 0, 0), level(100, 1_500, 2_000)]));
}

#[test]
fn levels_empty_at_the_pace_they_fill() {
    let options = LsmOptions { run_bytes: 10, ..OPTIONS };
    let due = |filling, emptying| {
        options.next_move(&tree(&[level(filling, emptying, 400)], 4_000), &[400]).map(|(_, bytes)| bytes)
    };
    assert_eq!(due(0, 400), None);
    assert_eq!(due(100, 400), Some(100), "no more than a flush at a time");
    assert_eq!(due(100, 300), None, "a quarter filled, a quarter emptied");
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
    assert_eq!(
        first(&[level(300, 400, 400), level(100, 3_000, 4_000)]),
        Some(0),
        "the lower level has kept pace"
    );
    assert_eq!(first(&[level(0, 0, 0), level(0, 4_000, 4_000)]), None);
}

#[test]
fn flushes_wait_for_equal_parts_of_moves() {
    let is_behind = |filling, emptying| {
        OPTIONS.behind_bytes(&tree(&[level(filling, emptying, 1_600)], 16_000), &[400]) > 0
    };
    assert!(is_behind(1_600, 0) && !is_behind(1_500, 0), "the next level is not ready");
    assert!(!is_behind(300, 1_600));
    assert!(is_behind(400, 1_600), "nothing was emptied, and the level is full");
    assert!(!is_behind(400, 1_450));
    assert!(is_behind(901, 800) && !is_behind(900, 800), "half of it was emptied");
    assert!(is_behind(1_600, 10));
}

#[test]
fn only_small_flushes_are_merged_with_each_other() {
    assert_eq!(OPTIONS.parts_to_join(100, &[100, 400]), 1);
    assert_eq!(OPTIONS.parts_to_join(100, &[100, 150]), 2);
    assert_eq!(OPTIONS.parts_to_join(100, &[200, 100]), 0);
    assert_eq!(OPTIONS.parts_to_join(300, &[300]), 0);
}

#[test]
fn a_flush_as_large_as_the_tree_goes_to_the_bottom() {
    assert!(OPTIONS.goes_to_bottom(100, &tree(&[], 0)));
    assert!(OPTIONS.goes_to_bottom(100, &tree(&[], 100)));
    assert!(!OPTIONS.goes_to_bottom(100, &tree(&[], 101)));
    assert!(!OPTIONS.goes_to_bottom(100, &tree(&[level(1, 0, 0)], 50)));
}

#[test]
fn an_idle_tree_keeps_few_overwrites_above_its_bottom() {
    let idle = |upper, percent| {
        let overwrites = replaced(percent);
        OPTIONS.has_idle_work(&TreeBytes { overwrites, ..tree(&[level(upper, 0, 0)], 10_000) })
    };
    assert!(!idle(9_000, 0) && idle(11_000, 0));
    assert!(idle(600, 100) && !idle(400, 100));
}

#[test]
fn an_idle_tree_moves_nearly_all_down_only_with_page_updates() {
    let options = LsmOptions { updates_pages: true, ..OPTIONS };
    let idle = |upper, bottom_entry| {
        options.has_idle_work(&TreeBytes { bottom_entry, ..tree(&[level(upper, 0, 0)], 100_000) })
    };
    assert!(idle(800, 124) && !idle(700, 124));
    assert!(!idle(90_000, 1_024) && idle(110_000, 1_024), "its values continue");
    let direct = LsmOptions { flushes_directly: true, ..options };
    let tree = |upper| TreeBytes { bottom_entry: 1_024, ..tree(&[level(upper, 0, 0)], 100_000) };
    assert!(direct.has_idle_work(&tree(800)), "direct flushes need empty levels");
    assert!(!idle(90_000, 1_400) && idle(110_000, 1_400), "two such entries leave a third of a page empty");
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
