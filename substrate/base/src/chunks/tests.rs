//! The bound, and who gives way.

use super::*;

const CHUNK: u64 = CHUNK_BYTES as u64;

#[test]
fn idle_chunks_are_kept_up_to_the_bound() {
    let pool = ChunkPool::new(2 * CHUNK);
    let chunks: Vec<Chunk> = (0..4).map(|_| pool.take(CHUNK_BYTES)).collect();
    assert_eq!((pool.used_bytes(), pool.idle_bytes()), (4 * CHUNK, 0));
    pool.give_back(chunks);
    assert_eq!((pool.used_bytes(), pool.idle_bytes()), (2 * CHUNK, 2 * CHUNK));
    pool.set_limit(CHUNK);
    assert_eq!((pool.used_bytes(), pool.idle_bytes()), (CHUNK, CHUNK));
}

#[test]
fn spare_memory_ends_at_the_bound() {
    let pool = ChunkPool::new(2 * CHUNK);
    pool.charge(CHUNK / 2);
    let chunk = pool.take_spare(CHUNK_BYTES);
    assert!(chunk.is_some());
    assert!(pool.take_spare(CHUNK_BYTES).is_none(), "with what is charged it does not fit");
    pool.set_limit(3 * CHUNK);
    assert!(pool.take_spare(CHUNK_BYTES).is_some());
}

#[test]
fn idle_chunks_make_room_for_other_sizes() {
    let pool = ChunkPool::new(2 * CHUNK);
    let chunks = [pool.take(CHUNK_BYTES), pool.take(CHUNK_BYTES)];
    pool.give_back(chunks);
    let small = pool.take(1 << 10);
    assert_eq!((pool.used_bytes(), pool.idle_bytes()), (CHUNK + (1 << 10), CHUNK));
    pool.give_back([small]);
    assert_eq!(pool.used_bytes(), CHUNK);
}

#[derive(Debug)]
struct OneChunk {
    pool: Arc<ChunkPool>,
    lent: Mutex<Option<Chunk>>,
}

impl Lender for OneChunk {
    fn give_up_chunk(&self) -> bool {
        let lent = self.lent.lock().take();
        let gave = lent.is_some();
        self.pool.give_back(lent);
        gave
    }
}

#[test]
fn a_lender_gives_way_to_who_needs_memory() {
    let pool = ChunkPool::new(CHUNK);
    let lent = Mutex::new(pool.take_spare(CHUNK_BYTES));
    let lender = Arc::new(OneChunk { pool: Arc::clone(&pool), lent });
    let weak: Weak<dyn Lender> = Arc::downgrade(&(Arc::clone(&lender) as Arc<dyn Lender>));
    pool.set_lender(weak);
    let first = pool.take(CHUNK_BYTES);
    assert!(lender.lent.lock().is_none());
    assert_eq!(pool.used_bytes(), CHUNK, "memory changed hands");
    let second = pool.take(CHUNK_BYTES);
    assert_eq!(pool.used_bytes(), 2 * CHUNK, "who needs memory gets it in any case");
    pool.give_back([first, second]);
    assert_eq!(pool.used_bytes(), CHUNK);
}

#[test]
fn small_pieces_count_as_the_most_that_they_were() {
    let pool = ChunkPool::new(4 * CHUNK);
    pool.charge(2 * CHUNK);
    pool.discharge(2 * CHUNK);
    assert_eq!((pool.used_bytes(), pool.total_bytes()), (0, 2 * CHUNK));
    let chunks = [pool.take_spare(CHUNK_BYTES), pool.take_spare(CHUNK_BYTES)];
    assert!(chunks.iter().all(Option::is_some) && pool.take_spare(CHUNK_BYTES).is_none());
    let small = pool.take_spare(CHUNK_BYTES / 2).expect("small pieces have what is left of small pieces");
    pool.give_back([small]);
    let large = pool.take(3 * CHUNK_BYTES);
    pool.give_back([large]);
    assert_eq!(pool.total_bytes(), 4 * CHUNK, "large chunks go back to the system");
}
