use std::{cell::Cell, sync::Arc, thread};

use testudo_base::{
    Kind, Seqno,
    chunks::{CHUNK_BYTES, ChunkPool},
};

use super::{Arena, Held, LINE_BYTES, Record, Version};
use crate::index::Index;

fn version<'a>(seqno: u64, key: &'a [u8], value: &'a [u8]) -> Version<'a> {
    Version { seqno: Seqno(seqno), kind: Kind::Value, key, value }
}

fn write<'id>(arena: &Arena<'id>, seqno: u64, value: &[u8]) -> Record<'id> {
    arena.write(&version(seqno, b"key", value), None).0
}

#[test]
fn records_round_trip() {
    Arena::scope(ChunkPool::new(0), |arena| {
        let mut written = Vec::new();
        for i in 0..400usize {
            let key = vec![i.to_le_bytes()[0]; i % 50];
            let value = vec![!i.to_le_bytes()[0]; i * 7 % 3000];
            let (record, _) = arena.write(&version(i as u64, &key, &value), None);
            written.push((record, key, value));
        }
        for (i, (record, key, value)) in written.iter().enumerate() {
            let view = arena.view(record);
            assert_eq!((view.seqno(), view.kind()), (Seqno(i as u64), Kind::Value));
            assert_eq!((view.key(), view.value()), (&**key, &**value));
            assert!(view.prev().is_none());
        }
    });
}

#[test]
fn overwrite_keeps_the_key_and_requires_a_fitting_value() {
    Arena::scope(ChunkPool::new(0), |arena| {
        let mut record = write(arena, 1, &[1; 10]);
        let neighbour = write(arena, 2, &[2; 10]);
        assert!(arena.overwrite(&mut record, &version(3, b"key", &[3; 8])));
        assert!(arena.overwrite(&mut record, &Version { kind: Kind::Tombstone, ..version(4, b"key", &[]) }));
        assert_eq!((arena.view(&record).kind(), arena.view(&record).value()), (Kind::Tombstone, &[][..]));
        assert!(arena.overwrite(&mut record, &version(5, b"key", &[5; 10])));
        assert!(!arena.overwrite(&mut record, &version(6, b"key", &[6; 64])));
        let view = arena.view(&record);
        assert_eq!((view.seqno(), view.key(), view.value()), (Seqno(5), &b"key"[..], &[5; 10][..]));
        assert_eq!(arena.view(&neighbour).value(), &[2; 10]);
    });
}

#[test]
fn older_versions_are_linked_in_order_and_equal_seqnos_replaced() {
    Arena::scope(ChunkPool::new(0), |arena| {
        let mut newest = write(arena, 9, b"9");
        for (seqno, value) in [(3, b"3"), (7, b"7"), (1, b"1"), (5, b"5"), (3, b"x")] {
            arena.link_older(&mut newest, write(arena, seqno, value));
        }
        let mut chain = Vec::new();
        let mut view = Some(arena.view(&newest));
        while let Some(version) = view {
            chain.push((version.seqno().0, version.value()[0]));
            view = version.prev();
        }
        assert_eq!(chain, [(9, b'9'), (7, b'7'), (5, b'5'), (3, b'x'), (1, b'1')]);
        assert_eq!(arena.view(&newest).visible_at(Seqno(4)).map(|view| view.seqno()), Some(Seqno(3)));
        assert!(arena.view(&newest).visible_at(Seqno(0)).is_none());
    });
}

#[test]
fn concurrent_writers_never_share_space() {
    Arena::scope(ChunkPool::new(0), |arena| {
        let records: Vec<(u8, Record<'_>)> = thread::scope(|scope| {
            let workers: Vec<_> = (0..4u8)
                .map(|tag| {
                    scope.spawn(move || {
                        let write = |i: usize| (tag, write(arena, i as u64, &vec![tag; 1 + i % 90]));
                        (0..if cfg!(miri) { 100 } else { 5000 }).map(write).collect::<Vec<_>>()
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        for (tag, record) in &records {
            assert!(arena.view(record).value().iter().all(|byte| byte == tag));
        }
    });
}

#[test]
fn chunks_return_to_the_pool_up_to_its_limit() {
    let pool = ChunkPool::new(16 << 20);
    let fill_and = |check: &dyn Fn(u64)| {
        Arena::scope(Arc::clone(&pool), |arena| {
            for seqno in 0..200 {
                write(arena, seqno, &[1; 30_000]);
            }
            check(arena.bytes());
        });
    };
    let used = Cell::new(0);
    fill_and(&|arena_bytes| {
        used.set(pool.used_bytes());
        assert!(used.get() >= 200 * 30_000 && arena_bytes >= used.get() && pool.idle_bytes() == 0);
    });
    assert!(pool.idle_bytes() >= 4 << 20 && pool.used_bytes() == pool.idle_bytes());
    fill_and(&|_| assert_eq!((pool.idle_bytes(), pool.used_bytes()), (0, used.get())));
    pool.set_limit(CHUNK_BYTES as u64);
    assert_eq!((pool.idle_bytes(), pool.used_bytes()), (CHUNK_BYTES as u64, CHUNK_BYTES as u64));
    pool.set_limit(0);
    assert_eq!((pool.idle_bytes(), pool.used_bytes()), (0, 0));
}

#[test]
fn large_records_use_dedicated_chunks_that_are_freed() {
    let pool = ChunkPool::new(u64::MAX);
    Arena::scope(Arc::clone(&pool), |arena| {
        let small = write(arena, 1, b"small");
        let large = vec![7; if cfg!(miri) { 40 << 10 } else { 10 << 20 }];
        let record = write(arena, 2, &large);
        assert_eq!(arena.view(&record).value(), large);
        assert_eq!(arena.view(&small).value(), b"small");
        assert!(arena.bytes() < large.len() as u64 + (8 << 10));
    });
    assert_eq!(pool.used_bytes(), pool.idle_bytes(), "{pool:?}");
}

#[test]
fn small_memtables_leave_nothing_in_the_allocator() {
    let pool = ChunkPool::new(1 << 30);
    let indexes: Vec<Index> = (0..500)
        .map(|_| {
            let index = Index::new(Arc::clone(&pool));
            index.with(|_, arena| {
                for seqno in 0..200 {
                    write(arena, seqno, &[1; 100]);
                    drop(arena.hold([0_u64; 24]));
                }
            });
            index
        })
        .collect();
    let used = pool.used_bytes();
    let of_arenas: u64 = indexes.iter().map(Index::arena_bytes).sum();
    assert!(used > 500 * 200 * 292 && used <= of_arenas, "{used} of {of_arenas}");
    drop(indexes);
    assert_eq!(pool.used_bytes(), pool.idle_bytes(), "all memory is in whole chunks");
    pool.set_limit(0);
    assert_eq!(pool.total_bytes(), 0, "and returns to the system");
}

#[test]
fn index_parts_start_at_cache_lines() {
    Arena::scope(ChunkPool::new(u64::MAX), |arena| {
        let held: Vec<Held<'_, [u64; 9]>> = (0..2000)
            .map(|seqno| {
                write(arena, seqno, &[1; 33]);
                arena.hold([seqno; 9]).0
            })
            .collect();
        for (seqno, held) in (0..).zip(&held) {
            assert!(std::ptr::from_ref(&**held).addr().is_multiple_of(LINE_BYTES) && **held == [seqno; 9]);
        }
    });
}
