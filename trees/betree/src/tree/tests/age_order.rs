//! Runs alone, ordered by their metadata, give the same answers as the tree.

use testudo_run::{RunOrigin, RunWriter};
use testudo_sequence::FencedRun;

use testudo_treebed::sequential_script;

use super::*;
use crate::trunk::{
    concatenate::concatenate,
    node::{Share, Tier},
};

/// Collects the runs below `node`.
fn collect(node: &Arc<Node>, live: &mut Vec<Arc<Run>>) {
    assert!(node.tiers.is_sorted_by_key(|tier| std::cmp::Reverse(tier.newest_seqno())), "tiers out of order");
    live.extend(node.runs().cloned());
    node.child_nodes().for_each(|child| collect(child, live));
}

/// Checks like a salvage without a manifest, and that the tiers of each node are ordered by age.
fn check_runs(bed: &Bed, found: &mut RunsByAge) {
    let mut objects = bed.durable.objects.clone();
    let pointer = objects.remove(&ROOT_POINTER).unwrap();
    let root = decode_root_pointer(&pointer).unwrap().root;
    let root = load_node(&bed.work.data, KEYSPACE, &mut objects, root, 0).unwrap();
    let mut live = Vec::new();
    collect(&root, &mut live);
    found.check(&live, &bed.model);
}

fn random_script(seed: u64, options: BeTreeOptions, switch_percent: u8) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = RunsByAge::new();
    for round in 0..40 {
        let delete_percent = if (round / 10) % 2 == 1 { 80 } else { 15 };
        let (first, width) = (random.below(2500), 1 + random.below(500));
        let mut updates = BTreeMap::new();
        for _ in 0..1 + random.below(200) {
            // Half of the rounds touch a few leaves only, so that flows stop at different depths.
            let key = if round % 2 == 0 {
                random_key(&mut random)
            } else {
                format!("key{:05}", first + random.below(width)).into_bytes()
            };
            let value = (!random.percent(delete_percent)).then(|| random_value(&mut random));
            updates.insert(key, value);
        }
        bed.apply(updates);
        check_runs(&bed, &mut found);
        if random.percent(switch_percent) {
            bed.options.policy = if random.percent(50) { Policy::Turtle } else { Policy::Splinter };
            bed.reopen();
        }
        if random.percent(30) {
            bed.run_jobs();
            check_runs(&bed, &mut found);
        }
    }
    let all = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(all);
    bed.run_jobs();
    check_runs(&bed, &mut found);
}

#[test]
fn runs_in_age_order_match_the_tree() {
    for seed in 0..2 {
        random_script(seed, turtle(4096, 4), 0);
        random_script(seed, splinter(4096, 4), 30);
    }
    for seed in 10..11 {
        random_script(seed, turtle(20_000, 8), 0);
        random_script(seed, splinter(20_000, 8), 15);
    }
}

#[test]
fn runs_of_sequential_keys_match_the_tree() {
    for seed in 0..3 {
        sequential_script(seed, turtle(4096, 4));
        sequential_script(seed, splinter(8192, 4));
    }
}

/// Writes a run of one entry.
fn run_of(bed: &Bed, key: &[u8], newest_seqno: u64) -> Arc<Run> {
    let origin = RunOrigin {
        id: bed.work.run_ids.take(),
        keyspace: KEYSPACE,
        keyspace_name: Arc::clone(&bed.work.keyspace_name),
        newest_seqno: Seqno(newest_seqno),
    };
    let mut writer = RunWriter::new(Arc::clone(&bed.work.data), origin, 4096).unwrap();
    writer.push(&Entry { key, kind: Kind::Value, value: b"value" }).unwrap();
    writer.finish(None).unwrap()
}

#[test]
fn tiers_of_joined_nodes_are_ordered_by_age() {
    let bed = Bed::new(splinter(4096, 4));
    let node = |low: &[u8], high: Option<&[u8]>, key: &[u8], seqnos: &[u64]| {
        let tier = |seqno: &u64| Tier {
            runs: vec![FencedRun { low: Fence::default(), run: run_of(&bed, key, *seqno) }],
            shares: vec![Some(Share { from: None, bytes: 1 })],
        };
        Node {
            id: ObjectId(9),
            height: 1,
            pivots: vec![Pivot { low: low.into(), child: Child::Leaf(None) }],
            high: high.map(Fence::from),
            tiers: seqnos.iter().map(tier).collect(),
            read_charges: ReadCharges::default(),
            overwrites: Overwrites::UNKNOWN,
        }
    };
    // If paired by rank, a merge of the second ranks would make data as old as 50 newer than data as old as
    // 52.
    let left = node(b"", Some(b"m"), b"a", &[52, 50, 40]);
    let right = node(b"m", None, b"n", &[60, 55, 40]);
    let joined = concatenate(&left, &right);
    let ages: Vec<_> = joined.tiers.iter().map(|tier| (tier.newest_seqno().0, tier.runs.len())).collect();
    assert_eq!(ages, [(60, 1), (55, 1), (52, 1), (50, 1), (40, 2)]);
    let active = |tier: &Tier| [tier.shares[0].is_some(), tier.shares[1].is_some()];
    let actives: Vec<_> = joined.tiers.iter().map(active).collect();
    assert_eq!(actives, [[false, true], [false, true], [true, false], [true, false], [true, true]]);
}
