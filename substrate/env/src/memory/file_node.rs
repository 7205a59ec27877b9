//! A file on the simulated disk: live bytes, durable bytes and the changes in between.
//!
//! Contents are a sparse map of 4 KiB chunks, shared by live state, durable state and copies of the disk
//! until they are changed.
//!
//! **Invariants**
//! - An absent chunk reads as zeros; bytes beyond the length are zeros.
//! - Every change since the last sync is in `pending` (contents, by chunk) or `lengths`; the last version of
//!   a chunk is its live state.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::num::{u64_of, usize_of};

use super::range_set::RangeSet;

/// Unit of sparse storage and of allocation.
pub(super) const CHUNK_BYTES: u64 = 4096;
const CHUNK_SIZE: usize = 4096;
/// Unit that a device writes atomically.
pub(super) const SECTOR_SIZE: usize = 512;
pub(super) const SECTORS_PER_CHUNK: usize = CHUNK_SIZE / SECTOR_SIZE;
/// Older versions of a chunk are dropped; a device does not remember more either.
const VERSIONS_MAX: usize = 8;
const LENGTHS_MAX: usize = 256;

/// Bytes of one chunk.
pub(super) type Chunk = [u8; CHUNK_SIZE];
pub(super) type Chunks = BTreeMap<u64, Arc<Chunk>>;

/// State of a chunk after one unsynced operation.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// `None` means all zeros.
    pub(super) bytes: Option<Arc<Chunk>>,
    /// Bit mask of the sectors touched by a write.
    pub(super) written: u8,
    /// Bit mask of the sectors touched by a hole or a truncation.
    pub(super) zeroed: u8,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct FileNode {
    pub(super) live: Arc<Chunks>,
    pub(super) live_length: u64,
    pub(super) durable: Arc<Chunks>,
    pub(super) durable_length: u64,
    pub(super) pending: BTreeMap<u64, Vec<Version>>,
    /// Lengths since the last sync, in order.
    pub(super) lengths: Vec<u64>,
    /// Chunks that occupy space.
    pub(super) reserved: RangeSet,
    pub(super) durable_reserved: RangeSet,
}

impl FileNode {
    /// Fills `buffer`; bytes beyond the length read as zeros.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        for part in parts(offset, u64_of(buffer.len())) {
            let target = &mut buffer[part.source..part.source + part.length];
            match self.live.get(&part.chunk) {
                Some(bytes) => target.copy_from_slice(&bytes[part.start..part.start + part.length]),
                None => target.fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let live = Arc::make_mut(&mut self.live);
        for part in parts(offset, u64_of(bytes.len())) {
            let written = &bytes[part.source..part.source + part.length];
            let chunk = match <&Chunk>::try_from(written) {
                Ok(whole) => Arc::new(*whole),
                Err(_) => {
                    let mut chunk = live.get(&part.chunk).map_or([0; CHUNK_SIZE], |old| **old);
                    chunk[part.start..part.start + part.length].copy_from_slice(written);
                    Arc::new(chunk)
                }
            };
            live.insert(part.chunk, Arc::clone(&chunk));
            let version = Version { bytes: Some(chunk), written: part.sectors(), zeroed: 0 };
            push_version(&mut self.pending, part.chunk, version);
        }
        let end = offset + u64_of(bytes.len());
        self.reserved.insert(offset / CHUNK_BYTES, end.div_ceil(CHUNK_BYTES));
        if end > self.live_length {
            self.change_length(end);
        }
    }

    pub(super) fn set_len(&mut self, length: u64) {
        if length < self.live_length {
            self.zero(length, self.live_length);
            self.reserved.remove(length.div_ceil(CHUNK_BYTES), u64::MAX);
        }
        if length != self.live_length {
            self.change_length(length);
        }
    }

    pub(super) fn allocate(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        self.reserved.insert(offset / CHUNK_BYTES, end.div_ceil(CHUNK_BYTES));
        if end > self.live_length {
            self.change_length(end);
        }
    }

    pub(super) fn punch_hole(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        self.zero(offset, end);
        self.reserved.remove(offset.div_ceil(CHUNK_BYTES), end / CHUNK_BYTES);
    }

    /// Additional bytes of space that a write or reservation of the range takes.
    pub(super) fn missing_bytes(&self, offset: u64, length: u64) -> u64 {
        let end = (offset + length).div_ceil(CHUNK_BYTES);
        self.reserved.missing(offset / CHUNK_BYTES, end) * CHUNK_BYTES
    }

    /// First offset at or after `offset` that is not in a hole.
    pub(super) fn next_data(&self, offset: u64) -> u64 {
        let next = self.live.range(offset / CHUNK_BYTES..).next();
        next.map_or(u64::MAX, |(&chunk, _)| offset.max(chunk * CHUNK_BYTES))
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.reserved.count() * CHUNK_BYTES
    }

