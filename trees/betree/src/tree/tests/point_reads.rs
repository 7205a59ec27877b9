//! Device reads of point queries.

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A tree of leaves without buffers: even numbers with values of 100 bytes.
fn leaves(leaf_bytes: u64, records: u64) -> Bed {
    let mut bed = Bed::new(turtle(leaf_bytes, 16));
    bed.apply((0..records).map(|n| (key(2 * n), Some(vec![b'v'; 100]))).collect());
    let stats = bed.tree.stats();
    assert!(stats.buffered_runs == 0 && stats.leaves > 3, "{stats:?}");
    bed
}

/// Looks up the key with this number; returns the number of reads.
fn reads_of(bed: &Bed, number: u64) -> u64 {
    let before = bed.work.data.io_stats().page_reads;
    let key = key(number);
    let found = bed.tree.get(&key, hash_key(&key), Access::Blocking).unwrap();
    assert_eq!(matches!(found, Lookup::Found(..)), bed.model.contains_key(&key));
    bed.work.data.io_stats().page_reads - before
}

#[test]
fn a_leaf_filter_is_read_only_after_absent_keys() {
    // Smaller leaves have their filter in the footer.
    const RECORDS: u64 = 15_000;
    let mut bed = leaves(320 << 10, RECORDS);
    bed.cool(4 << 20);
    let numbers: BTreeMap<_, _> = (0..RECORDS).map(|n| (key(2 * n), 2 * n)).collect();
    for run in bed.runs() {
        let first = numbers[run.reference().keys.first()];
        let last = numbers[run.reference().keys.last()];
        assert_eq!(reads_of(&bed, first), 3, "footer, index and data");
        assert_eq!(reads_of(&bed, first + 2), 0, "all cached");
        assert_eq!(reads_of(&bed, last), 1, "data");
        let middle = u64::midpoint(first, last) | 1;
        assert_eq!(reads_of(&bed, middle), 1, "data, needlessly");
        assert_eq!(reads_of(&bed, middle + 160), 1, "the filter");
        let later: u64 = (0..8).map(|n| reads_of(&bed, first + 81 + 16 * n)).sum();
        assert!(later <= 1, "the filter excludes it: {later} reads");
    }
}

#[test]
fn the_footer_of_a_small_leaf_has_its_filter() {
    const RECORDS: u64 = 3000;
    let mut bed = leaves(64 << 10, RECORDS);
    bed.cool(4 << 20);
    let numbers: BTreeMap<_, _> = (0..RECORDS).map(|n| (key(2 * n), 2 * n)).collect();
    for run in bed.runs() {
        let first = numbers[run.reference().keys.first()];
        assert_eq!(reads_of(&bed, first), 2, "footer and data");
        assert_eq!(reads_of(&bed, first + 2), 0, "all cached");
        let absent: u64 = (0..8).map(|n| reads_of(&bed, first + 81 + 16 * n)).sum();
        assert!(absent <= 1, "the filter excludes it: {absent} reads");
    }
}

#[test]
fn lookups_of_present_keys_do_not_cache_filters() {
    const RECORDS: u64 = 15_000;
    let mut bed = leaves(320 << 10, RECORDS);
    // Space for footers and indexes, but not for filters.
    let runs = u64_of(bed.runs().len());
    bed.cool((runs + 8) * 4096);
    let mut random = SplitMix::new(5);
    let mut reads = |bed: &Bed| (0..500).map(|_| reads_of(bed, 2 * random.below(RECORDS))).sum::<u64>();
    reads(&bed);
    let settled = reads(&bed);
    assert!(settled <= 520, "{settled} reads for 500 keys");
}
