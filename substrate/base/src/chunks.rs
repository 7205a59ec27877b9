//! Memory shared by write buffers, the record cache and the page cache, under one limit.
//!
//! Touching fresh memory costs a page fault per 4 KiB, more than copying a record does; a chunk released by a
//! dropped memtable is warm. Only chunks of the full size are kept, and only while no other user needs their
//! memory. Smaller chunks of write buffers are parts of a full-size chunk (`fragments.rs`), so that the
//! chunks of thousands of small buffers also return to the system.
//!
//! | user | takes with | gets | gives up |
//! |---|---|---|---|
//! | write buffer | [`ChunkPool::take`] | any amount, from a user above its share | nothing |
//! | record cache | [`ChunkPool::take_for_records`] | spare memory, or excess pages | anything |
//! | page cache | [`ChunkPool::borrow`] | spare memory, or excess records | anything |
//!
//! [`Division`] keeps the shares of records and pages.
//!
//! **Invariants**
//! - A chunk belongs to the pool or to one user, never to both.
//! - `total_bytes` counts all existing large chunks and slices, regardless of their owner, and the memory
//!   borrowed by pages. Of the allocator's smaller chunks and of charges it counts the maximum so far: memory
//!   once allocated in small fragments is not returned to the system.
//! - Free memory in chunks that are cut into fragments counts in the total, but not as used.
//! - Idle chunks are freed as soon as the total is above the limit.
//! - No lock of the pool is held while a [`Borrower`] is called.

mod division;
mod fragments;

use std::{fmt, mem, sync::atomic::AtomicU64 as Word};

use self::fragments::{Fragments, Level};
pub use self::{
    division::Division,
    fragments::{FRAGMENT_BYTES, Fragment, SMALL_FRAGMENT_BYTES},
};
use crate::{
    LargeSlice,
    large_slice::MAPPED_BYTES_MIN,
    num::u64_of,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// Bytes of a full-size chunk, the only size that is recycled.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Maximum number of times that pages give up memory for records before the attempt fails: concurrent page
/// fills may take the memory first.
const GIVEN_UP_MAX: usize = 8;

/// Memory in units of eight bytes, at a fixed address. Initially it holds leftovers of its last user.
///
/// Its words are plain atomics even under the scheduler of `sync`: reading bulk memory is no scheduling
/// point.
pub struct Chunk(Memory);

enum Memory {
    Whole(LargeSlice<Word>),
    Fragment(Fragment),
}

impl Memory {
    #[inline]
    fn words(&self) -> &[Word] {
        match self {
            Self::Whole(words) => words,
            Self::Fragment(fragment) => fragment.words(),
        }
    }
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

    /// Pointer to the first byte. Stays valid while the chunk lives, even if the `Chunk` itself is moved.
    pub fn start(&mut self) -> *mut u8 {
        match &mut self.0 {
            Memory::Whole(words) => words.as_mut_ptr().cast(),
            Memory::Fragment(fragment) => fragment.words().as_ptr().cast_mut().cast(),
        }
    }

    /// All of its words, for many readers and one writer at a time.
    #[inline]
    pub fn words(&self) -> &[Word] {
        self.0.words()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.words().len() * 8
    }
}

/// A user of spare memory that gives it up when another user has a better claim to it.
pub trait Borrower: Send + Sync + fmt::Debug {
    /// Returns about one chunk to the pool; `false` if there is none to give.
    fn give_up_chunk(&self) -> bool;
}

/// The kinds of borrowers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Single records.
    Records,
    /// Pages.
    Pages,
}

/// The shared pool of chunks; see the head of `chunks.rs`.
#[derive(Debug)]
pub struct ChunkPool {
    /// Innermost lock of all users.
    idle: Mutex<Vec<Chunk>>,
    fragments: Mutex<Fragments>,
    small_fragments: Mutex<Fragments>,
    /// Free bytes in chunks that are cut into fragments.
    free_fragment_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    /// Bytes of chunks that are separate mappings.
    chunk_bytes: AtomicU64,
    /// Bytes of the allocator's smaller chunks and of charges: the current value and the maximum so far.
    other_bytes: AtomicU64,
    other_bytes_max: AtomicU64,
    /// By [`Use`].
    borrowers: [OnceLock<Weak<dyn Borrower>>; 2],
    division: Division,
    /// Whether records have fragments that the allocator keeps.
    has_small_records: AtomicBool,
}

