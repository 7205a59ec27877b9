//! A segment: records one behind the other in a chunk of memory.
//!
//! ```text
//! word 0, then records: | tag 32, key bytes 16, value bytes 16 | keyspace 32, flushes 32 | key | value |
//! ```
//!
//! Key and value begin at words of their own. A value can be replaced by another of as many words. Who reads
//! one looks at the number of its state before and after, and has nothing if that has changed meanwhile.
//!
//! **Invariants**
//! - A record is written before any slot leads to it. What changes later are the length of its value, the
//!   value and the flushes, under the lock of the shard, to those of a later state.
//! - The chunk goes back to the pool, and the number to the shard, when the last reader has let go of the
//!   segment.

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

const HEADER_WORDS: usize = 2;
const WORD: usize = 8;
/// Bytes of a record before its key.
pub(crate) const HEADER_BYTES: usize = HEADER_WORDS * WORD;
/// What key and value take together beyond their bytes, at most.
pub(crate) const ROUNDED_BYTES: usize = 2 * WORD;
/// Where the first record of a segment stands.
pub(crate) const FIRST_PLACE: usize = 1;
/// Longest key, and longest value: their lengths have 16 bits each.
const LENGTH_MAX: usize = u16::MAX as usize;

/// Stands for the flushes of a record while it is changed: later than every state.
const CHANGING: u32 = u32::MAX;

/// Where chunks and numbers of a shard's segments go when these end.
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
    /// Words that it takes; `None` if its lengths cannot be stated.
    pub(crate) fn words(&self) -> Option<usize> {
        (self.key.len() <= LENGTH_MAX && self.value.len() <= LENGTH_MAX)
            .then(|| words_of(self.key.len(), self.value.len()))
    }

    fn first_word(&self) -> u64 {
        u64::from(self.tag) << 32 | u64_of(self.key.len()) << 16 | u64_of(self.value.len())
    }

    fn second_word(&self, flushes: u32) -> u64 {
        u64::from(self.keyspace.0) << 32 | u64::from(flushes)
    }
}

fn words_of(key_bytes: usize, value_bytes: usize) -> usize {
    HEADER_WORDS + key_bytes.div_ceil(WORD) + value_bytes.div_ceil(WORD)
}

/// What stands before key and value.
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

/// The part of a shard's records that a segment is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Those that were not used again yet.
    Probation,
    Main,
}

#[derive(Debug)]
pub(crate) struct Segment {
    id: u32,
    pub(crate) part: Part,
    /// `None` once the memory was taken out, or on its way back.
    chunk: Option<Chunk>,
    home: Arc<Home>,
}

impl Segment {
    pub(crate) fn new(id: u32, part: Part, chunk: Chunk, home: Arc<Home>) -> Arc<Self> {
        Arc::new(Self { id, part, chunk: Some(chunk), home })
    }

    #[inline]
    fn words(&self) -> &[Word] {
        self.chunk.as_ref().map_or(&[], Chunk::words)
    }

    /// Writes a record. REQUIRES: the room is there and no slot leads to it yet; the lock of the shard is
    /// held.
    pub(crate) fn write(&self, place: usize, record: &Record<'_>) {
        debug_assert!(
            record.words().is_some_and(|words| place >= FIRST_PLACE && place + words <= self.words().len()),
            "the room is there"
        );
        let words = &self.words()[place..];
        words[0].store(record.first_word(), Relaxed);
        words[1].store(record.second_word(record.flushes), Relaxed);
        let (key_words, value_words) = words[HEADER_WORDS..].split_at(record.key.len().div_ceil(WORD));
        put(key_words, record.key);
        put(value_words, record.value);
    }

    /// Gives a record the value that its key has in a later state. REQUIRES: `record` takes as many words as
    /// what is there; the lock of the shard is held.
    pub(crate) fn rewrite(&self, place: usize, record: &Record<'_>) {
        debug_assert!(record.words() == Some(self.header(place).words()), "the next record stays whole");
        let words = &self.words()[place..];
        words[1].store(record.second_word(CHANGING), Relaxed);
        fence(Release);
        words[0].store(record.first_word(), Relaxed);
        step();
        put(&words[HEADER_WORDS + record.key.len().div_ceil(WORD)..], record.value);
        words[1].store(record.second_word(record.flushes), Release);
    }

    /// Copies `count` words of `from` here. REQUIRES: as [`Segment::write`].
    pub(crate) fn copy(&self, place: usize, from: &Segment, from_place: usize, count: usize) {
        debug_assert!(place >= FIRST_PLACE && place + count <= self.words().len(), "the room is there");
        let source = &from.words()[from_place..from_place + count];
        for (to, from) in self.words()[place..].iter().zip(source) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    #[inline]
    pub(crate) fn header(&self, place: usize) -> Header {
        let word = self.words()[place].load(Relaxed);
        Header {
            tag: low32(word >> 32),
            key_bytes: usize_of(word >> 16 & 0xFFFF),
            value_bytes: usize_of(word & 0xFFFF),
        }
    }

    /// The number of the state that the record is of, if it is one of `key`.
    #[inline]
    pub(crate) fn flushes_of(&self, place: usize, keyspace: KeyspaceId, key: &[u8]) -> Option<u32> {
        let words = &self.words()[place..];
        let owner = words[1].load(Acquire);
        let is_its = owner >> 32 == u64::from(keyspace.0)
            && self.header(place).key_bytes == key.len()
            && equals(&words[HEADER_WORDS..], key);
        is_its.then_some(low32(owner))
    }

    /// The keyspace of the record, and the number of the state that it is of.
    pub(crate) fn owner(&self, place: usize) -> (KeyspaceId, u32) {
        let owner = self.words()[place + 1].load(Acquire);
        (KeyspaceId(low32(owner >> 32)), low32(owner))
    }

    /// The record's key, in the memory of `bytes` if there is enough.
    pub(crate) fn key_in(&self, bytes: Vec<u8>, place: usize) -> Vec<u8> {
        let header = self.header(place);
        self.bytes_in(bytes, place + HEADER_WORDS, header.key_bytes)
    }

    /// The record's value, unless it is no longer that of state `flushes`.
    #[inline]
    pub(crate) fn value(&self, place: usize, flushes: u32) -> Option<Vec<u8>> {
        self.value_in(Vec::new(), place, flushes)
    }

    /// As [`Segment::value`], in the memory of `bytes` if there is enough.
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
        bytes
    }

    /// The memory. REQUIRES: nobody else has the segment.
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
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, piece) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*piece), Relaxed);
    }
    if !rest.is_empty() {
        words[whole.len()].store(padded(rest), Relaxed);
    }
}

#[inline]
fn equals(words: &[Word], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<WORD>();
    let is_equal = |(word, piece): (&Word, &[u8; WORD])| word.load(Relaxed) == u64::from_ne_bytes(*piece);
    words.iter().zip(whole).all(is_equal)
        && (rest.is_empty() || words[whole.len()].load(Relaxed) == padded(rest))
}

/// A word of less than eight bytes, zeroes behind them.
#[inline]
fn padded(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests;
