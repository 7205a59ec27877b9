//! A large tier is merged by several workers.

use testudo_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use testudo_contract::{Executor, Task};

use super::*;

/// Does the last task first, and notes how many came at once.
#[derive(Debug, Default)]
pub(super) struct Backwards {
    tasks_max: AtomicUsize,
}

impl Executor for Backwards {
    fn run_all(&self, tasks: Vec<Task>) {
        self.tasks_max.fetch_max(tasks.len(), Relaxed);
        tasks.into_iter().rev().for_each(|task| task());
    }

    fn workers(&self) -> usize {
        3
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("user{number:08}").into_bytes()
}

#[test]
fn a_large_tier_is_cut_where_the_pivots_are_and_holds_what_it_would_hold_uncut() {
    let mut bed = Bed::new(turtle(16 << 10, 64));
    let workers = Arc::new(Backwards::default());
    bed.work.executor = Arc::clone(&workers) as Arc<dyn Executor>;
    bed.apply((0..6000).map(|n| (key(n), Some(vec![b'v'; 100]))).collect());
    assert_eq!(bed.tree.stats().height, 1);
    workers.tasks_max.store(0, Relaxed);
    // A tenth of everything, deletions among it: too little for any one leaf, so it stays in one tier.
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
