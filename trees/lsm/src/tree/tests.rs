use testudo_base::{Entry, Kind, OwnedEntry, checksum::hash_key};
use testudo_contract::{Executor, JobRequest, LeastGain, Opaque, PartUse, Scope};
use testudo_env::{Env, OpenMode, OpenOptions, SplitMix};
use testudo_run::Run;
use testudo_share::some_of;
use testudo_treebed::{
    Backwards, Batch, Family, KEYSPACE, Model, Objects, RunsByAge, random_key, random_value, skip_tombstones,
};

use super::*;
use crate::{read_layout, update::jobs::Action};

mod age_order;
mod compact_range;
mod compaction_buffer;
mod concurrent_updates;
mod conservation;
mod damage;
mod direct_flushes;
mod gathering;
mod in_order;
mod insert_forecasts;
mod job_bytes;
mod joining;
mod level_shape;
mod longest_keys;
mod model;
mod operands;
mod page_updates;
mod read_charges;
mod reclaiming;
mod scan_reads;
mod side_by_side;
mod tombstones;
mod warm_merges;

fn options(run_bytes: u64, growth_factor: u32, level1_flushes: u32) -> LsmOptions {
    LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() }
}

/// The same settings with page updates at the bottom.
fn updating(run_bytes: u64, growth_factor: u32, level1_flushes: u32) -> LsmOptions {
    LsmOptions { updates_pages: true, ..options(run_bytes, growth_factor, level1_flushes) }
}

type Bed = testudo_treebed::Bed<LsmOptions>;

impl Family for LsmOptions {
    const CATCHES_UP: bool = false;
    const CHECK_EVERY: u64 = 1;
    const READ_EVERY: u64 = 16;

    fn job_bytes(&self) -> u64 {
        // As by default for the larger ones.
        self.run_bytes * if self.run_bytes < 16 << 10 { 6 } else { 16 }
    }

    fn open(&self, data: &Arc<DataFile>, objects: Objects) -> Result<Arc<dyn Tree>> {
        Ok(LsmTree::open(*self, data, KEYSPACE, objects)?)
    }

    fn layout(&self, objects: Objects) -> Vec<PartUse> {
        read_layout(objects).unwrap()
    }
}

/// Updates of keys that are scattered, or close together.
fn random_batch(random: &mut SplitMix, count_max: u64, delete_percent: u8) -> Batch {
    let (first, width, is_narrow) = (random.below(2500), 1 + random.below(500), random.percent(50));
    let mut updates = Batch::new();
    for _ in 0..1 + random.below(count_max) {
        let key = match is_narrow {
            false => random_key(random),
            true => format!("key{:05}", first + random.below(width)).into_bytes(),
        };
        let value = (!random.percent(delete_percent)).then(|| random_value(random));
        updates.insert(key, value);
    }
    updates
}

/// Checks that snapshots have their own contents.
fn check_pinned(pinned: Vec<(Arc<dyn Tree>, Model)>) {
    for (tree, model) in pinned {
        let mut cursor = tree.cursor();
        cursor.seek_first().unwrap();
        for (key, value) in model {
            skip_tombstones(&mut *cursor, true);
            let entry = cursor.entry().expect("an entry of a snapshot is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            cursor.next().unwrap();
        }
    }
}

fn random_run(seed: u64, options: LsmOptions, rounds: u64) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut pinned: Vec<(Arc<dyn Tree>, Model)> = Vec::new();
    for round in 0..rounds {
        let delete_percent = if (round / 20) % 2 == 1 { 70 } else { 15 };
        let batch = random_batch(&mut random, 400, delete_percent);
        bed.apply(batch);
        if random.percent(60) {
            let jobs = random.below(4);
            bed.run_jobs_up_to(jobs, false);
        }
        if random.percent(20) {
            bed.run_jobs();
        }
        if random.percent(20) {
            bed.reopen();
        }
        if random.percent(10) {
            pinned.push((Arc::clone(&bed.tree), bed.model.clone()));
        }
        if random.percent(25) {
            bed.check(&mut random);
        }
    }
    check_pinned(pinned);
    let all = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(all);
    let everything: Batch = (0..3000).map(|n| (format!("key{n:05}").into_bytes(), None)).collect();
    for _ in 0..10 {
        bed.apply(everything.clone());
    }
    bed.run_jobs();
    bed.check(&mut random);
}

#[test]
fn a_tree_of_tiny_runs_matches_a_map() {
    for seed in some_of(0..4, 2, 0) {
        random_run(seed, options(4096, 3, 2), 60);
        random_run(seed, updating(4096, 3, 2), 60);
    }
}

#[test]
fn a_tree_of_small_runs_matches_a_map() {
    for seed in some_of(10..13, 3, 0) {
        random_run(seed, options(20_000, 10, 4), 60);
        random_run(seed, options(20_000, 2, 1), 60);
        random_run(seed, updating(40_000, 2, 1), 60);
    }
}

#[test]
fn deleting_everything_leaves_almost_nothing() {
    let mut bed = Bed::new(options(8192, 4, 4));
    let keys: Vec<Vec<u8>> = (0..5000).map(|n| format!("k{n:06}").into_bytes()).collect();
    for part in keys.chunks(700) {
        bed.apply(part.iter().map(|key| (key.clone(), Some(vec![1; 50]))).collect());
    }
    for _ in 0..3 {
        bed.apply(keys.iter().map(|key| (key.clone(), None)).collect());
        bed.run_jobs();
    }
    let stats = bed.tree.stats();
    assert_eq!((stats.leaves, stats.buffered_runs), (0, 0), "{stats:?}");
    assert!(stats.stored_bytes < 5000 * 60 / 2, "{stats:?}");
}

#[test]
fn a_large_flush_is_written_by_several_workers() {
    let mut bed = Bed::new(options(16 << 10, 10, 4));
    let workers = Arc::new(Backwards::default());
    let key = |n: u64| format!("user{n:08}").into_bytes();
    bed.apply((0..6000).map(|n| (key(n * 2), Some(vec![b'v'; 100]))).collect());
    bed.apply((0..6000).map(|n| (key(n * 2), Some(vec![b'w'; 100]))).collect());
    bed.work.executor = Arc::clone(&workers) as Arc<dyn Executor>;
    bed.apply((0..6000).map(|n| (key(n * 2 + 1), Some(vec![b'x'; 100]))).collect());
    let tasks = workers.tasks_max.load(Relaxed);
    assert!((4..=12).contains(&tasks), "{tasks} tasks");
    bed.check(&mut SplitMix::new(1));
}
