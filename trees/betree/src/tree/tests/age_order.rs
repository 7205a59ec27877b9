//! Runs alone, put in order by what they say of themselves, answer as the tree does.

use testudo_run::{ReadAhead, RunCursor, RunOrigin, RunRecord, RunWriter};

use super::*;
use crate::trunk::concatenate::concatenate;

type Entries = BTreeMap<Vec<u8>, (Kind, Vec<u8>)>;

/// Everything that was ever in a run, by run.
pub(super) type Found = BTreeMap<RunId, (RunRecord, Entries)>;

fn order(record: &RunRecord) -> (Seqno, RunId) {
    (record.reference.newest_seqno, record.reference.id)
}

/// Reads the runs below `node` that are not known yet; notes which ones there are.
fn collect(node: &Arc<Node>, found: &mut Found, live: &mut Vec<RunId>) {
    assert!(node.tiers.is_sorted_by_key(|tier| std::cmp::Reverse(tier.newest_seqno())), "tiers out of order");
    for run in node.runs() {
        let id = run.reference().id;
        live.push(id);
        found.entry(id).or_insert_with(|| (run.record().unwrap(), read(run)));
    }
    node.child_nodes().for_each(|child| collect(child, found, live));
}

fn read(run: &Arc<Run>) -> Entries {
    let mut entries = Entries::new();
    let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
    cursor.seek_first().unwrap();
    while let Some(entry) = cursor.entry() {
        entries.insert(entry.key.to_vec(), (entry.kind, entry.value.to_vec()));
        cursor.next().unwrap();
    }
    entries
}

/// What runs answer: of each key its newest entry by its run, unless a newer run says that it is gone.
fn answers(mut runs: Vec<&(RunRecord, Entries)>) -> BTreeMap<&[u8], &[u8]> {
    // From the oldest run on, each changes what those before it say.
    runs.sort_unstable_by_key(|(record, _)| order(record));
    let mut answers: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    for (record, entries) in runs {
        if let Some(known) = &record.covered_range {
            answers.retain(|key, _| !known.contains(key));
        }
        for (key, (kind, value)) in entries {
            match kind {
                Kind::Value => answers.insert(key, value),
                _ => answers.remove(key.as_slice()),
            };
        }
    }
    answers
}

/// The root as the tree under test has it.
fn root_of(bed: &Bed) -> Arc<Node> {
    let mut objects = bed.objects.clone();
    let pointer = objects.remove(&ROOT_POINTER).unwrap();
    let (root, _) = decode_root_pointer(&pointer).unwrap();
    load_node(&bed.work.data, KEYSPACE, &mut objects, root, 0).unwrap()
}

pub(super) fn check(bed: &Bed, found: &mut Found) {
    let mut live = Vec::new();
    collect(&root_of(bed), found, &mut live);
    let expected: BTreeMap<_, _> =
        bed.model.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    let live = answers(live.iter().map(|id| &found[id]).collect());
    assert!(live == expected, "live runs, {:?}", first_difference(&live, &expected));
    let all = answers(found.values().collect());
    assert!(all == expected, "all runs that ever were, {:?}", first_difference(&all, &expected));
}

/// The start of the first key that one of the two does not have, or has with another value.
fn first_difference(found: &BTreeMap<&[u8], &[u8]>, expected: &BTreeMap<&[u8], &[u8]>) -> Option<String> {
    let differs = |key: &&&[u8]| found.get(**key) != expected.get(**key);
    let key = found.keys().chain(expected.keys()).filter(differs).min()?;
    Some(String::from_utf8_lossy(&key[..key.len().min(20)]).into_owned())
}

fn random_script(seed: u64, options: BeTreeOptions, switch_percent: u8) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = Found::new();
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
        check(&bed, &mut found);
        if random.percent(switch_percent) {
            bed.options.policy = if random.percent(50) { Policy::Turtle } else { Policy::Splinter };
            bed.reopen();
        }
        if random.percent(30) {
            bed.run_jobs();
            check(&bed, &mut found);
        }
    }
    let all = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(all);
    bed.run_jobs();
    check(&bed, &mut found);
}

#[test]
fn runs_in_the_order_of_their_age_answer_as_the_tree_does() {
    for seed in 0..2 {
        random_script(seed, turtle(4096, 4), 0);
        random_script(seed, splinter(4096, 4), 30);
    }
    for seed in 10..11 {
        random_script(seed, turtle(20_000, 8), 0);
        random_script(seed, splinter(20_000, 8), 15);
    }
}

/// Keys that come in order, upwards at one place and downwards at two, removed and overwritten now and then.
fn script_in_order(seed: u64, options: BeTreeOptions) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = Found::new();
    let (mut up, mut down) = (0, 9999);
    for _ in 0..40 {
        let mut updates = BTreeMap::new();
        for _ in 0..random.below(150) {
            let value = (!random.percent(20)).then(|| random_value(&mut random));
            let key = match random.below(3) {
                0 => format!("a{down:05}"),
                1 => format!("b{up:05}"),
                _ => format!("b{down:05}"),
            };
            updates.insert(key.into_bytes(), value);
            up += random.below(2);
            down -= random.below(2);
        }
        if random.percent(20) {
            let old = 5000 + random.below(5000);
            updates.insert(format!("a{old:05}").into_bytes(), None);
        }
        bed.apply(updates);
        check(&bed, &mut found);
        if random.percent(10) {
            bed.run_jobs();
        }
    }
    bed.check(&mut random);
}

#[test]
fn runs_of_keys_that_came_in_order_answer_as_the_tree_does() {
    for seed in 0..3 {
        script_in_order(seed, turtle(4096, 4));
        script_in_order(seed, splinter(8192, 4));
    }
}

/// A run of one entry.
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
fn tiers_of_joined_nodes_follow_each_other_by_age() {
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
            scan_charges: ScanCharges::default(),
            overwrites: Overwrites::UNKNOWN,
        }
    };
    // Side by side by rank, a merge of the second ranks would make what is as old as 50 newer than what is as
    // old as 52.
    let left = node(b"", Some(b"m"), b"a", &[52, 50, 40]);
    let right = node(b"m", None, b"n", &[60, 55, 40]);
    let joined = concatenate(&left, &right);
    let ages: Vec<_> = joined.tiers.iter().map(|tier| (tier.newest_seqno().0, tier.runs.len())).collect();
    assert_eq!(ages, [(60, 1), (55, 1), (52, 1), (50, 1), (40, 2)]);
    let active = |tier: &Tier| [tier.shares[0].is_some(), tier.shares[1].is_some()];
    let actives: Vec<_> = joined.tiers.iter().map(active).collect();
    assert_eq!(actives, [[false, true], [false, true], [true, false], [true, false], [true, true]]);
}
