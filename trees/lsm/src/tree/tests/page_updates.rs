//! Small updates of the bottom are written into pages of its runs.

use std::collections::BTreeSet;

use testudo_base::{merge_operator::MergeOperators, num::usize_of, operands_format::encode_operand};
use testudo_contract::PageUpdateStats;
use testudo_run::ReplacedPages;

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn batch(keys: impl Iterator<Item = u64>, byte: u8) -> Batch {
    keys.map(|number| (key(number), Some(vec![byte; 100]))).collect()
}

/// A tree with everything in its bottom: the first `keys` even numbers.
fn settled(options: LsmOptions, keys: u64) -> Bed {
    let mut bed = Bed::new(options);
    for first in (0..keys).step_by(4000) {
        bed.apply_and_move(batch((first..keys.min(first + 4000)).map(|number| number * 2), 1));
    }
    settle(&mut bed);
    bed
}

/// Moves everything down, like scans that pay for it.
fn settle(bed: &mut Bed) {
    settle_by_scans(bed, 200);
}

/// Scans start at every `step`-th key.
fn settle_by_scans(bed: &mut Bed, step: u64) {
    let mut scans = 0;
    while bed.tree.stats().buffered_runs > 0 {
        for number in 0..200 {
            let mut cursor = bed.tree.cursor();
            cursor.seek(&key(number * step)).unwrap();
        }
        scans += 200;
        assert!(scans < 100_000, "levels are never emptied: {:?}", bed.tree.outline());
        bed.run_jobs();
    }
}

/// Number of replaced pages in all runs.
fn replaced(bed: &Bed) -> usize {
    let pages = |run: &Arc<Run>| run.reference().replaced.as_ref().map_or(0, |all| all.page_count());
    bed.runs().iter().map(pages).sum()
}

fn overflow(bed: &Bed) -> usize {
    let pages = |all: &Arc<ReplacedPages>| all.overflow().len();
    bed.runs().iter().filter_map(|run| run.reference().replaced.as_ref().map(pages)).sum()
}

#[test]
fn a_few_updates_write_pages_and_no_run() {
    let mut bed = settled(updating(256 << 10, 8, 1), 20_000);
    let mut random = SplitMix::new(3);
    let runs: BTreeMap<RunId, u32> =
        bed.runs().iter().map(|run| (run.reference().id, run.reference().data_pages)).collect();
    bed.apply(batch((0..250).map(|number| 10_000 + number * 2), 2));
    bed.run_jobs();
    settle(&mut bed);
    assert!(replaced(&bed) >= 6, "{} pages were replaced", replaced(&bed));
    let stayed = bed.runs().iter().filter(|run| runs.contains_key(&run.reference().id)).count();
    assert_eq!(stayed, runs.len(), "no run was rewritten");
    bed.check(&mut random);
    for _ in 0..3 {
        bed.reopen();
        bed.tree.check_invariants(true).unwrap();
        bed.check(&mut random);
    }
}

/// Objects that differ, without the root: ids and lengths.
fn changed(before: &Objects, after: &Objects) -> Vec<(ObjectId, usize)> {
    let is_new = |(id, bytes): &(&ObjectId, &Arc<[u8]>)| before.get(id) != Some(bytes) && id.0 > 0;
    after.iter().filter(is_new).map(|(id, bytes)| (*id, bytes.len())).collect()
}

#[test]
fn a_version_of_a_run_is_written_to_an_object_of_its_own() {
    let mut bed = settled(updating(256 << 10, 8, 1), 40_000);
    let update = |bed: &mut Bed, byte: u8| {
        let before = bed.durable.objects.clone();
        bed.apply(batch((0..30).map(|number| 10_000 + number * 2), byte));
        bed.run_jobs();
        settle(bed);
        changed(&before, &bed.durable.objects)
    };
    let first = update(&mut bed, 2);
    assert_eq!(first.len(), 2, "its segment and its object: {first:?}");
    let mut random = SplitMix::new(5);
    for round in 0..12 {
        let next = update(&mut bed, 3 + round);
        assert!(matches!(next[..], [(_, bytes)] if bytes < 400), "round {round}: {next:?}");
        assert!(bed.durable.objects[&ObjectId(0)].len() < 200, "the root");
        bed.check(&mut random);
        if round % 3 == 0 {
            bed.reopen();
            bed.tree.check_invariants(true).unwrap();
        }
    }
    // Its object goes with the run.
    let objects = bed.durable.objects.len();
    bed.apply(batch((0..40_000).map(|number| number * 2), 9));
    bed.run_jobs();
    settle(&mut bed);
    assert!(bed.durable.objects.len() < objects);
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
}

