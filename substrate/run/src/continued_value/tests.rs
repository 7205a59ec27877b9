use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    path::Path,
    sync::Arc,
};

use testudo_base::{
    Cursor, Entry, ErrorKind, Kind, PAGE_SIZE, StoreId,
    checksum::hash_key,
    codec::Reader,
    num::{u64_of, usize_of},
};
use testudo_env::{Env, OpenMode, OpenOptions};

use super::*;
use crate::{
    KnownKey, LenientCursor, Lookup, LookupProgress, PageUpdate, PageWalk, ReadAhead, RunCursor, RunLayout,
    RunRef, ScanForecast, ScanLimits, ScanProgress, get_known_together, test_bed::TestBed,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn write(bed: &TestBed, model: &Model, layout: RunLayout) -> Arc<Run> {
    let mut writer = bed.writer().with_layout(layout);
    for (key, value) in model {
        writer.push(&Entry { key, kind: Kind::Value, value }).unwrap();
    }
    writer.finish(None).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value(number: u64, length: usize) -> Vec<u8> {
    (0..u64_of(length)).map(|at| (number * 31 + at * 7 + at / 251).to_le_bytes()[0]).collect()
}

fn model_of(count: u64, length: impl Fn(u64) -> usize) -> Model {
    (0..count).map(|number| (key(number), value(number, length(number)))).collect()
}

/// Lengths around all thresholds: nothing, parts of a page, whole pages, many pages.
fn any_length(seed: u64) -> impl Fn(u64) -> usize {
    move |number| {
        let mut random = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed << 32);
        random ^= random >> 29;
        random = random.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        random ^= random >> 32;
        let range = [1, 300, 1_100, 2_200, 4_080, 4_080, 9_000, 80_000][usize_of(random % 8)];
        usize_of((random >> 8) % range)
    }
}

fn found(lookup: Lookup) -> Option<Vec<u8>> {
    match lookup {
        Lookup::Found(Kind::Value, value, _) => Some(value),
        Lookup::Absent => None,
        other => panic!("{other:?}"),
    }
}

/// A lookup whose pages are loaded by the caller, as batches do it.
fn get_collecting(run: &Run, key: &[u8]) -> Option<Vec<u8>> {
    let (missing, progress) = (RefCell::new(Vec::new()), Cell::new(LookupProgress::default()));
    loop {
        match run.get(key, hash_key(key), Access::Collecting(&missing, &progress)).unwrap() {
            Lookup::Waiting => run.data().load_pages(&std::mem::take(&mut *missing.borrow_mut())).unwrap(),
            lookup => return found(lookup),
        }
    }
}

fn check(run: &Arc<Run>, model: &Model) {
    run.check_pages().unwrap();
    run.check_entries().unwrap();
    for ahead in [ReadAhead::Adaptive, ReadAhead::Pages(1), ReadAhead::Pages(3), ReadAhead::Pages(64)] {
        let mut cursor = RunCursor::new(Arc::clone(run), ahead);
        cursor.seek_first().unwrap();
        for (key, value) in model {
            let entry = cursor.entry().unwrap();
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()), "forward, {ahead:?}");
            cursor.next().unwrap();
        }
        assert!(cursor.entry().is_none());
        cursor.seek_last().unwrap();
        for (key, value) in model.iter().rev() {
            let entry = cursor.entry().unwrap();
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()), "backward, {ahead:?}");
            cursor.prev().unwrap();
        }
        assert!(cursor.entry().is_none());
    }
    let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
    for (number, (key, value)) in model.iter().enumerate() {
        let lookup = run.get(key, hash_key(key), Access::Blocking).unwrap();
        assert_eq!(found(lookup).as_ref(), Some(value));
        assert_eq!(get_collecting(run, key).as_ref(), Some(value));
        cursor.seek(key).unwrap();
        assert_eq!(cursor.entry().map(|entry| entry.value), Some(value.as_slice()), "at {number}");
        cursor.seek_before(key).unwrap();
        let before = model.range(..key.clone()).next_back().map(|(_, value)| value.as_slice());
        assert_eq!(cursor.entry().map(|entry| entry.value), before, "before {number}");
        if number % 17 == 0 {
            check_limited(run, model, key, number % 60 + 1);
        }
    }
    for batch in [1, 7, 60, model.len()] {
        let keys: Vec<&Vec<u8>> = model.keys().collect();
        for keys in keys.chunks(batch.max(1)) {
            let known: Vec<KnownKey<'_>> = keys.iter().map(|key| KnownKey { run, key }).collect();
            let values = get_known_together(run.data(), &known).unwrap().found.into_iter().map(found);
            assert!(values.eq(keys.iter().map(|key| Some(model[*key].clone()))), "{batch} together");
        }
    }
    let mut encoded = Vec::new();
    run.reference().encode(&mut encoded);
    assert_eq!(&RunRef::decode(&mut Reader::new(&encoded)).unwrap(), run.reference());
}

