//! Levels that are often read are emptied.

use super::*;

#[test]
fn only_levels_scanned_often_are_emptied() {
    let mut random = SplitMix::new(5);
    let mut bed = Bed::new(options(16 << 10, 4, 4));
    let key = |random: &mut SplitMix| format!("{:012}", random.below(1 << 40)).into_bytes();
    for _ in 0..40 {
        bed.apply_and_move((0..500).map(|_| (key(&mut random), Some(vec![7; 100]))).collect());
    }
    let above = bed.tree.stats().buffered_bytes;
    assert!(above > 0 && bed.pick_job(false).is_none(), "{:?}", bed.tree.outline());
    assert!(!bed.tree.has_new_reasons(), "nothing was scanned");
    let scan = |bed: &Bed, random: &mut SplitMix| {
        let mut cursor = bed.tree.cursor();
        cursor.seek(&key(random)).unwrap();
    };
    scan(&bed, &mut random);
    assert!(bed.tree.has_new_reasons(), "scans are recorded");
    assert!(!bed.tree.has_new_reasons(), "only once");
    assert!(bed.pick_job(false).is_none(), "one scan is not worth a move");
    let (mut scans, mut jobs) = (0, 0);
    while bed.tree.stats().buffered_bytes > 0 {
        scan(&bed, &mut random);
        scans += 1;
        assert!(scans < 5_000, "levels are never emptied: {:?}", bed.tree.outline());
        jobs += bed.run_jobs_up_to(100, false);
    }
    assert!(jobs > 1 && scans > jobs, "{jobs} jobs, {scans} scans");
    scan(&bed, &mut random);
    assert!(bed.pick_job(false).is_none(), "no work is left");
    bed.check(&mut random);
}

#[test]
fn levels_searched_in_vain_are_emptied() {
    let mut random = SplitMix::new(5);
    let mut bed = Bed::new(options(64 << 10, 4, 4));
    let key = |random: &mut SplitMix| format!("{:012}", random.below(10_000)).into_bytes();
    for _ in 0..40 {
        bed.apply_and_move((0..500).map(|_| (key(&mut random), Some(vec![7; 100]))).collect());
    }
    assert!(bed.tree.stats().buffered_bytes > 0 && bed.pick_job(false).is_none(), "{:?}", bed.tree.outline());
    bed.cool(64 << 10);
    let reads_of_lookups = |bed: &Bed, random: &mut SplitMix, count: u64| {
        let before = bed.work.data.io_stats().page_reads;
        for _ in 0..count {
            let key = key(random);
            let found = bed.tree.get(&key, hash_key(&key), Access::Blocking).unwrap();
            assert_eq!(matches!(found, Lookup::Found(..)), bed.model.contains_key(&key));
        }
        bed.work.data.io_stats().page_reads - before
    };
    let before = reads_of_lookups(&bed, &mut random, 100);
    assert!(bed.pick_job(false).is_none(), "100 lookups are not worth a move");
    let mut jobs = 0;
    for _ in 0..200 {
        reads_of_lookups(&bed, &mut random, 100);
        jobs += bed.run_jobs_up_to(100, false);
    }
    let after = reads_of_lookups(&bed, &mut random, 100);
    assert!(before > 120 && after <= 100, "{before} page reads, later {after}, {jobs} jobs");
    assert_eq!(bed.tree.stats().buffered_bytes, 0, "{:?}", bed.tree.outline());
    bed.tree.has_new_reasons();
    reads_of_lookups(&bed, &mut random, 100);
    assert!(!bed.tree.has_new_reasons(), "lookups that read the bottom alone charge nothing");
    bed.check(&mut random);
}
