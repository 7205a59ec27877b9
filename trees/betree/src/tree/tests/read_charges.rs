//! Buffers that reads search are merged and flushed once it pays off, and not before.

use std::cell::RefCell;

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A tree with tiers in each node.
fn filled() -> Bed {
    filled_with(turtle(64 << 10, 16))
}

fn filled_with(options: BeTreeOptions) -> Bed {
    let mut bed = Bed::new(options);
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
    assert_eq!(done.first(), Some(&"merge for reads"), "{done:?}");
    assert!(
        after.leaf_bytes - before.leaf_bytes <= before.buffered_bytes / 4,
        "{before:?} {after:?} {done:?}"
    );
    bed.check(&mut SplitMix::new(1));
}

/// Looks up `count` random records; returns the page reads.
fn reads_of_lookups(bed: &Bed, random: &mut SplitMix, count: u64) -> u64 {
    let before = bed.work.data.io_stats().page_reads;
    for _ in 0..count {
        let key = key(random.below(30_015));
        let found = bed.tree.get(&key, hash_key(&key), Access::Blocking).unwrap();
        assert!(matches!(found, Lookup::Found(..)), "all records are there");
    }
    bed.work.data.io_stats().page_reads - before
}

#[test]
fn point_reads_that_read_several_runs_pay_for_their_merge() {
    for options in [turtle(64 << 10, 16), splinter(64 << 10, 16)] {
        let (mut bed, mut random) = (filled_with(options), SplitMix::new(9));
        bed.cool(64 << 10);
        let before = reads_of_lookups(&bed, &mut random, 30) * 100 / 3;
        assert!(before >= 2000, "lookups read several runs: {before} pages");
        let job = bed.tree.pick_job(&JobRequest::only(false));
        assert!(job.is_none(), "30 lookups pay for nothing: {job:?}");
        let jobs: u64 = (0..60)
            .map(|_| {
                reads_of_lookups(&bed, &mut random, 500);
                bed.run_jobs_up_to(100, false)
            })
            .sum();
        let after = reads_of_lookups(&bed, &mut random, 1000);
        assert!(jobs > 0 && after < before, "{before} page reads per 1,000, later {after}, {jobs} jobs");
        assert_eq!(bed.tree.stats().buffered_runs, 0, "one run per lookup: {:?}", bed.tree.outline());
        bed.check(&mut random);
    }
}

#[test]
fn batched_lookups_are_charged_for_what_they_read() {
    // Filters of smaller runs are in their footers.
    let (mut bed, mut random) = (filled_with(turtle(320 << 10, 16)), SplitMix::new(9));
    bed.cool(1 << 20);
    let (wanted, progress) = (RefCell::new(Vec::new()), Cell::default());
    let mut is_charged = false;
    for _ in 0..20 {
        let key = key(random.below(30_015));
        progress.set(testudo_run::LookupProgress::default());
        let access = Access::Collecting(&wanted, &progress);
        while bed.tree.get(&key, hash_key(&key), access).unwrap() == Lookup::Waiting {
            bed.tree.load_pages(&wanted.take()).unwrap();
        }
        is_charged |= bed.tree.has_new_reasons();
    }
    assert!(is_charged, "pages of runs without the keys were read");
}

#[test]
fn runs_that_filters_in_memory_exclude_charge_nothing() {
    let (mut bed, mut random) = (filled(), SplitMix::new(9));
    bed.cool(16 << 20);
    reads_of_lookups(&bed, &mut random, 30_000);
    bed.tree.has_new_reasons();
    let is_charged = |_: &u32| {
        reads_of_lookups(&bed, &mut random, 1);
        bed.tree.has_new_reasons()
    };
    let charged = (0..1000_u32).filter(is_charged).count();
    assert!(charged <= 20, "{charged} of 1,000 lookups, more than filters fail to exclude");
}

#[test]
fn point_reads_of_one_run_charge_nothing() {
    let (mut bed, mut random) = (filled(), SplitMix::new(9));
    bed.cool(64 << 10);
    while let Some(job) = bed.tree.pick_range(&KeyBounds::default(), 64 << 20).unwrap() {
        assert!(bed.run_job_with(&job.job, |_| {}), "no update in between");
    }
    assert_eq!(bed.tree.stats().buffered_runs, 0, "{:?}", bed.tree.outline());
    assert!(reads_of_lookups(&bed, &mut random, 1000) > 900, "each lookup reads its leaf");
    assert!(!bed.tree.has_new_reasons(), "nothing was searched in vain");
}
