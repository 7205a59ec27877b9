//! Free space of an arena, its chunks and their sizes.
//!
//! Thousands of keyspaces have memtables of some dozen records. So a chunk has about an eighth of the bytes
//! of all previous ones, and a small one a size that records like the current one fill nearly completely:
//! with chunks of 1 KiB, six records of 152 bytes would leave a ninth of it unused.
//!
//! **Invariants**
//! - A chunk has at least the requested bytes.

use testudo_base::{
    chunks::{CHUNK_BYTES, Chunk, FRAGMENT_BYTES, Fragment, SMALL_FRAGMENT_BYTES},
    num::{high32, low32},
};

/// A chunk has about this part of the bytes of all previous ones: many small memtables must not all reserve
/// twice their contents.
const GROWTH_PARTS: usize = 8;
/// Minimum size of a chunk.
const FIRST_CHUNK_BYTES: usize = 2 * SMALL_FRAGMENT_BYTES;
/// Up to this size, that of a chunk is a multiple of [`FRAGMENT_BYTES`]; above, a power of two.
const FRAGMENT_CHUNK_BYTES_MAX: usize = CHUNK_BYTES / 4;
/// Number of sizes from which that of a small chunk is chosen.
const FITTING_SIZES: usize = 4;
/// Number of fragments by which the list of them grows: a small memtable has a dozen.
const MORE_FRAGMENTS: usize = 4;

/// Space that was handed out, in units.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) at: u32,
    pub(super) left: u32,
}

impl Span {
    pub(super) fn of(packed: u64) -> Self {
        Self { at: high32(packed), left: low32(packed) }
    }

    pub(super) fn packed(self) -> u64 {
        u64::from(self.at) << 32 | u64::from(self.left)
    }
}

#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) chunks: Vec<Chunk>,
    /// Chunks that are parts of a full-size one.
    pub(super) fragments: Vec<Fragment>,
    /// Start and length of the current chunk's free end, in units.
    pub(super) at: u32,
    pub(super) left: u32,
    /// Free space for parts of the index; starts at a cache line.
    pub(super) index: Span,
    /// Total bytes of the chunks for small records.
    pub(super) chunk_bytes: usize,
}

impl Space {
    pub(super) fn push_fragment(&mut self, fragment: Fragment) -> &mut Fragment {
        if self.fragments.len() == self.fragments.capacity() {
            self.fragments.reserve_exact(MORE_FRAGMENTS);
        }
        self.fragments.push(fragment);
        self.fragments.last_mut().expect("it was just added")
    }

    /// Heap bytes of the lists of chunks.
    pub(super) fn list_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>() + self.fragments.capacity() * size_of::<Fragment>()
    }
}

/// Size of the chunk after those with `before` bytes, for space of `bytes` and more of its kind. If window
/// ids are scarce, chunks have the full size.
pub(super) fn chunk_bytes_after(before: usize, bytes: usize, is_scarce: bool) -> usize {
    let wanted = before / GROWTH_PARTS;
    if let Some(fitting) = fitting_chunk(bytes, wanted).filter(|_| !is_scarce) {
        return fitting;
    }
    let least = if is_scarce { CHUNK_BYTES } else { FRAGMENT_BYTES };
    let wanted = wanted.max(least).min(CHUNK_BYTES).max(bytes);
    if wanted <= FRAGMENT_CHUNK_BYTES_MAX {
        wanted.next_multiple_of(FRAGMENT_BYTES)
    } else {
        wanted.next_power_of_two()
    }
}

/// Size of a small chunk of at least `wanted` bytes: the one of which parts of `bytes` leave the smallest
/// fraction unused. `None` if a chunk of at least this size is not small.
fn fitting_chunk(bytes: usize, wanted: usize) -> Option<usize> {
    let least = wanted.max(bytes).max(FIRST_CHUNK_BYTES).next_multiple_of(SMALL_FRAGMENT_BYTES);
    let sizes = (least..FRAGMENT_BYTES).step_by(SMALL_FRAGMENT_BYTES).take(FITTING_SIZES);
    sizes.reduce(|best, size| if (size % bytes) * best < (best % bytes) * size { size } else { best })
}

#[cfg(test)]
mod tests;