/// A scan with a known number of entries.
fn check_limited(run: &Arc<Run>, model: &Model, from: &[u8], count: usize) {
    let progress = ScanProgress::new(&ScanLimits { entries: Some(u64_of(count)), end: None });
    let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
    let reference = run.reference();
    cursor.set_forecast(ScanForecast::new(&progress, reference.data_pages.into(), reference.entries, true));
    cursor.seek(from).unwrap();
    for (_, value) in model.range(from.to_vec()..).take(count) {
        assert_eq!(cursor.entry().map(|entry| entry.value), Some(value.as_slice()));
        progress.count_entry();
        cursor.next().unwrap();
    }
}

#[test]
fn continued_values_are_found_by_all_kinds_of_reads() {
    for seed in 0..6 {
        let bed = TestBed::with_cache(if seed % 2 == 0 { 4 << 20 } else { 128 << 10 });
        let model = model_of(300, any_length(seed));
        let run = write(&bed, &model, RunLayout::default());
        assert!(run.reference().has_continued_values);
        check(&run, &model);
        check(&bed.reopened(&run), &model);
        let file =
            bed.env.open(Path::new("/data"), OpenOptions { mode: OpenMode::Read, direct: false }).unwrap();
        let mut cursor = LenientCursor::new(file, StoreId(7), run.reference());
        for (key, value) in &model {
            assert_eq!(cursor.advance(), None, "nothing is lost");
            let entry = cursor.entry().unwrap();
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
        }
        assert_eq!(cursor.advance(), None);
        let mut walk = PageWalk::new(run.reference(), StoreId(7), 0);
        let mut read = |page: u32, buffer: &mut [u8]| run.read_pages(page, buffer);
        while let Some(stretch) = walk.next_stretch(&mut read).unwrap() {
            assert!(stretch.blocks.iter().all(|block| block.damage.is_none()));
        }
    }
}

#[test]
fn records_of_any_size_have_little_space_overhead() {
    for (length, most) in [
        (100, 1.06),
        (300, 1.06),
        (700, 1.06),
        (1_100, 1.04),
        (2_100, 1.04),
        (3_000, 1.04),
        (4_080, 1.04),
        (5_000, 1.04),
        (9_000, 1.04),
        (30_000, 1.04),
        (70_000, 1.06),
    ] {
        let bed = TestBed::with_cache(4 << 20);
        let run = write(&bed, &model_of(1_000, |_| length), RunLayout::default());
        let reference = run.reference();
        let factor = f64::from(reference.data_pages) * 4096.0 / reference.user_bytes as f64;
        assert!(factor <= most, "{length}: {factor}");
    }
}

#[test]
fn small_records_are_not_continued() {
    let bed = TestBed::with_cache(4 << 20);
    let run = write(&bed, &model_of(1_000, |number| 60 + usize_of(number % 90)), RunLayout::default());
    assert!(!run.reference().has_continued_values);
}

#[test]
fn replaced_pages_and_continued_values_exclude_each_other() {
    let bed = TestBed::with_cache(4 << 20);
    let model = model_of(200, |_| 1_100);
    let run = write(&bed, &model, RunLayout::for_page_updates(94));
    assert!(!run.reference().has_continued_values);
    assert!(PageUpdate::begin(&run).unwrap().is_some());
    let run = write(&bed, &model, RunLayout::default());
    assert!(PageUpdate::begin(&run).unwrap().is_none());
}

