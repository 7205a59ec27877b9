//! The limit, and which user gives way.

use super::*;

const CHUNK: u64 = CHUNK_BYTES as u64;

#[test]
fn idle_chunks_are_kept_up_to_the_limit() {
    let pool = ChunkPool::new(2 * CHUNK);
    let chunks: Vec<Chunk> = (0..4).map(|_| pool.take(CHUNK_BYTES)).collect();
    assert_eq!((pool.used_bytes(), pool.idle_bytes()), (4 * CHUNK, 0));
    pool.give_back(chunks);
    assert_eq!((pool.used_bytes(), pool.idle_bytes()), (2 * CHUNK, 2 * CHUNK));
    pool.set_limit(CHUNK);
    assert_eq!((pool.used_bytes(), pool.idle_bytes()), (CHUNK, CHUNK));
}

#[test]
fn spare_memory_ends_at_the_limit() {
    let pool = ChunkPool::new(2 * CHUNK);
    pool.charge(CHUNK / 2);
    let chunk = pool.take_spare(CHUNK_BYTES);
    assert!(chunk.is_some());
    assert!(pool.take_spare(CHUNK_BYTES).is_none(), "together with the charge it does not fit");
    pool.set_limit(3 * CHUNK);
    assert!(pool.take_spare(CHUNK_BYTES).is_some());
}

#[test]
fn idle_chunks_are_freed_for_other_sizes() {
    let pool = ChunkPool::new(2 * CHUNK);
    let chunks = [pool.take(CHUNK_BYTES), pool.take(CHUNK_BYTES)];
    pool.give_back(chunks);
    let small = pool.take(128);
    assert_eq!((pool.used_bytes(), pool.idle_bytes()), (CHUNK + 128, CHUNK));
    pool.give_back([small]);
    assert_eq!(pool.used_bytes(), CHUNK);
}

#[derive(Debug)]
struct OneChunk {
    pool: Arc<ChunkPool>,
    lent: Mutex<Option<Chunk>>,
}

impl Borrower for OneChunk {
    fn give_up_chunk(&self) -> bool {
        let lent = self.lent.lock().take();
        let gave = lent.is_some();
        self.pool.give_back(lent);
        gave
    }
}

#[test]
fn borrower_gives_up_memory_on_demand() {
    let pool = ChunkPool::new(CHUNK);
    let lent = Mutex::new(pool.take_spare(CHUNK_BYTES));
    let borrower = Arc::new(OneChunk { pool: Arc::clone(&pool), lent });
    let weak: Weak<dyn Borrower> = Arc::downgrade(&(Arc::clone(&borrower) as Arc<dyn Borrower>));
    pool.set_borrower(Use::Records, weak);
    let first = pool.take(CHUNK_BYTES);
    assert!(borrower.lent.lock().is_none());
    assert_eq!(pool.used_bytes(), CHUNK, "the borrower's chunk was reused");
    let second = pool.take(CHUNK_BYTES);
    assert_eq!(pool.used_bytes(), 2 * CHUNK, "write buffers get memory in any case");
    pool.give_back([first, second]);
    assert_eq!(pool.used_bytes(), CHUNK);
}

#[derive(Debug)]
struct Pages {
    pool: Arc<ChunkPool>,
    bytes: AtomicU64,
}

impl Borrower for Pages {
    fn give_up_chunk(&self) -> bool {
        let has_some = self.bytes.load(Relaxed) > 0;
        if has_some {
            self.bytes.fetch_sub(CHUNK, Relaxed);
            self.pool.end_borrowing(CHUNK);
        }
        has_some
    }
}

#[test]
fn pages_use_spare_memory_until_it_is_needed() {
    let pool = ChunkPool::new(8 * CHUNK);
    let pages = Arc::new(Pages { pool: Arc::clone(&pool), bytes: 0.into() });
    let weak: Weak<dyn Borrower> = Arc::downgrade(&(Arc::clone(&pages) as Arc<dyn Borrower>));
    pool.set_borrower(Use::Pages, weak);
    let borrow = || {
        let is_lent = pool.borrow(CHUNK);
        pages.bytes.fetch_add(u64::from(is_lent) * CHUNK, Relaxed);
        is_lent
    };
    let idle = [pool.take(CHUNK_BYTES), pool.take(CHUNK_BYTES)];
    pool.give_back(idle);
    assert!((0..8).all(|_| borrow()), "idle chunks are no obstacle");
    assert!(!borrow() && pool.total_bytes() == 8 * CHUNK && pool.idle_bytes() == 0);
    let buffers: Vec<Chunk> = (0..3).map(|_| pool.take(CHUNK_BYTES)).collect();
    assert_eq!((pages.bytes.load(Relaxed), pool.total_bytes()), (5 * CHUNK, 8 * CHUNK));
    let records: Vec<Chunk> = std::iter::from_fn(|| {
        let chunk = pool.take_for_records(CHUNK_BYTES)?;
        pool.division().records_grew(CHUNK);
        Some(chunk)
    })
    .collect();
    assert_eq!(
        (records.len(), pages.bytes.load(Relaxed)),
        (2, 3 * CHUNK),
        "records have half, pages the rest"
    );
    pool.set_limit(4 * CHUNK);
    assert_eq!(pages.bytes.load(Relaxed), 0, "a smaller bound is met at once");
    pool.give_back(buffers.into_iter().chain(records));
}

