//! Compaction of ranges.

use testudo_contract::JOB_BYTES;
use testudo_treebed::{compact_a_part, random_compactions, random_range};

use super::*;

#[test]
fn compacted_ranges_have_one_run_for_each_key() {
    for seed in some_of(0..3, 3, 0) {
        random_compactions(seed, options(4096, 3, 2));
        random_compactions(seed + 10, options(16 << 10, 4, 4));
        random_compactions(seed + 20, updating(8192, 3, 2));
    }
}

/// Number of sequences, the bottom included.
fn sequences(bed: &Bed) -> u64 {
    let lines = |what| u64_of(bed.lines(what).len());
    lines("filling") + lines("emptying") + 1
}

#[test]
fn a_compaction_writes_the_range_and_runs_at_its_ends() {
    compact_a_part(options(32 << 10, 4, 2), 32 << 10, sequences);
    compact_a_part(updating(32 << 10, 4, 2), 32 << 10, sequences);
}

/// Retained runs answer nothing for keys that were moved past their level.
#[test]
fn compacted_ranges_agree_with_compaction_buffers() {
    for seed in some_of(0..3, 3, 0) {
        let mut random = SplitMix::new(seed);
        let mut bed = Bed::new(LsmOptions { retained_percent: 100, ..options(4096, 3, 2) });
        let mut retained = 0;
        for _ in 0..20 {
            bed.apply(random_batch(&mut random, 300, 30));
            let jobs = random.below(4);
            bed.run_jobs_up_to(jobs, false);
            retained += bed.tree.stats().retained_bytes;
            if random.percent(40) {
                let range = random_range(&mut random);
                bed.compact_range(&range, |_| {});
                bed.check_compact(&range);
            }
            bed.tree.check_retained().unwrap();
            bed.check(&mut random);
            if random.percent(20) {
                bed.reopen();
                bed.check(&mut random);
            }
        }
        assert!(retained > 0, "runs were retained");
    }
}

#[test]
fn pieces_end_at_fences_of_the_bottom() {
    let mut bed = Bed::new(options(4096, 3, 2));
    let key = |n: u64| format!("{n:04}").into_bytes();
    let filled = |numbers: std::ops::Range<u64>, by: usize| -> Batch {
        numbers.step_by(by).map(|n| (key(n), Some(vec![1; 100]))).collect()
    };
    // A single flush goes to the bottom, the second one stays above it.
    bed.apply(filled(0..400, 1));
    bed.apply_on_top(filled(0..400, 4));
    let fences: Vec<Vec<u8>> = bed
        .layout()
        .into_iter()
        .filter_map(|(_, PartUse::Run(used))| used.counts_in.first().and_then(|keys| keys.low.clone()))
        .collect();
    let range = KeyBounds { low: Some(key(100)), high: Some(key(300)) };
    let (mut rest, mut ends) = (range, Vec::new());
    while let Some(picked) = bed.tree.pick_range(&rest, JOB_BYTES).unwrap() {
        let end = picked.done_below.clone().unwrap();
        assert!(fences.contains(&end), "a piece ends at a fence");
        ends.push(end.clone());
        rest.low = Some(end);
    }
    assert!(ends.len() == 2 && ends.is_sorted(), "{ends:?}");
    assert!(ends.last() >= rest.high.as_ref(), "the last piece ends after the range");
}

#[test]
fn an_empty_range_or_tree_has_no_piece() {
    let mut bed = Bed::new(options(4096, 3, 2));
    assert!(bed.tree.pick_range(&KeyBounds::default(), JOB_BYTES).unwrap().is_none());
    bed.apply(random_batch(&mut SplitMix::new(1), 300, 0));
    bed.apply(random_batch(&mut SplitMix::new(2), 300, 0));
    for (low, high) in [("key1", "key1"), ("key2", "key1"), ("x", "y")] {
        let range = KeyBounds { low: Some(low.into()), high: Some(high.into()) };
        assert!(bed.tree.pick_range(&range, JOB_BYTES).unwrap().is_none(), "{low}..{high}");
    }
}

/// A step puts the entries of its keys into pages of a run of the bottom, and leaves the rest of an upper run
/// above. That run still has older entries of these keys.
#[test]
fn updated_pages_are_newer_than_the_rest_of_an_upper_run() {
    let mut bed = Bed::new(updating(64 << 10, 4, 2));
    let mut found = RunsByAge::new();
    let key = |n: u64| format!("{n:04}").into_bytes();
    bed.apply((0..1200).map(|n| (key(n), Some(vec![1; 100]))).collect());
    bed.apply_on_top([0, 1199].map(|n| (key(n), Some(vec![2; 100]))).into());
    bed.apply_on_top([(key(0), Some(vec![3; 100]))].into());
    let range = KeyBounds { low: None, high: Some(key(1)) };
    assert_eq!(bed.compact_range(&range, |_| {}), 1);
    let runs = bed.runs();
    let updated = runs.iter().find(|run| run.reference().replaced.is_some()).expect("a page was updated");
    let rest = runs.iter().find(|run| run.reference().entries == 2).expect("the other key is still above");
    let of_footer = |run: &Run| run.record().unwrap().reference.newest_seqno;
    assert!(of_footer(updated) < rest.reference().newest_seqno, "the footer has the age before the update");
    assert!(updated.reference().newest_seqno > rest.reference().newest_seqno, "the update is newer");
    bed.check_runs(&mut found);
    bed.check(&mut SplitMix::new(1));
}

/// A step leaves the rest of an upper run, from a fence of the bottom on that is less than its next key. The
/// next step is written by several workers, of which none has an entry between the two.
#[test]
fn a_range_that_was_compacted_before_and_behind_a_fence_keeps_no_replaced_run() {
    let mut bed = Bed::new(options(4096, 3, 2));
    let key = |n: u64| format!("{n:04}").into_bytes();
    let filled = |value: u8| -> Batch { (0..400).map(|n| (key(n), Some(vec![value; 100]))).collect() };
    bed.apply(filled(1));
    bed.apply_on_top(filled(2));
    let fences: Vec<Vec<u8>> = bed
        .layout()
        .into_iter()
        .filter_map(|(_, PartUse::Run(used))| used.counts_in.first().and_then(|keys| keys.low.clone()))
        .collect();
    for fence in fences {
        bed.compact_range(&KeyBounds { low: None, high: Some(fence) }, |_| {});
    }
    bed.compact_range(&KeyBounds::default(), |_| {});
    assert_eq!(bed.tree.stats().entries, u64_of(bed.model.len()), "no witness is left");
    bed.check_compact(&KeyBounds::default());
}
