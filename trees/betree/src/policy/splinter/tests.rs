use testudo_base::ObjectId;

use super::*;
use crate::Policy;
use testudo_sequence::Overwrites;

const OPTIONS: BeTreeOptions =
    BeTreeOptions { leaf_bytes: 3200, max_pivots: 8, ..BeTreeOptions::new(Policy::Splinter) };
const NODE: u64 = 8;

fn all_new() -> Overwrites {
    Overwrites::UNKNOWN.after(100, 0)
}

/// Pivots flushed of a node with these leaves.
fn flushed(incoming: u64, pending: &[u64], leaf_bytes: &[u64], overwrites: Overwrites) -> Vec<usize> {
    let leaf_bytes: Vec<Option<u64>> = leaf_bytes.iter().map(|&bytes| Some(bytes)).collect();
    OPTIONS.pivots_to_flush(&NodeLoad { incoming, pending, leaf_bytes: &leaf_bytes, overwrites })
}

#[test]
fn a_new_tier_is_not_merged() {
    assert_eq!(OPTIONS.tiers_to_join(100, &[100, 100], Overwrites::UNKNOWN), 0);
    assert_eq!(tiers_to_merge(NODE, &[100; 12], u64::MAX), None);
}

#[test]
fn equal_tiers_are_merged_eight_at_once() {
    assert_eq!(tiers_to_merge(NODE, &[100; 13], u64::MAX), Some(0..=7));
    let mut tiers = vec![100; 3];
    tiers.extend([800; 10]);
    assert_eq!(tiers_to_merge(NODE, &tiers, u64::MAX), Some(0..=2));
}

#[test]
fn remnants_are_merged_before_full_tiers() {
    let tiers = [900, 900, 900, 900, 2, 3, 900, 900, 900, 900, 900, 900, 900];
    assert_eq!(tiers_to_merge(NODE, &tiers, u64::MAX), Some(4..=5));
}

#[test]
fn nodes_merge_in_different_rounds() {
    let rounds: Vec<usize> = (0..8)
        .map(|node| (1..).find(|&count| tiers_to_merge(node, &vec![100; count], u64::MAX).is_some()).unwrap())
        .collect();
    assert_eq!(rounds, [13, 14, 15, 16, 17, 18, 19, 20]);
}

#[test]
fn roots_of_equal_trees_merge_in_different_rounds() {
    let first_merge = |stagger: u64| {
        let options = BeTreeOptions { stagger, ..OPTIONS };
        (1..)
            .find(|&count| options.tiers_to_merge(ObjectId(1), &vec![100; count], u64::MAX).is_some())
            .unwrap()
    };
    let mut rounds: Vec<usize> = (1..=16).map(first_merge).collect();
    rounds.sort_unstable();
    assert_eq!(rounds, [13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 18, 18, 19, 19, 20, 20]);
}

/// Adds equal tiers to a node that flushes nothing; returns writes per byte and the maximum number of tiers.
fn written_per_byte(rounds: u64) -> (f64, usize) {
    let mut tiers = Vec::new();
    let (mut written, mut most) = (0, 0);
    for _ in 0..rounds {
        tiers.insert(0, 100);
        match tiers_to_merge(NODE, &tiers, u64::MAX) {
            None => written += 100,
            Some(which) => {
                let bytes = tiers.drain(which.clone()).sum();
                written += bytes + if *which.start() > 0 { 100 } else { 0 };
                tiers.insert(*which.start(), bytes);
            }
        }
        most = tiers.len().max(most);
    }
    (written as f64 / (rounds * 100) as f64, most)
}

#[test]
fn a_byte_is_rewritten_about_once_per_eightfold_growth() {
    let (written, most) = written_per_byte(64);
    assert!(written < 2.0 && most <= 12, "{written} times, {most} tiers");
    let (written, most) = written_per_byte(512);
    assert!(written < 4.0 && most <= 12, "{written} times, {most} tiers");
}

#[test]
fn new_entries_may_exceed_the_leaves() {
    let leaves = [3200; 8];
    assert_eq!(flushed(100, &[3100; 8], &leaves, all_new()), Vec::<usize>::new());
    assert_eq!(flushed(100, &[3300; 8], &leaves, all_new()).len(), 1, "the node is full");
    assert_eq!(
        flushed(100, &[0, 0, 8000, 0, 0, 0, 0, 0], &leaves, all_new()),
        vec![2],
        "far more than it holds"
    );
}

