//! Pages of rewritten runs have free space where inserts are expected.

use std::ops::Range;

use super::*;

const KEYS: u64 = 20_000;
/// Inserts of a flush.
const FLUSHED: u64 = 20;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:09}").into_bytes()
}

fn batch(keys: impl Iterator<Item = u64>, byte: u8) -> Batch {
    keys.map(|number| (key(number), Some(vec![byte; 100]))).collect()
}

fn forecasting(forecasts_inserts: bool) -> LsmOptions {
    LsmOptions { forecasts_inserts, ..updating(256 << 10, 8, 1) }
}

/// Moves everything down.
fn settle(bed: &mut Bed) {
    bed.run_jobs();
    bed.compact_range(&KeyBounds::default(), |_| ());
}

/// Overwrites every record, so that all runs are rewritten.
fn rewrite(bed: &mut Bed) {
    let all: Batch = bed.model.keys().map(|key| (key.clone(), Some(vec![9; 100]))).collect();
    bed.apply(all);
    settle(bed);
}

/// A tree of every thousandth key, with inserts at the numbers of `place`.
fn grown(options: LsmOptions, rounds: Range<u64>, place: impl Fn(u64) -> u64) -> Bed {
    let mut bed = Bed::new(options);
    for byte in [1, 2] {
        bed.apply(batch((0..KEYS).map(|number| number * 1_000), byte));
    }
    settle(&mut bed);
    insert(&mut bed, rounds, place);
    bed
}

/// Inserts the numbers `at` of `place`, a few at a time: more would rewrite the runs.
fn insert(bed: &mut Bed, mut at: Range<u64>, place: impl Fn(u64) -> u64) {
    while !at.is_empty() {
        let end = at.end.min(at.start + FLUSHED);
        bed.apply(batch((at.start..end).map(&place), 3));
        settle(bed);
        at.start = end;
    }
}

fn data_pages(bed: &Bed) -> u64 {
    bed.runs().iter().map(|run| u64::from(run.reference().data_pages)).sum()
}

/// Scatters numbers below `below`.
fn scattered(number: u64, below: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % below
}

/// The keys `part` of ten, in all of which inserts are equally likely.
fn within(part: Range<u64>) -> impl Fn(u64) -> u64 {
    let tenth = KEYS * 1_000 / 10;
    move |number| part.start * tenth + scattered(number, (part.end - part.start) * tenth)
}

#[test]
fn rewritten_pages_have_space_where_inserts_were() {
    let mut bed = grown(forecasting(true), 0..1_600, within(3..6));
    let before = bed.tree.stats().page_updates;
    assert!(before.inserts >= 800, "{before:?}");
    rewrite(&mut bed);
    // Of 15 % of all records nearly a fifth is expected elsewhere, or not in both epochs.
    let (mut hot, mut cold) = (Vec::new(), Vec::new());
    for run in bed.runs() {
        let reference = run.reference();
        let of_page = reference.entries / u64::from(reference.data_pages).max(1);
        let (first, last) = run.exact_ends().unwrap();
        if first >= key(6_500_000) && last <= key(11_500_000) {
            hot.push(of_page);
        } else if last < key(6_000_000) || first > key(12_000_000) {
            cold.push(of_page);
        }
    }
    let (hot, cold) = (*hot.iter().max().unwrap_or(&0), *cold.iter().min().unwrap());
    assert!(cold >= 30 && hot * 8 <= cold * 7, "{hot} records of a hot page, {cold} of a cold one");
    bed.check(&mut SplitMix::new(1));
}

#[test]
fn inserts_into_space_left_for_them_overflow_no_page() {
    let counts = |forecasts: bool| {
        let mut bed = grown(forecasting(forecasts), 0..1_200, within(0..10));
        rewrite(&mut bed);
        let before = bed.tree.stats().page_updates;
        insert(&mut bed, 1_200..2_600, within(0..10));
        let after = bed.tree.stats().page_updates;
        assert!(after.forecast_hits <= after.inserts && after.inserts > before.inserts, "{after:?}");
        bed.check(&mut SplitMix::new(2));
        (after.overflowed - before.overflowed, after.rewritten_runs - before.rewritten_runs)
    };
    let (with, without) = (counts(true), counts(false));
    assert!(with.0 + with.1 * 10 < without.0 + without.1 * 10, "{with:?} with, {without:?} without");
}

