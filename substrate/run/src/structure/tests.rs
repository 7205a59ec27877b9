use std::{collections::BTreeSet, path::Path, sync::Arc};

use testudo_base::{Cursor, Entry, ErrorKind, Kind, PAGE_SIZE, StoreId, checksum::hash_key, num::u64_of};
use testudo_env::{AlignedBuffer, Env, OpenMode, OpenOptions};

use super::*;
use crate::{
    BlockContents, LenientFilter, Lookup, ReadAhead, RunCursor, RunLayout, inspect_block, test_bed::TestBed,
};

fn new_bed() -> TestBed {
    TestBed::with_cache(1 << 20)
}

/// Writes a run of `entries` entries with even numbers.
fn write(bed: &TestBed, entries: u64, value_bytes: usize, layout: RunLayout) -> Arc<Run> {
    let mut writer = bed.writer().with_layout(layout);
    for number in 0..entries {
        let (key, value) = (key(2 * number), vec![b'v'; value_bytes]);
        writer.push(&Entry { key: &key, kind: Kind::Value, value: &value }).unwrap();
    }
    writer.finish(None).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:09}").into_bytes()
}

fn has(run: &Run, number: u64) -> bool {
    let key = key(number);
    matches!(run.get(&key, hash_key(&key), Access::Blocking).unwrap(), Lookup::Found(Kind::Value, ..))
}

fn is_enclosed(run: &Run) -> bool {
    run.footer().unwrap().enclosed().is_some()
}

/// Checks a run by all kinds of reads, as written and reopened.
fn check(bed: &TestBed, run: &Arc<Run>, entries: u64) {
    for run in [Arc::clone(run), bed.reopened(run)] {
        run.check_pages().unwrap();
        run.check_filters().unwrap();
        run.check_entries().unwrap();
        let run = bed.reopened(&run);
        for number in 0..entries {
            assert!(has(&run, 2 * number), "of {entries} entries, {number} is missing");
            assert!(!has(&run, 2 * number + 1), "of {entries} entries, a key after {number} is found");
        }
        let mut cursor = RunCursor::new(bed.reopened(&run), ReadAhead::Adaptive);
        cursor.seek_last().unwrap();
        let last = cursor.entry().map(|entry| entry.key.to_vec());
        assert_eq!(last, Some(key(2 * entries - 2)));
    }
}

#[test]
fn a_small_run_has_one_page_beyond_its_data() {
    let layouts = [RunLayout::default(), RunLayout { has_filter: false, ..RunLayout::default() }];
    for (entries, layout) in [1, 2, 33, 200, 700].into_iter().flat_map(|n| layouts.map(|l| (n, l))) {
        let bed = new_bed();
        let run = write(&bed, entries, 100, layout);
        let reference = run.reference();
        assert_eq!(reference.page_count(), reference.data_pages + 1, "{entries} entries, {layout:?}");
        check(&bed, &run, entries);
    }
}

#[test]
fn all_keys_are_found_around_the_size_limit_of_enclosing_footers() {
    let mut seen = BTreeSet::new();
    for entries in (1_000..3_000).step_by(61) {
        let bed = new_bed();
        let run = write(&bed, entries, 30, RunLayout::default());
        seen.insert((
            is_enclosed(&run),
            run.footer().unwrap().index.position(0).page < run.reference().footer_page,
        ));
        check(&bed, &run, entries);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(false, true), (true, false)]);
}

#[test]
fn index_and_filter_can_be_kept_in_separate_pages() {
    let bed = new_bed();
    bed.data.small_runs_apart().store(true, Relaxed);
    let run = write(&bed, 33, 100, RunLayout::default());
    assert_eq!(run.reference().page_count(), run.reference().data_pages + 3);
    check(&bed, &run, 33);
    bed.data.small_runs_apart().store(false, Relaxed);
    assert!(is_enclosed(&write(&bed, 33, 100, RunLayout::default())));
}

