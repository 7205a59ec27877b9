use std::collections::BTreeMap;

use testudo_base::ObjectId;
use testudo_env::SplitMix;
use testudo_share::some_of;
use testudo_treebed::{Batch, RunsByAge, random_range};

use super::*;

mod bed;
mod border;

use bed::{Bed, Family, random_batch};

/// Small enough that a few thousand records are many portions.
const SMALL: [Family; 3] = [Family::turtle(4096, 4), Family::splinter(8192, 8), Family::leveled(4096, 3, 2)];

/// Updates, two-phase jobs, turns, reopening and reclaiming, in random order.
fn random_script(seed: u64, from: Family, to: Family) -> u32 {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(from);
    let mut found = RunsByAge::new();
    for _ in 0..6 {
        bed.apply(random_batch(&mut random, 400, 10));
    }
    bed.move_to(to);
    let mut prepared = None;
    let mut turns = 0;
    for step in 0..140 {
        match random.below(20) {
            0..4 => bed.apply(random_batch(&mut random, 120, 20)),
            4 => bed.apply_on_top(random_batch(&mut random, 60, 60)),
            5 => bed.reopen(),
            6 => bed.reclaim(),
            7 if bed.is_moving() && random.percent(40) => {
                bed.turn();
                turns += 1;
            }
            8..11 => prepared = bed.prepare(),
            _ => {
                if let Some(half) = prepared.take().or_else(|| bed.prepare()) {
                    bed.install(half);
                }
            }
        }
        found.note(&bed.runs());
        if step % 5 == 0 {
            bed.check_runs(&mut found);
            bed.check(&mut random);
        }
        if !bed.is_moving() && random.percent(30) {
            bed.move_to(if bed.family() == from { to } else { from });
        }
    }
    drop(prepared);
    bed.finish();
    bed.check_runs(&mut found);
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
    turns
}

#[test]
fn a_migrating_tree_and_its_runs_alone_match_a_map() {
    let mut turns = 0;
    for seed in 0..4 {
        for (from, to) in [(0, 2), (1, 2), (2, 0), (2, 1)] {
            turns += random_script(seed, SMALL[from], SMALL[to]);
        }
    }
    assert!(turns >= 16, "scripts have {turns} turns");
}

#[test]
fn ranges_are_compacted_on_both_sides_of_the_border() {
    let mut jobs = 0;
    for seed in some_of(0..3, 3, 0) {
        for (from, to) in [(0, 2), (1, 2), (2, 0), (2, 1)] {
            let mut random = SplitMix::new(seed);
            let mut bed = Bed::new(SMALL[from]);
            let mut found = RunsByAge::new();
            for _ in 0..6 {
                bed.apply(random_batch(&mut random, 400, 10));
            }
            bed.move_to(SMALL[to]);
            for step in 0..30 {
                bed.apply(random_batch(&mut random, 100, 30));
                for _ in 0..random.below(4) {
                    bed.prepare().map(|half| bed.install(half));
                }
                if bed.is_moving() && random.percent(10) {
                    bed.turn();
                }
                let range = random_range(&mut random);
                jobs += bed.compact_range(&range);
                assert_eq!(bed.compact_range(&range), 0, "the range is compact");
                bed.check(&mut random);
                if step % 4 == 0 {
                    bed.check_runs(&mut found);
                }
                if random.percent(20) {
                    bed.reopen();
                }
            }
            bed.finish();
            bed.check_runs(&mut found);
            bed.check(&mut random);
        }
    }
    assert!(jobs > 100, "{jobs} jobs");
}

