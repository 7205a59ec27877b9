//! A segment: consecutive records in a chunk of memory.
//!
//! ```text
//! word 0, then records: | tag 32, key bytes 16, value bytes 16 | keyspace 32, flushes 32 | key | value |
//! ```
//!
//! Key and value each start at a word boundary. A value can be replaced by another with the same number of
//! words. A reader checks the state number before and after copying, and gets nothing if it has changed.
//!
//! **Invariants**
//! - A record is written before any slot refers to it. Afterwards only its value, the value's length and its
//!   flushes change, under the lock of the shard, to those of a later state.
//! - The chunk returns to the pool, and the id to the shard, when the last reader has released the segment.

use std::sync::atomic::{
    AtomicU64 as Word,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use testudo_base::{
    KeyspaceId,
    chunks::{Chunk, ChunkPool},
    num::{low32, u64_of, usize_of},
    planted,
    sync::{Arc, Mutex, step},
};

use crate::index::{SEGMENT_WORDS_MAX, SEGMENTS_MAX};

const HEADER_WORDS: usize = 2;
const WORD: usize = 8;
/// Bytes of a record before its key.
pub(crate) const HEADER_BYTES: usize = HEADER_WORDS * WORD;
/// Maximum padding of key and value.
pub(crate) const ROUNDED_BYTES: usize = 2 * WORD;
/// Position of the first record of a segment.
pub(crate) const FIRST_PLACE: usize = 1;
/// Maximum length of key and value: the length fields have 16 bits.
const LENGTH_MAX: usize = u16::MAX as usize;

/// Value of a record's flushes while it is changed: later than every state.
const CHANGING: u32 = u32::MAX;

/// Where chunks and ids of a shard's segments return when they are dropped.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) pool: Arc<ChunkPool>,
    pub(crate) free_ids: Mutex<Vec<u32>>,
}

/// A record to be cached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) tag: u32,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) flushes: u32,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Record<'_> {
    /// Number of words of the record; `None` if a length exceeds its field.
    pub(crate) fn words(&self) -> Option<usize> {
        (self.key.len() <= LENGTH_MAX && self.value.len() <= LENGTH_MAX)
            .then(|| words_of(self.key.len(), self.value.len()))
    }

    fn first_word(&self) -> u64 {
        debug_assert!(self.key.len() <= LENGTH_MAX && self.value.len() <= LENGTH_MAX, "the lengths fit");
        u64::from(self.tag) << 32 | u64_of(self.key.len()) << 16 | u64_of(self.value.len())
    }

    fn second_word(&self, flushes: u32) -> u64 {
        u64::from(self.keyspace.0) << 32 | u64::from(flushes)
    }
}

fn words_of(key_bytes: usize, value_bytes: usize) -> usize {
    HEADER_WORDS + key_bytes.div_ceil(WORD) + value_bytes.div_ceil(WORD)
}

/// The header before key and value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) tag: u32,
    key_bytes: usize,
    value_bytes: usize,
}

impl Header {
    pub(crate) fn words(self) -> usize {
        words_of(self.key_bytes, self.value_bytes)
    }
}

/// The part of a shard to which a segment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Records not used again yet.
    Probation,
    Main,
}

#[derive(Debug)]
pub(crate) struct Segment {
    id: u32,
    pub(crate) part: Part,
    /// `None` once the memory was taken out, or while it is being returned.
    chunk: Option<Chunk>,
    home: Arc<Home>,
}

impl Segment {
    pub(crate) fn new(id: u32, part: Part, chunk: Chunk, home: Arc<Home>) -> Arc<Self> {
        debug_assert!(
            id < SEGMENTS_MAX && chunk.bytes() / WORD <= SEGMENT_WORDS_MAX,
            "slots can refer to it"
        );
        Arc::new(Self { id, part, chunk: Some(chunk), home })
    }

    #[inline]
    fn words(&self) -> &[Word] {
        self.chunk.as_ref().map_or(&[], Chunk::words)
    }

    /// Writes a record. REQUIRES: there is room and no slot refers to it yet; the lock of the shard is held.
    pub(crate) fn write(&self, place: usize, record: &Record<'_>) {
        debug_assert!(
            record.words().is_some_and(|words| place >= FIRST_PLACE && place + words <= self.words().len()),
            "there is room"
        );
        let words = &self.words()[place..];
        words[0].store(record.first_word(), Relaxed);
        words[1].store(record.second_word(record.flushes), Relaxed);
        let (key_words, value_words) = words[HEADER_WORDS..].split_at(record.key.len().div_ceil(WORD));
        put(key_words, record.key);
        put(value_words, record.value);
    }

