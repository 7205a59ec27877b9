//! The compaction buffer of the leaves changes no answer, saves reads, and takes a bounded fraction of the
//! space.

use testudo_contract::LeastGain;

use super::*;

const RECORDS: u64 = 8_000;
const HOT: std::ops::Range<u64> = 2_000..5_000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// Reopens the tree from its objects.
fn stored(bed: &Bed) -> Arc<BeTree> {
    BeTree::open(bed.options, &bed.work.data, KEYSPACE, bed.durable.objects.clone()).unwrap()
}

/// Counts of buffer states seen.
#[derive(Debug, Default)]
struct Seen {
    answers: u64,
    from_memory: usize,
    barriers: usize,
    layers_max: usize,
}

impl Seen {
    /// Compares the buffer's answer for each key with that of its leaf.
    fn check_law(&mut self, bed: &Bed, keys: impl Iterator<Item = Vec<u8>>) {
        let tree = stored(bed);
        let Some(buffer) = &tree.retained else { return };
        for kept in buffer.layers.iter().flatten().filter(|kept| kept.run.is_none()) {
            *(if kept.from_memory.is_some() { &mut self.from_memory } else { &mut self.barriers }) += 1;
        }
        self.layers_max = self.layers_max.max(buffer.layers.len());
        for key in keys {
            let mut node = &tree.root;
            let leaf = loop {
                match &node.pivots[node.pivot_of(&key)].child {
                    Child::Node(child) => node = child,
                    Child::Leaf(leaf) => break leaf,
                }
            };
            let hash = hash_key(&key);
            let Some(leaf) = leaf else { continue };
            let own = leaf.get(&key, hash, Access::Blocking).unwrap();
            let Some(Lookup::Found(kind, value, _)) = buffer.get(&key, hash, Access::Blocking) else {
                continue;
            };
            self.answers += 1;
            match own {
                Lookup::Found(own_kind, own_value, _) => assert_eq!((kind, value), (own_kind, own_value)),
                // Leaves drop tombstones.
                _ => assert_eq!(kind, Kind::Tombstone),
            }
        }
    }
}

/// A batch of keys, half the time close together. Values are short: pages of long values are not cached.
fn batch(random: &mut SplitMix, count: u64) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let (first, width) = if random.percent(50) { (0, 3_000) } else { (random.below(2_700), 300) };
    let entry = |random: &mut SplitMix| {
        let key = format!("key{:05}", first + random.below(width)).into_bytes();
        let length = usize::try_from(random.below(120)).unwrap();
        let value = vec![u8::try_from(random.below(256)).unwrap(); length];
        (key, (!random.percent(20)).then_some(value))
    };
    (0..=random.below(count)).map(|_| entry(random)).collect()
}

#[test]
fn buffers_agree_with_leaves() {
    let numbered = || (0..3_000).map(|number| format!("key{number:05}").into_bytes());
    for options in [turtle(16 << 10, 4), turtle(64 << 10, 16), splinter(16 << 10, 4)] {
        let mut seen = Seen::default();
        for seed in 1..=4 {
            let mut random = SplitMix::new(seed);
            let mut bed = Bed::new(options);
            bed.work.data.set_retained_percent(100);
            for round in 0..60 {
                bed.apply(batch(&mut random, 200));
                match random.below(10) {
                    0 => bed.run_jobs(),
                    1 => bed.reopen(),
                    2 if round > 30 => bed.apply_on_top(batch(&mut random, 20)),
                    _ => {}
                }
                // Pages used by queries are in memory.
                for number in 0..2_000 {
                    let key = format!("key{number:05}").into_bytes();
                    assert_eq!(bed.get(&key), bed.model.get(&key).cloned(), "seed {seed}, round {round}");
                }
                if round % 4 == 0 {
                    seen.check_law(&bed, numbered());
                }
            }
            bed.check(&mut random);
            bed.tree.check_retained().unwrap();
            bed.run_jobs();
            bed.check(&mut random);
            bed.work.data.set_retained_percent(0);
            bed.apply(batch(&mut random, 5));
            assert_eq!(bed.tree.stats().retained_bytes, 0, "retention is disabled");
            assert!(stored(&bed).retained.is_none());
        }
        assert!(seen.answers > 1_000 && seen.from_memory + seen.barriers > 0, "{options:?}: {seen:?}");
        assert!(seen.layers_max > 1, "{options:?}: {seen:?}");
    }
}

