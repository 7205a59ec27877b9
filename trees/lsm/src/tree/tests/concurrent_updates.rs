//! Jobs prepared while updates arrive.

use super::*;

const RECORDS: u64 = 3000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn value(round: u64) -> Option<Vec<u8>> {
    Some(vec![b'a' + (round % 26) as u8; 100])
}

/// A tree of several levels.
fn busy_bed(random: &mut SplitMix) -> Bed {
    let mut bed = Bed::new(options(4 << 10, 4, 2));
    for round in 1..80 {
        bed.apply_and_move((0..100).map(|_| (key(random.below(RECORDS)), value(round))).collect());
    }
    assert!(bed.lines("level").len() > 1, "{:?}", bed.tree.outline());
    bed
}

#[test]
fn a_job_is_installed_despite_flushes_meanwhile() {
    let mut random = SplitMix::new(11);
    let mut bed = busy_bed(&mut random);
    let mut updates = SplitMix::new(12);
    let (installed, overtaken) = bed.run_jobs_with(
        200,
        |round| round % 3 == 0,
        |bed, round| {
            for _ in 0..updates.below(4) {
                let (first, count) = (updates.below(RECORDS), 20 + updates.below(60));
                let batch = (first..first + count).map(|n| (key(n % RECORDS), value(round)));
                let batch = batch.map(|(key, value)| (key, value.filter(|_| round % 5 > 0))).collect();
                if round % 7 == 3 { bed.apply_on_top(batch) } else { bed.apply(batch) }
            }
        },
    );
    assert!(installed > 60 && overtaken < installed / 4, "{installed} installed, {overtaken} overtaken");
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
    bed.run_jobs();
    bed.check(&mut random);
}

#[test]
fn an_overtaken_job_is_dropped_and_its_space_released() {
    let mut random = SplitMix::new(13);
    let mut bed = busy_bed(&mut random);
    let job = bed.pick_job(true).expect("much is pending");
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    assert_eq!(bed.run_jobs_up_to(1, true), 1);
    assert!(bed.tree.install(&bed.work, prepared).unwrap().is_none(), "another job did it already");
    let free_bytes = |bed: &Bed| bed.work.data.space_stats().free_bytes;
    let job = bed.pick_job(true).expect("much is pending");
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    let before = free_bytes(&bed);
    drop(prepared);
    assert!(free_bytes(&bed) > before, "the space of a job that was dropped");
    bed.check(&mut random);
}

#[test]
fn a_job_of_another_tree_is_not_installed() {
    let mut random = SplitMix::new(14);
    let mut bed = busy_bed(&mut random);
    let job = bed.pick_job(true).expect("much is pending");
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    bed.reopen();
    assert!(bed.tree.install(&bed.work, prepared).unwrap().is_none(), "it has other sequences");
    struct Foreign;
    assert!(bed.tree.install(&bed.work, Prepared::new("foreign", Foreign)).unwrap().is_none());
}

#[test]
fn random_jobs_with_concurrent_updates_change_no_answer() {
    for seed in 0..6 {
        let mut random = SplitMix::new(seed);
        let mut bed = Bed::new([options(4096, 3, 2), options(16 << 10, 4, 4)][usize::from(seed % 2 == 1)]);
        for _ in 0..40 {
            bed.apply(random_batch(&mut random, 300, 30));
            let Some(job) = bed.pick_job(random.percent(30)) else { continue };
            bed.run_job_with(&job, |bed| {
                for _ in 0..random.below(4) {
                    let batch = random_batch(&mut random, 200, 50);
                    if random.percent(20) { bed.apply_on_top(batch) } else { bed.apply(batch) }
                }
            });
            bed.tree.check_invariants(true).unwrap();
        }
        bed.check(&mut random);
        bed.reopen();
        bed.run_jobs();
        bed.check(&mut random);
    }
}
