//! The page cache after merges.

use testudo_storage::Keeping;

use super::*;

const RECORDS: u64 = 12_000;
const HOT: std::ops::Range<u64> = 4_000..5_000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn spread(round: u64, count: u64) -> Batch {
    let numbers = (0..count).map(|n| (n * 7919 + round * 31) % RECORDS);
    numbers.map(|number| (key(number), Some(vec![b'a' + (round % 26) as u8; 100]))).collect()
}

/// Reads each record of the range; returns the number of page reads.
fn read(bed: &Bed, numbers: std::ops::Range<u64>) -> u64 {
    let before = bed.work.data.io_stats().page_reads;
    for number in numbers {
        let key = key(number);
        let found = bed.tree.get(&key, hash_key(&key), Access::Blocking).unwrap();
        let Lookup::Found(Kind::Value, value, _) = found else { panic!("{number} is not there") };
        assert_eq!(Some(&value), bed.model.get(&key));
    }
    bed.work.data.io_stats().page_reads - before
}

/// Reads a hot range while everything is merged; returns the page reads of that range, and of others.
fn reads_after_merges(warms_merges: bool) -> (u64, u64) {
    let mut bed = Bed::new(options(64 << 10, 4, 2));
    bed.apply_and_move((0..RECORDS).map(|number| (key(number), Some(vec![b'v'; 100]))).collect());
    bed.run_jobs();
    bed.cool(4 << 20);
    bed.work.data.set_warms_merges(warms_merges);
    read(&bed, HOT);
    let mut hot = 0;
    for round in 0..20 {
        for _ in 0..3 {
            hot += read(&bed, HOT);
        }
        bed.apply_and_move(spread(round, 1_000));
        bed.run_jobs();
    }
    let warmed = bed.work.data.cache_stats().warmed;
    assert_eq!(warmed > 0, warms_merges, "{warmed} pages");
    (hot, read(&bed, 6_000..7_000))
}

#[test]
fn merges_keep_hot_ranges_cached_and_do_not_cache_cold_ones() {
    let (hot, cold) = reads_after_merges(true);
    let (hot_without, cold_without) = reads_after_merges(false);
    assert!(hot_without > 25 && hot * 8 < hot_without, "{hot} reads, {hot_without} without warm merges");
    assert_eq!(cold, cold_without, "the cold range was not read before");
}

/// Number of cached pages.
fn cached_pages(bed: &Bed) -> usize {
    let of = |keeping| bed.work.data.hot_pages(keeping).len();
    of(Keeping::Structure) + of(Keeping::Main) + of(Keeping::Probation)
}

#[test]
fn a_dropped_job_evicts_the_pages_it_warmed() {
    let mut bed = Bed::new(options(64 << 10, 4, 2));
    bed.apply_and_move((0..RECORDS).map(|number| (key(number), Some(vec![b'v'; 100]))).collect());
    bed.run_jobs();
    bed.cool(4 << 20);
    bed.work.data.set_warms_merges(true);
    (1..6).for_each(|round| bed.apply(spread(round, 1_000)));
    read(&bed, HOT);
    read(&bed, HOT);
    let job = bed.pick_job(true).expect("flushed data is pending");
    let before = cached_pages(&bed);
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    assert!(bed.work.data.cache_stats().warmed > 0);
    let meanwhile = cached_pages(&bed);
    drop(prepared);
    let after = cached_pages(&bed);
    assert!(meanwhile > before && after <= before, "{before}, {meanwhile}, then {after} pages");
    read(&bed, HOT);
}