#[test]
fn excess_inserts_get_overflow_pages_before_a_run_is_rewritten() {
    let mut bed = settled(updating(256 << 10, 8, 1), 20_000);
    let mut random = SplitMix::new(4);
    let mut most = 0;
    for round in 0..12 {
        bed.apply(batch((0..60).map(|number| 12_001 + (round * 60 + number) * 2), 3));
        bed.run_jobs();
        settle(&mut bed);
        most = most.max(overflow(&bed));
        bed.check(&mut random);
    }
    assert!(most > 0, "no page overflowed");
}

/// The key of a record of a user.
fn user_key(user: u64, time: u64) -> Vec<u8> {
    format!("user{user:04}/{time:08}").into_bytes()
}

/// The next `count` records of each of these users.
fn records(users: impl Iterator<Item = u64>, times: std::ops::Range<u64>) -> Batch {
    let all = users.flat_map(|user| times.clone().map(move |time| user_key(user, time)));
    all.map(|key| (key, Some(vec![7; 100]))).collect()
}

/// A tree of one run, with 150 records of each of 40 users, written by a single flush.
fn users_tree() -> Bed {
    let mut bed = Bed::new(LsmOptions { flushes_directly: true, ..updating(2 << 20, 8, 4) });
    bed.apply(records(0..40, 0..150));
    bed.apply(records(0..40, 0..150));
    assert_eq!(ids(&bed).len(), 1, "all records are in one run");
    bed
}

#[test]
fn inserts_in_order_of_time_rewrite_no_run() {
    let mut bed = users_tree();
    let runs = ids(&bed);
    let mut random = SplitMix::new(9);
    let mut pinned: Vec<(Arc<dyn Tree>, Model)> = Vec::new();
    for round in 0..30 {
        if round % 15 == 0 {
            pinned.push((Arc::clone(&bed.tree), bed.model.clone()));
        }
        // Ten users write two records each.
        let users = (0..10).map(|user| (round + user * 4) % 40);
        bed.apply(records(users, 150 + round * 2..152 + round * 2));
        bed.run_jobs();
        bed.compact_range(&KeyBounds::default(), |_| ());
        assert_eq!(ids(&bed), runs, "round {round}: no run was rewritten");
        if round % 10 == 9 {
            // Scans might pay for a rewrite.
            bed.tree.check_invariants(true).unwrap();
        }
    }
    let stats = bed.tree.stats();
    let PageUpdateStats { replaced, overflowed, rewritten_runs, .. } = stats.page_updates;
    assert_eq!(rewritten_runs, 0);
    assert!(stats.overflow_pages >= 40, "{stats:?}");
    assert!(replaced + overflowed <= 30 * 10 + 80, "about a page for each user: {replaced} and {overflowed}");
    bed.reopen();
    bed.check(&mut random);
    check_pinned(pinned);
}

#[test]
fn a_run_is_rewritten_when_it_has_half_as_many_pages_again() {
    let mut bed = users_tree();
    let pages = u64::from(bed.runs()[0].reference().data_pages);
    let mut most = 0;
    for round in 0..300 {
        let users = (0..10).map(|user| (round + user * 4) % 40);
        bed.apply(records(users, 150 + round * 4..154 + round * 4));
        bed.run_jobs();
        bed.compact_range(&KeyBounds::default(), |_| ());
        let stats = bed.tree.stats();
        if stats.page_updates.rewritten_runs > 0 {
            break;
        }
        most = most.max(stats.overflow_pages);
    }
    assert_eq!(bed.tree.stats().page_updates.rewritten_runs, 1);
    assert!((most + 10) * 2 >= pages && most * 2 <= pages + 20, "{most} overflow pages for {pages}");
    assert_eq!(bed.tree.stats().overflow_pages, 0, "the run was written in order");
    bed.check(&mut SplitMix::new(10));
}

