//! A splinter tree flushes by reference to existing runs, and compacts later (SplinterDB §3.2): updates
//! write the incoming data, jobs the rest.

use super::*;

const RECORDS: u64 = 6000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn updates(random: &mut SplitMix, round: u64) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let value = vec![b'a' + (round % 26) as u8; 100];
    (0..150).map(|_| (key(random.below(RECORDS)), Some(value.clone()))).collect()
}

fn user_bytes_written(before: &[Arc<Run>], after: &[Arc<Run>]) -> u64 {
    let is_new = |run: &&Arc<Run>| !before.iter().any(|old| Arc::ptr_eq(old, run));
    after.iter().filter(is_new).map(|run| run.reference().user_bytes).sum()
}

#[test]
fn updates_write_the_incoming_data_and_jobs_the_rest() {
    let mut random = SplitMix::new(31);
    let mut bed = Bed::new(splinter(8 << 10, 16));
    let (mut incoming, mut by_updates, mut dearest, mut by_jobs) = (0, 0, 0.0f64, 0);
    for round in 0..150 {
        let updates = updates(&mut random, round);
        let bytes: u64 = updates
            .iter()
            .map(|(key, value)| u64_of(key.len()) + value.as_ref().map_or(0, |v| u64_of(v.len())))
            .sum();
        let before = bed.runs();
        bed.apply_only(updates);
        let after = bed.runs();
        let written = user_bytes_written(&before, &after);
        dearest = dearest.max(written as f64 / bytes as f64);
        (incoming, by_updates) = (incoming + bytes, by_updates + written);
        bed.catch_up();
        by_jobs += user_bytes_written(&after, &bed.runs());
    }
    assert!(by_updates * 4 < incoming * 5, "{by_updates} of {incoming} bytes written by updates");
    // A leaf's contents are rewritten with incoming and buffered entries, if they are no larger than those.
    assert!(dearest <= 3.0, "an update that writes {dearest} times its bytes");
    assert!(by_jobs > incoming, "{by_jobs} of {incoming} bytes compacted");
    bed.check(&mut random);
}

#[test]
fn tiers_stay_bounded_however_fast_updates_arrive() {
    let mut random = SplitMix::new(32);
    let mut bed = Bed::new(splinter(8 << 10, 16));
    for round in 0..150 {
        bed.apply(updates(&mut random, round));
        let lines = bed.tree.outline();
        let tiers_of = |at: usize| {
            let below = lines[at + 1..].iter().take_while(|line| line.depth > lines[at].depth);
            below.filter(|line| line.what == "tier" && line.depth == lines[at].depth + 1).count()
        };
        let most = (0..lines.len()).filter(|&at| lines[at].what == "node").map(tiers_of).max().unwrap();
        assert!(most <= 25, "{most} tiers in round {round}");
    }
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
}

#[test]
fn a_job_is_installed_below_tiers_added_meanwhile() {
    let mut random = SplitMix::new(33);
    let mut bed = Bed::new(splinter(8 << 10, 16));
    let (mut installed, mut overtaken) = (0, 0);
    for round in 0..150 {
        bed.apply_only(updates(&mut random, round));
        if bed.tree.behind_bytes() == 0 {
            continue;
        }
        let job = bed.tree.pick_job(&JobRequest::only(false)).expect("jobs are behind");
        match bed.run_job_with(&job, |bed| bed.apply_only(updates(&mut random, round))) {
            true => installed += 1,
            false => overtaken += 1,
        }
        bed.tree.check_invariants(true).unwrap();
        bed.catch_up();
    }
    assert!(installed > 10 * overtaken && installed > 10, "{installed} installed, {overtaken} overtaken");
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
}

#[test]
fn leaves_are_joined_only_without_updates_meanwhile() {
    let mut random = SplitMix::new(34);
    let mut bed = Bed::new(splinter(2 << 10, 16));
    // A single node above the leaves.
    bed.apply((0..200).map(|n| (key(n), Some(vec![b'a'; 100]))).collect());
    let mut overtaken = 0;
    for round in 0..120 {
        // A moving window of deletes, behind which leaves become small.
        let first = round * 15 % 180;
        bed.apply_only((first..first + 14).map(|n| (key(n), None)).collect());
        while let Some(job) = bed.tree.pick_job(&JobRequest::only(true)) {
            let joins = job.what == "join children";
            let is_installed = bed.run_job_with(&job, |bed| {
                if joins {
                    let near = (0..4).map(|_| key((first + 15).saturating_sub(random.below(60))));
                    bed.apply_only(near.map(|key| (key, Some(vec![b'b'; 100]))).collect());
                }
            });
            overtaken += u32::from(!is_installed);
            bed.check(&mut random);
            if joins {
                break;
            }
        }
    }
    assert!(overtaken > 5, "{overtaken} overtaken");
}