/// Only the moved data is written, and only once.
#[test]
fn space_stays_bounded_and_is_released_completely() {
    let mut random = SplitMix::new(9);
    for (from, to) in [(0, 2), (2, 0)] {
        let mut bed = Bed::new(SMALL[from]);
        for _ in 0..20 {
            bed.apply(random_batch(&mut random, 400, 0));
        }
        let before = bed.live_bytes();
        bed.move_to(SMALL[to]);
        let mut most = 0;
        while bed.is_moving() {
            let half = bed.prepare().expect("a moving tree has a job");
            bed.install(half);
            most = most.max(bed.live_bytes());
        }
        assert!(most <= before / 4 * 5, "{most} bytes of {before}");
        bed.check(&mut random);
        let all: Batch = bed.model.keys().map(|key| (key.clone(), None)).collect();
        bed.apply(all);
        bed.release();
    }
}

#[test]
fn an_empty_tree_migrates_and_turns() {
    for (from, to) in [(0, 2), (2, 0)] {
        let mut bed = Bed::new(SMALL[from]);
        bed.move_to(SMALL[to]);
        bed.turn();
        bed.finish();
        assert_eq!(bed.family(), SMALL[from]);
        bed.move_to(SMALL[to]);
        bed.finish();
        assert_eq!(bed.family(), SMALL[to]);
    }
}

#[test]
fn an_overtaken_portion_is_not_installed() {
    let mut random = SplitMix::new(3);
    let mut bed = Bed::new(SMALL[0]);
    (0..6).for_each(|_| bed.apply(random_batch(&mut random, 400, 0)));
    bed.move_to(SMALL[2]);
    let half = bed.prepare().expect("a moving tree has a job");
    bed.apply(Batch::from([(b"key00000".to_vec(), Some(b"newer".to_vec()))]));
    assert!(!bed.install(half));
    bed.finish();
    bed.check(&mut random);
}

/// Truncated, repeated or missing objects of a migrating tree are reported as damage.
#[test]
fn contradictory_objects_are_refused() {
    let mut random = SplitMix::new(5);
    let mut bed = Bed::new(SMALL[0]);
    (0..8).for_each(|_| bed.apply(random_batch(&mut random, 300, 0)));
    bed.move_to(SMALL[2]);
    for _ in 0..3 {
        let half = bed.prepare().expect("a moving tree has a job");
        bed.install(half);
    }
    let ids: Vec<ObjectId> = bed.durable.objects.keys().copied().collect();
    for id in ids {
        let mut objects = bed.durable.objects.clone();
        objects.remove(&id);
        assert!(bed.open(objects).is_err(), "without object {id}");
    }
    let mut objects = bed.durable.objects.clone();
    objects.insert(ObjectId(6 << 60), Arc::from(&b"?"[..]));
    assert!(bed.open(objects).is_err(), "an object of no tree");
    assert!(Course::divide(BTreeMap::new()).is_err(), "no border");
}

/// Retained runs of the source that were found damaged are dropped by its next edit, which may be that of a
/// moved piece.
#[test]
fn damaged_retained_runs_are_counted_while_a_tree_migrates() {
    let retaining = Family::retaining_leveled(4096, 4, 2);
    let mut random = SplitMix::new(7);
    let mut bed = Bed::new(retaining);
    let spare = |bed: &Bed| {
        let runs = bed.runs().into_iter();
        runs.filter(|run| bed.tree.is_spare(run.reference().id)).collect::<Vec<_>>()
    };
    for _ in 0..100 {
        bed.apply(random_batch(&mut random, 300, 0));
        bed.check(&mut random);
        if let Some(job) = bed.prepare() {
            bed.install(job);
        }
        if spare(&bed).len() > 1 {
            break;
        }
    }
    bed.move_to(SMALL[0]);
    let damaged = spare(&bed);
    assert!(damaged.len() > 1, "the tree retains runs");
    damaged.iter().for_each(|run| run.note_damage());
    let half = bed.prepare().expect("a moving tree has a job");
    assert!(bed.install(half) && bed.is_moving(), "a piece of several was moved");
    assert_eq!(spare(&bed).len(), 0, "damaged runs are dropped");
    let stats = bed.tree.stats();
    assert_eq!(stats.retained_damaged_runs, u64::try_from(damaged.len()).unwrap(), "{stats:?}");
}
