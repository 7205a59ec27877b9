//! Compaction of ranges.

use testudo_contract::JOB_BYTES;
use testudo_treebed::{compact_a_part, random_compactions, random_range};

use super::*;

#[test]
fn compacted_ranges_have_one_run_for_each_key() {
    for seed in some_of(0..3, 3, 0) {
        random_compactions(seed, turtle(4096, 4));
        random_compactions(seed + 10, turtle(16 << 10, 8));
        random_compactions(seed + 20, splinter(4096, 4));
    }
}

#[test]
fn a_compaction_writes_the_range_and_runs_at_its_ends() {
    let levels = |bed: &Bed| u64::from(bed.tree.stats().height) + 1;
    compact_a_part(turtle(16 << 10, 8), 32 << 10, levels);
    // A pivot of a splinter tree may have several leaves of bytes.
    compact_a_part(splinter(16 << 10, 8), 64 << 10, levels);
}

/// The part of a pivot before the range becomes a tier of its child; the part behind it stays.
#[test]
fn entries_beside_the_range_stay_buffered() {
    let mut random = SplitMix::new(3);
    let mut bed = Bed::new(splinter(4096, 4));
    for _ in 0..30 {
        let batch: Batch = (0..150).map(|_| (random_key(&mut random), Some(vec![2; 60]))).collect();
        bed.apply(batch);
    }
    assert!(bed.tree.stats().height > 2, "{:?}", bed.tree.stats());
    let range = random_range(&mut random);
    let buffered = bed.tree.stats().buffered_bytes;
    bed.compact_range(&range, |_| {});
    bed.check_compact(&range);
    let left = bed.tree.stats().buffered_bytes;
    assert!(left < buffered && left > 0, "{left} of {buffered} bytes are buffered");
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
}

#[test]
fn an_empty_range_or_tree_has_no_step() {
    let mut bed = Bed::new(turtle(4096, 4));
    assert!(bed.tree.pick_range(&KeyBounds::default(), JOB_BYTES).unwrap().is_none());
    let mut random = SplitMix::new(1);
    for _ in 0..4 {
        bed.apply((0..300).map(|_| (random_key(&mut random), Some(vec![1; 40]))).collect());
    }
    for (low, high) in [("key1", "key1"), ("key2", "key1"), ("x", "y")] {
        let range = KeyBounds { low: Some(low.into()), high: Some(high.into()) };
        assert!(bed.tree.pick_range(&range, JOB_BYTES).unwrap().is_none(), "{low}..{high}");
    }
}

#[test]
fn a_step_takes_fewer_leaves_with_a_smaller_bound() {
    let mut bed = Bed::new(turtle(4096, 4));
    let mut random = SplitMix::new(1);
    for _ in 0..4 {
        bed.apply((0..600).map(|_| (random_key(&mut random), Some(vec![1; 40]))).collect());
    }
    let all = KeyBounds::default();
    let end_with = |bytes_max| {
        let step = bed.tree.pick_range(&all, bytes_max).unwrap().unwrap();
        assert!(step.job.debt_bytes <= bytes_max.max(bed.tree.job_bytes_max(0)), "{bytes_max}");
        step.done_below.unwrap()
    };
    let ends = [0, 20 << 10, JOB_BYTES].map(end_with);
    assert!(ends.is_sorted_by(|a, b| a < b), "{ends:?}");
}
