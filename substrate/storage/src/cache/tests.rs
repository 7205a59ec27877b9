use super::*;

fn page(fill: u8) -> Vec<u8> {
    vec![fill; PAGE_SIZE]
}

fn byte(number: u64) -> u8 {
    u8::try_from(number % 251).unwrap()
}

#[test]
fn pages_are_found_until_evicted_and_capacity_is_respected() {
    let cache = PageCache::new(16 * 4096);
    for number in 0..100u64 {
        drop(cache.insert(number, RunId(1), &page(byte(number)), Priority::Data));
    }
    let present: Vec<u64> = (0..100).filter(|&n| cache.get(n, RunId(1)).is_some()).collect();
    assert_eq!(present.len(), 16);
    for number in present {
        assert_eq!(cache.get(number, RunId(1)).unwrap()[9], byte(number));
    }
    assert_eq!(cache.stats().used_bytes, 16 * 4096);
}

#[test]
fn a_page_of_an_older_generation_is_a_miss() {
    let cache = PageCache::new(1 << 20);
    drop(cache.insert(5, RunId(1), &page(1), Priority::Data));
    assert!(cache.get(5, RunId(2)).is_none());
    drop(cache.insert(5, RunId(2), &page(2), Priority::Data));
    assert_eq!(cache.get(5, RunId(2)).unwrap()[0], 2);
    cache.forget(5);
    assert!(cache.get(5, RunId(2)).is_none());
}

#[test]
fn lookups_that_are_no_use_do_not_keep_a_page() {
    let cache = PageCache::new(16 * 4096);
    let (used, useless) = (10_000, 10_001);
    for number in [used, useless] {
        drop(cache.insert(number, RunId(1), &page(1), Priority::Structure));
    }
    for number in 0..2_000u64 {
        drop(cache.insert(number, RunId(1), &page(byte(number)), Priority::Data));
        drop(cache.get(number, RunId(1)));
        assert!(cache.get_if(used, RunId(1), |_| true).is_some(), "after {number} others");
        drop(cache.get_if(useless, RunId(1), |page| page[0] != 1));
    }
    assert!(cache.get(useless, RunId(1)).is_none());
}

#[test]
fn pinned_pages_are_not_evicted_and_a_full_cache_refuses_loads() {
    let cache = PageCache::new(16 * 4096);
    let held: Vec<_> =
        (0..16u64).map(|n| cache.insert(n, RunId(1), &page(byte(n)), Priority::Data).unwrap()).collect();
    assert!(cache.insert(99, RunId(1), &page(0), Priority::Data).is_none());
    assert!(matches!(cache.begin_load(99, RunId(1), Priority::Data), Arrival::Refused));
    for (number, page) in held.iter().enumerate() {
        assert_eq!(usize::from(page[0]), number);
    }
    drop(held);
    assert!(cache.insert(99, RunId(1), &page(0), Priority::Data).is_some());
}

#[test]
fn pins_return_to_zero() {
    let cache = PageCache::new(16 * 4096);
    let first = cache.insert(1, RunId(1), &page(1), Priority::Data).unwrap();
    let second = cache.get(1, RunId(1)).unwrap();
    let Trace::In(number) = cache.map.entry(1).unwrap().get() else { panic!("the page is cached") };
    let frame = cache.frames.frame(number).unwrap();
    assert!(frame.is_pinned() && frame.claim_page().is_none());
    drop(first);
    assert!(frame.is_pinned());
    drop(second);
    assert!(!frame.is_pinned() && cache.get(1, RunId(2)).is_none() && !frame.is_pinned());
    assert!(frame.claim_page().is_some());
}

#[test]
fn the_frame_of_a_forgotten_page_is_reused_first() {
    let cache = PageCache::new(16 * 4096);
    for number in 0..16u64 {
        drop(cache.insert(number, RunId(1), &page(byte(number)), Priority::Structure));
    }
    cache.forget(7);
    drop(cache.insert(100, RunId(2), &page(1), Priority::Data));
    let stats = cache.stats();
    assert_eq!((stats.evictions, stats.used_bytes), (0, 16 * 4096));
    assert!((0..16).all(|n| (n == 7) != cache.get(n, RunId(1)).is_some()));
}

#[test]
fn concurrent_loads_of_a_page_share_one_read() {
    let cache = PageCache::new(1 << 20);
    let Arrival::Load(mut loading) = cache.begin_load(3, RunId(1), Priority::Data) else { panic!() };
    assert!(cache.get(3, RunId(1)).is_none(), "the page is not readable yet");
    let Arrival::Elsewhere(awaited) = cache.begin_load(3, RunId(1), Priority::Data) else { panic!() };
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            awaited.wait();
            cache.get(3, RunId(1)).map(|bytes| bytes[0])
        });
        loading.bytes().fill(3);
        drop(loading.finish());
        assert_eq!(waiter.join().unwrap(), Some(3));
    });
    assert_eq!(cache.stats().shared_loads, 1);
}

#[test]
fn a_failed_load_wakes_waiters_and_caches_nothing() {
    let cache = PageCache::new(1 << 20);
    let Arrival::Load(loading) = cache.begin_load(3, RunId(1), Priority::Data) else { panic!() };
    let Arrival::Elsewhere(awaited) = cache.begin_load(3, RunId(1), Priority::Data) else { panic!() };
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| awaited.wait());
        drop(loading);
        waiter.join().unwrap();
    });
    assert!(matches!(cache.begin_load(3, RunId(1), Priority::Data), Arrival::Load(_)));
}

#[test]
fn hits_of_all_threads_are_counted() {
    let cache = PageCache::new(1 << 20);
    drop(cache.insert(1, RunId(1), &page(1), Priority::Data));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..1000).for_each(|_| drop(cache.get(1, RunId(1)))));
        }
    });
    assert_eq!(cache.stats().hits, 16_000);
}

#[test]
fn concurrent_reads_and_inserts_never_see_a_wrong_page() {
    let cache = PageCache::new(32 * 4096);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || {
                for step in 0..20_000u64 {
                    let number = (step * 7 + thread * 13) % 100;
                    if let Some(found) = cache.get(number, RunId(1)) {
                        assert!(found.iter().all(|&b| u64::from(b) == number));
                    } else {
                        drop(cache.insert(number, RunId(1), &page(byte(number)), Priority::Data));
                    }
                    if thread == 0 && step % 500 == 0 {
                        cache.set_capacity((16 + step / 500 * 5) * 4096);
                    }
                }
            });
        }
    });
}
