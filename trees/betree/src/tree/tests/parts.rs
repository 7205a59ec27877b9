//! A large tier is merged by several workers.

use testudo_base::sync::atomic::Ordering::Relaxed;
use testudo_contract::Executor;

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:08}").into_bytes()
}

#[test]
fn a_large_tier_is_cut_at_pivots_without_changing_it() {
    let mut bed = Bed::new(turtle(16 << 10, 64));
    let workers = Arc::new(Backwards::default());
    bed.work.executor = Arc::clone(&workers) as Arc<dyn Executor>;
    bed.apply((0..6000).map(|n| (key(n), Some(vec![b'v'; 100]))).collect());
    assert_eq!(bed.tree.stats().height, 1);
    workers.tasks_max.store(0, Relaxed);
    // A tenth of everything, deletes included: too little for any leaf, so it stays in one tier.
    let update = |n: u64| (key(n * 7 % 6000), (!n.is_multiple_of(3)).then(|| vec![b'w'; 150]));
    bed.apply((0..1000).map(update).collect());
    let lines = bed.tree.outline();
    let tiers: Vec<u64> = lines.iter().filter(|line| line.what == "tier").map(|line| line.count).collect();
    assert_eq!(tiers.len(), 1, "{lines:?}");
    let tasks = workers.tasks_max.load(Relaxed);
    assert!((2..=6).contains(&tasks), "{tasks} parts");
    assert!(tiers[0] >= u64_of(tasks), "{tiers:?} runs of {tasks} parts");
    bed.check(&mut SplitMix::new(1));
    bed.reopen();
    bed.check(&mut SplitMix::new(2));
}

/// Keys in order all go into the last leaf, and the first flush into the only one.
#[test]
fn the_flow_into_one_leaf_is_cut_without_changing_it() {
    for options in [turtle(16 << 10, 64), splinter(16 << 10, 64)] {
        let mut bed = Bed::new(options);
        let workers = Arc::new(Backwards::default());
        bed.work.executor = Arc::clone(&workers) as Arc<dyn Executor>;
        for round in 0..5 {
            workers.tasks_max.store(0, Relaxed);
            let keys = round * 2000..(round + 1) * 2000;
            bed.apply(keys.map(|n| (key(n), Some(vec![b'v'; 100]))).collect());
            // A splinter tree leaves sequential inserts to jobs.
            let tasks = workers.tasks_max.load(Relaxed);
            assert!(tasks >= 3 || options.compacts_later(), "{tasks} parts in round {round}");
        }
        bed.check(&mut SplitMix::new(1));
        bed.reopen();
        bed.check(&mut SplitMix::new(2));
    }
}

/// A leaf that was cut covers all of its keys, even where only deletes flow in.
#[test]
fn parts_of_a_leaf_with_only_deletes_cover_their_keys() {
    let mut bed = Bed::new(turtle(8 << 10, 8));
    bed.apply((0..60).map(|n| (key(n * 100), Some(vec![b'v'; 100]))).collect());
    let removed = |n: u64| (key(n), (n % 1000 == 999).then(|| vec![b'w'; 20]));
    bed.apply((0..6000).map(removed).collect());
    bed.check(&mut SplitMix::new(3));
    let mut covered: Vec<KeyBounds> =
        bed.runs().iter().filter_map(|run| run.record().unwrap().covered_range).collect();
    covered.sort_by(|a, b| a.low.cmp(&b.low));
    assert_eq!(covered.first().unwrap().low, None);
    assert_eq!(covered.last().unwrap().high, None);
    assert!(covered.windows(2).all(|pair| pair[0].high == pair[1].low), "{covered:?}");
}
