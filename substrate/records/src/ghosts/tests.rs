//! How long an evicted record is remembered.

use super::*;

#[test]
fn a_record_is_remembered_until_so_much_more_was_evicted() {
    let pool = ChunkPool::new(16 << 20);
    let remembered = Division::ghost_bytes(16 << 20);
    let mut ghosts = Ghosts::new(&pool, 1);
    ghosts.remember(7, 1024);
    assert!(!ghosts.recall(8) && ghosts.recall(7) && !ghosts.recall(7), "once");
    for (evicted, is_known) in [(remembered / 2, true), (remembered * 2, false)] {
        ghosts.remember(7, 1024);
        // All of one tag, so that they take no other place.
        (0..evicted / 1024).for_each(|_| ghosts.remember(1 << 20, 1024));
        assert_eq!(ghosts.recall(7), is_known, "{evicted} bytes later");
    }
}

#[test]
fn tags_that_share_a_place_are_told_apart() {
    let pool = ChunkPool::new(16 << 20);
    let mut ghosts = Ghosts::new(&pool, 1);
    ghosts.remember(70, 100);
    assert!(!ghosts.recall(71) && ghosts.recall(70));
}