    pub(super) fn sync(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            let durable = Arc::make_mut(&mut self.durable);
            for chunk in pending.into_keys() {
                match self.live.get(&chunk) {
                    Some(bytes) => durable.insert(chunk, Arc::clone(bytes)),
                    None => durable.remove(&chunk),
                };
            }
        }
        debug_assert!(self.pending.is_empty(), "a sync leaves nothing pending");
        self.lengths.clear();
        self.durable_length = self.live_length;
        self.durable_reserved.clone_from(&self.reserved);
    }

    /// Flips bits of one byte in every state of the file, like a decaying medium.
    pub(super) fn corrupt(&mut self, offset: u64, mask: u8) {
        let (chunk, position) = (offset / CHUNK_BYTES, usize_of(offset % CHUNK_BYTES));
        let flip = |bytes: &mut Arc<Chunk>| Arc::make_mut(bytes)[position] ^= mask;
        flip(Arc::make_mut(&mut self.live).entry(chunk).or_insert_with(zero_chunk));
        if offset < self.durable_length {
            flip(Arc::make_mut(&mut self.durable).entry(chunk).or_insert_with(zero_chunk));
        }
        for version in self.pending.get_mut(&chunk).into_iter().flatten() {
            flip(version.bytes.get_or_insert_with(zero_chunk));
        }
    }

    fn change_length(&mut self, length: u64) {
        self.live_length = length;
        if self.lengths.len() == LENGTHS_MAX {
            self.lengths.remove(0);
        }
        self.lengths.push(length);
        debug_assert!(self.lengths.len() <= LENGTHS_MAX, "older lengths were dropped");
    }

    /// Zeros `start..end` of the live content.
    fn zero(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let live = Arc::make_mut(&mut self.live);
        let present: Vec<u64> =
            live.range(start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)).map(|(&chunk, _)| chunk).collect();
        for chunk in present {
            let base = chunk * CHUNK_BYTES;
            let from = usize_of(start.max(base) - base);
            let to = usize_of(end.min(base + CHUNK_BYTES) - base);
            let bytes = if from == 0 && to == CHUNK_SIZE {
                live.remove(&chunk);
                None
            } else {
                let mut bytes = live.get(&chunk).map_or([0; CHUNK_SIZE], |old| **old);
                bytes[from..to].fill(0);
                let bytes = Arc::new(bytes);
                live.insert(chunk, Arc::clone(&bytes));
                Some(bytes)
            };
            let zeroed = sector_bits(from, to);
            push_version(&mut self.pending, chunk, Version { bytes, written: 0, zeroed });
        }
    }
}

/// A range within one chunk.
struct Part {
    chunk: u64,
    /// Start within the chunk.
    start: usize,
    /// Start within the caller's slice.
    source: usize,
    length: usize,
}

impl Part {
    fn sectors(&self) -> u8 {
        sector_bits(self.start, self.start + self.length)
    }
}

/// Splits a range at chunk boundaries.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = Part> {
    let end = offset + length;
    let mut position = offset;
    std::iter::from_fn(move || {
        if position >= end {
            return None;
        }
        let chunk = position / CHUNK_BYTES;
        let stop = end.min((chunk + 1) * CHUNK_BYTES);
        let part = Part {
            chunk,
            start: usize_of(position % CHUNK_BYTES),
            source: usize_of(position - offset),
            length: usize_of(stop - position),
        };
        debug_assert!(part.length > 0 && part.start + part.length <= CHUNK_SIZE, "a part of a chunk");
        position = stop;
        Some(part)
    })
}

/// Bit mask of the sectors touched by a non-empty range of a chunk.
fn sector_bits(start: usize, end: usize) -> u8 {
    debug_assert!(start < end && end <= CHUNK_SIZE, "a non-empty range within one chunk");
    (start / SECTOR_SIZE..end.div_ceil(SECTOR_SIZE)).fold(0, |bits, sector| bits | 1 << sector)
}

fn push_version(pending: &mut BTreeMap<u64, Vec<Version>>, chunk: u64, version: Version) {
    let versions = pending.entry(chunk).or_default();
    if versions.len() == VERSIONS_MAX {
        // The next version contains the oldest one's bytes, so it inherits its sectors.
        let oldest = versions.remove(0);
        versions[0].written |= oldest.written;
        versions[0].zeroed |= oldest.zeroed;
    }
    versions.push(version);
    debug_assert!(versions.len() <= VERSIONS_MAX, "older versions were dropped");
}

fn zero_chunk() -> Arc<Chunk> {
    Arc::new([0; CHUNK_SIZE])
}