#[test]
fn buffered_overwrites_stay_small() {
    let leaves = [3200; 8];
    let overwrites = Overwrites::UNKNOWN.after(100, 100);
    assert_eq!(flushed(100, &[590; 8], &leaves, overwrites), Vec::<usize>::new());
    assert_eq!(flushed(100, &[610; 8], &leaves, overwrites).len(), 1);
}

#[test]
fn sequential_updates_go_straight_into_the_last_leaf() {
    assert_eq!(flushed(9000, &[10, 10, 9000], &[3200; 3], all_new()), vec![2]);
    assert_eq!(flushed(100, &[100], &[0], Overwrites::UNKNOWN), vec![0], "there is nothing to rewrite");
}

#[test]
fn uniform_updates_flush_as_much_as_comes_in() {
    let mut pending = [2400u64; 8];
    let mut most = 0;
    for round in 0..80 {
        pending.iter_mut().for_each(|bytes| *bytes += 200);
        let chosen = flushed(1600, &pending, &[3200; 8], all_new());
        if round > 20 {
            most = chosen.iter().map(|&pivot| pending[pivot]).sum::<u64>().max(most);
        }
        chosen.iter().for_each(|&pivot| pending[pivot] = 0);
    }
    assert!(most <= 9000, "at most one leaf with what waits for it: {most} bytes");
}

/// Idle work of a node with these leaves.
fn idle(tier_bytes: &[u64], pending: &[u64], overwrites: Overwrites) -> Option<NodeWork> {
    let leaf_bytes = vec![Some(3200); pending.len()];
    let load = NodeLoad { incoming: 0, pending, leaf_bytes: &leaf_bytes, overwrites };
    OPTIONS.idle_work(tier_bytes, &load)
}

#[test]
fn an_idle_node_flushes_like_turtle_a_few_leaves_at_once() {
    assert_eq!(idle(&[6400], &[3200, 3200], all_new()), None);
    assert_eq!(idle(&[6401], &[3200, 3201], all_new()), Some(NodeWork::Flush(vec![1])));
    assert_eq!(idle(&[1700], &[800, 900], Overwrites::UNKNOWN.after(1, 1)), Some(NodeWork::Flush(vec![1])));
    assert_eq!(idle(&[32_000], &[4000; 8], all_new()), Some(NodeWork::Flush(vec![0, 1])));
}

#[test]
fn an_idle_node_merges_tiers_like_turtle() {
    assert_eq!(idle(&[100, 400, 300, 1600], &[2400], all_new()), Some(NodeWork::Merge(1..=2)));
    assert_eq!(idle(&[100, 400, 1600], &[2100], all_new()), None);
}

/// Work due in a node with these leaves, and its pressure.
fn due(tier_bytes: &[u64], pending: &[u64], overwrites: Overwrites) -> Option<(NodeWork, u64)> {
    let leaf_bytes = vec![Some(3200); pending.len()];
    let load = NodeLoad { incoming: 0, pending, leaf_bytes: &leaf_bytes, overwrites };
    OPTIONS.due_work(ObjectId(NODE), tier_bytes, &load, u64::MAX).map(|due| (due.work, due.pressure))
}

#[test]
fn excess_tiers_are_due_first_then_pivots_of_a_full_node() {
    assert_eq!(due(&[100; 12], &[150; 8], all_new()), None);
    assert_eq!(due(&[100; 13], &[3300; 8], all_new()), Some((NodeWork::Merge(0..=7), 277)));
    assert_eq!(due(&[3300; 8], &[3300; 8], all_new()), Some((NodeWork::Flush(vec![0]), 264)));
    let about_full = due(&[1000; 2], &[3000, 3000, 3000, 3000, 3000, 3000, 3000, 8000], all_new());
    assert_eq!(about_full, Some((NodeWork::Flush(vec![7]), 290)));
}

#[test]
fn updates_wait_for_a_node_a_quarter_above_its_target() {
    let is_pressing = |tiers: usize| {
        let (work, pressure) = due(&vec![100; tiers], &[100; 8], all_new()).unwrap();
        DueWork { work, pressure }.is_pressing()
    };
    assert!(!is_pressing(13) && !is_pressing(15) && is_pressing(16));
}