impl ChunkPool {
    /// A pool limited to `limit_bytes` for all chunks together.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            idle: Mutex::new(Vec::new()),
            fragments: Mutex::new(Fragments::new(Level::Normal)),
            small_fragments: Mutex::new(Fragments::new(Level::Small)),
            free_fragment_bytes: 0.into(),
            limit_bytes: limit_bytes.into(),
            chunk_bytes: 0.into(),
            other_bytes: 0.into(),
            other_bytes_max: 0.into(),
            borrowers: Default::default(),
            division: Division::default(),
            has_small_records: false.into(),
        })
    }

    /// Sets the borrower for a use. Only the first call for each use has an effect.
    pub fn set_borrower(&self, of: Use, borrower: Weak<dyn Borrower>) {
        let _ = self.borrowers[of as usize].set(borrower);
    }

    /// The division of memory between records and pages.
    pub fn division(&self) -> &Division {
        &self.division
    }

    /// Changes the limit; idle chunks above it are freed, and borrowed memory above it is given up.
    ///
    /// REQUIRES: no lock of a borrower is held.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Relaxed);
        self.trim(0);
        let excess = self.total_bytes().saturating_sub(limit_bytes);
        for _ in 0..excess.div_ceil(u64_of(FRAGMENT_BYTES)) {
            if self.total_bytes() <= limit_bytes || !self.reclaim() {
                break;
            }
        }
    }

    /// The limit.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Bytes of chunks that no user holds.
    pub fn idle_bytes(&self) -> u64 {
        u64_of(self.idle.lock().len() * CHUNK_BYTES)
    }

    /// Bytes of all chunks and charges, used and idle, and of memory retained by the allocator.
    pub fn total_bytes(&self) -> u64 {
        self.chunk_bytes.load(Relaxed) + self.other_bytes_max.load(Relaxed) + self.division.page_bytes()
    }

    /// Bytes of all chunks, used and idle, and of charges, without the memory of pages.
    pub fn used_bytes(&self) -> u64 {
        let chunks = self.chunk_bytes.load(Relaxed).saturating_sub(self.free_fragment_bytes.load(Relaxed));
        chunks + self.other_bytes.load(Relaxed)
    }

    /// Counts memory that a user of chunks needs in addition to them.
    pub fn charge(&self, bytes: u64) {
        let other = self.other_bytes.fetch_add(bytes, Relaxed) + bytes;
        if other > self.other_bytes_max.load(Relaxed) {
            self.other_bytes_max.fetch_max(other, Relaxed);
        }
    }

    /// Reverses a charge.
    pub fn discharge(&self, bytes: u64) {
        let before = self.other_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "only charged bytes are discharged");
    }

    /// Counts a [`LargeSlice`] that a user of chunks needs in addition to them.
    pub fn charge_slice(&self, bytes: u64) {
        if bytes >= u64_of(MAPPED_BYTES_MIN) {
            self.chunk_bytes.fetch_add(bytes, Relaxed);
        } else {
            self.charge(bytes);
        }
    }

    /// Reverses the charge of a slice.
    pub fn discharge_slice(&self, bytes: u64) {
        if bytes >= u64_of(MAPPED_BYTES_MIN) {
            let before = self.chunk_bytes.fetch_sub(bytes, Relaxed);
            debug_assert!(before >= bytes, "only charged bytes are discharged");
        } else {
            self.discharge(bytes);
        }
    }

    /// Takes a chunk of `bytes`, a multiple of eight, regardless of the limit: borrowers give up as much as
    /// they can.
    ///
    /// REQUIRES: no lock of a borrower is held.
    pub fn take(&self, bytes: usize) -> Chunk {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(8), "a chunk consists of whole words");
        if let Some(fragment) = self.take_fragment(bytes) {
            return Chunk(Memory::Fragment(fragment));
        }
        // If the store was opened with a small budget, borrowers give up less than a chunk at a time. Beyond
        // about one attempt per chunk, continue only while it helps: the allocator does not return memory.
        let mut total_bytes = u64::MAX;
        for tries in 0..=bytes / FRAGMENT_BYTES {
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

    /// Takes a chunk of `bytes`, a multiple of eight, for records: a spare one, or one from pages above their
    /// share.
    ///
    /// REQUIRES: no lock of the page cache is held.
    pub fn take_for_records(&self, bytes: usize) -> Option<Chunk> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(8), "a chunk consists of whole words");
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

    /// Counts `bytes` that pages are about to take: spare memory, or memory of records above their share.
    /// Returns `false` if pages may not have them.
    /// REQUIRES: no lock of the record cache is held.
    pub fn borrow(&self, bytes: u64) -> bool {
        for _ in 0..2 {
            self.free_idle_until(|| self.total_bytes() + bytes <= self.limit_bytes());
            if self.total_bytes() + bytes <= self.limit_bytes() {
                self.division.pages_grew(bytes);
                return true;
            }
            // Small fragments of records would not return to the system.
            let is_due = self.division.are_pages_due(bytes) && !self.has_small_records.load(Relaxed);
            if !is_due || !self.give_up(Use::Records) {
                return false;
            }
        }
        false
    }

    /// Returns memory from [`ChunkPool::borrow`]. REQUIRES: pages no longer use it.
    pub fn end_borrowing(&self, bytes: u64) {
        self.division.pages_shrank(bytes);
    }

    /// Makes one of the borrowers give up about one chunk: if possible, the one above its share.
    fn reclaim(&self) -> bool {
        let first = if self.division.have_records_more() { Use::Records } else { Use::Pages };
        let second = if first == Use::Records { Use::Pages } else { Use::Records };
        self.give_up(first) || self.give_up(second)
    }

    /// Like [`ChunkPool::take`], for a size that is a fragment of a chunk; `None` for others. Takes it from a
    /// chunk that is cut, or else cuts another one.
    pub fn take_fragment(&self, bytes: usize) -> Option<Fragment> {
        let level = Level::of(bytes)?;
        let of_cut = self.fragments_of(level).lock().take(bytes);
        let fragment = of_cut.unwrap_or_else(|| {
            let Chunk(memory) = self.take(level.chunk_bytes());
            self.free_fragment_bytes.fetch_add(u64_of(level.chunk_bytes()), Relaxed);
            self.fragments_of(level).lock().cut(memory, bytes)
        });
        let before = self.free_fragment_bytes.fetch_sub(u64_of(fragment.taken_bytes()), Relaxed);
        debug_assert!(before >= u64_of(fragment.taken_bytes()), "a fragment was free before it was taken");
        Some(fragment)
    }

    /// Returns fragments to the pool. REQUIRES: nothing refers to their bytes anymore, and
    /// [`ChunkPool::give_back`] is called next.
    pub fn give_back_fragments(&self, fragments: impl IntoIterator<Item = Fragment>) {
        fragments.into_iter().for_each(|fragment| self.give_back_fragment(fragment));
    }

    /// Returns a fragment to its chunk, and the chunk to the pool once all of it is free.
    fn give_back_fragment(&self, fragment: Fragment) {
        self.free_fragment_bytes.fetch_add(u64_of(fragment.taken_bytes()), Relaxed);
        let level = fragment.level();
        let whole = self.fragments_of(level).lock().give_back(fragment);
        if let Some(memory) = whole {
            let before = self.free_fragment_bytes.fetch_sub(u64_of(level.chunk_bytes()), Relaxed);
            debug_assert!(
                before >= u64_of(level.chunk_bytes()),
                "all fragments of a returned chunk were free"
            );
            match memory {
                Memory::Fragment(fragment) => self.give_back_fragment(fragment),
                whole => self.idle.lock().push(Chunk(whole)),
            }
        }
    }

    fn fragments_of(&self, level: Level) -> &Mutex<Fragments> {
        match level {
            Level::Normal => &self.fragments,
            Level::Small => &self.small_fragments,
        }
    }

    fn give_up(&self, of: Use) -> bool {
        let borrower = self.borrowers[of as usize].get().and_then(Weak::upgrade);
        borrower.is_some_and(|borrower| borrower.give_up_chunk())
    }

    /// Takes a chunk of `bytes`, a multiple of eight, if that respects the limit.
    pub fn take_spare(&self, bytes: usize) -> Option<Chunk> {
        let idle = self.take_idle(bytes);
        if idle.is_none() {
            self.trim(bytes);
            // A small fragment may also come from memory that the allocator retains.
            let is_kept = bytes < MAPPED_BYTES_MIN && self.total_with(bytes) == self.total_bytes();
            let used = || self.used_bytes() + self.division.page_bytes() + u64_of(bytes);
            let of_all = if is_kept { used() } else { self.total_with(bytes) };
            return (of_all <= self.limit_bytes()).then(|| self.make(bytes));
        }
        idle
    }

    /// Takes a chunk of `bytes`, a multiple of eight, regardless of the limit and without reclaiming.
    pub fn take_beyond(&self, bytes: usize) -> Chunk {
        self.take_idle(bytes).unwrap_or_else(|| self.make(bytes))
    }

    /// The total including one more chunk of `bytes`.
    fn total_with(&self, bytes: usize) -> u64 {
        let (full, other) = if bytes >= MAPPED_BYTES_MIN { (u64_of(bytes), 0) } else { (0, u64_of(bytes)) };
        let other = self.other_bytes.load(Relaxed) + other;
        let other = other.max(self.other_bytes_max.load(Relaxed));
        self.chunk_bytes.load(Relaxed) + full + other + self.division.page_bytes()
    }

    fn take_idle(&self, bytes: usize) -> Option<Chunk> {
        let idle = if bytes == CHUNK_BYTES { self.idle.lock().pop() } else { None };
        debug_assert!(idle.as_ref().is_none_or(|chunk| chunk.bytes() == bytes), "idle chunks are full-size");
        idle
    }

    fn make(&self, bytes: usize) -> Chunk {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(8), "a chunk consists of whole words");
        let chunk = Chunk::new(bytes);
        self.charge_slice(u64_of(chunk.bytes()));
        chunk
    }

    /// Returns chunks to the pool. REQUIRES: nothing refers to their bytes anymore.
    pub fn give_back(&self, chunks: impl IntoIterator<Item = Chunk>) {
        for chunk in chunks {
            debug_assert!(chunk.bytes() > 0, "a chunk has memory");
            if let Memory::Fragment(fragment) = chunk.0 {
                self.give_back_fragment(fragment);
            } else if chunk.bytes() == CHUNK_BYTES {
                self.idle.lock().push(chunk);
            } else {
                self.discharge_slice(u64_of(chunk.bytes()));
            }
        }
        self.trim(0);
    }

    /// Frees idle chunks while the total plus `more` bytes is above the limit.
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
