//! Reclaim steps, whole and cut at a key, change no answer and terminate.

use testudo_contract::Opaque;

use super::*;
use crate::update::reclaim::{Target, target_of};

/// More steps than any of these trees needs.
const STEPS_MAX: u32 = 20_000;

impl Bed {
    /// Does the step with the largest gain, moving at most `waiting_max` down. `tried`: steps without
    /// progress since the tree has changed.
    fn step(&mut self, least_gain: LeastGain, waiting_max: u64, tried: &mut Vec<Reclaim>) -> Option<Reclaim> {
        loop {
            let limits = ReclaimLimits { space_bytes: 1 << 30, least_gain, but: tried };
            let mut reclaim = self.tree.pick_reclaim(&limits).unwrap()?;
            if let Target::Down { first, count: 1, .. } = target_of(&reclaim).clone() {
                reclaim.target = Opaque::new(Target::Down { first, count: 1, waiting_max });
            }
            let edit = self.tree.reclaim(&self.work, &reclaim).unwrap();
            let extents = Arc::clone(self.work.data.extents());
            if reclaim.is_progress(&edit, &extents) {
                tried.clear();
                let live_bytes = extents.stats().live_bytes;
                self.publish(edit);
                let wins = reclaim.is_merge || extents.stats().live_bytes < live_bytes;
                assert!(wins, "{reclaim:?} gains nothing");
                return Some(reclaim);
            }
            tried.push(reclaim);
        }
    }
}

fn random_steps(seed: u64, options: LsmOptions) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = RunsByAge::new();
    for round in 0..30 {
        let batch = random_batch(&mut random, 300, if (round / 10) % 2 == 1 { 80 } else { 15 });
        if random.percent(60) {
            bed.apply_on_top(batch)
        } else {
            bed.apply(batch)
        }
        for _ in 0..random.below(12) {
            let least_gain = if random.percent(50) { LeastGain::Any } else { LeastGain::None };
            bed.step(least_gain, 1 + random.below(20_000), &mut Vec::new());
        }
        bed.tree.check_invariants(true).unwrap();
        bed.check_runs(&mut found);
        if random.percent(30) {
            bed.run_jobs();
            bed.check_runs(&mut found);
        }
        if random.percent(20) {
            bed.reopen();
        }
        if random.percent(20) {
            bed.check(&mut random);
        }
    }
    let mut tried = Vec::new();
    for _ in 0..STEPS_MAX {
        if bed.step(LeastGain::None, 1 + random.below(20_000), &mut tried).is_none() {
            break;
        }
    }
    assert_eq!(
        bed.tree.stats().buffered_bytes,
        0,
        "entries are still above the bottom: {:?}",
        bed.tree.outline()
    );
    bed.check_runs(&mut found);
    bed.check(&mut random);
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
    while bed.step(LeastGain::Any, u64::MAX, &mut Vec::new()).is_some() {}
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
            bed.step(least_gain, waiting_max, &mut Vec::new());
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
