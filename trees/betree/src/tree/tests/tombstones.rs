//! Tombstones are flushed early if that saves a large part of its writes, and a little at a time.

use super::*;
use crate::{jobs::FOR_TOMBSTONES, tombstones::written_max};

const RECORDS: u64 = 24_000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A tree with everything in its leaves.
fn settled(options: BeTreeOptions) -> Bed {
    let mut bed = Bed::new(options);
    for from in (0..RECORDS).step_by(4000) {
        bed.apply((from..from + 4000).map(|number| (key(number), Some(vec![7; 100]))).collect());
    }
    bed.run_jobs();
    bed
}

/// Trees with one node above the leaves, and with several.
fn all_options() -> [BeTreeOptions; 4] {
    [turtle(64 << 10, 256), turtle(64 << 10, 16), splinter(64 << 10, 256), splinter(64 << 10, 16)]
}

fn is_for_tombstones(job: &Job) -> bool {
    job.what == FOR_TOMBSTONES
}

#[test]
fn scattered_tombstones_are_not_flushed_early() {
    for options in all_options() {
        let mut bed = settled(options);
        bed.apply((0..40).map(|number| (key(number * 593), None)).collect());
        assert!(!bed.tree.pick_job(&JobRequest::only(false)).as_ref().is_some_and(is_for_tombstones));
        assert!(!bed.tree.pick_job(&JobRequest::only(true)).as_ref().is_some_and(is_for_tombstones));
    }
}

#[test]
fn a_deleted_range_is_flushed_in_small_jobs() {
    let mut flushed = 0;
    for options in all_options() {
        let mut bed = settled(options);
        bed.apply_only((0..RECORDS / 2).map(|number| (key(number), None)).collect());
        let mut largest = 0;
        for count in 0.. {
            assert!(count < 2000, "jobs never end: {:?}", bed.tree.pick_job(&JobRequest::only(true)));
            let Some(job) = bed.tree.pick_job(&JobRequest::only(true)) else { break };
            let before = bed.work.progress.state().1;
            assert!(bed.run_job_with(&job, |_| {}), "no update in between");
            if is_for_tombstones(&job) {
                flushed += 1;
                largest = largest.max(bed.work.progress.state().1 - before);
            }
        }
        let bound = written_max(&options) * 3 / 2;
        assert!(largest <= bound, "{largest} bytes in a job, {bound} are enough: {options:?}");
        let stats = bed.tree.stats();
        assert!(stats.tombstones * 20 < RECORDS, "{options:?}: {stats:?}");
        bed.tree.check_invariants(true).unwrap();
        bed.check(&mut SplitMix::new(7));
    }
    assert!(flushed > 4, "enough tombstone jobs: {flushed}");
}

/// An update in which three in ten operations are deletes.
#[test]
fn a_mixed_update_with_many_tombstones_is_not_flushed_for_them() {
    for options in all_options() {
        let mut bed = settled(options);
        let mut random = SplitMix::new(7);
        let one = |_| {
            let number = random.below(RECORDS);
            (key(number), (number % 10 >= 3).then(|| vec![8; 100]))
        };
        bed.apply((0..100).map(one).collect());
        assert!(
            bed.tree.pick_job(&JobRequest::only(false)).is_none(),
            "{options:?}: {:?}",
            bed.tree.pick_job(&JobRequest::only(false))
        );
    }
}