#[test]
fn a_query_reads_at_most_two_pages_and_a_scan_each_page_once() {
    for length in [1_100, 2_100, 3_000] {
        let bed = TestBed::with_cache(4 << 20);
        let model = model_of(400, |_| length);
        let run = write(&bed, &model, RunLayout::default());
        let reads = |run: &Run| run.data().io_stats().page_read_bytes / u64_of(PAGE_SIZE);
        let opened = bed.reopened(&run);
        for number in (0..400).step_by(40) {
            opened.get(&key(number), hash_key(&key(number)), Access::Blocking).unwrap();
        }
        let rounds = |run: &Run| run.data().io_stats().read_rounds;
        let (mut most, mut most_rounds) = (0, 0);
        // Keys whose pages were not read before, with index and filter in memory.
        for number in (20..400).step_by(23) {
            let (pages_before, rounds_before) = (reads(&opened), rounds(&opened));
            opened.get(&key(number), hash_key(&key(number)), Access::Blocking).unwrap();
            most = most.max(reads(&opened) - pages_before);
            most_rounds = most_rounds.max(rounds(&opened) - rounds_before);
        }
        assert!(most <= 2, "{length}: {most} pages");
        assert_eq!(most_rounds, 1, "{length}: batches of reads");
        for ahead in [ReadAhead::Adaptive, ReadAhead::Pages(16)] {
            let opened = bed.reopened(&run);
            let mut cursor = RunCursor::new(Arc::clone(&opened), ahead);
            let mut entries = 0;
            cursor.seek_first().unwrap();
            while cursor.entry().is_some() {
                entries += 1;
                cursor.next().unwrap();
            }
            assert_eq!(entries, 400);
            let besides = 8;
            let all = u64::from(run.reference().page_count()) + besides;
            assert!(reads(&opened) <= all, "{length}, {ahead:?}: {} of {all} pages", reads(&opened));
        }
    }
}

