use super::*;

fn page(fill: u8) -> Vec<u8> {
    vec![fill; PAGE_SIZE]
}

fn byte(number: u64) -> u8 {
    u8::try_from(number % 251).unwrap()
}

#[test]
fn a_page_is_found_until_the_clock_evicts_it_and_capacity_holds() {
    let cache = PageCache::new(16 * 4096);
    for number in 0..100u64 {
        drop(cache.insert(number, RunId(1), &page(byte(number)), 0));
    }
    let present: Vec<u64> = (0..100).filter(|&n| cache.get(n, RunId(1), 0).is_some()).collect();
    assert_eq!(present.len(), 16);
    for number in present {
        assert_eq!(cache.get(number, RunId(1), 0).unwrap()[9], byte(number));
    }
    assert_eq!(cache.stats().used_bytes, 16 * 4096);
}

#[test]
fn a_page_of_an_older_generation_is_not_served() {
    let cache = PageCache::new(1 << 20);
    drop(cache.insert(5, RunId(1), &page(1), 1));
    assert!(cache.get(5, RunId(2), 1).is_none());
    drop(cache.insert(5, RunId(2), &page(2), 1));
    assert_eq!(cache.get(5, RunId(2), 1).unwrap()[0], 2);
    cache.forget(5);
    assert!(cache.get(5, RunId(2), 1).is_none());
}

#[test]
fn pages_in_use_are_not_evicted_and_a_full_cache_says_so() {
    let cache = PageCache::new(16 * 4096);
    let held: Vec<_> = (0..16u64).map(|n| cache.insert(n, RunId(1), &page(byte(n)), 0).unwrap()).collect();
    assert!(cache.insert(99, RunId(1), &page(0), 0).is_none());
    for (number, page) in held.iter().enumerate() {
        assert_eq!(usize::from(page[0]), number);
    }
    drop(held);
    assert!(cache.insert(99, RunId(1), &page(0), 0).is_some());
}

#[test]
fn used_pages_survive_a_scan() {
    let cache = PageCache::new(64 * 4096);
    for number in 0..32u64 {
        drop(cache.insert(number, RunId(1), &page(1), 1));
    }
    for round in 0..4u64 {
        for number in 0..32u64 {
            assert!(cache.get(number, RunId(1), 3).is_some(), "round {round} page {number}");
        }
        for scanned in 0..40u64 {
            drop(cache.insert(1000 + round * 100 + scanned, RunId(1), &page(2), 0));
        }
    }
}

#[test]
fn threads_that_read_and_insert_never_see_a_wrong_page() {
    let cache = PageCache::new(32 * 4096);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || {
                for step in 0..20_000u64 {
                    let number = (step * 7 + thread * 13) % 100;
                    if let Some(found) = cache.get(number, RunId(1), 1) {
                        assert!(found.iter().all(|&b| u64::from(b) == number));
                    } else {
                        drop(cache.insert(number, RunId(1), &page(byte(number)), 0));
                    }
                }
            });
        }
    });
}