#[test]
fn an_enclosing_footer_fills_its_page() {
    let bed = new_bed();
    let payload_bytes = |run: &Run| {
        let page = run.reference().footer_page;
        let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
        run.read_pages(page, &mut bytes).unwrap();
        payload_of(&bytes).len()
    };
    let enclosed = (1..4_000).step_by(7).map(|entries| write(&bed, entries, 30, RunLayout::default()));
    let largest = enclosed.take_while(|run| is_enclosed(run)).last().unwrap();
    // The filter grows in blocks of 81 bytes, the index by 30 bytes.
    assert!(payload_bytes(&largest) > PAGE_SIZE - 200, "{} bytes", payload_bytes(&largest));
}

#[test]
fn a_lookup_in_a_small_run_reads_the_footer_once_and_one_data_page() {
    let bed = new_bed();
    // The first run keeps index and filter in memory, the second has them in a page.
    for (entries, reads) in [(100, [2, 1, 0]), (700, [2, 1, 0])] {
        let run = bed.reopened(&write(&bed, entries, 100, RunLayout::default()));
        let keeps = entries == 100;
        let misses = || run.data().cache_stats().misses;
        for (number, expected) in [0, 2 * entries - 2, 1].into_iter().zip(reads) {
            let before = misses();
            assert_eq!(has(&run, number), number != 1);
            assert_eq!(misses() - before, expected, "{entries} entries, key {number}");
        }
        assert_eq!(run.footer().unwrap().keeps_structure(), keeps);
    }
}

#[test]
fn memory_kept_by_a_run_is_counted() {
    let bed = new_bed();
    let run = bed.reopened(&write(&bed, 100, 100, RunLayout::default()));
    let before = run.data().run_memory_bytes();
    let kept = run.footer().unwrap().enclosed().unwrap().kept().unwrap().len();
    assert!(kept > 200 && run.data().run_memory_bytes() - before >= u64_of(kept));
    let data = Arc::clone(run.data());
    drop(run);
    assert_eq!(data.run_memory_bytes(), 0);
}

#[test]
fn damage_in_an_enclosing_footer_is_found_and_no_key_is_denied() {
    for entries in [100, 700] {
        let bed = new_bed();
        let run = write(&bed, entries, 100, RunLayout::default());
        bed.data.sync().unwrap();
        let page = run.reference().footer_page;
        let filter = || {
            LenientFilter::open(bed.env.open(Path::new("/data"), READ).unwrap(), StoreId(7), run.reference())
        };
        let intact = filter().unwrap();
        assert!((0..entries).all(|number| intact.may_contain(&key(2 * number))));
        let denied = (0..entries).filter(|number| !intact.may_contain(&key(2 * number + 1))).count();
        assert!(u64_of(denied) > entries * 9 / 10, "{denied} of {entries}");
        bed.damage(&run, page, 300);
        assert_eq!(bed.reopened(&run).check_pages().unwrap_err().kind(), ErrorKind::Corruption);
        let key = key(0);
        let found = bed.reopened(&run).get(&key, hash_key(&key), Access::Blocking);
        assert_eq!(found.unwrap_err().kind(), ErrorKind::Corruption);
        assert!(filter().is_none());
        assert!((0..2 * entries).all(|number| intact.may_contain(format!("key{number:09}").as_bytes())));
    }
}

const READ: OpenOptions = OpenOptions { mode: OpenMode::Read, direct: false };

#[test]
fn inspection_shows_the_data_blocks_of_an_enclosing_footer() {
    let bed = new_bed();
    let run = write(&bed, 700, 100, RunLayout::default());
    let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
    run.read_pages(run.reference().footer_page, &mut bytes).unwrap();
    let (contents, damage) = inspect_block(PageKind::Footer, payload_of(&bytes));
    let BlockContents::Footer(record, index, Some(enclosed)) = contents else { panic!("{contents:?}") };
    assert_eq!((damage, record.reference.entries, index.len()), (None, 700, 1));
    let pages: Vec<u32> = enclosed.blocks.iter().map(|(_, page, _)| *page).collect();
    assert_eq!(pages, (0..run.reference().data_pages).collect::<Vec<_>>());
    assert!(enclosed.filter_bytes > 700);
}
