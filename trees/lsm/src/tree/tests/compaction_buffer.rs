//! Compaction buffers change no answer, save reads, and take a bounded fraction of the space.

use std::ops::Range;

use testudo_base::{merge_operator::MergeOperators, num::usize_of};
use testudo_sequence::{StoredBuffer, decode_buffer};
use testudo_share::part_of;
use testudo_treebed::{apply_operands, check_operands};

use super::*;
use crate::{
    levels::{Levels, levels_format::decode_root, load::load_levels},
    scan::buffered_scan::BufferedScan,
};

const RECORDS: u64 = 12_000;
const HOT: Range<u64> = 4_000..5_000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn retaining(run_bytes: u64, growth_factor: u32, level1_flushes: u32) -> LsmOptions {
    LsmOptions { retained_percent: 100, ..options(run_bytes, growth_factor, level1_flushes) }
}

/// Returns the buffers persisted in the manifest.
fn stored_buffers(bed: &Bed) -> Vec<StoredBuffer> {
    let Some(root) = bed.durable.objects.get(&ObjectId(0)) else { return Vec::new() };
    let named = decode_root(root).unwrap().buffers;
    named.into_iter().map(|(_, id)| decode_buffer(&bed.durable.objects[&id]).unwrap()).collect()
}

/// Counts of buffer states seen.
#[derive(Debug, Default)]
struct Seen {
    answers: u64,
    /// Entries compared in ranges that buffers cover completely.
    scanned: u64,
    /// Scans that began in a buffer.
    scans: u64,
    frozen: u64,
    barriers: usize,
    layers_max: usize,
}

impl Seen {
    /// Compares the buffers' answer for each key with that of their sequences.
    fn check_law(&mut self, bed: &Bed, keys: impl Iterator<Item = Vec<u8>>) {
        for buffer in stored_buffers(bed) {
            let sections = buffer.layers.iter().flatten();
            self.barriers += sections.filter(|section| section.run.is_none() && !section.is_base).count();
            self.layers_max = self.layers_max.max(buffer.layers.len());
        }
        let levels: Levels =
            load_levels(&bed.work.data, KEYSPACE, bed.durable.objects.clone()).unwrap().unwrap_or_default();
        for key in keys {
            let hash = hash_key(&key);
            for (number, component) in levels.components().enumerate() {
                let (Some(buffer), Some(fenced)) = (component.buffer(), component.find(&key)) else {
                    continue;
                };
                let own = fenced.run.get(&key, hash, Access::Blocking).unwrap();
                let Some(Lookup::Found(kind, value, _)) = buffer.get(&key, hash, Access::Blocking) else {
                    continue;
                };
                self.answers += 1;
                match own {
                    Lookup::Found(own_kind, own_value, _) => {
                        assert_eq!((kind, value), (own_kind, own_value), "sequence {number}");
                    }
                    // With nothing below, tombstones were dropped.
                    _ => assert_eq!(kind, Kind::Tombstone, "sequence {number}"),
                }
            }
        }
    }

    /// Compares the contents of buffers with those of their sequences, in ranges that they cover completely.
    fn check_ranges(&mut self, bed: &Bed, random: &mut SplitMix) {
        let levels: Levels =
            load_levels(&bed.work.data, KEYSPACE, bed.durable.objects.clone()).unwrap().unwrap_or_default();
        let number_key = |number: u64| format!("key{number:05}").into_bytes();
        for (number, component) in levels.components().enumerate() {
            let (Some(buffer), Some(first)) = (component.buffer(), component.get(0)) else { continue };
            let covered = Bounds { low: first.fenced.low.as_low(), high: None };
            for _ in 0..20 {
                let (from, width) = (random.below(3_000), random.below(150));
                let range = Bounds {
                    low: Some(number_key(from).into()),
                    high: Some(number_key(from + width).into()),
                };
                let range = range.intersection(&covered);
                if range.is_empty() {
                    continue;
                }
                let Some(sections) = buffer.all_within(&range) else { continue };
                for key in (from..from + width).map(number_key).filter(|key| range.contains(key)) {
                    let hash = hash_key(&key);
                    let get = |run: &Arc<Run>| run.get(&key, hash, Access::Blocking).unwrap();
                    let own = component.find(&key).map_or(Lookup::Absent, |fenced| get(&fenced.run));
                    let inside = sections.iter().filter(|share| share.bounds.contains(&key));
                    let newest = inside.map(|share| get(share.run)).find(|found| *found != Lookup::Absent);
                    self.scanned += 1;
                    match (newest.unwrap_or(Lookup::Absent), own) {
                        (Lookup::Found(kind, value, _), Lookup::Found(own_kind, own_value, _)) => {
                            let is_folded = !matches!(kind, Kind::Value | Kind::Tombstone);
                            let is_same = (kind, value) == (own_kind, own_value);
                            assert!(is_same || is_folded, "sequence {number}");
                        }
                        (Lookup::Found(kind, ..), _) => {
                            assert_eq!(kind, Kind::Tombstone, "sequence {number}");
                        }
                        (_, own) => assert_eq!(own, Lookup::Absent, "sequence {number}"),
                    }
                }
            }
        }
    }
}

