//! Chunks of memory that write buffers and the record cache pass on to each other, under one bound.
//!
//! Touching fresh memory costs a page fault per 4 KiB, more than copying a record does; a chunk that a
//! dropped memtable gives back is warm, and what no memtable uses at the moment can cache records. Only
//! chunks of the full size are kept.
//!
//! A write buffer takes what it needs ([`ChunkPool::take`]): when the bound is reached, whoever has lent
//! itself memory ([`Lender`]) gives some up. The lender itself takes only what is spare
//! ([`ChunkPool::take_spare`]).
//!
//! **Invariants**
//! - A chunk belongs to the pool or to one user, never to both.
//! - `total_bytes` counts all large chunks that are alive, whoever has them, and the most that smaller ones
//!   and charges ever were together: what the allocator once got in small pieces it does not give back.
//! - Idle chunks are freed as soon as the total is above the bound.

use std::{fmt, mem, sync::atomic::AtomicU64 as Word};

use crate::{
    LargeSlice,
    num::u64_of,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Bytes of a chunk of the full size, the only size that is recycled.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Memory in units of eight bytes, at a fixed address. What it holds at first is left from its last user.
///
/// Its words are plain atomics also where locks and atomics are those of a scheduler: looking at bulk memory
/// is no meeting point of threads.
pub struct Chunk(LargeSlice<Word>);

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.bytes())
    }
}

impl Chunk {
    fn new(bytes: usize) -> Self {
        Self(LargeSlice::unfilled_words(bytes / 8))
    }

    /// The first byte. Stays valid while the chunk lives, also when the `Chunk` itself is moved.
    pub fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// All of it, for many readers and one writer at a time.
    #[inline]
    pub fn words(&self) -> &[Word] {
        &self.0
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.0.len() * 8
    }
}

/// Who uses spare memory, and gives it up when a write buffer needs it.
pub trait Lender: Send + Sync + fmt::Debug {
    /// Gives about one chunk back to the pool; `false` if there is none to give.
    fn give_up_chunk(&self) -> bool;
}

/// The shared store of chunks; see the head of `chunks.rs`.
#[derive(Debug)]
pub struct ChunkPool {
    /// Innermost lock of all users.
    idle: Mutex<Vec<Chunk>>,
    limit_bytes: AtomicU64,
    /// Of chunks of the full size and above.
    chunk_bytes: AtomicU64,
    /// Of smaller sizes and charges: now, and at most so far.
    other_bytes: AtomicU64,
    other_bytes_max: AtomicU64,
    lender: OnceLock<Weak<dyn Lender>>,
}