/// Pages read for a hot range during updates of all keys, and the maximum retained.
fn reads_beside_updates(options: BeTreeOptions, retained_percent: u32) -> (u64, u64) {
    let mut bed = Bed::new(options);
    bed.apply((0..RECORDS).map(|number| (key(number), Some(vec![b'v'; 100]))).collect());
    bed.run_jobs();
    bed.cool(4 << 20);
    bed.work.data.set_retained_percent(retained_percent);
    let read_hot = |bed: &Bed| HOT.for_each(|number| assert!(bed.get(&key(number)).is_some()));
    let (mut reads, mut retained) = (0, 0);
    let mut random = SplitMix::new(7);
    for _ in 0..40 {
        read_hot(&bed);
        let updates = (0..400).map(|_| (key(random.below(RECORDS)), Some(vec![b'w'; 100])));
        bed.apply(updates.collect());
        let before = bed.work.data.io_stats().page_reads;
        read_hot(&bed);
        reads += bed.work.data.io_stats().page_reads - before;
        let stats = bed.tree.stats();
        retained = retained.max(stats.retained_bytes);
        let live = stats.stored_bytes - stats.retained_bytes;
        assert!(stats.retained_bytes <= live / 100 * u64::from(retained_percent), "{stats:?}");
    }
    (reads, retained)
}

#[test]
fn retention_of_a_hot_range_costs_no_reads_if_both_are_cached() {
    for options in some_of([turtle(64 << 10, 16), splinter(64 << 10, 16)], 2, 0) {
        let (without, nothing) = reads_beside_updates(options, 0);
        let (with, retained) = reads_beside_updates(options, 50);
        assert_eq!(nothing, 0);
        assert!(retained > 0, "{options:?}");
        assert!(with * 10 <= without * 11, "{options:?}: {with} and {without} reads");
    }
}

#[test]
fn damaged_retained_runs_are_harmless_and_retention_is_dropped_first() {
    let mut bed = Bed::new(turtle(64 << 10, 16));
    bed.work.data.set_retained_percent(100);
    bed.apply((0..RECORDS).map(|number| (key(number), Some(vec![b'v'; 100]))).collect());
    let mut random = SplitMix::new(3);
    while bed.tree.stats().retained_bytes == 0 {
        HOT.for_each(|number| assert!(bed.get(&key(number)).is_some()));
        let updates = (0..200).map(|_| (key(random.below(RECORDS)), Some(vec![b'w'; 100])));
        bed.apply(updates.collect());
    }
    let spare: Vec<Arc<Run>> =
        bed.runs().into_iter().filter(|run| bed.tree.is_spare(run.reference().id)).collect();
    assert!(!spare.is_empty());
    spare.iter().for_each(|run| run.note_damage());
    HOT.for_each(|number| assert!(bed.get(&key(number)).is_some()));
    bed.apply([(key(1), Some(b"x".to_vec()))].into());
    assert!(bed.tree.stats().retained_damaged_runs > 0, "{:?}", bed.tree.stats());

    while bed.tree.stats().retained_bytes == 0 {
        HOT.for_each(|number| assert!(bed.get(&key(number)).is_some()));
        let updates = (0..200).map(|_| (key(random.below(RECORDS)), Some(vec![b'w'; 100])));
        bed.apply(updates.collect());
    }
    let limits = ReclaimLimits { space_bytes: 0, least_gain: LeastGain::Worthwhile, but: &[] };
    let reclaim = bed.tree.pick_reclaim(&limits).unwrap().expect("it takes no space");
    assert_eq!(reclaim.gain_bytes, bed.tree.stats().retained_bytes);
    let edit = bed.tree.reclaim(&bed.work, &reclaim).unwrap();
    bed.publish(edit);
    bed.tree.check_invariants(true).unwrap();
    assert_eq!(bed.tree.stats().retained_bytes, 0);
    HOT.for_each(|number| assert!(bed.get(&key(number)).is_some()));
}