    /// Updates a record to the value of its key in a later state. REQUIRES: `record` has as many words as the
    /// existing one; the lock of the shard is held.
    pub(crate) fn rewrite(&self, place: usize, record: &Record<'_>) {
        debug_assert!(record.words() == Some(self.header(place).words()), "the next record stays intact");
        let words = &self.words()[place..];
        words[1].store(record.second_word(CHANGING), Relaxed);
        fence(Release);
        words[0].store(record.first_word(), Relaxed);
        step();
        put(&words[HEADER_WORDS + record.key.len().div_ceil(WORD)..], record.value);
        words[1].store(record.second_word(record.flushes), Release);
    }

    /// Copies `count` words of `from` into this segment. REQUIRES: as [`Segment::write`].
    pub(crate) fn copy(&self, place: usize, from: &Segment, from_place: usize, count: usize) {
        debug_assert!(place >= FIRST_PLACE && place + count <= self.words().len(), "there is room");
        let source = &from.words()[from_place..from_place + count];
        debug_assert_eq!(count, from.header(from_place).words(), "a whole record is copied");
        for (to, from) in self.words()[place..].iter().zip(source) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    #[inline]
    pub(crate) fn header(&self, place: usize) -> Header {
        debug_assert!(place >= FIRST_PLACE, "no record is at place 0");
        let word = self.words()[place].load(Relaxed);
        Header {
            tag: low32(word >> 32),
            key_bytes: usize_of(word >> 16 & 0xFFFF),
            value_bytes: usize_of(word & 0xFFFF),
        }
    }

    /// Returns the state number of the record if its key is `key`.
    #[inline]
    pub(crate) fn flushes_of(&self, place: usize, keyspace: KeyspaceId, key: &[u8]) -> Option<u32> {
        let words = &self.words()[place..];
        let owner = words[1].load(Acquire);
        let is_its = owner >> 32 == u64::from(keyspace.0)
            && self.header(place).key_bytes == key.len()
            && equals(&words[HEADER_WORDS..], key);
        is_its.then_some(low32(owner))
    }

    /// Returns the keyspace and the state number of the record.
    pub(crate) fn owner(&self, place: usize) -> (KeyspaceId, u32) {
        let owner = self.words()[place + 1].load(Acquire);
        (KeyspaceId(low32(owner >> 32)), low32(owner))
    }

    /// Returns the record's key, reusing the memory of `bytes` if it is large enough.
    pub(crate) fn key_in(&self, bytes: Vec<u8>, place: usize) -> Vec<u8> {
        let header = self.header(place);
        self.bytes_in(bytes, place + HEADER_WORDS, header.key_bytes)
    }

    /// Returns the record's value, unless it no longer belongs to state `flushes`.
    #[inline]
    pub(crate) fn value(&self, place: usize, flushes: u32) -> Option<Vec<u8>> {
        self.value_in(Vec::new(), place, flushes)
    }

    /// Like [`Segment::value`], reusing the memory of `bytes` if it is large enough.
    #[inline]
    pub(crate) fn value_in(&self, bytes: Vec<u8>, place: usize, flushes: u32) -> Option<Vec<u8>> {
        let header = self.header(place);
        let start = place + HEADER_WORDS + header.key_bytes.div_ceil(WORD);
        step();
        let value = self.bytes_in(bytes, start, header.value_bytes);
        fence(Acquire);
        let now = low32(self.words()[place + 1].load(Relaxed));
        (now == flushes || planted!("torn-record-read")).then_some(value)
    }

    #[inline]
    fn bytes_in(&self, mut bytes: Vec<u8>, start: usize, count: usize) -> Vec<u8> {
        let words = &self.words()[start..start + count.div_ceil(WORD)];
        bytes.clear();
        if bytes.capacity() < words.len() * WORD {
            bytes = Vec::with_capacity(words.len() * WORD);
        }
        for word in words {
            bytes.extend_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        bytes.truncate(count);
        debug_assert_eq!(bytes.len(), count, "the words contain the bytes");
        bytes
    }

    /// Takes out the memory. REQUIRES: the segment has no other owner.
    pub(crate) fn into_chunk(mut self) -> Option<Chunk> {
        self.chunk.take()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.home.free_ids.lock().push(self.id);
        if let Some(chunk) = self.chunk.take() {
            self.home.pool.give_back([chunk]);
        }
    }
}

fn put(words: &[Word], bytes: &[u8]) {
    debug_assert!(bytes.len() <= words.len() * WORD, "there is room");
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, part) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*part), Relaxed);
    }
    if !rest.is_empty() {
        words[whole.len()].store(padded(rest), Relaxed);
    }
}

#[inline]
fn equals(words: &[Word], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<WORD>();
    let is_equal = |(word, part): (&Word, &[u8; WORD])| word.load(Relaxed) == u64::from_ne_bytes(*part);
    words.iter().zip(whole).all(is_equal)
        && (rest.is_empty() || words[whole.len()].load(Relaxed) == padded(rest))
}

/// Pads fewer than eight bytes with zeros to a word.
#[inline]
fn padded(bytes: &[u8]) -> u64 {
    debug_assert!(bytes.len() < WORD, "less than a word");
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests;
