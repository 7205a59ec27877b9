//! Reclaim steps, whole and cut at a key, change no answer and terminate.

use testudo_contract::Opaque;
use testudo_sequence::target_of;
use testudo_treebed::random_reclaim_steps;

use super::*;
use crate::update::reclaim::Target;

/// Does the step with the largest gain, moving at most `waiting_max` down. `tried`: steps without progress
/// since the tree has changed.
fn step(bed: &mut Bed, least_gain: LeastGain, waiting_max: u64, tried: &mut Vec<Reclaim>) -> Option<Reclaim> {
    bed.reclaim_step(least_gain, tried, |reclaim| {
        if let Target::Down { first, count: 1, .. } = target_of::<Target>(reclaim).clone() {
            reclaim.target = Opaque::new(Target::Down { first, count: 1, waiting_max });
        }
    })
}

fn random_steps(seed: u64, options: LsmOptions) {
    random_reclaim_steps(seed, options, |random, deletes| random_batch(random, 300, deletes), step);
}

#[test]
fn random_steps_change_no_answer_and_terminate() {
    for seed in 0..5 {
        random_steps(seed, options(4096, 3, 2));
        random_steps(seed + 10, options(20_000, 10, 4));
    }
}

#[test]
fn small_flushes_on_top_are_merged() {
    let mut bed = Bed::new(options(1 << 20, 10, 4));
    for first in 0..12 {
        let key = |n: u32| format!("key{:05}", n * 12 + first).into_bytes();
        bed.apply_on_top((0..20).map(|n| (key(n), Some(vec![b'v'; 100]))).collect());
    }
    let live_bytes = |bed: &Bed| bed.work.data.extents().stats().live_bytes;
    let before = live_bytes(&bed);
    while step(&mut bed, LeastGain::Any, u64::MAX, &mut Vec::new()).is_some() {}
    assert!(bed.lines("filling").len() <= 2, "{:?}", bed.tree.outline());
    assert!(live_bytes(&bed) < before / 2, "{before} bytes, then {}", live_bytes(&bed));
    bed.check(&mut SplitMix::new(1));
}

/// Keys are inserted and deleted in order, as in a queue, on a device that is full now and then.
fn queue(seed: u64, options: LsmOptions) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = RunsByAge::new();
    let key = |number: u64| format!("key{number:05}").into_bytes();
    let (mut first, mut end) = (0, 0);
    for round in 0..60 {
        let (is_filling, is_full) = (round % 20 < 12, round % 10 > 6);
        let mut batch = Batch::new();
        for _ in 0..random.below(if is_filling { 200 } else { 60 }) {
            batch.insert(key(end), Some(vec![b'v'; 100]));
            end += 1;
        }
        for _ in 0..random.below(if is_filling { 20 } else { 300 }).min(end - first) {
            batch.insert(key(first), None);
            first += 1;
        }
        if is_full {
            bed.apply_on_top(batch)
        } else {
            bed.apply(batch)
        }
        for _ in 0..if is_full { random.below(6) } else { 0 } {
            let least_gain = if random.percent(50) { LeastGain::Any } else { LeastGain::None };
            let waiting_max = if random.percent(50) { u64::MAX } else { 1 + random.below(20_000) };
            step(&mut bed, least_gain, waiting_max, &mut Vec::new());
        }
        let jobs_max = if random.percent(30) { 2000 } else { random.below(4) };
        bed.run_jobs_up_to(jobs_max, random.percent(10));
        if round % 4 == 0 {
            bed.check_runs(&mut found);
        }
        bed.check(&mut random);
    }
}

#[test]
fn a_queue_on_a_full_device_changes_no_answer() {
    for seed in 0..3 {
        queue(seed, options(4096, 2, 1));
        queue(seed + 10, options(4096, 4, 2));
        queue(seed + 20, options(100_000, 10, 4));
    }
}
