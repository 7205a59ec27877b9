//! Runs alone, ordered by their metadata, give the same answers as the tree.

use testudo_treebed::sequential_script;

use super::*;

fn random_script(seed: u64, options: LsmOptions) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = RunsByAge::new();
    for round in 0..40 {
        let delete_percent = if (round / 10) % 2 == 1 { 80 } else { 15 };
        let batch = random_batch(&mut random, 200, delete_percent);
        bed.apply(batch);
        bed.check_runs(&mut found);
        let layout = crate::read_layout(bed.durable.objects.clone()).unwrap();
        found.check_layout(&bed.runs(), layout, &bed.model);
        if random.percent(20) {
            bed.reopen();
        }
        if random.percent(30) {
            bed.run_jobs();
            bed.check_runs(&mut found);
        }
    }
    let all = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(all);
    bed.run_jobs();
    bed.check_runs(&mut found);
}

#[test]
fn runs_in_age_order_match_the_tree() {
    for seed in 0..4 {
        random_script(seed, options(4096, 3, 2));
        random_script(seed, options(4096, 10, 4));
        random_script(seed, options(20_000, 2, 1));
    }
}

#[test]
fn runs_of_sequential_keys_match_the_tree() {
    for seed in 0..3 {
        sequential_script(seed, options(4096, 4, 2));
        sequential_script(seed, options(8192, 10, 4));
    }
}

/// Flushes with disjoint ranges of keys, so that runs are moved down as they are, and later deletes.
#[test]
fn trivial_moves_keep_deletions() {
    for seed in 0..6 {
        let mut random = SplitMix::new(seed);
        let mut bed = Bed::new(options(4096, 3, 2));
        let mut found = RunsByAge::new();
        for round in 0..60u64 {
            let place = random.below(12);
            let key = |n: u64| format!("{place:02}-{:04}", n).into_bytes();
            let first = random.below(300);
            let is_removal = random.percent(35);
            let value = |n: u64| (!is_removal).then(|| vec![u8::try_from(round).unwrap(); (n % 90) as usize]);
            bed.apply((first..first + 20 + random.below(150)).map(|n| (key(n), value(n))).collect());
            bed.check_runs(&mut found);
        }
        bed.run_jobs();
        bed.check_runs(&mut found);
        bed.check(&mut random);
    }
}
