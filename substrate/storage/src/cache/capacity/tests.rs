use testudo_base::{RunId, chunks::CHUNK_BYTES};

use super::*;
use crate::{PageCache, Priority};

fn fill(cache: &PageCache, pages: std::ops::Range<u64>, priority: Priority) {
    for number in pages {
        drop(cache.insert(number, RunId(1), &[7; PAGE_SIZE], priority));
    }
}

#[test]
fn large_capacities_are_whole_groups() {
    assert_eq!(frames_of(0), 16);
    assert_eq!(frames_of(17 * 4096), 17);
    assert_eq!(frames_of(100 * 4096 + 5), 96);
    assert_eq!(frames_of((64 * 20 + 63) * 4096), 64 * 20);
}

#[test]
fn memory_is_allocated_on_demand_and_freed_with_the_capacity() {
    let cache = PageCache::new(256 * 4096);
    assert_eq!(cache.stats().used_bytes, 0);
    fill(&cache, 0..10, Priority::Data);
    assert_eq!(cache.stats().used_bytes, 64 * 4096, "one group is allocated");
    fill(&cache, 10..1000, Priority::Data);
    assert_eq!(cache.stats().used_bytes, 256 * 4096);
    cache.set_capacity(80 * 4096);
    fill(&cache, 0..1000, Priority::Data);
    assert_eq!((cache.stats().used_bytes, cache.stats().capacity_bytes), (80 * 4096, 80 * 4096));
    cache.set_capacity(2048 * 4096);
    fill(&cache, 0..3000, Priority::Data);
    assert_eq!(cache.stats().used_bytes, 2048 * 4096);
    cache.set_capacity(0);
    assert!(cache.stats().used_bytes <= 16 * 4096);
}

#[test]
fn borrowed_pool_memory_is_released_to_writers() {
    let pool = ChunkPool::new(16 << 20);
    let cache = Arc::new(PageCache::new(64 * 4096));
    cache.borrow_from(&pool);
    fill(&cache, 0..2000, Priority::Data);
    let borrowed = pool.division().page_bytes();
    assert!(cache.stats().used_bytes == 64 * 4096 + borrowed && borrowed > 7 << 20, "{borrowed}");
    let held: Vec<_> = (1990..2000).filter_map(|number| cache.get(number, RunId(1))).collect();
    assert_eq!(held.len(), 10);
    let buffers: Vec<_> = (0..64).map(|_| pool.take(CHUNK_BYTES)).collect();
    assert_eq!((pool.division().page_bytes(), pool.total_bytes()), (0, 16 << 20), "writes take it all");
    assert!(held.iter().all(|page| page.iter().all(|&byte| byte == 7)), "pinned pages stay");
    drop(held);
    fill(&cache, 3000..3001, Priority::Data);
    assert_eq!(cache.stats().used_bytes, 64 * 4096);
    pool.give_back(buffers);
    fill(&cache, 0..2000, Priority::Data);
    assert!(pool.division().page_bytes() == borrowed, "pages borrow it again");
}

#[test]
fn pinned_pages_keep_their_memory_until_released() {
    let cache = PageCache::new(128 * 4096);
    fill(&cache, 0..128, Priority::Data);
    let held: Vec<_> = (0..128).filter_map(|number| cache.get(number, RunId(1))).collect();
    assert_eq!(held.len(), 128);
    cache.set_capacity(64 * 4096);
    assert_eq!(cache.stats().used_bytes, 128 * 4096);
    assert!(held.iter().all(|page| page.iter().all(|&byte| byte == 7)));
    drop(held);
    fill(&cache, 500..501, Priority::Data);
    assert_eq!(cache.stats().used_bytes, 64 * 4096);
}

#[test]
fn hot_pages_survive_a_smaller_capacity() {
    let cache = PageCache::new(512 * 4096);
    fill(&cache, 0..50, Priority::Structure);
    fill(&cache, 1000..1462, Priority::Data);
    fill(&cache, 100..150, Priority::Structure);
    cache.set_capacity(256 * 4096);
    let kept = (0..50).chain(100..150).filter(|&number| cache.get(number, RunId(1)).is_some()).count();
    assert_eq!(kept, 100);
    assert_eq!(cache.stats().used_bytes, 256 * 4096);
}
