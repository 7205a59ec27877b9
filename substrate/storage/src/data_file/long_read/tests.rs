use std::{path::Path, sync::Arc};

use testudo_base::{Incarnation, KeyspaceId, StoreId};
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};

use super::*;
use crate::PageKind;

const GENERATION: RunId = RunId(3);

/// Creates a file of 64 pages, each filled with its number, with a cache of 256 pages.
fn numbered_pages() -> Arc<DataFile> {
    let env = MemEnv::new(1);
    let file = env.open(Path::new("/data"), OpenOptions { mode: OpenMode::CreateNew, direct: true }).unwrap();
    let data = DataFile::new(file, StoreId(7), 1 << 20, std::iter::empty(), Some(Incarnation(1))).unwrap();
    for page in 0..64_u8 {
        let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
        bytes.fill(page);
        data.write_pages(page.into(), &bytes).unwrap();
    }
    data
}

fn span(first_page: u64, page_count: u32) -> ExtentSpan {
    ExtentSpan { first_page, page_count }
}

fn address(page: u64) -> PageAddress {
    let keyspace = KeyspaceId(1);
    PageAddress { page, generation: GENERATION, keyspace, incarnation: 1, kind: PageKind::Data }
}

/// Reads pages and caches them; returns the indexes of pages read from the device.
fn read(data: &DataFile, spans: &[ExtentSpan]) -> Vec<usize> {
    let long = data.read_long(spans, GENERATION, true).unwrap();
    for (page, bytes) in pages_of(spans).zip(long.bytes().chunks_exact(PAGE_SIZE)) {
        assert!(bytes.iter().all(|byte| u64::from(*byte) == page), "page {page}");
    }
    data.keep_long(spans, &address(spans[0].first_page), &long);
    long.unverified_pages().collect()
}

#[test]
fn cached_pages_are_not_read_again_across_span_boundaries() {
    let spans = [span(8, 3), span(40, 1), span(20, 16)];
    let gaps: [&[(usize, usize)]; 6] =
        [&[(0, 20)], &[(0, 3)], &[(2, 5)], &[(3, 4)], &[(0, 1), (12, 13)], &[(2, 4), (10, 20)]];
    for missing in gaps {
        let missing: Vec<usize> = missing.iter().flat_map(|(from, to)| *from..*to).collect();
        let data = numbered_pages();
        assert_eq!(read(&data, &spans), (0..20).collect::<Vec<_>>());
        assert_eq!(read(&data, &spans), [0; 0], "all pages are cached");
        let numbers: Vec<u64> = pages_of(&spans).collect();
        missing.iter().for_each(|at| data.forget_page(numbers[*at]));
        assert_eq!(read(&data, &spans), missing);
        assert_eq!(read(&data, &spans), [0; 0]);
        assert!(data.cached_pages(&spans, GENERATION).unwrap().all(|page| page.is_some()));
        data.forget_page(numbers[7]);
        assert!(data.cached_pages(&spans, GENERATION).is_none());
    }
}

#[test]
fn small_gaps_between_missing_pages_are_read_too() {
    let data = numbered_pages();
    read(&data, &[span(0, 16)]);
    data.forget_page(2);
    data.forget_page(7);
    assert_eq!(read(&data, &[span(0, 16)]), [2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_value_of_more_than_an_eighth_of_the_cache_is_not_kept() {
    let data = numbered_pages();
    for count in [33, 32] {
        let all: Vec<usize> = (0..usize_of(u64::from(count))).collect();
        assert_eq!(read(&data, &[span(0, count)]), all);
        let again = read(&data, &[span(0, count)]);
        assert_eq!(again, if count == 33 { all } else { Vec::new() });
    }
}

#[test]
fn cached_pages_of_another_generation_are_not_used() {
    let data = numbered_pages();
    read(&data, &[span(0, 8)]);
    let other = data.read_long(&[span(0, 8)], RunId(4), true).unwrap();
    assert_eq!(other.unverified_pages().count(), 8);
}
