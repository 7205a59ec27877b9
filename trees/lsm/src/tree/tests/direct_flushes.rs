//! Dense updates go past the levels into pages of the bottom.

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn batch(keys: impl Iterator<Item = u64>, byte: u8) -> Batch {
    keys.map(|number| (key(number), Some(vec![byte; 100]))).collect()
}

fn direct() -> LsmOptions {
    LsmOptions { flushes_directly: true, ..updating(2 << 20, 8, 4) }
}

/// A tree with everything in its bottom: 40,000 even numbers.
fn settled(options: LsmOptions) -> Bed {
    let mut bed = Bed::new(options);
    for first in (0..40_000).step_by(4000) {
        bed.apply_and_move(batch((first..first + 4000).map(|number| number * 2), 1));
    }
    bed.run_jobs();
    while bed.tree.stats().buffered_runs > 0 {
        (0..200).for_each(|number| bed.tree.cursor().seek(&key(number * 400)).unwrap());
        bed.run_jobs();
    }
    bed
}

/// Even numbers of stretches of 1,000, chosen evenly.
fn stretches(random: &mut SplitMix) -> Vec<u64> {
    let mut firsts: Vec<u64> = (0..2).map(|_| random.below(40) * 2000).collect();
    firsts.sort_unstable();
    firsts.dedup();
    firsts.into_iter().flat_map(|first| (0..1000).map(move |number| first + number * 2)).collect()
}

#[test]
fn stretches_are_written_into_pages_only() {
    let (mut bed, mut random) = (settled(direct()), SplitMix::new(1));
    let mut leveled = settled(options(2 << 20, 8, 4));
    let written_by = |bed: &mut Bed, updates: Batch| {
        let before = bed.written_bytes();
        bed.apply(updates);
        bed.run_jobs_up_to(500, false);
        bed.written_bytes() - before
    };
    let (mut incoming, mut of_pages, mut of_runs) = (0, 0, 0);
    for round in 0..40 {
        let updates = batch(stretches(&mut random).into_iter(), round);
        incoming += updates.keys().map(|key| key.len() as u64 + 100).sum::<u64>();
        of_runs += written_by(&mut leveled, updates.clone());
        of_pages += written_by(&mut bed, updates);
        assert_eq!(bed.tree.stats().buffered_runs, 0, "round {round}: nothing is left in the levels");
        if round % 20 == 19 {
            // Its scans may pay for gathering the pages.
            bed.check(&mut random);
        }
    }
    assert!(of_pages < incoming * 3, "{of_pages} bytes written for {incoming}");
    assert!(of_pages * 4 < of_runs * 3, "{of_pages} bytes with pages, {of_runs} with runs");
    bed.reopen();
    bed.tree.check_invariants(true).unwrap();
    bed.check(&mut random);
}

#[test]
fn scattered_updates_wait_in_levels() {
    let (mut bed, mut random) = (settled(direct()), SplitMix::new(2));
    for round in 0..6 {
        bed.apply(batch((0..800).map(|number| number * 100 + u64::from(round) * 2), round));
        assert!(
            bed.tree.stats().buffered_runs > 0,
            "round {round}: pages would be written for one record each"
        );
        bed.run_jobs();
    }
    bed.check(&mut random);
}

#[test]
fn dense_inserts_wait_in_levels() {
    let (mut bed, mut random) = (settled(direct()), SplitMix::new(3));
    bed.apply(batch((0..3000).map(|number| 20_001 + number * 2), 7));
    assert!(bed.tree.stats().buffered_runs > 0, "pages would overflow");
    bed.check(&mut random);
}

#[test]
fn levels_with_older_entries_are_emptied_first() {
    let (mut bed, mut random) = (settled(direct()), SplitMix::new(4));
    bed.apply(batch((0..800).map(|number| number * 100), 9));
    let mut direct = 0;
    for round in 0..80 {
        while bed.tree.behind_bytes() > 0 && bed.run_jobs_up_to(1, false) > 0 {}
        let is_empty = bed.tree.stats().buffered_runs == 0;
        bed.apply(batch(stretches(&mut random).into_iter(), round));
        let is_direct = bed.tree.stats().buffered_runs == 0;
        assert!(is_empty || !is_direct, "round {round}: older entries above would hide newer ones");
        direct += usize::from(is_direct);
        bed.check(&mut random);
        bed.run_jobs_up_to(2, false);
    }
    assert!(direct > 5, "{direct} flushes were direct");
}
