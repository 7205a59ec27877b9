//! Chunks cut into fragments, for write buffers that are smaller than one.
//!
//! Thousands of keyspaces have thousands of small write buffers. Memory from the allocator would stay in its
//! heaps when they are flushed, where neither pages nor records can use it.
//!
//! | level | cuts | into multiples of |
//! |---|---|---|
//! | 0 | a full-size chunk | [`FRAGMENT_BYTES`] |
//! | 1 | a fragment of 16 KiB | [`SMALL_FRAGMENT_BYTES`] |
//!
//! **Invariants**
//! - In a chunk that is cut, a bit of `free` is set for each free part; a chunk that is entirely free is
//!   removed.
//! - No chunk before `first_with[n - 1]` has `n` consecutive free parts.

use std::{fmt, sync::atomic::AtomicU64 as Word};

use super::{CHUNK_BYTES, Memory};
use crate::{
    num::{u32_of, usize_of},
    sync::Arc,
};

/// Parts of a chunk that is cut.
const PARTS: usize = 64;
/// Sizes and offsets of fragments of full-size chunks are multiples of this.
pub const FRAGMENT_BYTES: usize = CHUNK_BYTES / PARTS;
/// Sizes and offsets of smaller fragments are multiples of this.
pub const SMALL_FRAGMENT_BYTES: usize = FRAGMENT_BYTES / 16;
/// From this size on, chunks are separate mappings; a process is limited to about 65,000 of them.
const WHOLE_BYTES_MIN: usize = CHUNK_BYTES / 2;
/// Maximum number of parts of a fragment.
const LONGEST: usize = WHOLE_BYTES_MIN / FRAGMENT_BYTES;

/// A size class of fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Normal,
    Small,
}

impl Level {
    /// The level of a chunk of `bytes`; `None` if it is no fragment.
    pub(super) fn of(bytes: usize) -> Option<Self> {
        match bytes {
            SMALL_FRAGMENT_BYTES..FRAGMENT_BYTES => Some(Self::Small),
            FRAGMENT_BYTES..WHOLE_BYTES_MIN => Some(Self::Normal),
            _ => None,
        }
    }

    const fn part_bytes(self) -> usize {
        match self {
            Self::Normal => FRAGMENT_BYTES,
            Self::Small => SMALL_FRAGMENT_BYTES,
        }
    }

    /// Bytes of a chunk that is cut.
    pub(super) const fn chunk_bytes(self) -> usize {
        self.part_bytes() * PARTS
    }
}

/// A fragment of a chunk. Small, because a small write buffer has a dozen.
pub struct Fragment {
    of: Arc<Memory>,
    /// Index of the chunk, and the first part in it.
    chunk: u32,
    words: u16,
    at: u8,
    level: Level,
}

impl Fragment {
    pub(super) fn level(&self) -> Level {
        self.level
    }

    /// Pointer to the first byte. Stays valid while the fragment lives, even if it is moved.
    pub fn start(&mut self) -> *mut u8 {
        self.words().as_ptr().cast_mut().cast()
    }

    #[inline]
    pub(super) fn words(&self) -> &[Word] {
        let start = usize::from(self.at) * (self.level.part_bytes() / 8);
        &self.of.words()[start..][..usize::from(self.words)]
    }

    fn parts(&self) -> u32 {
        u32_of((usize::from(self.words) * 8).div_ceil(self.level.part_bytes()))
    }

    /// Bytes that it occupies in its chunk.
    pub(super) fn taken_bytes(&self) -> usize {
        usize_of(u64::from(self.parts())) * self.level.part_bytes()
    }
}

impl fmt::Debug for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fragment({} bytes)", usize::from(self.words) * 8)
    }
}

/// A chunk that is cut into fragments.
struct Cut {
    memory: Arc<Memory>,
    free: u64,
}

/// All chunks that are cut into fragments of a level.
pub(super) struct Fragments {
    level: Level,
    chunks: Vec<Option<Cut>>,
    unused: Vec<usize>,
    first_with: [usize; LONGEST],
}

impl fmt::Debug for Fragments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fragments({} chunks)", self.chunks.len() - self.unused.len())
    }
}

impl Fragments {
    pub(super) fn new(level: Level) -> Self {
        Self { level, chunks: Vec::new(), unused: Vec::new(), first_with: [0; LONGEST] }
    }