#[test]
fn removing_most_records_rewrites_a_run_whenever_two_thirds_are_gone() {
    let mut bed = users_tree();
    let runs = ids(&bed);
    let mut random = SplitMix::new(11);
    let stored = bed.tree.stats().stored_bytes;
    for user in 0..38 {
        bed.apply((0..150).map(|time| (user_key(user, time), None)).collect());
        bed.run_jobs();
        bed.compact_range(&KeyBounds::default(), |_| ());
        assert!(user > 22 || ids(&bed) == runs, "user {user}: no run was rewritten");
        if user > 22 {
            bed.check(&mut random);
        }
    }
    let stats = bed.tree.stats();
    assert!((1..=6).contains(&stats.page_updates.rewritten_runs), "{stats:?}");
    assert!(stats.stored_bytes * 4 < stored, "{} of {stored} bytes are left", stats.stored_bytes);
    bed.tree.check_invariants(true).unwrap();
}

#[test]
fn operands_are_folded_into_pages_once() {
    let mut bed = Bed::new(updating(128 << 10, 8, 1));
    bed.work.full_merge = MergeOperators::default().full_merge("k", Some("append"));
    let flush = |bed: &mut Bed, entries: Vec<OwnedEntry>| {
        let updates = bed.updates_of(entries);
        let edit = bed.tree.apply(&bed.work, updates).unwrap();
        bed.publish(edit);
    };
    let value = |number: u64| OwnedEntry { key: key(number), kind: Kind::Value, value: vec![b'v'; 100] };
    flush(&mut bed, (0..8000).map(value).collect());
    let mut was_replaced = false;
    for round in 0..20 {
        let operand =
            |number: u64| OwnedEntry { key: key(number), kind: Kind::Operands, value: encode_operand(b"+") };
        flush(&mut bed, (0..40).map(|number| operand(number + 2000)).collect());
        settle(&mut bed);
        was_replaced |= replaced(&bed) > 0;
        let expected = [vec![b'v'; 100], vec![b'+'; round + 1]].concat();
        let Lookup::Found(kind, found, _) =
            bed.tree.get(&key(2003), hash_key(&key(2003)), Access::Blocking).unwrap()
        else {
            panic!("a key is missing")
        };
        let entry = Entry { key: &key(2003), kind, value: &found };
        let merged = match kind {
            Kind::Value => found.clone(),
            _ => bed.work.full_merge.try_full_merge(&entry, true).unwrap().1,
        };
        assert_eq!(merged, expected, "round {round}");
    }
    assert!(was_replaced, "pages were replaced");
}

#[test]
fn snapshots_keep_replaced_pages() {
    let mut bed = settled(updating(128 << 10, 8, 1), 10_000);
    let mut pinned: Vec<(Arc<dyn Tree>, Model)> = Vec::new();
    let mut most = 0;
    for round in 0..10u8 {
        pinned.push((Arc::clone(&bed.tree), bed.model.clone()));
        bed.apply(batch((0..100).map(|number| 3000 + number * 2 + u64::from(round) * 100), round));
        bed.run_jobs();
        settle(&mut bed);
        most = most.max(replaced(&bed));
        if round == 5 {
            bed.reopen();
        }
    }
    assert!(most > 0, "pages were replaced");
    check_pinned(pinned);
}

#[test]
fn clustered_updates_write_less_than_runs_would() {
    let written = |options: LsmOptions| {
        let mut bed = settled(options, 8_000);
        let before = bed.written_bytes();
        for round in 0..15u8 {
            bed.apply(batch((0..200).map(|number| 8_000 + number * 2), round));
            bed.run_jobs();
            settle(&mut bed);
        }
        bed.written_bytes() - before
    };
    let (pages, runs) = (written(updating(256 << 10, 8, 1)), written(options(256 << 10, 8, 1)));
    assert!(pages * 3 < runs * 2, "{pages} bytes with pages, {runs} with runs alone");
}