fn numbered(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| format!("key{number:05}").into_bytes())
}

/// A batch of keys, half the time close together; `new_percent` of them are new, which keeps sequences from
/// being frozen. Values are short: pages of long values are not cached.
fn short_batch(random: &mut SplitMix, count: u64, deleted: u8, new_percent: u8) -> Batch {
    let (first, width) = if random.percent(50) { (0, 3_000) } else { (random.below(2_500), 500) };
    let entry = |random: &mut SplitMix| {
        let mut key = format!("key{:05}", first + random.below(width)).into_bytes();
        if random.percent(new_percent) {
            key.extend_from_slice(&random.next_u64().to_be_bytes());
        }
        let value =
            vec![b'a' + u8::try_from(random.below(26)).unwrap(); usize::try_from(random.below(120)).unwrap()];
        (key, (!random.percent(deleted)).then_some(value))
    };
    (0..=random.below(count)).map(|_| entry(random)).collect()
}

fn check_all(bed: &Bed, random: &mut SplitMix) {
    bed.check(random);
    for key in numbered(3_000) {
        assert_eq!(bed.get(&key), bed.model.get(&key).cloned());
    }
}

fn random_reads(bed: &Bed, random: &mut SplitMix) {
    let (first, width) = (random.below(2_500), random.below(600));
    for _ in 0..2 {
        for number in first..first + width {
            let key = format!("key{number:05}").into_bytes();
            assert_eq!(bed.get(&key), bed.model.get(&key).cloned());
        }
    }
}

/// Moves a cursor to random positions, and compares it with the model.
fn random_scans(bed: &Bed, random: &mut SplitMix, seen: &mut Seen) {
    let levels =
        load_levels(&bed.work.data, KEYSPACE, bed.durable.objects.clone()).unwrap().unwrap_or_default();
    let limits = ScanLimits { entries: random.percent(50).then_some(40), end: None };
    let mut cursor = BufferedScan::new(&Arc::new(levels), &Arc::default(), &bed.work.data, &limits);
    for _ in 0..20 {
        let start = format!("key{:05}", random.below(3_000)).into_bytes();
        let mut forward = random.percent(70);
        if forward { cursor.seek(&start) } else { cursor.seek_before(&start) }.unwrap();
        seen.scans += u64::from(cursor.reads_sections());
        let mut expected =
            if forward { bed.model.range(start..).next() } else { bed.model.range(..start).next_back() };
        for _ in 0..random.below(60) {
            while cursor.entry().is_some_and(|entry| entry.kind == Kind::Tombstone) {
                if forward { cursor.next() } else { cursor.prev() }.unwrap();
            }
            let found = cursor.entry().map(|entry| (entry.key.to_vec(), entry.value.to_vec()));
            assert_eq!(found.as_ref().map(|(key, value)| (key, value)), expected);
            let Some((key, _)) = expected else { break };
            if random.percent(5) {
                forward = !forward;
            }
            if forward { cursor.next() } else { cursor.prev() }.unwrap();
            let behind = (std::ops::Bound::Excluded(key.clone()), std::ops::Bound::Unbounded);
            expected = if forward {
                bed.model.range(behind).next()
            } else {
                bed.model.range(..key.clone()).next_back()
            };
        }
    }
}

