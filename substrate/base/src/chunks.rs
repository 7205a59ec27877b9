//! Memory that write buffers, the record cache and the page cache pass on to each other, under one bound.
//!
//! Touching fresh memory costs a page fault per 4 KiB, more than copying a record does; a chunk that a
//! dropped memtable gives back is warm. Only chunks of the full size are kept, and only while nobody else has
//! a use for their memory. Smaller chunks of write buffers are parts of one of the full size (`pieces.rs`),
//! so that those of thousands of small buffers go back to the system as well.
//!
//! | who | takes with | gets | gives up |
//! |---|---|---|---|
//! | write buffer | [`ChunkPool::take`] | what it needs, from whoever is beyond its part | nothing |
//! | record cache | [`ChunkPool::take_for_records`] | what is spare, or else pages beyond theirs | anything |
//! | page cache | [`ChunkPool::borrow`] | what is spare, or else records beyond theirs | anything |
//!
//! The parts of records and pages are kept by [`Division`].
//!
//! **Invariants**
//! - A chunk belongs to the pool or to one user, never to both.
//! - `total_bytes` counts all large chunks and slices that are alive, whoever has them, what pages have
//!   borrowed, and the most that the allocator's smaller chunks and charges ever were together: what it once
//!   got in small pieces it does not give back.
//! - What is free in chunks that are cut into pieces counts in the total, and not as used.
//! - Idle chunks are freed as soon as the total is above the bound.
//! - No lock of the pool is held while a [`Borrower`] is asked.

mod division;
mod pieces;

use std::{fmt, mem, sync::atomic::AtomicU64 as Word};

use self::pieces::{Piece, Pieces};
pub use self::{division::Division, pieces::PIECE_BYTES};
use crate::{
    LargeSlice,
    large_slice::MAPPED_BYTES_MIN,
    num::u64_of,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// Bytes of a chunk of the full size, the only size that is recycled.
pub const CHUNK_BYTES: usize = 256 << 10;
/// How often pages give memory up for records before that is nothing for now: whoever fills pages at the same
/// time may be the first to take it.
const GIVEN_UP_MAX: usize = 8;

/// Memory in units of eight bytes, at a fixed address. What it holds at first is left from its last user.
///
/// Its words are plain atomics also where locks and atomics are those of a scheduler: looking at bulk memory
/// is no meeting point of threads.
pub struct Chunk(Memory);

enum Memory {
    Whole(LargeSlice<Word>),
    Piece(Piece),
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.bytes())
    }
}

impl Chunk {
    fn new(bytes: usize) -> Self {
        Self(Memory::Whole(LargeSlice::unfilled_words(bytes / 8)))
    }

    /// The first byte. Stays valid while the chunk lives, also when the `Chunk` itself is moved.
    pub fn start(&mut self) -> *mut u8 {
        match &mut self.0 {
            Memory::Whole(words) => words.as_mut_ptr().cast(),
            Memory::Piece(piece) => piece.words().as_ptr().cast_mut().cast(),
        }
    }

    /// All of it, for many readers and one writer at a time.
    #[inline]
    pub fn words(&self) -> &[Word] {
        match &self.0 {
            Memory::Whole(words) => words,
            Memory::Piece(piece) => piece.words(),
        }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.words().len() * 8
    }
}

/// Who uses spare memory, and gives it up when somebody else has a better claim to it.
pub trait Borrower: Send + Sync + fmt::Debug {
    /// Gives about one chunk back to the pool; `false` if there is none to give.
    fn give_up_chunk(&self) -> bool;
}

/// The borrowers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Single records.
    Records,
    /// Pages.
    Pages,
}

/// The shared store of chunks; see the head of `chunks.rs`.
#[derive(Debug)]
pub struct ChunkPool {
    /// Innermost lock of all users.
    idle: Mutex<Vec<Chunk>>,
    pieces: Mutex<Pieces>,
    /// What is free in chunks that are cut into pieces.
    free_piece_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    /// Of chunks that are mappings of their own.
    chunk_bytes: AtomicU64,
    /// Of the allocator's smaller ones and charges: now, and at most so far.
    other_bytes: AtomicU64,
    other_bytes_max: AtomicU64,
    /// By [`Use`].
    borrowers: [OnceLock<Weak<dyn Borrower>>; 2],
    division: Division,
    /// Records have pieces that the allocator keeps.
    has_small_records: AtomicBool,
}

