//! Layout of a partition: probing, checking, and the shape that the builder fills.
//!
//! | offset | bytes | meaning                                                                   |
//! |-------:|------:|---------------------------------------------------------------------------|
//! |      0 |     1 | kind: 1 = 8-bit remainders, 2 = 16-bit, never written, 3 = always "maybe" |
//! |      1 |     1 | blocks                                                                    |
//! |      2 |     2 | quotients: a hash's quotient is in `0..quotients`                         |
//! |      4 |     2 | slots in use                                                              |
//! |      6 |     … | blocks, each of 64 slots                                                  |
//!
//! A block consists of a 1-byte offset, 8 bytes *occupieds*, 8 bytes *runends*, and 64 remainders of 1 or 2
//! bytes. Bit `i` of a block's occupieds is set if any hash has the quotient `64·block + i`. Bit `i` of its
//! runends is set if slot `i` holds the last remainder of its quotient's run. The offset counts the slots
//! from the start of the block on (possibly beyond its end) that belong to quotients of earlier blocks.
//!
//! **Invariants**
//! - Runs are ordered by quotient; no run starts before the slot whose number is its quotient.
//! - There are as many runends as occupieds. Remainders within a run are unordered and may repeat.
//! - A kind of 0 is damage, so that a zeroed page never denies a key.

use testudo_base::{
    codec::Damage,
    num::{low32, scale32, usize_of},
    planted,
};

use crate::{PARTITION_BYTES, select::select};

pub(crate) const HEADER_BYTES: usize = 6;
pub(crate) const ALWAYS_MAYBE: u8 = 3;
/// Slots of one block.
pub(crate) const BLOCK_SLOTS: usize = 64;
/// Bytes of offset, occupieds and runends of a block.
pub(crate) const BLOCK_HEAD_BYTES: usize = 17;
/// Offset of the runends within a block.
pub(crate) const RUNENDS_AT: usize = 9;

/// Block layout of a kind of partition.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) kind: u8,
    pub(crate) remainder_bytes: usize,
    pub(crate) block_bytes: usize,
    pub(crate) blocks_max: usize,
}

impl Shape {
    /// Remainders of 8 bits: the shape of all new filters.
    pub(crate) const WRITTEN: Self = Self::new(1, 1);
    /// Remainders of 16 bits. Such filters are only read.
    const WIDE: Self = Self::new(2, 2);

    const fn new(kind: u8, remainder_bytes: usize) -> Self {
        let block_bytes = BLOCK_HEAD_BYTES + BLOCK_SLOTS * remainder_bytes;
        Self {
            kind,
            remainder_bytes,
            block_bytes,
            blocks_max: (PARTITION_BYTES - HEADER_BYTES) / block_bytes,
        }
    }

    /// Encodes the header of a partition.
    pub(crate) fn header(self, blocks: usize, quotients: u16, slots: u16) -> [u8; HEADER_BYTES] {
        debug_assert!(blocks <= self.blocks_max, "the blocks fit into a partition");
        debug_assert!(usize::from(slots) <= blocks * BLOCK_SLOTS, "a hash has a slot");
        let ([q0, q1], [s0, s1]) = (quotients.to_le_bytes(), slots.to_le_bytes());
        [self.kind, blocks.to_le_bytes()[0], q0, q1, s0, s1]
    }

    fn of_kind(kind: u8) -> Option<Self> {
        match kind {
            1 => Some(Self::WRITTEN),
            2 => Some(Self::WIDE),
            _ => None,
        }
    }
}

/// Quotient of a hash, from its high bits.
#[inline]
pub(crate) fn quotient_of(hash: u32, quotients: u16) -> u32 {
    scale32(hash, u32::from(quotients))
}

/// Low 16 bits of a hash, of which all or the low eight are stored; a quotient's range of hashes covers them
/// many times.
#[inline]
pub(crate) fn remainder_of(hash: u32) -> u16 {
    let bytes = hash.to_le_bytes();
    u16::from_le_bytes([bytes[0], bytes[1]])
}

struct Partition<'a> {
    shape: Shape,
    quotients: u16,
    slots_used: u16,
    blocks: &'a [u8],
}

impl<'a> Partition<'a> {
    /// Decodes the header. `Ok(None)` is a partition that answers "maybe" to everything.
    #[inline]
    fn open(bytes: &'a [u8]) -> Result<Option<Self>, Damage> {
        let Some((&[kind, blocks, q0, q1, n0, n1], rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Damage("a filter partition is shorter than its header"));
        };
        if kind == ALWAYS_MAYBE {
            return Ok(None);
        }
        let shape = Shape::of_kind(kind).ok_or(Damage("an unknown kind of filter partition"))?;
        let used = usize::from(blocks) * shape.block_bytes;
        let blocks = rest.get(..used).ok_or(Damage("a filter partition ends within its blocks"))?;
        let (quotients, slots_used) = (u16::from_le_bytes([q0, q1]), u16::from_le_bytes([n0, n1]));
        if quotients == 0 && !blocks.is_empty() {
            return Err(Damage("a filter partition has blocks but no quotients"));
        }
        Ok(Some(Self { shape, quotients, slots_used, blocks }))
    }