/// A batch of entries with values of about `bytes`.
fn long_batch(keys: impl Iterator<Item = u64>, bytes: usize) -> Batch {
    keys.map(|number| (key(number), Some(vec![number.to_le_bytes()[0]; bytes]))).collect()
}

/// A tree with everything in its bottom: the first `keys` even numbers, with values of `bytes`, in random
/// order. Runs written in key order state covers beyond their keys, and are rewritten once.
fn settled_long(options: LsmOptions, keys: u64, bytes: usize) -> Bed {
    let mut bed = Bed::new(options);
    for first in (0..keys).step_by(400) {
        let numbers = (first..keys.min(first + 400)).map(|number| number * 997 % keys);
        bed.apply_and_move(long_batch(numbers.map(|number| number * 2), bytes));
    }
    settle_by_scans(&mut bed, 6);
    bed
}

fn ids(bed: &Bed) -> BTreeSet<RunId> {
    bed.runs().iter().map(|run| run.reference().id).collect()
}

fn continues_values(bed: &Bed) -> bool {
    bed.runs().iter().all(|run| run.reference().has_continued_values)
}

/// A tree whose bottom was written by a single flush: no run is small, or covers keys beyond its own.
fn flushed_long(run_bytes: u64, keys: u64, bytes: usize) -> Bed {
    let mut bed = Bed::new(LsmOptions { flushes_directly: true, ..updating(run_bytes, 8, 4) });
    bed.apply(long_batch((0..keys).map(|number| number * 2), bytes));
    bed.apply(long_batch((0..keys).map(|number| number * 2), bytes));
    bed
}

#[test]
fn overwritten_kilobyte_entries_replace_their_pages() {
    for bytes in [950, 1_014, 1_240, 1_500, 3_100, 3_970] {
        let mut bed = flushed_long(1 << 20, 3_000, bytes);
        let runs = ids(&bed);
        let mut random = SplitMix::new(5);
        for round in 0..3u64 {
            let stretch = (0..8).map(|number| (1_000 + round * 40 + number) * 2);
            let apart = (0..12).map(|number| (200 + round + number * 200) * 2);
            let keys: Vec<u64> = stretch.chain(apart).collect();
            let value = |number: &u64| vec![(*number ^ round).to_le_bytes()[0]; bytes];
            bed.apply(keys.iter().map(|number| (key(*number), Some(value(number)))).collect());
            bed.run_jobs();
            settle_by_scans(&mut bed, 6);
            assert_eq!(ids(&bed), runs, "no run was rewritten, {bytes} bytes, round {round}");
            bed.check(&mut random);
        }
        let stats = bed.tree.stats();
        let counts = stats.page_updates;
        assert!(stats.replaced_pages >= 25, "{stats:?}, {bytes} bytes");
        assert!(counts.replaced >= stats.replaced_pages, "{counts:?}, {bytes} bytes");
        assert_eq!((counts.overflowed, counts.rewritten_runs), (0, 0), "sizes are unchanged, {bytes} bytes");
        assert_eq!(stats.continued_bytes, 0);
        bed.reopen();
        bed.tree.check_invariants(true).unwrap();
        bed.check(&mut random);
    }
}

#[test]
fn the_bottom_with_kilobyte_entries_takes_at_most_a_third_more_than_these() {
    for bytes in [1_014, 1_240, 1_990] {
        let stats = flushed_long(2 << 20, 6_000, bytes).tree.stats();
        let space = stats.stored_bytes as f64 / stats.leaf_bytes as f64;
        assert!(space <= 1.35, "{space:.3} with {bytes} bytes");
    }
}

