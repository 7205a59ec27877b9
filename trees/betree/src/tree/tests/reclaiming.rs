//! Steps of reclaiming, whole and cut at a key, change no answer and come to an end.

use testudo_contract::{LeastGain, ReclaimTarget};

use super::*;
use crate::update::reclaim::target_of;

/// More steps than any of these trees needs.
const STEPS_MAX: u32 = 20_000;

impl Bed {
    /// Does the next step in key order, or the one that wins most, of at most so much of what waits for a
    /// leaf. `tried`: what was no progress since the tree has changed.
    fn step(&mut self, least_gain: LeastGain, waiting_max: u64, tried: &mut Vec<Reclaim>) -> Option<Reclaim> {
        loop {
            let limits = ReclaimLimits { space_bytes: 1 << 30, least_gain, but: tried };
            let mut reclaim = self.tree.pick_reclaim(&limits).unwrap()?;
            if let Target::Leaf { path, .. } = target_of(&reclaim).clone() {
                reclaim.target = ReclaimTarget::new(Target::Leaf { path, waiting_max });
            }
            let edit = self.tree.reclaim(&self.work, &reclaim).unwrap();
            let extents = Arc::clone(self.work.data.extents());
            if reclaim.is_progress(&edit, &extents) {
                tried.clear();
                if !reclaim.is_merge {
                    eprintln!("GOOD {:?}", reclaim);
                }
                let live_bytes = extents.stats().live_bytes;
                self.publish(edit);
                let wins = reclaim.is_merge || extents.stats().live_bytes < live_bytes;
                assert!(wins, "{reclaim:?} wins nothing");
                return Some(reclaim);
            }
            tried.push(reclaim);
        }
    }

    /// Entries that wait in tiers.
    fn waiting_bytes(&self) -> u64 {
        self.tree.stats().buffered_bytes
    }
}

fn random_updates(random: &mut SplitMix, delete_percent: u8) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
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
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = age_order::Found::new();
    for round in 0..30 {
        let updates = random_updates(&mut random, if (round / 10) % 2 == 1 { 80 } else { 15 });
        if random.percent(70) {
            bed.apply_on_top(updates)
        } else {
            bed.apply(updates)
        }
        for _ in 0..random.below(12) {
            let least_gain = if random.percent(50) { LeastGain::Any } else { LeastGain::None };
            bed.step(least_gain, 1 + random.below(20_000), &mut Vec::new());
        }
        bed.tree.check_invariants(true).unwrap();
        age_order::check(&bed, &mut found);
        if random.percent(30) {
            bed.run_jobs();
            age_order::check(&bed, &mut found);
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
    assert_eq!(bed.waiting_bytes(), 0, "something waits still");
    bed.tree.check_invariants(true).unwrap();
    bed.check(&mut random);
}

#[test]
fn steps_that_are_cut_at_a_key_change_no_answer_and_come_to_an_end() {
    for seed in 0..3 {
        random_steps(seed, turtle(4096, 4));
        random_steps(seed, splinter(4096, 4));
        random_steps(seed, turtle(100_000, 8));
    }
}

#[test]
fn of_what_waits_for_one_leaf_a_part_goes_there_at_a_time() {
    let mut bed = Bed::new(turtle(1 << 20, 8));
    let numbers = |numbers: std::ops::Range<u32>| {
        numbers.map(|n| (format!("key{n:05}").into_bytes(), Some(vec![b'v'; 100]))).collect()
    };
    bed.apply_on_top(numbers(0..1000));
    bed.apply_on_top(numbers(500..1500));
    let (mut waited, mut steps) = (bed.waiting_bytes(), 0);
    while let Some(reclaim) = bed.step(LeastGain::None, 40_000, &mut Vec::new()) {
        bed.tree.check_invariants(true).unwrap();
        if !reclaim.is_merge {
            continue;
        }
        let waits = bed.waiting_bytes();
        assert!(waits < waited && waited - waits < 80_000, "{waited} bytes waited, then {waits}");
        (waited, steps) = (waits, steps + 1);
    }
    assert!((4..10).contains(&steps), "{steps} steps for 220 KB of 40 KB each");
    bed.check(&mut SplitMix::new(1));
}
