//! What was evicted last: tags and epochs, without keys.
//!
//! A table with one place for each tag: a later record with the same place takes it. So the table forgets
//! some, and takes another record for one that was evicted about once in 65,536 times.
//!
//! **Invariants**
//! - Epochs are counted in evicted bytes, so that the memory that the remembered records had is known.

use testudo_base::{
    LargeSlice,
    chunks::{ChunkPool, Division},
    num::{u64_of, usize_of},
    sync::Arc,
};

use crate::slot::TAG_BITS;

/// Epochs that a record is remembered for.
const GHOST_EPOCHS: u16 = 16;
/// Memory of a record, about; smaller ones are forgotten sooner.
const RECORD_BYTES: u64 = 128;

/// The ghosts of one shard.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Low bits of the tag, then the epoch; 0 is nothing.
    places: LargeSlice<u32>,
    epoch: u16,
    /// Bytes evicted in this epoch.
    evicted_bytes: u64,
    shards: u64,
    pool: Arc<ChunkPool>,
}

impl Ghosts {
    /// Those of one of `shards` shards.
    pub(crate) fn new(pool: &Arc<ChunkPool>, shards: u64) -> Self {
        let count = Division::ghost_bytes(pool.limit_bytes()).min(1 << 40) / RECORD_BYTES / shards;
        let places = LargeSlice::zeroed(usize_of(count.max(1)));
        pool.charge_slice(u64_of(size_of_val(&*places)));
        Self { places, epoch: 1, evicted_bytes: 0, shards, pool: Arc::clone(pool) }
    }

    fn place_of(&self, tag: u32) -> usize {
        usize_of((u64::from(tag) * u64_of(self.places.len())) >> TAG_BITS)
    }

    /// A record of so many bytes was evicted.
    pub(crate) fn remember(&mut self, tag: u32, bytes: usize) {
        let place = self.place_of(tag);
        self.places[place] = tag << 16 | u32::from(self.epoch);
        self.evicted_bytes += u64_of(bytes);
        let epoch_bytes =
            Division::ghost_bytes(self.pool.limit_bytes()) / self.shards / u64::from(GHOST_EPOCHS);
        if self.evicted_bytes >= epoch_bytes {
            self.evicted_bytes = 0;
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    /// Whether a record with this tag was evicted a short while ago; it is forgotten then.
    pub(crate) fn recall(&mut self, tag: u32) -> bool {
        let place = self.place_of(tag);
        let ghost = self.places[place];
        let [low, high, ..] = ghost.to_le_bytes();
        let age = self.epoch.wrapping_sub(u16::from_le_bytes([low, high]));
        let is_known = ghost != 0 && ghost >> 16 == tag & 0xffff && age <= GHOST_EPOCHS;
        if is_known {
            self.places[place] = 0;
        }
        is_known
    }
}

impl Drop for Ghosts {
    fn drop(&mut self) {
        self.pool.discharge_slice(u64_of(size_of_val(&*self.places)));
    }
}

#[cfg(test)]
mod tests;
