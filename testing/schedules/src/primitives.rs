//! The few structures that threads share without one lock around everything, each alone.
//!
//! **Invariants**
//! - Each is small enough to try nearly all of its schedules.

use testudo_base::{
    ExtentSpan, Kind, PAGE_SIZE, RunId, Seqno,
    chunks::ChunkPool,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use testudo_memtable::Memtable;
use testudo_storage::{Arrival, PageCache, Priority};

use crate::scenarios::Scenario;

/// All primitives.
pub(crate) const PRIMITIVES: [(&str, Scenario); 7] = [
    ("in-flight", testudo::schedules::in_flight),
    ("memtable", memtable),
    ("cache", cache),
    ("cache-loads", cache_loads),
    ("cache-resize", cache_resize),
    ("extents", extents),
    ("records", crate::records::records),
];

/// Inserts that split leaves and start chunks, concurrent with reads and cursors.
fn memtable() {
    let table = Arc::new(Memtable::new(ChunkPool::new(1 << 20)));
    let clock = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..2_u8)
        .map(|writer| {
            let (table, clock) = (Arc::clone(&table), Arc::clone(&clock));
            shuttle::thread::spawn(move || {
                for round in 0..4_u8 {
                    // One of many new keys in between, so that leaves fill and split.
                    let seqno = Seqno(clock.fetch_add(1, Ordering::AcqRel) + 1);
                    table.insert(seqno, Kind::Value, &[writer, 2 + round], &[round; 10], None);
                    let seqno = Seqno(clock.fetch_add(1, Ordering::AcqRel) + 1);
                    // Two keys per writer, so that each key's seqnos ascend, and one that grows in place.
                    let key = [writer, round % 2];
                    table.insert(seqno, Kind::Value, &key, &vec![round; 10 + 40 * usize::from(round)], None);
                }
            })
        })
        .collect();
    let reader = {
        let table = Arc::clone(&table);
        shuttle::thread::spawn(move || {
            let mut newest = None;
            for _ in 0..4 {
                let seen = table.get_owned(&[0, 1], Seqno(u64::MAX)).map(|(_, value)| value);
                if let Some(value) = &seen {
                    assert!(value.iter().all(|byte| *byte == value[0]), "a torn value");
                    assert_eq!(value.len(), 10 + 40 * usize::from(value[0]), "a torn value");
                }
                let round = seen.map(|value| value[0]);
                assert!(round >= newest, "a key went back");
                newest = round;
            }
        })
    };
    for thread in writers.into_iter().chain([reader]) {
        thread.join().expect("no panic");
    }
    table.freeze();
    for writer in 0..2_u8 {
        for (slot, last) in [(0, 2), (1, 3)] {
            let (kind, value) = table.get_owned(&[writer, slot], Seqno(u64::MAX)).expect("it was inserted");
            assert_eq!((kind, value[0]), (Kind::Value, last));
        }
        for round in 0..4 {
            let found = table.get_owned(&[writer, 2 + round], Seqno(u64::MAX));
            assert_eq!(found, Some((Kind::Value, vec![round; 10])));
        }
    }
    assert_eq!(table.len(), 12);
}

/// Pages are inserted, pinned, evicted and forgotten: a frame always shows the requested page.
fn cache() {
    const PAGES: u64 = 20;
    let cache = Arc::new(PageCache::new(16 * testudo_base::PAGE_BYTES));
    // All but two of the sixteen frames stay pinned, so that the threads compete for those.
    let pinned: Vec<_> =
        (0..14).map(|page| cache.insert(page, RunId(1), &bytes_of(page), Priority::Structure)).collect();
    let threads: Vec<_> = (0..3_u64)
        .map(|number| {
            let cache = Arc::clone(&cache);
            shuttle::thread::spawn(move || {
                for round in 0..4 {
                    let page = 14 + (number + round) % (PAGES - 14);
                    let found = match cache.get(page, RunId(1)) {
                        Some(found) => Some(found),
                        None => cache.insert(page, RunId(1), &bytes_of(page), Priority::Data),
                    };
                    if let Some(found) = &found {
                        assert_shows(found, page);
                    }
                    assert!(cache.get(page, RunId(2)).is_none(), "a page of another generation");
                }
            })
        })
        .collect();
    cache.forget(15);
    for thread in threads {
        thread.join().expect("no panic");
    }
    for (page, pinned) in (0_u64..).zip(&pinned) {
        assert_eq!(pinned.as_ref().map(|pinned| u64::from(pinned[0])), Some(page), "a pinned page changed");
    }
}

fn bytes_of(page: u64) -> Vec<u8> {
    vec![u8::try_from(page).expect("few pages"); PAGE_SIZE]
}

/// Checks that the frame shows this page, and still does after other threads ran.
fn assert_shows(found: &[u8], page: u64) {
    let before = found[0];
    shuttle::thread::yield_now();
    assert_eq!(u64::from(before), page, "another page");
    assert_eq!(found[PAGE_SIZE - 1], before, "the page changed while it was pinned");
}