    /// Takes a fragment of `bytes` from the first chunk that has room.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Fragment> {
        debug_assert_eq!(Level::of(bytes), Some(self.level), "other chunks are no fragments of this level");
        let parts = bytes.div_ceil(self.level.part_bytes());
        let from = self.first_with[parts - 1];
        let has_room = |cut: &Option<Cut>| cut.as_ref().is_some_and(|cut| rows(cut.free, parts) != 0);
        let found = self.chunks[from..].iter().position(has_room);
        self.first_with[parts - 1] = found.map_or(self.chunks.len(), |found| from + found);
        self.take_of(from + found?, bytes)
    }

    /// Adds another chunk to cut, and takes a fragment of `bytes` from it.
    pub(super) fn cut(&mut self, memory: Memory, bytes: usize) -> Fragment {
        debug_assert_eq!(memory.words().len() * 8, self.level.chunk_bytes(), "the chunk has all parts");
        let cut = Some(Cut { memory: Arc::new(memory), free: u64::MAX });
        let chunk = self.unused.pop().unwrap_or(self.chunks.len());
        if chunk == self.chunks.len() {
            self.chunks.push(cut)
        } else {
            self.chunks[chunk] = cut
        }
        self.has_room(chunk);
        self.take_of(chunk, bytes).expect("all of it is free")
    }

    /// REQUIRES: the chunk is present and has the required number of consecutive free parts.
    fn take_of(&mut self, chunk: usize, bytes: usize) -> Option<Fragment> {
        let level = self.level;
        let parts = bytes.div_ceil(level.part_bytes());
        let cut = self.chunks[chunk].as_mut()?;
        let at = rows(cut.free, parts).trailing_zeros();
        let parts = u32_of(parts);
        debug_assert!(at + parts <= u64::BITS, "the piece ends within its chunk");
        debug_assert!(cut.free & mask(at, parts) == mask(at, parts), "the parts are free");
        cut.free &= !mask(at, parts);
        let words = u16::try_from(bytes / 8).expect("a fragment is smaller than half a chunk");
        let at = u8::try_from(at).expect("a chunk has few parts");
        Some(Fragment { of: Arc::clone(&cut.memory), level, chunk: u32_of(chunk), at, words })
    }

    /// Returns a fragment to its chunk; returns the chunk once all of it is free.
    pub(super) fn give_back(&mut self, fragment: Fragment) -> Option<Memory> {
        debug_assert_eq!(fragment.level, self.level, "a fragment returns to its level");
        let (at, parts) = (u32::from(fragment.at), fragment.parts());
        let chunk = usize_of(u64::from(fragment.chunk));
        drop(fragment);
        let cut = self.chunks[chunk].as_mut().expect("a chunk with a fragment in use is present");
        debug_assert!(cut.free & mask(at, parts) == 0, "a fragment is returned only once");
        cut.free |= mask(at, parts);
        if cut.free != u64::MAX {
            self.has_room(chunk);
            return None;
        }
        self.unused.push(chunk);
        let whole = self.chunks[chunk].take().and_then(|cut| Arc::into_inner(cut.memory));
        debug_assert!(whole.is_some(), "no piece refers to a chunk that is entirely free");
        whole
    }

    /// Lowers the search starts for the sizes for which a chunk has room.
    fn has_room(&mut self, chunk: usize) {
        let mut rows = self.chunks[chunk].as_ref().map_or(0, |cut| cut.free);
        let free = rows;
        for (more, first) in (1..).zip(&mut self.first_with) {
            if rows == 0 {
                return;
            }
            *first = chunk.min(*first);
            rows &= free >> more;
        }
    }
}

/// Bit mask of the positions at which `parts` consecutive parts are free.
fn rows(free: u64, parts: usize) -> u64 {
    debug_assert!((1..=LONGEST).contains(&parts), "the number of parts of a piece");
    (1..parts).fold(free, |rows, next| rows & free >> next)
}

fn mask(at: u32, parts: u32) -> u64 {
    debug_assert!(parts < u64::BITS && at + parts <= u64::BITS, "the parts are in the chunk");
    ((1 << parts) - 1) << at
}

#[cfg(test)]
mod tests;