    #[inline]
    fn block(&self, index: usize) -> Option<&'a [u8]> {
        let start = index * self.shape.block_bytes;
        self.blocks.get(start..start + self.shape.block_bytes)
    }

    fn block_count(&self) -> usize {
        self.blocks.len() / self.shape.block_bytes
    }

    #[inline]
    fn remainder(&self, block: &[u8], slot: usize) -> u16 {
        let at = BLOCK_HEAD_BYTES + slot * self.shape.remainder_bytes;
        u16::from_le_bytes([block[at], if self.shape.remainder_bytes == 2 { block[at + 1] } else { 0 }])
    }

    /// Whether `hash` may be in the filter; `None` if the bytes are inconsistent.
    #[inline]
    fn probe(&self, hash: u32) -> Option<bool> {
        if self.blocks.is_empty() {
            return Some(false);
        }
        let quotient = quotient_of(hash, self.quotients) as usize;
        let bit = quotient % BLOCK_SLOTS;
        let mut block = self.block(quotient / BLOCK_SLOTS)?;
        let occupieds = word(block, 1);
        if occupieds >> bit & 1 == 0 {
            return Some(false);
        }
        // The end of the run is the rank-th runend at or after the first slot not used by earlier blocks.
        let mut rank = (occupieds & ((1 << bit) - 1)).count_ones();
        let first = (quotient - bit) + usize::from(block[0]);
        let mut index = first / BLOCK_SLOTS;
        let mut keep = u64::MAX << (first % BLOCK_SLOTS);
        let mut slot = loop {
            block = self.block(index)?;
            let ends = word(block, RUNENDS_AT) & keep;
            match select(ends, rank) {
                Some(slot) => break slot as usize,
                None => rank -= ends.count_ones(),
            }
            (index, keep) = (index + 1, u64::MAX);
        };
        // Walks the run from its end to its start.
        let wanted = remainder_of(hash) & if self.shape.remainder_bytes == 2 { u16::MAX } else { 0xff };
        loop {
            if self.remainder(block, slot) == wanted {
                return Some(true);
            }
            if index * BLOCK_SLOTS + slot <= quotient + usize::from(planted!("filter-run-cut-short")) {
                return Some(false);
            }
            if slot == 0 {
                index -= 1;
                block = self.block(index)?;
                slot = BLOCK_SLOTS;
            }
            slot -= 1;
            if word(block, RUNENDS_AT) >> slot & 1 == 1 {
                return Some(false);
            }
        }
    }
}

#[inline]
fn word(block: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Whether a key with this hash may be in the filter. `partition` is the one selected by
/// [`crate::partition_of`]. Returns `true` for damaged bytes.
#[inline]
pub fn may_contain(partition: &[u8], hash: u64) -> bool {
    match Partition::open(partition) {
        Ok(Some(partition)) => partition.probe(low32(hash)).unwrap_or(true),
        Ok(None) | Err(Damage(_)) => true,
    }
}

/// Checks the consistency of a partition in one pass; for `verify`, not for reads.
pub fn check(partition: &[u8]) -> Result<(), Damage> {
    let Some(partition) = Partition::open(partition)? else { return Ok(()) };
    let slots = partition.block_count() * BLOCK_SLOTS;
    if usize::from(partition.quotients) > slots {
        return Err(Damage("a filter partition has more quotients than slots"));
    }
    let blocks = || (0..partition.block_count()).filter_map(|index| partition.block(index));
    let ends: Vec<usize> = ones(blocks().map(|block| word(block, RUNENDS_AT)));
    let mut ends = ends.into_iter();
    let (mut free, mut used) = (0usize, 0);
    for (index, block) in blocks().enumerate() {
        if usize::from(block[0]) != free.saturating_sub(index * BLOCK_SLOTS) {
            return Err(Damage("a filter block's offset is wrong"));
        }
        for bit in ones(std::iter::once(word(block, 1))) {
            let start = free.max(index * BLOCK_SLOTS + bit);
            let end = ends.next().ok_or(Damage("a filter partition lacks runends"))?;
            if end < start || index * BLOCK_SLOTS + bit >= usize::from(partition.quotients) {
                return Err(Damage("a filter run starts before its quotient"));
            }
            used += end + 1 - start;
            free = end + 1;
        }
    }
    if ends.next().is_some() || used != usize::from(partition.slots_used) {
        return Err(Damage("a filter partition's counts do not match"));
    }
    Ok(())
}

/// Positions of all set bits of a sequence of words.
fn ones(words: impl Iterator<Item = u64>) -> Vec<usize> {
    let bits = |word: u64| (0..BLOCK_SLOTS).filter(move |bit| word >> bit & 1 == 1);
    words.enumerate().flat_map(|(at, word)| bits(word).map(move |bit| at * BLOCK_SLOTS + bit)).collect()
}

const _: () =
    assert!(usize_of(u16::MAX as u64) >= PARTITION_BYTES, "counts of a partition must fit in 16 bits");

#[cfg(test)]
mod tests;