impl ChunkPool {
    /// A pool that is bound to `limit_bytes` for all chunks together.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            idle: Mutex::new(Vec::new()),
            limit_bytes: limit_bytes.into(),
            chunk_bytes: 0.into(),
            other_bytes: 0.into(),
            other_bytes_max: 0.into(),
            lender: OnceLock::new(),
        })
    }

    /// Names the one that gives memory up. The first call counts.
    pub fn set_lender(&self, lender: Weak<dyn Lender>) {
        let _ = self.lender.set(lender);
    }

    /// Changes the bound; what is idle and above it is freed, and what was lent is given up.
    ///
    /// REQUIRES: no lock of the lender is held.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Relaxed);
        self.trim(0);
        let lender = self.lender.get().and_then(Weak::upgrade);
        let excess = self.total_bytes().saturating_sub(limit_bytes);
        for _ in 0..excess.div_ceil(u64_of(CHUNK_BYTES)) {
            if self.total_bytes() <= limit_bytes
                || !lender.as_ref().is_some_and(|lender| lender.give_up_chunk())
            {
                break;
            }
        }
    }

    /// The bound.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Bytes for which nobody has a use.
    pub fn idle_bytes(&self) -> u64 {
        u64_of(self.idle.lock().len() * CHUNK_BYTES)
    }

    /// Bytes of all chunks and charges, in use and idle, and of what the allocator keeps of earlier ones.
    pub fn total_bytes(&self) -> u64 {
        self.chunk_bytes.load(Relaxed) + self.other_bytes_max.load(Relaxed)
    }

    /// Bytes of all chunks, in use and idle, and of charges.
    pub fn used_bytes(&self) -> u64 {
        self.chunk_bytes.load(Relaxed) + self.other_bytes.load(Relaxed)
    }

    /// Counts memory that a user of chunks needs beside them.
    pub fn charge(&self, bytes: u64) {
        let other = self.other_bytes.fetch_add(bytes, Relaxed) + bytes;
        if other > self.other_bytes_max.load(Relaxed) {
            self.other_bytes_max.fetch_max(other, Relaxed);
        }
    }

    /// Takes a charge back.
    pub fn discharge(&self, bytes: u64) {
        let before = self.other_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "what is taken back was charged");
    }

    /// A chunk of `bytes`, a multiple of eight, whatever the bound: others make room for it as far as they
    /// can.
    ///
    /// REQUIRES: no lock of the lender is held.
    pub fn take(&self, bytes: usize) -> Chunk {
        for _ in 0..=bytes / CHUNK_BYTES {
            if let Some(chunk) = self.take_spare(bytes) {
                return chunk;
            }
            let lender = self.lender.get().and_then(Weak::upgrade);
            if !lender.is_some_and(|lender| lender.give_up_chunk()) {
                break;
            }
        }
        self.take_beyond(bytes)
    }

    /// A chunk of `bytes`, a multiple of eight, if that keeps the bound.
    pub fn take_spare(&self, bytes: usize) -> Option<Chunk> {
        let idle = self.take_idle(bytes);
        if idle.is_none() {
            self.trim(bytes);
            // A small piece can also be one that the allocator has already.
            let is_kept = bytes < CHUNK_BYTES && self.total_with(bytes) == self.total_bytes();
            let of_all = if is_kept { self.used_bytes() + u64_of(bytes) } else { self.total_with(bytes) };
            return (of_all <= self.limit_bytes()).then(|| self.make(bytes));
        }
        idle
    }

    /// A chunk of `bytes`, a multiple of eight, whatever the bound; nobody is asked to make room.
    pub fn take_beyond(&self, bytes: usize) -> Chunk {
        self.take_idle(bytes).unwrap_or_else(|| self.make(bytes))
    }

    /// The total with one more chunk of `bytes`.
    fn total_with(&self, bytes: usize) -> u64 {
        let (full, other) = if bytes >= CHUNK_BYTES { (u64_of(bytes), 0) } else { (0, u64_of(bytes)) };
        let other = self.other_bytes.load(Relaxed) + other;
        self.chunk_bytes.load(Relaxed) + full + other.max(self.other_bytes_max.load(Relaxed))
    }

    fn take_idle(&self, bytes: usize) -> Option<Chunk> {
        if bytes == CHUNK_BYTES { self.idle.lock().pop() } else { None }
    }

    fn make(&self, bytes: usize) -> Chunk {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(8), "a chunk consists of whole words");
        let chunk = Chunk::new(bytes);
        let bytes = u64_of(chunk.bytes());
        if chunk.bytes() >= CHUNK_BYTES {
            self.chunk_bytes.fetch_add(bytes, Relaxed);
        } else {
            self.charge(bytes);
        }
        chunk
    }

    /// Takes chunks back. REQUIRES: nothing refers to their bytes any more.
    pub fn give_back(&self, chunks: impl IntoIterator<Item = Chunk>) {
        for chunk in chunks {
            if chunk.bytes() == CHUNK_BYTES {
                self.idle.lock().push(chunk);
            } else if chunk.bytes() > CHUNK_BYTES {
                let before = self.chunk_bytes.fetch_sub(u64_of(chunk.bytes()), Relaxed);
                debug_assert!(before >= u64_of(chunk.bytes()), "a chunk goes back to the pool that made it");
            } else {
                self.discharge(u64_of(chunk.bytes()));
            }
        }
        self.trim(0);
    }

    /// Frees idle chunks as long as the total, with `more`, is above the bound.
    fn trim(&self, more: usize) {
        let mut excess = Vec::new();
        {
            let mut idle = self.idle.lock();
            while self.total_with(more) > self.limit_bytes() {
                let Some(chunk) = idle.pop() else { break };
                let before = self.chunk_bytes.fetch_sub(u64_of(chunk.bytes()), Relaxed);
                debug_assert!(before >= u64_of(chunk.bytes()), "idle chunks are counted");
                excess.push(chunk);
            }
        }
        mem::drop(excess);
    }
}

#[cfg(test)]
mod tests;
