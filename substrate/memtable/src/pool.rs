//! Chunks of memory that memtables pass on to each other.
//!
//! Touching fresh memory costs a page fault per 4 KiB, more than copying a record does; a chunk that a
//! dropped memtable gives back is warm. Only chunks of the full size are kept, up to a settable bound.
//!
//! **Invariants**
//! - A chunk belongs to the pool or to one arena, never to both.
//! - `total_bytes` counts all chunks alive, whoever has them.

use std::mem;

use testudo_base::{
    num::{u64_of, usize_of},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes of a chunk of the full size, the only size that is recycled.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Uninitialised memory in units of eight bytes, at a fixed address.
#[derive(Debug)]
pub(crate) struct Chunk(Vec<u64>);

impl Chunk {
    fn new(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes / 8))
    }

    /// The first byte. Stays valid while the chunk lives, also when the `Chunk` itself is moved.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * 8
    }
}

/// A shared store of idle chunks; see the head of `pool.rs`.
#[derive(Debug)]
pub struct ArenaPool {
    /// Innermost lock of the crate.
    idle: Mutex<Vec<Chunk>>,
    idle_bytes_max: AtomicU64,
    total_bytes: AtomicU64,
}

impl ArenaPool {
    /// A pool that keeps at most `idle_bytes_max` bytes for which no memtable has a use.
    pub fn new(idle_bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            idle: Mutex::new(Vec::new()),
            idle_bytes_max: AtomicU64::new(idle_bytes_max),
            total_bytes: AtomicU64::new(0),
        })
    }

    /// Changes the bound on idle bytes and frees what is above it.
    pub fn set_idle_bytes_max(&self, idle_bytes_max: u64) {
        self.idle_bytes_max.store(idle_bytes_max, Ordering::Relaxed);
        let excess = {
            let mut idle = self.idle.lock();
            let keep = usize_of(idle_bytes_max / u64_of(CHUNK_BYTES)).min(idle.len());
            idle.split_off(keep)
        };
        self.forget(&excess);
    }

    /// Bytes that wait for the next memtable.
    pub fn idle_bytes(&self) -> u64 {
        u64_of(self.idle.lock().len() * CHUNK_BYTES)
    }

    /// Bytes of all chunks, in memtables and idle.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// A chunk of `bytes`, a multiple of eight.
    pub(crate) fn take(&self, bytes: usize) -> Chunk {
        if bytes == CHUNK_BYTES
            && let Some(chunk) = self.idle.lock().pop()
        {
            return chunk;
        }
        let chunk = Chunk::new(bytes);
        self.total_bytes.fetch_add(u64_of(chunk.bytes()), Ordering::Relaxed);
        chunk
    }

    /// Takes chunks back. REQUIRES: nothing refers to their bytes any more.
    pub(crate) fn give_back(&self, chunks: Vec<Chunk>) {
        let idle_max = usize_of(self.idle_bytes_max.load(Ordering::Relaxed) / u64_of(CHUNK_BYTES));
        let (mut whole, mut excess): (Vec<_>, Vec<_>) =
            chunks.into_iter().partition(|chunk| chunk.bytes() == CHUNK_BYTES);
        {
            let mut idle = self.idle.lock();
            let keep = idle_max.saturating_sub(idle.len()).min(whole.len());
            excess.append(&mut whole.split_off(keep));
            idle.append(&mut whole);
        }
        self.forget(&excess);
        mem::drop(excess);
    }

    /// Counts chunks off that are about to be freed.
    fn forget(&self, chunks: &[Chunk]) {
        let bytes = chunks.iter().map(|chunk| u64_of(chunk.bytes())).sum();
        self.total_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
