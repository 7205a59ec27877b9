use testudo_base::{Entry, Kind, OwnedEntry, Seqno, checksum::hash_key};
use testudo_contract::{JobRequest, PartUse};
use testudo_env::SplitMix;
use testudo_run::KeyBounds;
use testudo_share::some_of;
use testudo_treebed::{
    Backwards, Batch, Family, KEYSPACE, Model, Objects, RunsByAge, VecUpdates, random_key, random_value,
    skip_tombstones,
};

use super::*;
use crate::{Policy, read_layout};

fn turtle(leaf_bytes: u64, max_pivots: usize) -> BeTreeOptions {
    BeTreeOptions { leaf_bytes, max_pivots, ..BeTreeOptions::new(Policy::Turtle) }
}

fn splinter(leaf_bytes: u64, max_pivots: usize) -> BeTreeOptions {
    BeTreeOptions { leaf_bytes, max_pivots, ..BeTreeOptions::new(Policy::Splinter) }
}

type Bed = testudo_treebed::Bed<BeTreeOptions>;

impl Family for BeTreeOptions {
    const CATCHES_UP: bool = true;
    const CHECK_EVERY: u64 = 16;
    const READ_EVERY: u64 = 64;

    fn open(&self, data: &Arc<DataFile>, objects: Objects) -> Result<Arc<dyn Tree>> {
        Ok(BeTree::open(*self, data, KEYSPACE, objects)?)
    }

    fn layout(&self, objects: Objects) -> Vec<PartUse> {
        read_layout(objects).unwrap()
    }

    fn check_shape(&self, tree: &dyn Tree) {
        let is_wide = |line: &OutlineLine| line.what == "node" && line.count > u64_of(self.max_pivots);
        assert!(!tree.outline().iter().any(is_wide), "a changed node has too many pivots");
    }
}

fn random_run(seed: u64, options: BeTreeOptions, rounds: u64, switch_percent: u8) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    for round in 0..rounds {
        let count = 1 + random.below(400);
        let delete_percent = if (round / 20) % 2 == 1 { 70 } else { 15 };
        let mut updates = BTreeMap::new();
        for _ in 0..count {
            let value = (!random.percent(delete_percent)).then(|| random_value(&mut random));
            updates.insert(random_key(&mut random), value);
        }
        bed.apply(updates);
        if random.percent(20) {
            bed.run_jobs();
        }
        if random.percent(20) {
            if random.percent(switch_percent) {
                let policies = [Policy::Turtle, Policy::Splinter];
                bed.options.policy = policies[usize::try_from(random.below(2)).unwrap()];
            }
            bed.reopen();
        }
        if random.percent(25) {
            bed.check(&mut random);
        }
    }
    let all = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(all);
    let everything: BTreeMap<_, _> = (0..3000).map(|n| (format!("key{n:05}").into_bytes(), None)).collect();
    for _ in 0..10 {
        bed.apply(everything.clone());
    }
    bed.run_jobs();
    bed.check(&mut random);
}

#[test]
fn a_tree_of_tiny_leaves_matches_a_map() {
    for seed in some_of(0..4, 4, 0) {
        random_run(seed, turtle(4096, 4), 60, 0);
        random_run(seed, splinter(4096, 4), 60, 0);
    }
}

#[test]
fn a_tree_of_small_leaves_matches_a_map() {
    for seed in some_of(10..13, 3, 0) {
        random_run(seed, turtle(20_000, 8), 60, 0);
        random_run(seed, splinter(20_000, 8), 60, 0);
    }
}

#[test]
fn a_tree_that_changes_its_policy_matches_a_map() {
    for seed in some_of(20..23, 3, 0) {
        random_run(seed, turtle(20_000, 8), 60, 50);
    }
}

#[test]
fn sequential_updates_are_written_about_once() {
    for options in [turtle(256 << 10, 16), splinter(256 << 10, 16)] {
        let mut bed = Bed::new(options);
        for batch in 0..8u64 {
            let key = |n| format!("{:012}", batch * 20_000 + n).into_bytes();
            bed.apply((0..20_000u64).map(|n| (key(n), Some(vec![7; 100]))).collect());
        }
        let user: u64 = bed.model.iter().map(|(key, value)| u64_of(key.len() + value.len())).sum();
        let written = bed.work.data.io_stats().written_bytes;
        assert!(written < user * 13 / 10, "{written} bytes for {user}: {options:?}");
    }
}

#[test]
fn deleting_everything_shrinks_the_tree_to_nothing() {
    for options in [turtle(8192, 4), splinter(8192, 4)] {
        delete_everything(options);
    }
}

fn delete_everything(options: BeTreeOptions) {
    let mut bed = Bed::new(options);
    let keys: Vec<Vec<u8>> = (0..5000).map(|n| format!("k{n:06}").into_bytes()).collect();
    bed.apply(keys.iter().map(|key| (key.clone(), Some(vec![1; 50]))).collect());
    assert!(bed.tree.stats().height > 2);
    for _ in 0..3 {
        bed.apply(keys.iter().map(|key| (key.clone(), None)).collect());
        bed.run_jobs();
    }
    let stats = bed.tree.stats();
    assert_eq!((stats.height, stats.leaves), (1, 0), "{stats:?}");
    assert!(stats.stored_bytes < 5000 * 60 / 2, "{stats:?}");
}

#[test]
fn a_small_leaf_in_many_pages_is_not_cut_and_joined_endlessly() {
    for options in [turtle(8192, 6), splinter(8192, 6)] {
        let mut bed = Bed::new(options);
        // Entries next to a large value get their own pages: four pages for less than five kilobytes.
        let value = |key: &[u8], bytes| (key.to_vec(), Some(vec![1; bytes]));
        bed.apply([value(b"a", 80), value(b"b", 4200), value(b"c", 80), value(b"d", 80)].into());
        bed.run_jobs();
        bed.check(&mut SplitMix::new(1));
    }
}

mod age_order;
mod bound;
mod cold_pivots;
mod compact_range;
mod concurrent_updates;
mod conservation;
mod idle;
mod in_order;
mod later;
mod long_keys;
mod merge_reads;
mod operands;
mod parts;
mod point_reads;
mod read_charges;
mod reclaiming;
mod retained;
mod scan_reads;
mod several_jobs;
mod space;
mod tombstones;