/// Threads request the same pages at once: one thread loads each page, some loads fail, and no thread sleeps
/// forever.
fn cache_loads() {
    let cache = Arc::new(PageCache::new(16 * testudo_base::PAGE_BYTES));
    let loading = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let threads: Vec<_> = (0..3_u64)
        .map(|number| {
            let (cache, loading) = (Arc::clone(&cache), Arc::clone(&loading));
            shuttle::thread::spawn(move || {
                for page in [number % 2, (number + 1) % 2] {
                    let mut must_fail = number == 1 && page == 1;
                    loop {
                        match cache.begin_load(page, RunId(1), Priority::Data) {
                            Arrival::Present(found) => break assert_shows(&found, page),
                            Arrival::Load(mut load) => {
                                let counter = &loading[usize::try_from(page).expect("few pages")];
                                let others = counter.fetch_add(1, Ordering::AcqRel);
                                // After a failed load, two may start again.
                                assert!(others == 0 || page == 1, "a page is loaded twice");
                                load.bytes().copy_from_slice(&bytes_of(page));
                                shuttle::thread::yield_now();
                                counter.fetch_sub(1, Ordering::AcqRel);
                                if !std::mem::take(&mut must_fail) {
                                    break assert_shows(&load.finish(), page);
                                }
                            }
                            Arrival::Elsewhere(awaited) => awaited.wait(),
                            Arrival::Refused => panic!("there is room for both pages"),
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!((0..2).all(|page| cache.get(page, RunId(1)).is_some()), "a loaded page is missing");
}

/// The capacity shrinks and grows while pages are read and inserted: memory in use by readers is never freed.
fn cache_resize() {
    let cache = Arc::new(PageCache::new(32 * testudo_base::PAGE_BYTES));
    for page in 0..20 {
        drop(cache.insert(page, RunId(1), &bytes_of(page), Priority::Data));
    }
    let threads: Vec<_> = (0..2_u64)
        .map(|number| {
            let cache = Arc::clone(&cache);
            shuttle::thread::spawn(move || {
                for round in 0..3 {
                    let page = number * 15 + round;
                    let found = match cache.get(page, RunId(1)) {
                        Some(found) => Some(found),
                        None => cache.insert(page, RunId(1), &bytes_of(page), Priority::Data),
                    };
                    if let Some(found) = &found {
                        assert_shows(found, page);
                    }
                }
            })
        })
        .collect();
    cache.set_capacity(16 * testudo_base::PAGE_BYTES);
    cache.set_capacity(32 * testudo_base::PAGE_BYTES);
    for thread in threads {
        thread.join().expect("no panic");
    }
    cache.set_capacity(16 * testudo_base::PAGE_BYTES);
    let stats = cache.stats();
    assert_eq!(stats.used_bytes, stats.capacity_bytes, "memory without readers is not freed");
}

/// Extents are taken, referenced, dropped and taken again: no page ever has two owners.
fn extents() {
    let extents = testudo_storage::Extents::new(0, std::iter::empty(), |_| ());
    extents.grow(6);
    let owners: Arc<Vec<AtomicU64>> = Arc::new((0..6).map(|_| AtomicU64::new(0)).collect());
    let threads: Vec<_> = (1..=3_u64)
        .map(|number| {
            let (extents, owners) = (Arc::clone(&extents), Arc::clone(&owners));
            shuttle::thread::spawn(move || {
                for _ in 0..2 {
                    let Some(taken) = extents.take(2) else { continue };
                    let spans: Vec<ExtentSpan> = taken.iter().map(|extent| extent.span()).collect();
                    let pages = || spans.iter().flat_map(|span| span.first_page..span.end_page());
                    for page in pages() {
                        let index = usize::try_from(page).expect("few pages");
                        assert_eq!(owners[index].swap(number, Ordering::AcqRel), 0, "a page with two owners");
                    }
                    extents.apply_durable(spans.iter().map(|span| (*span, 1)));
                    drop(taken);
                    let held: Vec<_> = spans.iter().map(|span| extents.hold(*span)).collect();
                    for page in pages() {
                        owners[usize::try_from(page).expect("few pages")].store(0, Ordering::Release);
                    }
                    extents.apply_durable(spans.iter().map(|span| (*span, -1)));
                    drop(held);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    shared_holds(&extents);
    assert_eq!(extents.stats().free_bytes, 6 * testudo_base::PAGE_BYTES, "space was lost");
}

/// Several threads hold and release one span in turn: while a thread holds it, its pages cannot be taken.
fn shared_holds(extents: &Arc<testudo_storage::Extents>) {
    let taken = extents.take(6).expect("all is free");
    let spans: Vec<ExtentSpan> = taken.iter().map(|extent| extent.span()).collect();
    extents.apply_durable(spans.iter().map(|span| (*span, 1)));
    drop(taken);
    let holders: Vec<_> = (0..2)
        .map(|_| {
            let (extents, spans) = (Arc::clone(extents), spans.clone());
            shuttle::thread::spawn(move || {
                for _ in 0..3 {
                    let held: Vec<_> = spans.iter().filter_map(|span| extents.hold(*span)).collect();
                    if held.len() == spans.len() {
                        assert!(extents.take(1).is_none(), "a held page was taken");
                    }
                }
            })
        })
        .collect();
    extents.apply_durable(spans.iter().map(|span| (*span, -1)));
    for holder in holders {
        holder.join().expect("no panic");
    }
}