/// Random updates, jobs, reads, and changes of the retention limit and of the percentage of new keys.
fn random_run(seed: u64, options: LsmOptions, cache_bytes: u64, seen: &mut Seen) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut new_percent = 70;
    bed.work.data.small_runs_apart().store(seed.is_multiple_of(2), Relaxed);
    bed.apply(numbered(3_000).map(|key| (key, Some(vec![b'v'; 60]))).collect());
    bed.cool(cache_bytes);
    for round in 0..40 {
        random_reads(&bed, &mut random);
        let deleted = if round % 15 > 11 { 60 } else { 10 };
        bed.apply(short_batch(&mut random, 200, deleted, new_percent));
        let jobs = random.below(6);
        bed.run_jobs_up_to(jobs, random.percent(40));
        let retained = bed.tree.stats().retained_bytes;
        let stored = bed.tree.stats().stored_bytes;
        assert!(retained * 2 <= stored, "{retained} bytes of {stored} are retained");
        if random.percent(30) {
            bed.reopen();
        }
        seen.check_law(&bed, numbered(3_000));
        seen.check_ranges(&bed, &mut random);
        random_scans(&bed, &mut random, seen);
        seen.frozen += bed.tree.stats().frozen_levels;
        match random.below(40) {
            3..6 => {
                new_percent = [0, 40, 80][usize::try_from(random.below(3)).unwrap()];
                bed.reopen();
            }
            0 => bed.cool(cache_bytes),
            1 => {
                bed.options.retained_percent = if bed.options.retained_percent == 0 { 100 } else { 0 };
                bed.reopen();
            }
            2 => {
                // A state kept for a snapshot retains runs only in that state.
                let (tree, model) = (Arc::clone(&bed.tree), bed.model.clone());
                bed.apply(short_batch(&mut random, 100, 30, new_percent));
                bed.run_jobs_up_to(20, true);
                let (tree, model) =
                    (std::mem::replace(&mut bed.tree, tree), std::mem::replace(&mut bed.model, model));
                check_all(&bed, &mut random);
                (bed.tree, bed.model) = (tree, model);
            }
            _ => {}
        }
        if round % 6 == 5 {
            check_all(&bed, &mut random);
        }
    }
    bed.tree.check_retained().unwrap();
    bed.options.retained_percent = 0;
    bed.reopen();
    bed.apply(short_batch(&mut random, 100, 10, new_percent));
    assert!(stored_buffers(&bed).is_empty() && bed.tree.stats().retained_bytes == 0);
    check_all(&bed, &mut random);
}

#[test]
fn retention_and_trimming_change_no_answer() {
    let mut seen = Seen::default();
    // With even seeds, small runs have index and filter separate.
    for seed in some_of([0, 1, 2, 3, 4, 213], 3, 0) {
        random_run(seed, retaining(16 << 10, 3, 2), 320 << 10, &mut seen);
        random_run(seed, retaining(16 << 10, 4, 2), 1 << 20, &mut seen);
        random_run(seed, retaining(8 << 10, 2, 1), 640 << 10, &mut seen);
    }
    let least = part_of;
    assert!(
        seen.answers > least(10_000) && seen.barriers > usize_of(least(20)) && seen.layers_max > 3,
        "{seen:?}"
    );
    assert!(seen.scanned > least(10_000) && seen.scans > least(200) && seen.frozen > least(4), "{seen:?}");
}

/// Compares scans with point queries, merged or not.
fn scans_of_operands(bed: &Bed, random: &mut SplitMix, seen: &mut Seen) {
    let levels =
        load_levels(&bed.work.data, KEYSPACE, bed.durable.objects.clone()).unwrap().unwrap_or_default();
    let levels = Arc::new(levels);
    for _ in 0..50 {
        let limits = ScanLimits::default();
        let mut cursor = BufferedScan::new(&levels, &Arc::default(), &bed.work.data, &limits);
        cursor.seek(format!("key{:05}", random.below(1_500)).as_bytes()).unwrap();
        seen.scans += u64::from(cursor.reads_sections());
        for _ in 0..20 {
            let Some(entry) = cursor.entry() else { break };
            let found = bed.tree.get(entry.key, hash_key(entry.key), Access::Blocking).unwrap();
            match found {
                Lookup::Found(kind, value, _) => {
                    assert_eq!((kind, value.as_slice()), (entry.kind, entry.value));
                }
                _ => assert_eq!(entry.kind, Kind::Tombstone),
            }
            cursor.next().unwrap();
        }
    }
}

