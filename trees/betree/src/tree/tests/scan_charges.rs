//! Buffers that scans read are flushed once it pays off, and not before.

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A tree with tiers in each node.
fn filled() -> Bed {
    let mut bed = Bed::new(turtle(64 << 10, 16));
    let (batches, records) = (15, 2001);
    for batch in 0..batches {
        let number = |n: u64| (batch * records + n) * 7919 % (batches * records);
        bed.apply((0..records).map(|n| (key(number(n)), Some(vec![b'v'; 100]))).collect());
    }
    bed.run_jobs();
    bed
}

fn scan_everywhere(bed: &Bed, rounds: u64, step: usize) {
    for round in 0..rounds {
        for start in (0..30_015).step_by(step) {
            let mut cursor = bed.tree.cursor();
            cursor.seek(&key(start + round % 50)).unwrap();
            assert!(cursor.entry().is_some() || start > 29_900);
        }
    }
}

#[test]
fn many_scans_cause_a_flush_and_few_do_not() {
    let mut bed = filled();
    let before = bed.tree.stats();
    assert!(before.buffered_bytes > before.leaf_bytes / 4, "{before:?} is not worth a test");
    scan_everywhere(&bed, 1, 5000);
    assert!(bed.tree.has_new_reasons(), "scans are recorded");
    assert!(!bed.tree.has_new_reasons(), "only once");
    let job = bed.tree.pick_job(&JobRequest::only(false));
    assert!(job.is_none(), "a few scans pay for nothing: {job:?}, {:?}", bed.tree.outline());
    for _ in 0..40 {
        scan_everywhere(&bed, 10, 50);
        bed.run_jobs();
    }
    let after = bed.tree.stats();
    assert!(after.buffered_bytes < before.buffered_bytes / 10, "{before:?} {after:?}");
    bed.check(&mut SplitMix::new(1));
}

/// Rounds of scans everywhere until they pay for a flush, with a cache of `cache_bytes`.
fn rounds_until_a_flush(cache_bytes: u64) -> u64 {
    let mut bed = filled();
    bed.cool(cache_bytes);
    (1..2000)
        .find(|_| {
            scan_everywhere(&bed, 1, 5000);
            bed.tree.pick_job(&JobRequest::only(false)).is_some()
        })
        .expect("scans eventually pay for a flush")
}

#[test]
fn cached_scans_pay_for_a_flush_later_than_reading_scans() {
    let (reading, in_memory) = (rounds_until_a_flush(64 << 10), rounds_until_a_flush(16 << 20));
    assert!(in_memory > reading * 3, "{reading} and {in_memory} rounds");
}

#[test]
fn nearly_due_children_are_flushed_along() {
    let mut bed = filled();
    let (mut random, mut jobs, before) = (SplitMix::new(3), 0_u64, bed.tree.stats());
    while bed.tree.stats().buffered_bytes > before.buffered_bytes / 10 {
        bed.tree.cursor().seek(&key(random.below(30_015))).unwrap();
        let Some(job) = bed.tree.pick_job(&JobRequest::only(false)) else { continue };
        let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
        let edit = bed.tree.install(&bed.work, prepared).unwrap();
        bed.publish(edit.expect("no update in between"));
        jobs += 1;
    }
    let outline = bed.tree.outline();
    let leaves: u64 = outline.iter().filter(|line| line.what == "leaf").map(|line| line.count).sum();
    assert!(jobs * 3 <= leaves, "{jobs} jobs for {leaves} leaves");
}

#[test]
fn scanned_tiers_are_merged_before_leaves_are_rewritten() {
    let mut bed = filled();
    let tiers = |bed: &Bed| bed.tree.outline().iter().filter(|line| line.what == "tier").count();
    let (before, tiers_before) = (bed.tree.stats(), tiers(&bed));
    let (mut random, mut done) = (SplitMix::new(5), Vec::new());
    while tiers(&bed) * 2 > tiers_before {
        bed.tree.cursor().seek(&key(random.below(30_015))).unwrap();
        let Some(job) = bed.tree.pick_job(&JobRequest::only(false)) else { continue };
        done.push(job.what);
        let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
        let edit = bed.tree.install(&bed.work, prepared).unwrap();
        bed.publish(edit.expect("no update in between"));
    }
    let after = bed.tree.stats();
    assert_eq!(done.first(), Some(&"merge for scans"), "{done:?}");
    assert!(
        after.leaf_bytes - before.leaf_bytes <= before.buffered_bytes / 4,
        "{before:?} {after:?} {done:?}"
    );
    bed.check(&mut SplitMix::new(1));
}