impl ChunkPool {
    /// A pool that is bound to `limit_bytes` for all chunks together.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            idle: Mutex::new(Vec::new()),
            pieces: Mutex::default(),
            free_piece_bytes: 0.into(),
            limit_bytes: limit_bytes.into(),
            chunk_bytes: 0.into(),
            other_bytes: 0.into(),
            other_bytes_max: 0.into(),
            borrowers: Default::default(),
            division: Division::default(),
            has_small_records: false.into(),
        })
    }

    /// Names who borrows for a use. The first call for each counts.
    pub fn set_borrower(&self, of: Use, borrower: Weak<dyn Borrower>) {
        let _ = self.borrowers[of as usize].set(borrower);
    }

    /// How memory is divided between records and pages.
    pub fn division(&self) -> &Division {
        &self.division
    }

    /// Changes the bound; what is idle and above it is freed, and what was borrowed is given up.
    ///
    /// REQUIRES: no lock of a borrower is held.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Relaxed);
        self.trim(0);
        let excess = self.total_bytes().saturating_sub(limit_bytes);
        for _ in 0..excess.div_ceil(u64_of(PIECE_BYTES)) {
            if self.total_bytes() <= limit_bytes || !self.reclaim() {
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
        self.chunk_bytes.load(Relaxed) + self.other_bytes_max.load(Relaxed) + self.division.page_bytes()
    }

    /// Bytes of all chunks, in use and idle, and of charges, but not what pages have.
    pub fn used_bytes(&self) -> u64 {
        let chunks = self.chunk_bytes.load(Relaxed).saturating_sub(self.free_piece_bytes.load(Relaxed));
        chunks + self.other_bytes.load(Relaxed)
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

    /// Counts a [`LargeSlice`] that a user of chunks needs beside them.
    pub fn charge_slice(&self, bytes: u64) {
        if bytes >= u64_of(MAPPED_BYTES_MIN) {
            self.chunk_bytes.fetch_add(bytes, Relaxed);
        } else {
            self.charge(bytes);
        }
    }

    /// Takes the charge of a slice back.
    pub fn discharge_slice(&self, bytes: u64) {
        if bytes >= u64_of(MAPPED_BYTES_MIN) {
            let before = self.chunk_bytes.fetch_sub(bytes, Relaxed);
            debug_assert!(before >= bytes, "what is taken back was charged");
        } else {
            self.discharge(bytes);
        }
    }

    /// A chunk of `bytes`, a multiple of eight, whatever the bound: borrowers give up as much as they can.
    ///
    /// REQUIRES: no lock of a borrower is held.
    pub fn take(&self, bytes: usize) -> Chunk {
        if Piece::is_size(bytes) {
            return self.take_piece(bytes);
        }
        // With a budget that was small when the store was opened borrowers give up less than a chunk at a
        // time. More than twice only where that helps: what the allocator has it does not give back.
        let mut total_bytes = u64::MAX;
        for tries in 0..=bytes / PIECE_BYTES {
            if let Some(chunk) = self.take_spare(bytes) {
                return chunk;
            }
            let before = std::mem::replace(&mut total_bytes, self.total_bytes());
            let helps = tries <= bytes / CHUNK_BYTES || total_bytes < before;
            if !helps || !self.reclaim() {
                break;
            }
        }
        self.take_beyond(bytes)
    }

    /// A chunk of `bytes`, a multiple of eight, for records: one that is spare, or one from pages that have
    /// more than their part.
    ///
    /// REQUIRES: no lock of the page cache is held.
    pub fn take_for_records(&self, bytes: usize) -> Option<Chunk> {
        if bytes < MAPPED_BYTES_MIN && !self.has_small_records.load(Relaxed) {
            self.has_small_records.store(true, Relaxed);
        }
        for _ in 0..GIVEN_UP_MAX {
            if let Some(chunk) = self.take_spare(bytes) {
                return Some(chunk);
            }
            if !self.division.are_records_due(u64_of(bytes)) || !self.give_up(Use::Pages) {
                return None;
            }
        }
        self.take_spare(bytes)
    }

    /// Counts `bytes` that pages are about to take: spare ones, or those of records that have more than their
    /// part. `false` if pages may not have them.
    ///
    /// REQUIRES: no lock of the record cache is held.
    pub fn borrow(&self, bytes: u64) -> bool {
        for _ in 0..2 {
            self.free_idle_until(|| self.total_bytes() + bytes <= self.limit_bytes());
            if self.total_bytes() + bytes <= self.limit_bytes() {
                self.division.pages_grew(bytes);
                return true;
            }
            // What records have in small pieces would not go back to the system.
            let is_due = self.division.are_pages_due(bytes) && !self.has_small_records.load(Relaxed);
            if !is_due || !self.give_up(Use::Records) {
                return false;
            }
        }
        false
    }

    /// Takes back what [`ChunkPool::borrow`] gave. REQUIRES: pages do not use it any more.
    pub fn end_borrowing(&self, bytes: u64) {
        self.division.pages_shrank(bytes);
    }

    /// Has one of the borrowers give up about one chunk: the one that has more than its part, if it can.
    fn reclaim(&self) -> bool {
        let first = if self.division.have_records_more() { Use::Records } else { Use::Pages };
        let second = if first == Use::Records { Use::Pages } else { Use::Records };
        self.give_up(first) || self.give_up(second)
    }

    /// A piece of `bytes`: of what is free in chunks that are cut, or else of another one.
    fn take_piece(&self, bytes: usize) -> Chunk {
        let of_cut = self.pieces.lock().take(bytes);
        let piece = of_cut.unwrap_or_else(|| {
            let Chunk(memory) = self.take(CHUNK_BYTES);
            let Memory::Whole(words) = memory else { unreachable!("only smaller chunks are pieces") };
            self.free_piece_bytes.fetch_add(u64_of(CHUNK_BYTES), Relaxed);
            self.pieces.lock().cut(words, bytes)
        });
        self.free_piece_bytes.fetch_sub(u64_of(piece.taken_bytes()), Relaxed);
        Chunk(Memory::Piece(piece))
    }

    /// Takes a piece back, and the chunk that it is of once all of that is free.
    fn give_back_piece(&self, piece: Piece) {
        self.free_piece_bytes.fetch_add(u64_of(piece.taken_bytes()), Relaxed);
        let whole = self.pieces.lock().give_back(piece);
        if let Some(words) = whole {
            self.free_piece_bytes.fetch_sub(u64_of(CHUNK_BYTES), Relaxed);
            self.idle.lock().push(Chunk(Memory::Whole(words)));
        }
    }

    fn give_up(&self, of: Use) -> bool {
        let borrower = self.borrowers[of as usize].get().and_then(Weak::upgrade);
        borrower.is_some_and(|borrower| borrower.give_up_chunk())
    }

    /// A chunk of `bytes`, a multiple of eight, if that keeps the bound.
    pub fn take_spare(&self, bytes: usize) -> Option<Chunk> {
        let idle = self.take_idle(bytes);
        if idle.is_none() {
            self.trim(bytes);
            // A small piece can also be one that the allocator has already.
            let is_kept = bytes < MAPPED_BYTES_MIN && self.total_with(bytes) == self.total_bytes();
            let used = || self.used_bytes() + self.division.page_bytes() + u64_of(bytes);
            let of_all = if is_kept { used() } else { self.total_with(bytes) };
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
        let (full, other) = if bytes >= MAPPED_BYTES_MIN { (u64_of(bytes), 0) } else { (0, u64_of(bytes)) };
        let other = self.other_bytes.load(Relaxed) + other;
        let other = other.max(self.other_bytes_max.load(Relaxed));
        self.chunk_bytes.load(Relaxed) + full + other + self.division.page_bytes()
    }

    fn take_idle(&self, bytes: usize) -> Option<Chunk> {
        if bytes == CHUNK_BYTES { self.idle.lock().pop() } else { None }
    }

    fn make(&self, bytes: usize) -> Chunk {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(8), "a chunk consists of whole words");
        let chunk = Chunk::new(bytes);
        self.charge_slice(u64_of(chunk.bytes()));
        chunk
    }

    /// Takes chunks back. REQUIRES: nothing refers to their bytes any more.
    pub fn give_back(&self, chunks: impl IntoIterator<Item = Chunk>) {
        for chunk in chunks {
            if let Memory::Piece(piece) = chunk.0 {
                self.give_back_piece(piece);
            } else if chunk.bytes() == CHUNK_BYTES {
                self.idle.lock().push(chunk);
            } else {
                self.discharge_slice(u64_of(chunk.bytes()));
            }
        }
        self.trim(0);
    }

    /// Frees idle chunks as long as the total, with `more`, is above the bound.
    fn trim(&self, more: usize) {
        self.free_idle_until(|| self.total_with(more) <= self.limit_bytes());
    }

    fn free_idle_until(&self, is_enough: impl Fn() -> bool) {
        let mut excess = Vec::new();
        {
            let mut idle = self.idle.lock();
            while !is_enough() {
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