#[test]
fn merged_operands_are_not_merged_again() {
    const KEYS: u64 = 1_500;
    let mut bed = Bed::new(retaining(4 << 10, 3, 2));
    bed.work.full_merge = MergeOperators::default().full_merge("k", Some("append"));
    let mut random = SplitMix::new(11);
    let mut seen = Seen::default();
    for round in 0..60 {
        apply_operands(&mut bed, &mut random, KEYS);
        if round % 3 == 2 {
            bed.run_jobs();
            check_operands(&bed, KEYS);
            scans_of_operands(&bed, &mut random, &mut seen);
            seen.check_law(&bed, numbered(KEYS));
            seen.check_ranges(&bed, &mut random);
        }
    }
    assert!(seen.answers > 300 && seen.scanned > 300 && seen.scans > 30, "{seen:?}");
}

fn spread(round: u64, count: u64) -> Batch {
    let numbers = (0..count).map(|n| (n * 7919 + round * 31) % RECORDS);
    numbers.map(|number| (key(number), Some(vec![b'a' + (round % 26) as u8; 100]))).collect()
}

/// A cached tree that nothing has warmed: only retained runs save reads.
fn filled(options: LsmOptions) -> Bed {
    let mut bed = Bed::new(options);
    bed.apply_and_move((0..RECORDS).map(|number| (key(number), Some(vec![b'v'; 100]))).collect());
    bed.run_jobs();
    bed.cool(4 << 20);
    bed
}

/// Reads each record of the range; returns the number of page reads.
fn read(bed: &Bed, numbers: Range<u64>) -> u64 {
    let before = bed.work.data.io_stats().page_reads;
    for number in numbers {
        assert_eq!(bed.get(&key(number)), bed.model.get(&key(number)).cloned());
    }
    bed.work.data.io_stats().page_reads - before
}

fn reads_while_merging(options: LsmOptions) -> u64 {
    let mut bed = filled(options);
    read(&bed, HOT);
    let mut hot = 0;
    for round in 0..20 {
        hot += read(&bed, HOT) + read(&bed, HOT);
        bed.apply_and_move(spread(round, 1_000));
        bed.run_jobs();
    }
    hot
}

#[test]
fn hot_records_are_rarely_reread_after_merges() {
    let (with, without) =
        (reads_while_merging(retaining(16 << 10, 4, 2)), reads_while_merging(options(16 << 10, 4, 2)));
    assert!(with * 3 < without * 2, "{with} pages were read, {without} without retention");
}

/// A tree after many updates that retains runs: at times all levels are frozen.
fn retaining_bed() -> Bed {
    let mut bed = filled(retaining(16 << 10, 4, 2));
    for round in 0..40 {
        read(&bed, HOT);
        bed.apply_and_move(spread(round, 1_000));
        bed.run_jobs();
        if round >= 15 && bed.tree.stats().retained_bytes > 0 {
            return bed;
        }
    }
    panic!("no run is retained")
}

#[test]
fn retained_runs_are_not_searched_for_absent_keys() {
    let bed = retaining_bed();
    assert!(bed.lines("retained").iter().map(|line| line.count).sum::<u64>() > 0);
    let absent = |number| [key(number), b"x".to_vec()].concat();
    HOT.for_each(|number| assert_eq!(bed.get(&absent(number)), None));
    let before = bed.work.data.cache_stats();
    HOT.for_each(|number| assert_eq!(bed.get(&absent(number)), None));
    let after = bed.work.data.cache_stats();
    let look_ups = after.hits + after.misses - before.hits - before.misses;
    let components = u64_of(bed.tree.outline().iter().filter(|line| line.what != "retained").count());
    assert!(look_ups <= (HOT.end - HOT.start) * (components + 1), "{look_ups} for {components} sequences");
}

