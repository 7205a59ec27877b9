//! Jobs prepared while updates arrive.

use super::*;

const RECORDS: u64 = 3000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn value(round: u64) -> Option<Vec<u8>> {
    Some(vec![b'a' + (round % 26) as u8; 100])
}

/// A splinter tree of several levels with much postponed work.
fn busy_bed(random: &mut SplitMix) -> Bed {
    let mut bed = Bed::new(splinter(4 << 10, 4));
    bed.apply((0..RECORDS).map(|n| (key(n), value(0))).collect());
    for round in 1..60 {
        bed.apply((0..100).map(|_| (key(random.below(RECORDS)), value(round))).collect());
    }
    assert!(bed.tree.stats().height > 2, "{:?}", bed.tree.stats());
    bed
}

#[test]
fn a_job_is_installed_unless_flushes_changed_its_node() {
    let mut random = SplitMix::new(11);
    let mut bed = busy_bed(&mut random);
    let mut updates = SplitMix::new(12);
    let (installed, overtaken) = bed.run_jobs_with(
        400,
        |_| true,
        |bed, round| {
            let (first, count) = (updates.below(RECORDS), 20 + updates.below(60));
            let keys = (first..first + count).map(|n| key(n % RECORDS));
            if round < 200 {
                bed.apply(keys.map(|key| (key, value(round).filter(|_| round % 5 > 0))).collect());
            }
        },
    );
    assert!(installed > 100 && overtaken > 5, "{installed} installed, {overtaken} overtaken");
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
}

#[test]
fn an_overtaken_job_releases_its_space() {
    let mut random = SplitMix::new(13);
    let bed = busy_bed(&mut random);
    let job = bed.tree.pick_job(&JobRequest::only(true)).expect("much is pending");
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    let free_bytes = |bed: &Bed| bed.work.data.space_stats().free_bytes;
    let before = free_bytes(&bed);
    drop(prepared);
    assert!(free_bytes(&bed) > before, "the space of a job that was dropped");
}

#[test]
fn a_job_of_another_tree_is_not_installed() {
    let mut random = SplitMix::new(14);
    let mut bed = busy_bed(&mut random);
    let job = bed.tree.pick_job(&JobRequest::only(true)).expect("much is pending");
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    bed.reopen();
    assert!(bed.tree.install(&bed.work, prepared).unwrap().is_none(), "it has other nodes");
    struct Foreign;
    assert!(bed.tree.install(&bed.work, Prepared::new("foreign", Foreign)).unwrap().is_none());
}
