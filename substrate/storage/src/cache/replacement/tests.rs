use testudo_base::{PAGE_SIZE, RunId};
use testudo_env::SplitMix;

use crate::{PageCache, Priority};

const BYTES: [u8; PAGE_SIZE] = [1; PAGE_SIZE];

fn look_up_all(cache: &PageCache, pages: std::ops::Range<u64>) {
    for page in pages {
        look_up(cache, page);
    }
}

/// Looks a page up and inserts it if it is missing; returns whether it was a hit.
fn look_up(cache: &PageCache, page: u64) -> bool {
    let is_there = cache.get(page, RunId(1)).is_some();
    if !is_there {
        drop(cache.insert(page, RunId(1), &BYTES, Priority::Data));
    }
    is_there
}

/// Draws a page below `pages`, skewed to low numbers: `pages` × u^8 for a uniform u.
fn skewed(random: &mut SplitMix, pages: u64) -> u64 {
    let draw = random.below(1 << 10);
    (0..7).fold(pages * draw, |product, _| (product >> 10) * draw) >> 10
}

fn hit_ratio(cache: &PageCache, random: &mut SplitMix, look_ups: u32, pages: u64) -> f64 {
    let hits = (0..look_ups).filter(|_| look_up(cache, skewed(random, pages))).count();
    hits as f64 / f64::from(look_ups)
}

#[test]
fn a_full_scan_does_not_evict_the_hot_set() {
    const PAGES: u64 = 20_000;
    let cache = PageCache::new(1024 * 4096);
    let mut random = SplitMix::new(5);
    hit_ratio(&cache, &mut random, 40_000, PAGES);
    let before = hit_ratio(&cache, &mut random, 2_000, PAGES);
    look_up_all(&cache, 0..PAGES);
    let after = hit_ratio(&cache, &mut random, 2_000, PAGES);
    assert!(before > 0.6 && after > before - 0.04, "{before} before, {after} after");
}

#[test]
fn a_stream_of_data_pages_does_not_evict_index_pages() {
    let cache = PageCache::new(1024 * 4096);
    for page in 0..500 {
        drop(cache.insert(page, RunId(1), &BYTES, Priority::Structure));
    }
    look_up_all(&cache, 1000..50_000);
    assert_eq!((0..500).filter(|&page| cache.get(page, RunId(1)).is_some()).count(), 500);
}

#[test]
fn a_cache_full_of_index_pages_still_admits_new_pages() {
    let cache = PageCache::new(512 * 4096);
    for page in 0..2_000 {
        drop(cache.insert(page, RunId(1), &BYTES, Priority::Structure));
        assert!(cache.get(page, RunId(1)).is_some());
    }
    assert!(look_up(&cache, 5_000) || cache.get(5_000, RunId(1)).is_some());
}

#[test]
fn a_recently_evicted_page_is_a_ghost_hit_and_stays() {
    let cache = PageCache::new(1024 * 4096);
    look_up_all(&cache, 0..1024);
    look_up_all(&cache, 2000..2100);
    assert_eq!(cache.stats().ghost_hits, 0);
    let gone = (0..1024).find(|&page| cache.get(page, RunId(1)).is_none()).unwrap();
    look_up(&cache, gone);
    assert_eq!(cache.stats().ghost_hits, 1);
    look_up_all(&cache, 3000..9000);
    assert!(cache.get(gone, RunId(1)).is_some());
}

#[test]
fn a_forgotten_page_is_not_a_ghost() {
    let cache = PageCache::new(64 * 4096);
    look_up_all(&cache, 0..100);
    (0..100).for_each(|page| cache.forget(page));
    look_up_all(&cache, 0..100);
    assert_eq!(cache.stats().ghost_hits, 0);
}
