use super::*;
use crate::{
    LsmOptions,
    policy::{LevelBytes, TreeBytes},
};

#[test]
fn pair_sizes_never_shrink_levels_below_their_bytes() {
    for sizes in [PairSizes::of(100, 0), PairSizes::of(0, 0), PairSizes::of(0, 500)] {
        assert_eq!(sizes, PairSizes::WHOLE);
    }
    let sizes = PairSizes::of(100, 300);
    assert_eq!((sizes.pairs_of(50), sizes.own_of(200)), (200, 50));
    assert_eq!(PairSizes::of(1, u64::MAX).own_of(100), 0);
}

#[test]
fn levels_sized_by_pairs_are_fewer_and_smaller() {
    let by_references =
        LsmOptions { run_bytes: 100, growth_factor: 8, level1_flushes: 4, ..LsmOptions::new() };
    let by_pairs =
        LsmOptions { pair_sizes: PairSizes::of(1_000, 3_000).sizing_levels(true), ..by_references };
    let tree = TreeBytes { bottom: 40_000, flush: 100, ..TreeBytes::default() };
    assert_eq!(by_references.capacities(&tree), [400, 1_856, 8_617], "the last has pairs of 34,468");
    let capacities = by_pairs.capacities(&tree);
    assert_eq!(capacities, [400, 2_000], "as many flushes, and pairs of 8,000");
}

#[test]
fn moves_into_the_bottom_shrink_if_values_move_back() {
    let whole = LsmOptions { run_bytes: 100, growth_factor: 8, level1_flushes: 4, ..LsmOptions::new() };
    let referring = LsmOptions { pair_sizes: PairSizes::of(1_000, 3_000), ..whole };
    let level = |emptying| LevelBytes { filling: 0, emptying, began: emptying };
    let full = LevelBytes { filling: 10_000, emptying: 2_000, began: 2_000 };
    let tree = |levels: &[LevelBytes]| TreeBytes {
        levels: levels.to_vec(),
        bottom: 40_000,
        flush: 100,
        ..TreeBytes::default()
    };
    let bottom = tree(&[full]);
    assert_eq!(whole.next_move(&bottom, &[400]), Some((0, 400)));
    assert_eq!(referring.next_move(&bottom, &[400]), Some((0, 100)));
    let upper = tree(&[full, level(0)]);
    assert_eq!(referring.next_move(&upper, &[400, 4_000]), Some((0, 400)), "no value moves back there");
}
