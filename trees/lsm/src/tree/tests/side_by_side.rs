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
    let counts = bed.run_jobs_side_by_side(300, 4, &mut random, |bed, random| {
        round += 1;
        found.note(&bed.runs());
        if random.percent(40) {
            let delete_percent = if (round / 50) % 2 == 1 { 70 } else { 20 };
            let batch = random_batch(random, 60, delete_percent);
            if random.percent(10) { bed.apply_on_top(batch) } else { bed.apply(batch) }
            found.note(&bed.runs());
        }
        if random.percent(10) {
            let mut cursor = bed.tree.cursor();
            for _ in 0..20 {
                cursor.seek(&random_key(random)).unwrap();
            }
        }
        if round % 10 == 0 {
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
        println!("{all:?}");
        assert!(all.in_flight_max >= 3 && all.after_others >= all.installed / 10, "{all:?}");
        assert!(all.overtaken <= all.installed / 4, "{all:?}");
    }
}
