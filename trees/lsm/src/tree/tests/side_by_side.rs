//! Several jobs in flight at once, on different layers.

use testudo_treebed::SideBySide;

use super::*;

/// The three kinds of leveled trees.
fn kinds() -> [LsmOptions; 3] {
    let lsbm = LsmOptions { retained_percent: 100, ..options(4 << 10, 2, 2) };
    [options(4 << 10, 2, 2), lsbm, updating(8 << 10, 2, 2)]
}

fn run(seed: u64, options: LsmOptions) -> SideBySide {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = RunsByAge::new();
    for _ in 0..25 {
        bed.apply(random_batch(&mut random, 300, 15));
        found.note(&bed.runs());
    }
    let mut round = 0u64;
    let counts = bed.run_jobs_side_by_side(200, 4, &mut random, |bed, random| {
        round += 1;
        found.note(&bed.runs());
        if random.percent(40) {
            let delete_percent = if (round / 40) % 2 == 1 { 70 } else { 20 };
            let batch = random_batch(random, 60, delete_percent);
            if random.percent(10) {
                bed.apply_on_top(batch)
            } else {
                bed.apply(batch)
            }
            found.note(&bed.runs());
        }
        if random.percent(10) {
            let mut cursor = bed.tree.cursor();
            for _ in 0..20 {
                cursor.seek(&random_key(random)).unwrap();
            }
        }
        if round.is_multiple_of(25) {
            bed.check(random);
            bed.check_runs(&mut found);
            let layout = crate::read_layout(bed.durable.objects.clone()).unwrap();
            found.check_layout(&bed.runs(), layout, &bed.model);
        }
    });
    bed.check(&mut random);
    bed.check_runs(&mut found);
    bed.reopen();
    bed.run_jobs();
    bed.check(&mut random);
    bed.check_runs(&mut found);
    counts
}

#[test]
fn jobs_on_different_layers_are_installed_in_any_order() {
    for options in kinds() {
        let mut all = SideBySide::default();
        for seed in some_of(0..6, 3, 0) {
            let counts = run(seed, options);
            all.installed += counts.installed;
            all.after_others += counts.after_others;
            all.overtaken += counts.overtaken;
            all.in_flight_max = all.in_flight_max.max(counts.in_flight_max);
        }
        assert!(all.in_flight_max >= 3 && all.after_others >= all.installed / 10, "{all:?}");
        assert!(all.overtaken <= all.installed / 4, "{all:?}");
    }
}

/// Keys that come in while a move into the bottom is in flight, and that other jobs move meanwhile, are not
/// in the ranges that its output covers, or newer.
#[test]
fn a_move_into_the_bottom_covers_no_keys_that_other_jobs_move() {
    let (mut others, mut installed) = (0, 0);
    for seed in some_of(0..9, 3, 0) {
        let mut random = SplitMix::new(seed);
        let mut bed = Bed::new(kinds()[usize::try_from(seed % 3).unwrap()]);
        let mut found = RunsByAge::new();
        // Gaps of 100 keys between those of the first updates.
        let key = |n: u64| format!("key{n:05}").into_bytes();
        let part = |random: &mut SplitMix, offset: u64, kind: u8| -> Batch {
            let first = random.below(15) * 200 + offset;
            (first..first + 100).map(|n| (key(n), (kind > 0).then(|| vec![kind; 40]))).collect()
        };
        for round in 0..40 {
            let batch = part(&mut random, 0, u8::from(round % 9 > 0));
            bed.apply(batch);
            found.note(&bed.runs());
            let Some(job) = bed.pick_job(true) else { continue };
            if job.scope.layers.end() + 1 < Scope::VALUES || *job.scope.layers.start() == 0 {
                bed.run_jobs_up_to(1, true);
                found.note(&bed.runs());
                continue;
            }
            let busy = [job.scope.clone()];
            let in_flight = bed.prepare(&job, bed.options.job_bytes());
            for _ in 0..6 {
                let (offset, kind) = (random.below(2) * 100, u8::try_from(random.below(3)).unwrap());
                let batch = part(&mut random, offset, kind);
                bed.apply(batch);
                found.note(&bed.runs());
                while let Some(other) = bed.pick_job_outside(true, &busy) {
                    others += u64::from(bed.run_job_with(&other, |_| {}));
                    found.note(&bed.runs());
                }
            }
            installed += u64::from(bed.install(in_flight));
            bed.tree.check_invariants(true).unwrap();
            bed.check(&mut random);
            bed.check_runs(&mut found);
        }
    }
    assert!(others > 50 && installed > 10, "{others} jobs next to {installed} moves");
}
