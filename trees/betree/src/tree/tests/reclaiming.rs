//! Reclaim steps, whole and cut at a key, change no answer and terminate.

use testudo_contract::{LeastGain, Opaque};

use testudo_sequence::target_of;
use testudo_treebed::random_reclaim_steps;

use super::*;

/// Does the next step in key order, or the one with the largest gain, flushing at most `waiting_max` into a
/// leaf. `tried`: steps without progress since the tree has changed.
fn step(bed: &mut Bed, least_gain: LeastGain, waiting_max: u64, tried: &mut Vec<Reclaim>) -> Option<Reclaim> {
    bed.reclaim_step(least_gain, tried, |reclaim| {
        if let Target::Leaf { path, .. } = target_of::<Target>(reclaim).clone() {
            reclaim.target = Opaque::new(Target::Leaf { path, waiting_max });
        }
    })
}

/// Does a step that flushes entries, regardless of its gain.
fn flush_step(bed: &mut Bed, waiting_max: u64) {
    let mut but = Vec::new();
    loop {
        let limits = ReclaimLimits { space_bytes: 1 << 30, least_gain: LeastGain::None, but: &but };
        let mut reclaim = bed.tree.pick_reclaim(&limits).unwrap().expect("something waits");
        let Target::Leaf { path, .. } = target_of::<Target>(&reclaim).clone() else {
            but.push(reclaim);
            continue;
        };
        reclaim.target = Opaque::new(Target::Leaf { path, waiting_max });
        let edit = bed.tree.reclaim(&bed.work, &reclaim).unwrap();
        return bed.publish(edit);
    }
}

fn tiers(bed: &Bed) -> usize {
    bed.lines("tier").len()
}

/// Bytes of entries buffered in tiers.
fn waiting_bytes(bed: &Bed) -> u64 {
    bed.tree.stats().buffered_bytes
}

fn random_updates(random: &mut SplitMix, delete_percent: u8) -> Batch {
    let (first, width) = (random.below(2500), 1 + random.below(500));
    let mut updates = BTreeMap::new();
    for _ in 0..1 + random.below(300) {
        let key = match random.percent(50) {
            true => random_key(random),
            false => format!("key{:05}", first + random.below(width)).into_bytes(),
        };
        let value = (!random.percent(delete_percent)).then(|| random_value(random));
        updates.insert(key, value);
    }
    updates
}

fn random_steps(seed: u64, options: BeTreeOptions) {
    random_reclaim_steps(seed, options, random_updates, step);
}

#[test]
fn steps_cut_at_a_key_change_no_answer_and_terminate() {
    for seed in some_of(0..3, 3, 0) {
        random_steps(seed, turtle(4096, 4));
        random_steps(seed, splinter(4096, 4));
        random_steps(seed, turtle(100_000, 8));
    }
}

#[test]
fn entries_buffered_for_a_leaf_are_flushed_in_parts() {
    let mut bed = Bed::new(turtle(1 << 20, 8));
    let numbers = |numbers: std::ops::Range<u32>| {
        numbers.map(|n| (format!("key{n:05}").into_bytes(), Some(vec![b'v'; 100]))).collect()
    };
    bed.apply_on_top(numbers(0..1000));
    bed.apply_on_top(numbers(500..1500));
    let (mut waited, mut steps) = (waiting_bytes(&bed), 0);
    while let Some(reclaim) = step(&mut bed, LeastGain::None, 40_000, &mut Vec::new()) {
        bed.tree.check_invariants(true).unwrap();
        if !reclaim.is_merge {
            waited = waiting_bytes(&bed);
            continue;
        }
        let waits = waiting_bytes(&bed);
        assert!(waits < waited && waited - waits < 80_000, "{waited} bytes buffered, then {waits}");
        (waited, steps) = (waits, steps + 1);
    }
    assert!((4..10).contains(&steps), "{steps} steps for 220 KB of 40 KB each");
    bed.check(&mut SplitMix::new(1));
}

#[test]
fn small_tiers_on_top_are_merged() {
    let mut bed = Bed::new(turtle(1 << 20, 8));
    for first in 0..12 {
        let key = |n: u32| format!("key{:05}", n * 12 + first).into_bytes();
        bed.apply_on_top((0..20).map(|n| (key(n), Some(vec![b'v'; 100]))).collect());
    }
    let live_bytes = |bed: &Bed| bed.work.data.extents().stats().live_bytes;
    let before = live_bytes(&bed);
    while step(&mut bed, LeastGain::Any, u64::MAX, &mut Vec::new()).is_some() {}
    assert!(tiers(&bed) <= 2, "{} tiers", tiers(&bed));
    assert!(live_bytes(&bed) < before / 2, "{before} bytes, then {}", live_bytes(&bed));
    bed.check(&mut SplitMix::new(1));
}

#[test]
fn runs_shared_by_several_nodes_are_freed_in_one_step() {
    let mut bed = Bed::new(turtle(4096, 8));
    let leaves = (0..250).map(|n| (format!("key{:05}", n * 12).into_bytes(), Some(vec![b'v'; 100])));
    bed.apply(leaves.collect());
    assert_eq!((bed.tree.stats().height, tiers(&bed)), (1, 0));
    for first in 0..16 {
        let key = |n: u32| format!("key{:05}", n * 64 + first).into_bytes();
        bed.apply_on_top((0..50).map(|n| (key(n), Some(vec![b'v'; 100]))).collect());
    }
    // Each node into which the root is split keeps all tiers.
    while bed.tree.stats().height < 2 {
        flush_step(&mut bed, 2000);
    }
    let before = tiers(&bed);
    assert!(before > 16, "{before} tiers");
    // A step without gain would fail.
    let mut is_of_several = false;
    while let Some(reclaim) = step(&mut bed, LeastGain::Any, u64::MAX, &mut Vec::new()) {
        is_of_several |= matches!(target_of(&reclaim), Target::Tiers { nodes, .. } if nodes.len() > 1);
    }
    assert!(is_of_several && tiers(&bed) < before / 4, "{} tiers", tiers(&bed));
    bed.check_runs(&mut RunsByAge::new());
    bed.check(&mut SplitMix::new(1));
}
