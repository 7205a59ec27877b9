use testudo_base::{PAGE_SIZE, RunId};

use super::*;
use crate::Priority;

fn page(fill: u8) -> Vec<u8> {
    vec![fill; PAGE_SIZE]
}

fn hot(page: u64, keeping: Keeping) -> HotPage {
    HotPage { page, generation: RunId(1), keeping }
}

/// Asserts that the cache holds exactly these pages, each with its keeping.
fn check_kept(cache: &PageCache, pages: &[HotPage]) {
    for keeping in [Keeping::Structure, Keeping::Main, Keeping::Probation] {
        let kept = pages.iter().filter(|hot| hot.keeping == keeping);
        let kept: Vec<_> = kept.map(|hot| [hot.generation.0, hot.page]).collect();
        assert_eq!(*cache.hot_pages(keeping, |_, _| true), kept, "{keeping:?}");
    }
}

#[test]
fn hot_pages_are_restored_into_another_cache() {
    let before = PageCache::new(1 << 20);
    drop(before.insert(3, RunId(1), &page(3), Priority::Data));
    drop(before.insert(4, RunId(1), &page(4), Priority::Structure));
    let pages = [hot(3, Keeping::Probation), hot(4, Keeping::Structure)];
    check_kept(&before, &pages);
    let after = PageCache::new(1 << 20);
    assert_eq!(after.restore(&pages[0], &page(3)), Restoring::Done);
    assert_eq!(after.restore(&pages[1], &page(4)), Restoring::Done);
    assert_eq!(after.restore(&pages[1], &page(9)), Restoring::Present);
    assert_eq!(after.get(4, RunId(1)).unwrap()[0], 4);
    assert_eq!(after.get(4, RunId(1)).unwrap()[0], 4);
    assert!(after.get(3, RunId(2)).is_none(), "the page belongs to another run");
    let stats = after.stats();
    assert_eq!((stats.restored, stats.restored_hits), (2, 1));
    check_kept(&after, &pages);
}

#[test]
fn no_page_is_evicted_for_a_restored_one() {
    let cache = PageCache::new(16 * 4096);
    for number in 0..16 {
        drop(cache.insert(number, RunId(1), &page(1), Priority::Data));
    }
    assert_eq!(cache.restore(&hot(99, Keeping::Main), &page(9)), Restoring::Full);
    assert!((0..16).all(|number| cache.get(number, RunId(1)).is_some()));
    cache.forget(5);
    assert_eq!(cache.restore(&hot(99, Keeping::Main), &page(9)), Restoring::Done);
    assert_eq!(cache.restore(&hot(98, Keeping::Main), &page(9)), Restoring::Full);
}
