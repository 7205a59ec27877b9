//! Tombstones are moved down early if that saves a large part of its writes, and a little at a time.

use super::*;
use crate::update::jobs::FOR_TOMBSTONES;

const RECORDS: u64 = 4000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A tree with everything in its bottom.
fn settled(options: LsmOptions) -> Bed {
    let mut bed = Bed::new(options);
    bed.apply((0..RECORDS).map(|number| (key(number), Some(vec![7; 100]))).collect());
    bed.run_jobs();
    bed
}

fn all_options() -> [LsmOptions; 3] {
    let lsbm = LsmOptions { retained_percent: 100, ..options(4 << 10, 4, 2) };
    [options(4 << 10, 4, 2), lsbm, updating(16 << 10, 4, 2)]
}

fn is_for_tombstones(job: &Job) -> bool {
    job.what == FOR_TOMBSTONES
}

#[test]
fn scattered_tombstones_wait_for_their_level_to_be_full() {
    for options in all_options() {
        let mut bed = settled(options);
        bed.apply((0..40).map(|number| (key(number * 97), None)).collect());
        assert!(!bed.pick_job(false).as_ref().is_some_and(is_for_tombstones));
        assert!(!bed.pick_job(true).as_ref().is_some_and(is_for_tombstones));
    }
}

#[test]
fn a_deleted_range_is_moved_down_in_small_jobs() {
    for options in all_options() {
        let mut bed = settled(options);
        bed.apply((0..RECORDS / 2).map(|number| (key(number), None)).collect());
        let (mut jobs, mut largest) = (0, 0);
        while let Some(job) = bed.pick_job(false) {
            let before = bed.work.progress.state().1;
            assert!(bed.run_job_with(&job, |_| {}), "no update in between");
            if is_for_tombstones(&job) {
                jobs += 1;
                largest = largest.max(bed.work.progress.state().1 - before);
            }
        }
        let bound = 2 * options.job_bytes();
        assert!(largest <= bound, "{largest} bytes in a job, {bound} are enough");
        assert!(jobs >= 1, "at least one tombstone job");
        // An updated page of the bottom keeps a tombstone that it cannot drop by itself.
        let left = bed.tree.stats().tombstones;
        assert!(left <= RECORDS / 500, "{left}: {:?}", bed.tree.outline());
        bed.tree.check_invariants(true).unwrap();
        bed.check(&mut SplitMix::new(7));
    }
}

/// An update in which three in ten operations are deletes.
#[test]
fn a_mixed_update_with_many_tombstones_does_not_empty_its_level() {
    let mut bed = settled(options(4 << 10, 8, 4));
    let mut random = SplitMix::new(7);
    let one = |_| {
        let number = random.below(RECORDS);
        (key(number), (number % 10 >= 3).then(|| vec![8; 100]))
    };
    bed.apply((0..100).map(one).collect());
    let stats = bed.tree.stats();
    assert!(stats.tombstones * 4 >= stats.buffered_bytes / 124, "many tombstones: {stats:?}");
    assert!(bed.pick_job(false).is_none(), "{:?}", bed.pick_job(false));
}
