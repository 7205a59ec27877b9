//! How long evicted records are remembered.

use super::*;

#[test]
fn evictions_are_remembered_for_a_bounded_volume() {
    let pool = ChunkPool::new(16 << 20);
    let recent = Division::ghost_bytes(16 << 20);
    let mut ghosts = Ghosts::new(&pool, 1);
    assert_eq!(ghosts.recall(7), None);
    assert_eq!(pool.total_bytes(), (16 << 20) / 64);
    ghosts.remember(7, 1024);
    assert_eq!([8, 7, 7].map(|tag| ghosts.recall(tag)), [None, Some(Evicted::Recently), None], "once");
    let cases = [
        (recent / 2, Some(Evicted::Recently)),
        (recent * 2, Some(Evicted::Earlier)),
        (7 << 21, Some(Evicted::Earlier)),
        (9 << 21, None),
    ];
    for (evicted, expected) in cases {
        ghosts.remember(7, 1024);
        // All with the same tag, so that they take no other place.
        (0..evicted / 1024).for_each(|_| ghosts.remember(1 << 20, 1024));
        assert_eq!(ghosts.recall(7), expected, "{evicted} bytes later");
    }
}

#[test]
fn colliding_tags_are_distinguished() {
    let pool = ChunkPool::new(16 << 20);
    let mut ghosts = Ghosts::new(&pool, 1);
    ghosts.remember(70, 100);
    assert!(ghosts.recall(71).is_none() && ghosts.recall(70).is_some());
}

/// The budget can be changed while the store is open.
#[test]
fn ghost_table_follows_the_memory_limit() {
    let pool = ChunkPool::new(8 << 20);
    let mut ghosts = Ghosts::new(&pool, 1);
    let of = |memory: u64| memory / 64;
    for (limit, places) in [(64 << 20, of(64 << 20)), (80 << 20, of(64 << 20)), (2 << 20, of(2 << 20))] {
        pool.set_limit(limit);
        (0..(limit >> 14)).for_each(|tag| ghosts.remember(u32::try_from(tag).unwrap(), 64 << 10));
        assert_eq!((ghosts.bytes(), pool.total_bytes()), (places, places), "{limit}");
    }
}
