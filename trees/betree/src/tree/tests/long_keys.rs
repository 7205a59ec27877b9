//! Keys that differ only after the prefix kept in references, indexes and nodes.

use super::*;

/// Bytes shared by the keys of a group.
const STARTS: [usize; 5] = [0, 250, 256, 300, 2000];

fn long_key(random: &mut SplitMix) -> Vec<u8> {
    let start = STARTS[usize::try_from(random.below(5)).unwrap()];
    [&vec![b'p'; start][..], format!("{:o}", random.below(400)).as_bytes()].concat()
}

fn random_script(seed: u64, options: BeTreeOptions) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    for round in 0..30 {
        let removed_percent = if (round / 10) % 2 == 1 { 70 } else { 10 };
        let mut updates = BTreeMap::new();
        for _ in 0..1 + random.below(120) {
            let value = (!random.percent(removed_percent)).then(|| random_value(&mut random));
            updates.insert(long_key(&mut random), value);
        }
        bed.apply(updates);
        if random.percent(30) {
            bed.run_jobs();
        }
        if random.percent(20) {
            bed.options.policy = if random.percent(50) { Policy::Turtle } else { Policy::Splinter };
            bed.reopen();
        }
        bed.check(&mut random);
        for _ in 0..60 {
            let key = long_key(&mut random);
            assert!(bed.get(&key) == bed.model.get(&key).cloned(), "{} bytes", key.len());
        }
    }
    bed.tree.check_invariants(true).unwrap();
}

#[test]
fn a_tree_of_long_similar_keys_matches_a_map() {
    for seed in 0..3 {
        random_script(seed, turtle(16_000, 4));
        random_script(seed, splinter(16_000, 4));
        random_script(seed, splinter(60_000, 8));
    }
}

#[test]
fn objects_of_nodes_are_small_however_long_keys_are() {
    let mut bed = Bed::new(turtle(1 << 20, 8));
    for round in 0..4u32 {
        let key = |n: u32| [&[b'p'; 50_000][..], format!("{:06}", n * 4 + round).as_bytes()].concat();
        bed.apply((0..100).map(|n| (key(n), Some(vec![1]))).collect());
    }
    let bytes: usize = bed.durable.objects.values().map(|object| object.len()).sum();
    // Some leaves, and at most one fence of 50,000 bytes for each node and each of its tiers.
    let stats = bed.tree.stats();
    let tiers = u64_of(bed.tree.outline().iter().filter(|line| line.what == "tier").count());
    assert!(
        stats.leaves >= 10 && u64_of(bytes) < (stats.nodes + tiers + 1) * 50_000,
        "{bytes} bytes of objects of {} nodes with {tiers} tiers",
        stats.nodes
    );
}