#[test]
fn retained_runs_are_dropped_first_when_space_is_short() {
    let mut bed = retaining_bed();
    let before = bed.tree.stats();
    assert!(before.retained_bytes > 0, "{before:?}");
    let limits = ReclaimLimits { space_bytes: 0, least_gain: LeastGain::Worthwhile, but: &[] };
    let reclaim = bed.tree.pick_reclaim(&limits).unwrap().expect("it takes no space");
    assert_eq!(reclaim.gain_bytes, before.retained_bytes);
    let edit = bed.tree.reclaim(&bed.work, &reclaim).unwrap();
    bed.publish(edit);
    let after = bed.tree.stats();
    assert_eq!((after.retained_bytes, after.entries), (0, before.entries));
    assert_eq!(after.stored_bytes, before.stored_bytes - before.retained_bytes);
    read(&bed, 0..RECORDS);
}

/// Scans 50 records each of the hot range; returns the number of page reads.
fn scan_hot(bed: &Bed) -> u64 {
    let before = bed.work.data.io_stats();
    for first in HOT.step_by(20) {
        let mut cursor = bed.tree.cursor_within(&ScanLimits { entries: Some(50), end: None });
        cursor.seek(&key(first)).unwrap();
        for (key, value) in bed.model.range(key(first)..).take(50) {
            let entry = cursor.entry().expect("a record is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            cursor.next().unwrap();
        }
    }
    let after = bed.work.data.io_stats();
    after.page_reads + after.stream_reads - before.page_reads - before.stream_reads
}

fn scans_while_merging(options: LsmOptions) -> u64 {
    let mut bed = filled(options);
    scan_hot(&bed);
    let mut reads = 0;
    for round in 0..24 {
        reads += scan_hot(&bed) + scan_hot(&bed);
        bed.apply_and_move(spread(round, 1_000));
        bed.run_jobs();
    }
    reads
}

#[test]
fn scanned_records_are_rarely_reread_after_merges() {
    let retaining = retaining(16 << 10, 4, 2);
    let without = scans_while_merging(options(16 << 10, 4, 2));
    let with = scans_while_merging(retaining);
    assert!(with * 2 < without, "{with} pages were read, {without} without retention");
}

#[test]
fn a_level_is_frozen_while_keys_repeat_and_much_is_retained() {
    let mut bed = filled(retaining(16 << 10, 4, 2));
    let (mut states, mut new_states) = (Vec::new(), Vec::new());
    for round in 0..30 {
        scan_hot(&bed);
        bed.apply_and_move(spread(round, 1_000));
        bed.run_jobs();
        let stats = bed.tree.stats();
        states.push((stats.frozen_levels > 0, stats.retained_bytes > 0));
    }
    // It retains runs, is frozen, drops them, and starts again.
    states.dedup();
    let mut rest = states.iter();
    let course = [(false, true), (true, false), (false, true)];
    assert!(course.iter().all(|state| rest.any(|other| other == state)), "{states:?}");
    for round in 0..30u8 {
        scan_hot(&bed);
        let new = |n: u64| [key((n * 7919 + u64::from(round) * 31) % RECORDS), vec![b'0' + round]].concat();
        bed.apply_and_move((0..1_000).map(|n| (new(n), Some(vec![b'n'; 100]))).collect());
        bed.run_jobs();
        new_states.push(bed.tree.stats().frozen_levels);
    }
    assert!(new_states[15..].iter().all(|frozen| *frozen == 0), "{new_states:?}");
    bed.reopen();
    assert_eq!(bed.tree.stats().frozen_levels, 0);
}

#[test]
fn a_reopened_tree_keeps_its_frozen_levels() {
    let mut bed = filled(retaining(16 << 10, 4, 2));
    let is_frozen = |bed: &Bed| bed.tree.stats().frozen_levels > 0;
    for round in 0.. {
        assert!(round < 30, "no level froze");
        scan_hot(&bed);
        bed.apply_and_move(spread(round, 1_000));
        bed.run_jobs();
        if is_frozen(&bed) {
            break;
        }
    }
    bed.reopen();
    assert!(is_frozen(&bed));
    bed.options.retained_percent = 0;
    bed.reopen();
    bed.apply_and_move(spread(30, 1_000));
    assert!(!is_frozen(&bed), "a plain leveled tree has nothing to freeze");
    bed.reopen();
    assert!(!is_frozen(&bed));
}