/// Pages whose released memory others take again at once, for the first few times.
#[derive(Debug)]
struct ContendedPages {
    pool: Arc<ChunkPool>,
    taken_back: AtomicU64,
}

impl Borrower for ContendedPages {
    fn give_up_chunk(&self) -> bool {
        self.pool.end_borrowing(CHUNK);
        if self.taken_back.fetch_add(1, Relaxed) < 3 {
            assert!(self.pool.borrow(CHUNK), "it is free");
        }
        true
    }
}

#[test]
fn records_get_their_share_despite_contending_pages() {
    let pool = ChunkPool::new(4 * CHUNK);
    let pages = Arc::new(ContendedPages { pool: Arc::clone(&pool), taken_back: 0.into() });
    let borrower: Arc<dyn Borrower> = pages;
    pool.set_borrower(Use::Pages, Arc::downgrade(&borrower));
    assert!((0..4).all(|_| pool.borrow(CHUNK)), "no other user has memory");
    let record = pool.take_for_records(CHUNK_BYTES);
    assert!(record.is_some(), "records have nothing, and their share is half");
    pool.give_back(record);
}

#[test]
fn small_fragments_count_at_their_maximum() {
    let pool = ChunkPool::new(4 * CHUNK);
    pool.charge(2 * CHUNK);
    pool.discharge(2 * CHUNK);
    assert_eq!((pool.used_bytes(), pool.total_bytes()), (0, 2 * CHUNK));
    let chunks = [pool.take_spare(CHUNK_BYTES), pool.take_spare(CHUNK_BYTES)];
    assert!(chunks.iter().all(Option::is_some) && pool.take_spare(CHUNK_BYTES).is_none());
    let small =
        pool.take_spare(CHUNK_BYTES / 16).expect("small fragments reuse memory left from small fragments");
    pool.give_back([small]);
    let large = pool.take(3 * CHUNK_BYTES);
    pool.give_back([large]);
    assert_eq!(pool.total_bytes(), 4 * CHUNK, "large chunks return to the system");
}

#[test]
fn large_slices_count_only_while_they_live() {
    let pool = ChunkPool::new(4 * CHUNK);
    for bytes in [CHUNK, 3 * CHUNK, MAPPED_BYTES_MIN as u64] {
        pool.charge_slice(bytes);
        assert_eq!((pool.total_bytes(), pool.used_bytes()), (bytes, bytes));
        pool.discharge_slice(bytes);
        assert_eq!((pool.total_bytes(), pool.used_bytes()), (0, 0));
    }
    pool.charge_slice(MAPPED_BYTES_MIN as u64 - 8);
    pool.discharge_slice(MAPPED_BYTES_MIN as u64 - 8);
    assert_eq!(pool.total_bytes(), MAPPED_BYTES_MIN as u64 - 8, "the allocator may keep it");
}

/// Pages that give up a quarter of a chunk at a time, as in a store opened with a small budget.
#[derive(Debug)]
struct SmallPages {
    pool: Arc<ChunkPool>,
}

impl Borrower for SmallPages {
    fn give_up_chunk(&self) -> bool {
        let has_some = self.pool.division().page_bytes() > 0;
        if has_some {
            self.pool.end_borrowing(CHUNK / 4);
        }
        has_some
    }
}

#[test]
fn chunk_respects_the_limit_if_pages_give_up_less_at_a_time() {
    let pool = ChunkPool::new(4 * CHUNK);
    let pages = Arc::new(SmallPages { pool: Arc::clone(&pool) });
    let borrower: Arc<dyn Borrower> = pages.clone();
    pool.set_borrower(Use::Pages, Arc::downgrade(&borrower));
    while pool.borrow(CHUNK / 4) {}
    assert_eq!(pool.total_bytes(), 4 * CHUNK);
    let chunk = pool.take(CHUNK_BYTES);
    assert_eq!((pool.total_bytes(), pool.division().page_bytes()), (4 * CHUNK, 3 * CHUNK));
    pool.give_back([chunk]);
}
