//! Recent evictions: tags and epochs, without keys.
//!
//! A hash table indexed by tag, one 64th of the memory in size: a later record with the same slot overwrites
//! an earlier one. For small records the table remembers about half as many as fit into memory. (S3-FIFO uses
//! all, and a quarter would have most of the effect, decision 0054.) It mistakes another record for an
//! evicted one about once in 65,536 times.
//!
//! **Invariants**
//! - Epochs are counted in evicted bytes, which gives the memory that the remembered records had.

use testudo_base::{
    LargeSlice,
    chunks::{ChunkPool, Division},
    num::{u64_of, usize_of},
    sync::Arc,
};

use crate::index::TAG_BITS;

/// Number of epochs in which [`Division::ghost_bytes`] bytes are evicted.
const RECENT_EPOCHS: u16 = 16;
/// Number of epochs in which as many bytes are evicted as there is memory.
const EPOCHS: u16 = RECENT_EPOCHS * Division::GHOST_PARTS;
/// Bytes of memory per place of the table.
const BYTES_OF_PLACE: u64 = 256;

/// Age of a remembered eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// So recent that slightly more memory would have kept the record ([`Division::ghost_bytes`]).
    Recently,
    /// Within the last evictions that amount to the whole memory.
    Earlier,
}

/// The ghosts of one shard.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Low bits of the tag, then the epoch; 0 means empty.
    places: LargeSlice<u32>,
    epoch: u16,
    /// Bytes evicted in this epoch.
    evicted_bytes: u64,
    shards: u64,
    pool: Arc<ChunkPool>,
}

impl Ghosts {
    /// The ghosts of one of `shards` shards.
    pub(crate) fn new(pool: &Arc<ChunkPool>, shards: u64) -> Self {
        debug_assert!(shards > 0, "there is a shard");
        let places = LargeSlice::zeroed(Self::place_count(pool, shards));
        pool.charge_slice(u64_of(size_of_val(&*places)));
        Self { places, epoch: 1, evicted_bytes: 0, shards, pool: Arc::clone(pool) }
    }

    /// Number of places for the pool's current limit.
    fn place_count(pool: &ChunkPool, shards: u64) -> usize {
        usize_of((pool.limit_bytes().min(1 << 43) / BYTES_OF_PLACE / shards).max(1))
    }

    /// Replaces the table if the memory has doubled or halved.
    fn fit(&mut self) {
        let (wanted, present) = (Self::place_count(&self.pool, self.shards), self.places.len());
        if wanted > present / 2 && wanted < present * 2 {
            return;
        }
        self.pool.discharge_slice(self.bytes());
        self.places = LargeSlice::zeroed(wanted);
        self.pool.charge_slice(self.bytes());
    }

    /// Bytes of memory used.
    pub(crate) fn bytes(&self) -> u64 {
        u64_of(size_of_val(&*self.places))
    }

    fn place_of(&self, tag: u32) -> usize {
        debug_assert!(tag >> TAG_BITS == 0, "a tag of {TAG_BITS} bits");
        usize_of((u64::from(tag) * u64_of(self.places.len())) >> TAG_BITS)
    }

    /// Remembers the eviction of a record of `bytes`.
    pub(crate) fn remember(&mut self, tag: u32, bytes: usize) {
        let place = self.place_of(tag);
        self.places[place] = tag << 16 | u32::from(self.epoch);
        self.evicted_bytes += u64_of(bytes);
        let recent_bytes = Division::ghost_bytes(self.pool.limit_bytes()) / self.shards;
        if self.evicted_bytes >= recent_bytes / u64::from(RECENT_EPOCHS) {
            self.evicted_bytes = 0;
            self.epoch = self.epoch.wrapping_add(1);
            self.fit();
        }
        debug_assert!(!self.places.is_empty(), "the table has a place");
    }

    /// Returns when a record with this tag was evicted, if remembered, and removes the entry.
    pub(crate) fn recall(&mut self, tag: u32) -> Option<Evicted> {
        let place = self.place_of(tag);
        let ghost = self.places[place];
        let [low, high, ..] = ghost.to_le_bytes();
        let age = self.epoch.wrapping_sub(u16::from_le_bytes([low, high]));
        if ghost == 0 || ghost >> 16 != tag & 0xffff {
            return None;
        }
        self.places[place] = 0;
        let when = if age <= RECENT_EPOCHS { Evicted::Recently } else { Evicted::Earlier };
        (age <= EPOCHS).then_some(when)
    }
}

impl Drop for Ghosts {
    fn drop(&mut self) {
        self.pool.discharge_slice(self.bytes());
    }
}

#[cfg(test)]
mod tests;