#[test]
fn a_damaged_page_loses_only_its_own_entries() {
    let bed = TestBed::with_cache(1 << 20);
    let model = model_of(60, |_| 1_100);
    let run = write(&bed, &model, RunLayout::default());
    bed.damage(&run, 5, 100);
    let opened = bed.reopened(&run);
    let readable: Vec<bool> = model
        .iter()
        .map(|(key, value)| match opened.get(key, hash_key(key), Access::Blocking) {
            Ok(lookup) => {
                assert_eq!(found(lookup).as_ref(), Some(value));
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                false
            }
        })
        .collect();
    let lost = readable.iter().filter(|readable| !**readable).count();
    assert!((4..=5).contains(&lost), "{lost} lost of a page with four records, two of them continued");
    let file = bed.env.open(Path::new("/data"), OpenOptions { mode: OpenMode::Read, direct: false }).unwrap();
    let mut cursor = LenientCursor::new(file, StoreId(7), run.reference());
    let mut lost_pages = 0;
    let mut left = Model::new();
    loop {
        lost_pages += cursor.advance().map_or(0, |lost| lost.pages);
        let Some(entry) = cursor.entry() else { break };
        left.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    assert_eq!(lost_pages, 1);
    let expected = model.iter().zip(&readable).filter(|(_, readable)| **readable);
    assert!(left.iter().eq(expected.map(|(entry, _)| entry)), "salvage finds what queries find");
}

/// Returns the bytes that `act` reads from the device.
fn read_by(bed: &TestBed, act: impl FnOnce()) -> u64 {
    let bytes = || {
        let stats = bed.data.io_stats();
        stats.page_read_bytes + stats.stream_read_bytes
    };
    let before = bytes();
    act();
    bytes() - before
}

#[test]
fn a_long_value_is_read_from_the_cache_the_second_time() {
    for length in [9_000, 20_000, 60_000, 100_000, 300_000] {
        let bed = TestBed::with_cache(8 << 20);
        let model = model_of(4, |_| length);
        let run = write(&bed, &model, RunLayout::default());
        let get = |number: u64| {
            let key = key(number);
            assert_eq!(
                found(run.get(&key, hash_key(&key), Access::Blocking).unwrap()),
                Some(model[&key].clone())
            );
        };
        assert!(read_by(&bed, || get(2)) >= u64_of(length));
        assert_eq!(read_by(&bed, || get(2)), 0, "{length}");
        // In a batch with others, only those are read.
        let both = read_by(&bed, || (1..=2).for_each(get));
        assert!((u64_of(length) / 2..u64_of(length) * 2).contains(&both), "{length}: {both}");
        // Values cached as records are not kept here.
        bed.data.set_record_bytes_max(u64_of(length) + 100);
        let run = bed.reopened(&run);
        run.data().set_record_bytes_max(u64_of(length) + 100);
        let key = key(2);
        (0..2).for_each(|_| drop(run.get(&key, hash_key(&key), Access::Blocking).unwrap()));
        assert!(run.data().io_stats().page_read_bytes >= 2 * u64_of(length), "{length}");
    }
}

#[test]
fn cached_long_values_equal_those_read_for_any_kind_and_key() {
    for key_bytes in [1, 40, 4_000, 4_096, 20_000] {
        let bed = TestBed::with_cache(8 << 20);
        let keys: Vec<Vec<u8>> = (1..=4_u8).map(|number| vec![number; key_bytes]).collect();
        let mut writer = bed.writer().with_layout(RunLayout::default());
        let kinds = [Kind::Value, Kind::Operands, Kind::Referred, Kind::Value];
        let values = [70_000, 150_000, 9_000, 400_000].map(|length| value(7, length));
        for ((key, kind), value) in keys.iter().zip(kinds).zip(&values) {
            writer.push(&Entry { key, kind, value }).unwrap();
        }
        let run = writer.finish(None).unwrap();
        for ((key, kind), value) in keys.iter().zip(kinds).zip(&values) {
            let get = || match run.get(key, hash_key(key), Access::Blocking).unwrap() {
                Lookup::Found(found, value, _) => (found, value),
                other => panic!("{other:?}"),
            };
            assert!(get() == (kind, value.clone()), "{key_bytes}");
            let read = read_by(&bed, || assert!(get() == (kind, value.clone()), "{key_bytes}"));
            assert_eq!(read, 0, "{key_bytes}");
            let behind = [&key[..], b"x"].concat();
            assert_eq!(run.get(&behind, hash_key(&behind), Access::Blocking).unwrap(), Lookup::Absent);
        }
    }
}

#[test]
fn a_damaged_long_value_is_not_cached() {
    for length in [20_000, 60_000, 100_000] {
        let bed = TestBed::with_cache(8 << 20);
        let model = model_of(4, |_| length);
        let run = write(&bed, &model, RunLayout::default());
        let key = key(2);
        let get = || run.get(&key, hash_key(&key), Access::Blocking);
        let (position, _) = run.pages_for(&key, Access::Blocking).unwrap().unwrap();
        bed.damage(&run, position.page + 2, 100);
        for _ in 0..2 {
            assert_eq!(get().unwrap_err().kind(), ErrorKind::Corruption, "{length}");
        }
        bed.damage(&run, position.page + 2, 100);
        assert_eq!(found(get().unwrap()), Some(model[&key].clone()), "{length}");
    }
}

#[test]
fn a_scan_reads_every_page_of_long_blocks_once() {
    for (length, count) in [(70_000, 40), (131_072, 30), (300_000, 20), (1_048_576, 6)] {
        for ahead in [ReadAhead::Adaptive, ReadAhead::bytes(256 << 10)] {
            let bed = TestBed::with_cache(8 << 20);
            let model = model_of(count, |_| length);
            let run = write(&bed, &model, RunLayout::default());
            let read = read_by(&bed, || {
                let mut cursor = RunCursor::new(Arc::clone(&run), ahead);
                cursor.seek_first().unwrap();
                for (key, value) in &model {
                    let entry = cursor.entry().unwrap();
                    assert!(entry.key == key && entry.value == value, "{length}");
                    cursor.next().unwrap();
                }
            });
            let stored = u64::from(run.reference().data_pages) * u64_of(PAGE_SIZE);
            assert!(read <= stored + stored / 50, "{length}, {ahead:?}: {read} of {stored}");
        }
    }
}

#[test]
fn a_long_scan_of_long_values_reads_ahead() {
    for length in [1_100, 6_000, 20_000] {
        let bed = TestBed::with_cache(4 << 20);
        let run = write(&bed, &model_of(400, |_| length), RunLayout::default());
        let opened = bed.reopened(&run);
        let mut cursor = RunCursor::new(Arc::clone(&opened), ReadAhead::Adaptive);
        let mut bytes = 0;
        cursor.seek_first().unwrap();
        while let Some(entry) = cursor.entry() {
            bytes += entry.value.len();
            cursor.next().unwrap();
        }
        assert_eq!(bytes, 400 * length);
        let rounds = opened.data().io_stats().read_rounds;
        assert!(rounds <= 20, "{length}: {rounds} waits for single pages");
    }
}

/// A key that shares nothing with the previous ones makes their common prefix count for each of them, so that
/// a page with much free space has none left for its value.
#[test]
fn no_value_continues_in_more_pages_than_the_index_can_encode() {
    for value_bytes in (64_000..65_500).step_by(40) {
        let bed = TestBed::with_cache(4 << 20);
        let mut model = Model::new();
        for number in 0..10 {
            model.insert([&[b'a'; 382][..], &key(number)].concat(), vec![1; 3]);
        }
        model.insert(b"b".to_vec(), value(7, value_bytes));
        let run = write(&bed, &model, RunLayout::default());
        for (key, value) in &model {
            let lookup = run.get(key, hash_key(key), Access::Blocking).unwrap();
            assert_eq!(found(lookup).as_ref(), Some(value), "{value_bytes}");
        }
    }
}