/// Whatever is expected, all pages together are at most as many more as the expected inserts need.
#[test]
fn a_rewritten_tree_has_at_most_fifteen_percent_more_pages() {
    let spots = |number: u64| (scattered(number, 7) * 3 + 1) * 900_000 + scattered(number * 31, 3_000);
    let uneven = |number: u64| scattered(number, 4_000) * scattered(number, 4_900);
    let places: [Box<dyn Fn(u64) -> u64>; 4] =
        [Box::new(within(0..10)), Box::new(within(6..7)), Box::new(spots), Box::new(uneven)];
    for (at, place) in places.iter().enumerate() {
        let mut bed = grown(forecasting(true), 0..1_600, place);
        rewrite(&mut bed);
        let (entries, pages) = (u64_of(bed.model.len()), data_pages(&bed));
        let mut full = Bed::new(forecasting(false));
        for _ in 0..2 {
            full.apply(bed.model.keys().map(|key| (key.clone(), Some(vec![9; 100]))).collect());
        }
        settle(&mut full);
        let more = pages as f64 / data_pages(&full) as f64;
        assert!(more <= 1.15, "places {at}: {more:.3} times the pages of {entries} records");
        bed.tree.check_invariants(true).unwrap();
    }
}

#[test]
fn a_hot_spot_that_moves_leaves_no_space() {
    let pages = |forecasts: bool| {
        // Each insert is behind the one before, among the existing keys.
        let mut bed = grown(forecasting(forecasts), 0..1_200, |number| 1_000_000 + number * 7_001);
        assert!(bed.tree.stats().page_updates.inserts > 700, "{:?}", bed.tree.stats().page_updates);
        rewrite(&mut bed);
        data_pages(&bed)
    };
    let (with, without) = (pages(true), pages(false));
    assert!(with <= without + 2, "{with} pages, {without} without forecasts");
}

#[test]
fn a_reopened_tree_forecasts_again_after_two_epochs() {
    let mut bed = grown(forecasting(true), 0..1_200, within(0..10));
    bed.reopen();
    rewrite(&mut bed);
    let full = data_pages(&bed);
    insert(&mut bed, 1_200..1_260, within(0..10));
    rewrite(&mut bed);
    assert!(data_pages(&bed) <= full + 4, "two epochs have not ended");
    insert(&mut bed, 1_260..2_500, within(0..10));
    rewrite(&mut bed);
    let spaced = data_pages(&bed);
    assert!(spaced > full * 21 / 20, "{spaced} pages after {full}");
    bed.check(&mut SplitMix::new(3));
}

/// Bytes of a keyspace's memory beyond its runs: all trees of the same runs have the same otherwise.
#[test]
fn trees_take_memory_for_forecasts_only_after_inserts_into_pages() {
    let memory = |forecasts: bool, inserts: bool| {
        let mut bed = Bed::new(forecasting(forecasts));
        for byte in [1, 2] {
            bed.apply(batch((0..KEYS).map(|number| number * 1_000), byte));
        }
        settle(&mut bed);
        let number = |at: u64| if inserts { at * 300_000 + 1 } else { at * 300_000 };
        bed.apply(batch((0..60).map(number), 4));
        bed.run_jobs();
        settle(&mut bed);
        assert_eq!(bed.tree.stats().page_updates.inserts > 0, inserts);
        bed.runs()[0].data().run_memory_bytes()
    };
    assert_eq!(memory(true, false), memory(false, false), "without inserts");
    let taken = memory(true, true) - memory(false, true);
    assert!((500..20_000).contains(&taken), "{taken} bytes");
}

#[test]
fn tiny_trees_with_forecasts_match_a_map() {
    for seed in some_of(20..24, 2, 0) {
        let options = LsmOptions { forecasts_inserts: true, ..updating(4096, 3, 2) };
        random_run(seed, options, 60);
    }
}
