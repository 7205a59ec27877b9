use super::*;
use crate::Policy;
use testudo_sequence::{Overwrites, TreeShare};

const OPTIONS: BeTreeOptions =
    BeTreeOptions { leaf_bytes: 3200, max_pivots: 8, ..BeTreeOptions::new(Policy::Turtle) };

/// Pivots flushed of a node with these leaves.
fn flushed(incoming: u64, pending: &[u64], leaf_bytes: &[u64]) -> Vec<usize> {
    let leaf_bytes: Vec<Option<u64>> = leaf_bytes.iter().map(|&bytes| Some(bytes)).collect();
    let overwrites = Overwrites::UNKNOWN;
    OPTIONS.pivots_to_flush(&NodeLoad { incoming, pending, leaf_bytes: &leaf_bytes, overwrites })
}

/// Number of older tiers with which a new one is merged without overwrites.
fn joined(bytes: u64, older: &[u64]) -> usize {
    OPTIONS.tiers_to_join(bytes, older, Overwrites::UNKNOWN)
}

#[test]
fn classes_double_from_a_thirty_second_of_a_leaf() {
    let class = |bytes| tier_class(&OPTIONS, bytes);
    assert_eq!([class(1), class(100), class(101), class(200), class(201)], [0, 0, 1, 1, 2]);
    assert_eq!([class(3200), class(6400), class(6401)], [5, 6, 7]);
}

#[test]
fn a_new_tier_absorbs_older_ones_up_to_its_class() {
    assert_eq!(joined(200, &[]), 0);
    assert_eq!(joined(200, &[400, 800]), 0, "both are larger");
    assert_eq!(joined(200, &[200, 400, 800]), 3, "a carry ripples as in a binary counter");
    assert_eq!(joined(200, &[200, 800]), 1);
    assert_eq!(joined(1500, &[50, 50, 3200]), 2, "the two small ones do not raise its class");
}

#[test]
fn a_flush_of_a_small_keyspace_rewrites_its_tiers_only_together() {
    assert_eq!(joined(50, &[50, 50]), 0, "the whole keyspace is not read and rewritten");
    assert_eq!(joined(50, &[50, 50, 50]), 3);
    assert_eq!(joined(50, &[50, 50, 200]), 0, "a larger one below does not count");
    assert_eq!(joined(100, &[100, 100, 100, 200, 400, 800]), 6, "then a carry goes on as usual");
}

#[test]
fn tiers_are_not_merged_beyond_an_eighth_of_the_buffer() {
    let eighth = max_buffered_bytes(&OPTIONS) / 8;
    assert_eq!(eighth, 2800);
    assert_eq!(joined(1400, &[1400]), 1);
    assert_eq!(joined(1401, &[1400]), 0);
    assert_eq!(joined(9000, &[1]), 0, "the incoming data alone is larger");
}

#[test]
fn the_fullest_pivots_are_flushed_until_enough_is_out() {
    let thresholds = [3200; 4];
    assert_eq!(flushed(3200, &[100, 3199, 0, 500], &thresholds), Vec::<usize>::new());
    assert_eq!(flushed(100, &[3300, 100, 5000, 3250], &thresholds), vec![2], "at least one");
    assert_eq!(flushed(7000, &[3300, 100, 5000, 3250], &thresholds), vec![2, 3], "the neighbor first");
    assert_eq!(flushed(100_000, &[3300, 100, 5000, 3250], &thresholds), vec![2, 3, 0]);
}

#[test]
fn children_due_together_are_flushed_in_turn() {
    let mut pending = [1600u64; 8];
    for _ in 0..40 {
        pending.iter_mut().for_each(|bytes| *bytes += 200);
        let chosen = flushed(1600, &pending, &[1600; 8]);
        assert_eq!(chosen.len(), 1, "as much flows out as came in: {pending:?}");
        pending[chosen[0]] = 0;
    }
    assert!(pending.iter().sum::<u64>() <= max_buffered_bytes(&OPTIONS));
}

#[test]
fn a_buffer_beyond_its_bound_is_repaired_below_the_threshold_too() {
    let pending = [3000u64; 8];
    let bound = max_buffered_bytes(&OPTIONS);
    assert!(pending.iter().sum::<u64>() > bound);
    let chosen = flushed(100, &pending, &[3200; 8]);
    let left: u64 = (0..8).filter(|pivot| !chosen.contains(pivot)).map(|pivot| pending[pivot]).sum();
    assert!(left <= bound && chosen.len() == 1, "{chosen:?}");
}

#[test]
fn a_small_leaf_is_rewritten_once_its_size_is_buffered() {
    let leaf_bytes = [Some(0), Some(900), Some(9000), None];
    let load =
        NodeLoad { incoming: 0, pending: &[0; 4], leaf_bytes: &leaf_bytes, overwrites: Overwrites::UNKNOWN };
    assert_eq!(thresholds(&OPTIONS, &load).0, [100, 900, 3200, 3200]);
}

#[test]
fn with_most_bytes_separated_less_is_buffered_for_leaves() {
    let leaf_bytes = [Some(3200); 4];
    let replacing = (0..20).fold(Overwrites::UNKNOWN, |overwrites, _| overwrites.after(100, 100));
    let thresholds = |tree_share, overwrites| {
        let options = BeTreeOptions { tree_share, ..OPTIONS };
        let load = NodeLoad { incoming: 0, pending: &[0; 4], leaf_bytes: &leaf_bytes, overwrites };
        let (thresholds, bound) = super::thresholds(&options, &load);
        (thresholds[0], bound)
    };
    let hundredth = TreeShare::of(1, 99);
    assert_eq!(thresholds(TreeShare::ALL, Overwrites::UNKNOWN), (3200, 22_400));
    assert_eq!(thresholds(hundredth, Overwrites::UNKNOWN), (1756, 3512));
    assert_eq!(thresholds(TreeShare::ALL, replacing), (1200, 2400));
    assert_eq!(thresholds(hundredth, replacing), (400, 800));
}

#[test]
fn excess_tiers_are_merged_where_least_is_written() {
    assert_eq!(tiers_to_merge(&[1; 12]), None);
    assert_eq!(tiers_to_merge(&[]), None);
    assert_eq!(tiers_to_merge(&[900, 1, 900, 900, 900, 2, 3, 900, 900, 900, 900, 900, 1]), Some(5..=6));
}

#[test]
fn a_small_leaf_far_above_its_threshold_goes_before_a_full_pivot() {
    assert_eq!(flushed(1000, &[3300, 900, 300], &[3200, 300, 3200]), vec![1]);
}
