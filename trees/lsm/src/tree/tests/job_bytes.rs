//! No job reads or writes more than its bound.
//!
//! Every test of the bed checks it; here jobs are requested with small bounds, and much is to be moved.

use testudo_treebed::JobBytes;

use super::*;

const RECORDS: u64 = 6000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A long course of writes, deletes, scans and idle times; returns the largest job.
fn course(seed: u64, options: LsmOptions) -> JobBytes {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    for round in 0..120u64 {
        let deletes = round % 10 >= 7;
        let one = |random: &mut SplitMix, first: u64, n: u64| {
            let number = if round % 3 == 0 { (first + n) % RECORDS } else { random.below(RECORDS) };
            (key(number), (!deletes || random.percent(20)).then(|| vec![7; 100]))
        };
        let first = random.below(RECORDS);
        bed.apply((0..250).map(|n| one(&mut random, first, n)).collect());
        match round % 6 {
            // Several flushes before the next job: the tree is under pressure.
            0..3 => {}
            3 => {
                bed.run_jobs_up_to(100, false);
            }
            4 => {
                let mut cursor = bed.tree.cursor();
                (0..200).for_each(|_| cursor.seek(&key(random.below(RECORDS))).unwrap());
                bed.run_jobs_up_to(100, false);
            }
            _ => bed.run_jobs(),
        }
        if round % 20 == 19 {
            bed.compact_range(&KeyBounds { low: Some(key(RECORDS / 3)), high: None }, |_| {});
        }
    }
    bed.check(&mut random);
    bed.largest_job
}

#[test]
fn jobs_of_a_long_course_are_bounded() {
    for run_bytes in [4 << 10, 8 << 10] {
        let lsbm = LsmOptions { retained_percent: 100, ..options(run_bytes, 4, 2) };
        for options in [options(run_bytes, 4, 2), lsbm, updating(run_bytes, 4, 2)] {
            let largest = course(7, options);
            assert!(largest.bytes >= largest.bytes_max / 4 * 3, "{largest:?}: the bound is never reached");
        }
    }
}

/// Many flushes of a narrow range are above one run of the bottom, and one key is in all of them.
#[test]
fn a_level_above_one_run_is_moved_in_parts() {
    let mut bed = Bed::new(options(4 << 10, 4, 2));
    bed.apply((0..30).map(|number| (key(number), Some(vec![1; 100]))).collect());
    bed.run_jobs();
    for round in 0..20u8 {
        let narrow = (0..300u64).map(|n| [key(7), n.to_be_bytes().to_vec()].concat());
        let narrow = narrow.map(|key| (key, Some(vec![2; 100])));
        bed.apply(narrow.chain([(key(7), Some(vec![round; 6000]))]).collect());
    }
    let mut jobs = 0;
    while let Some(job) = bed.pick_job(true) {
        assert!(bed.run_job_with(&job, |_| {}), "no update in between");
        jobs += 1;
    }
    assert!(jobs > 5, "{jobs} jobs");
    bed.check(&mut SplitMix::new(1));
}

/// A range begins inside a run of the bottom, and most data above that run is before the range.
#[test]
fn a_range_behind_much_data_above_one_run_is_compacted_in_parts() {
    let mut bed = Bed::new(options(4 << 10, 4, 2));
    bed.apply((0..30).map(|number| (key(number), Some(vec![1; 100]))).collect());
    bed.run_jobs();
    for round in 0..4u8 {
        let narrow = (0..4800u64).map(|n| [key(7), n.to_be_bytes().to_vec()].concat());
        let narrow = narrow.map(|key| (key, Some(vec![2; 100])));
        bed.apply_on_top(narrow.chain([(key(9), Some(vec![round; 100]))]).collect());
    }
    let above = bed.tree.stats().buffered_bytes;
    let bytes_max = bed.tree.job_bytes_max(bed.options.job_bytes());
    assert!(above > 3 * bytes_max, "{above} bytes, {bytes_max} for each job");
    let range = KeyBounds { low: Some(key(8)), high: None };
    let jobs = bed.compact_range(&range, |_| {});
    assert!(jobs > 3, "{jobs} jobs");
    bed.check_compact(&range);
    let largest = bed.largest_job;
    assert!(largest.bytes >= largest.bytes_max / 4 * 3, "{largest:?}: the bound is never reached");
    bed.check(&mut SplitMix::new(1));
}