#[test]
fn tombstones_and_inserts_of_kilobyte_entries_replace_pages() {
    let mut bed = flushed_long(1 << 20, 3_000, 1_014);
    let runs = ids(&bed);
    let mut random = SplitMix::new(6);
    bed.apply((0..20).map(|number| (key(400 + number * 14), None)).collect());
    bed.run_jobs();
    bed.compact_range(&KeyBounds::default(), |_| ());
    assert_eq!(ids(&bed), runs, "removing one of three entries rewrites no run");
    let counts = bed.tree.stats().page_updates;
    assert!(counts.replaced >= 18, "{counts:?}");
    bed.check(&mut random);
    bed.apply(long_batch((0..40).map(|number| 2_001 + number * 14), 1_014));
    bed.run_jobs();
    bed.compact_range(&KeyBounds::default(), |_| ());
    let counts = bed.tree.stats().page_updates;
    assert!(counts.overflowed >= 35, "a page with three entries has no space for a fourth: {counts:?}");
    bed.check(&mut random);
    bed.reopen();
    assert_eq!(bed.tree.stats().page_updates.replaced, 0, "counted since the opening");
    bed.check(&mut random);
    // All entries of some pages, several of which are split.
    let runs = ids(&bed);
    bed.apply((2_000..2_060).map(|number| (key(number), None)).collect());
    bed.run_jobs();
    bed.compact_range(&KeyBounds::default(), |_| ());
    assert_eq!(ids(&bed), runs, "empty pages rewrite no run");
    let counts = bed.tree.stats().page_updates;
    assert!(counts.joined > 0, "{counts:?}");
    assert!(bed.runs().iter().any(|run| run.reference().tombstones > 0), "an empty page keeps a tombstone");
    bed.check(&mut random);
    bed.apply((600..1400).map(|number| (key(number), None)).collect());
    bed.run_jobs();
    bed.compact_range(&KeyBounds::default(), |_| ());
    let counts = bed.tree.stats().page_updates;
    assert!(counts.rewritten_runs > 0, "most pages are touched: {counts:?}");
    bed.check(&mut random);
    bed.tree.check_invariants(true).unwrap();
}

#[test]
fn a_few_entries_in_each_run_rewrite_none() {
    let mut bed = Bed::new(updating(256 << 10, 8, 4));
    for byte in [1, 2] {
        bed.apply(batch((0..20_000).map(|number| number * 2), byte));
    }
    let runs = ids(&bed);
    assert!(runs.len() > 5, "{} runs", runs.len());
    let mut random = SplitMix::new(8);
    bed.apply(batch((0..20).map(|number| number * 2_000), 3));
    bed.run_jobs();
    settle(&mut bed);
    assert_eq!(ids(&bed), runs, "the incoming entries of each run are less than a page");
    bed.check(&mut random);
}

#[test]
fn entries_whose_sizes_change_up_to_three_pages_are_kept() {
    let sizes = [0, 1, 100, 700, 1_014, 1_014, 1_014, 1_300, 2_048, 3_000, 4_030, 4_090, 6_000, 12_000];
    let mut bed =
        settled_long(LsmOptions { flushes_directly: true, ..updating(128 << 10, 4, 1) }, 600, 1_014);
    let mut random = SplitMix::new(7);
    let (mut pages, mut overflowed) = (0, 0);
    for round in 0..30_u8 {
        let mut batch = Batch::new();
        for _ in 0..=random.below(6) {
            let bytes = sizes[usize_of(random.below(u64_of(sizes.len())))];
            let value = (random.below(8) > 0).then(|| vec![round; bytes]);
            batch.insert(key(random.below(1_200)), value);
        }
        bed.apply(batch);
        bed.run_jobs();
        settle_by_scans(&mut bed, 6);
        (pages, overflowed) = (pages.max(replaced(&bed)), overflowed.max(overflow(&bed)));
        bed.check(&mut random);
        if round % 10 == 9 {
            bed.reopen();
        }
    }
    assert!(pages > 0 && overflowed > 0, "{pages} pages were replaced, {overflowed} overflowed");
}

#[test]
fn entries_that_would_leave_a_third_of_each_page_empty_continue() {
    let mut bed = Bed::new(LsmOptions { flushes_directly: true, ..updating(256 << 10, 8, 1) });
    bed.apply(long_batch(0..200, 1_400));
    assert!(continues_values(&bed), "flushed into an empty bottom");
    let removals = (200..400).map(|number| (key(number), None));
    bed.apply_and_move(long_batch(400..600, 1_400).into_iter().chain(removals).collect());
    settle_by_scans(&mut bed, 6);
    assert!(continues_values(&bed), "with as many deletes");
    let stats = bed.tree.stats();
    assert_eq!(stats.continued_bytes, stats.leaf_bytes, "no page of the bottom can be updated");
}
