//! Bulk construction of a filter from the hashes of all its keys, in any order.
//!
//! Hashes are scattered to their partitions, then each partition is sorted by quotient. Both are counting
//! sorts, so that no comparison sort is needed and a key costs a few nanoseconds.
//!
//! **Invariants**
//! - A partition uses the widest range of quotients that fits. It answers "maybe" to everything only if its
//!   distinct hashes outnumber its slots, or an offset does not fit into its byte.

use testudo_base::{
    LargeSlice,
    num::{high32, low32, scale32, u16_of, u32_of, u64_of, usize_of},
};

use crate::{
    PARTITION_BYTES,
    partition::{
        ALWAYS_MAYBE, BLOCK_HEAD_BYTES, BLOCK_SLOTS, HEADER_BYTES, RUNENDS_AT, Shape, quotient_of,
        remainder_of,
    },
};

/// Maximum load in percent; beyond it runs get long and overflow past the last slot becomes likely.
const LOAD_PERCENT_MAX: u64 = 93;
/// A sole partition has one spare slot for this many keys: a load of 92 %.
const SPARE_PARTS: usize = 11;
/// Minimum number of spare slots: in a small partition, the runs of a few quotients overflow together.
const SPARE_SLOTS_MIN: usize = 8;
/// One in this many slots has no quotient: the runs of the last quotients overflow into them.
const OVERFLOW_PARTS: usize = 50;
/// If the runs overflow nevertheless, each retry has this part fewer quotients.
const RETRY_PARTS: usize = 16;
const SHAPE: Shape = Shape::WRITTEN;

/// Returns the number of partitions for a filter over `key_count` keys, at least one.
///
/// The load of a partition stays below 93 % even with two and a half standard deviations more keys than the
/// average. Panics beyond about 10^13 keys.
pub fn partition_count(key_count: u64) -> u32 {
    let slots = u64_of(SHAPE.blocks_max * BLOCK_SLOTS);
    let most = slots * LOAD_PERCENT_MAX / 100;
    if key_count <= most {
        return 1;
    }
    let mean = most - (25 * most).isqrt() / 2;
    debug_assert!(mean > 0 && mean < slots, "an average partition has room left");
    let count = u32_of(usize_of(key_count.div_ceil(mean)));
    debug_assert!(count > 1, "more keys than one partition takes");
    count
}

/// Returns the maximum bytes of the filter over `key_count` keys.
pub fn bytes(key_count: u64) -> u64 {
    let count = partition_count(key_count);
    if count > 1 {
        return u64::from(count) * u64_of(PARTITION_BYTES);
    }
    u64_of(HEADER_BYTES + blocks_for(usize_of(key_count)) * SHAPE.block_bytes)
}

/// Returns the partition of a hash, in `0..partition_count`.
#[inline]
pub fn partition_of(hash: u64, partition_count: u32) -> u32 {
    let partition = scale32(high32(hash), partition_count);
    debug_assert!(partition < partition_count.max(1), "a partition of the filter");
    partition
}

/// Builds the filter over `hashes`, passing each partition to `write`, and returns the number of partitions,
/// which is [`partition_count`] of the number of hashes.
///
/// Hashes may be unsorted and repeated. If there are several partitions, each takes [`PARTITION_BYTES`]; a
/// sole partition takes only the bytes that its keys need, up to that.
///
/// Errors: those of `write`, which is then not called again.
pub fn build<E>(hashes: &[u64], mut write: impl FnMut(&[u8]) -> Result<(), E>) -> Result<u32, E> {
    let count = partition_count(u64_of(hashes.len()));
    let (mut scattered, ends) = scatter(hashes, count);
    let mut encoder = Encoder { places: Vec::new(), sorted: Vec::new() };
    let blocks = if count == 1 { blocks_for(hashes.len()) } else { SHAPE.blocks_max };
    let mut partition = Vec::new();
    let mut start = 0;
    for end in ends {
        partition.clear();
        encoder.encode(&mut scattered[start..end], blocks, &mut partition);
        if count > 1 {
            partition.resize(PARTITION_BYTES, 0);
        }
        debug_assert!(partition.len() <= PARTITION_BYTES, "a partition fits into a page");
        write(&partition)?;
        start = end;
    }
    debug_assert_eq!(start, hashes.len(), "every hash is in a partition");
    Ok(count)
}

/// Blocks of a sole partition over `key_count` keys.
fn blocks_for(key_count: usize) -> usize {
    if key_count == 0 {
        return 0;
    }
    (key_count + key_count / SPARE_PARTS + SPARE_SLOTS_MIN).div_ceil(BLOCK_SLOTS).min(SHAPE.blocks_max)
}

/// Returns the low halves of the hashes, ordered by partition, and the end of each partition.
fn scatter(hashes: &[u64], partition_count: u32) -> (LargeSlice<u32>, Vec<usize>) {
    let mut scattered = LargeSlice::unfilled(hashes.len());
    if partition_count == 1 {
        scattered.iter_mut().zip(hashes).for_each(|(low, hash)| *low = low32(*hash));
        return (scattered, vec![hashes.len()]);
    }
    let mut at = vec![0usize; partition_count as usize];
    for &hash in hashes {
        at[partition_of(hash, partition_count) as usize] += 1;
    }
    let mut sum = 0;
    for place in &mut at {
        (*place, sum) = (sum, sum + *place);
    }
    let places = &mut *scattered;
    for &hash in hashes {
        let place = &mut at[partition_of(hash, partition_count) as usize];
        places[*place] = low32(hash);
        *place += 1;
    }
    (scattered, at)
}

/// Encodes partitions in sequence, with reused scratch space.
struct Encoder {
    /// Position of the next hash of each quotient.
    places: Vec<u16>,
    /// All hashes sorted by quotient: quotient in the high half, remainder in the low half.
    sorted: Vec<u32>,
}

impl Encoder {
    /// Appends one partition of `blocks` blocks.
    fn encode(&mut self, mut hashes: &mut [u32], blocks: usize, out: &mut Vec<u8>) {
        let slots = blocks * BLOCK_SLOTS;
        let at = out.len();
        let mut quotients = slots - (slots / OVERFLOW_PARTS).max(SPARE_SLOTS_MIN).min(slots);
        // Retries if they do not fit: equal hashes need only one slot, and fewer quotients leave more slots
        // for the overflow past the last quotient.
        for attempt in 0..5 {
            if attempt == 1 {
                hashes.sort_unstable();
                let distinct = dedup(hashes);
                hashes = &mut hashes[..distinct];
            } else if attempt > 1 {
                quotients -= quotients / RETRY_PARTS;
            }
            if hashes.len() > slots {
                continue;
            }
            out.resize(at + HEADER_BYTES + blocks * SHAPE.block_bytes, 0);
            debug_assert!(quotients <= slots, "a quotient has a slot");
            self.sort(hashes, u16_of(quotients));
            if self.fill(&mut out[at + HEADER_BYTES..]) {
                let header = SHAPE.header(blocks, u16_of(quotients), u16_of(hashes.len()));
                out[at..at + HEADER_BYTES].copy_from_slice(&header);
                return;
            }
            out.truncate(at);
        }
        out.resize(at + HEADER_BYTES, 0);
        out[at] = ALWAYS_MAYBE;
    }

    /// Sorts the hashes by quotient. REQUIRES: no more hashes than slots.
    fn sort(&mut self, hashes: &[u32], quotients: u16) {
        debug_assert!(quotients > 0 || hashes.is_empty(), "hashes need at least one quotient");
        self.places.clear();
        self.places.resize(usize::from(quotients), 0);
        for &hash in hashes {
            self.places[quotient_of(hash, quotients) as usize] += 1;
        }
        let mut sum = 0;
        for place in &mut self.places {
            (*place, sum) = (sum, sum + *place);
        }
        debug_assert_eq!(usize::from(sum), hashes.len(), "every hash has a quotient");
        self.sorted.clear();
        self.sorted.resize(hashes.len(), 0);
        for &hash in hashes {
            let quotient = quotient_of(hash, quotients);
            let place = &mut self.places[quotient as usize];
            self.sorted[usize::from(*place)] = quotient << 16 | u32::from(remainder_of(hash));
            *place += 1;
        }
    }

    /// Fills zeroed blocks from the sorted hashes; returns whether they fit.
    fn fill(&self, blocks: &mut [u8]) -> bool {
        let Shape { block_bytes, remainder_bytes, .. } = SHAPE;
        let slots = blocks.len() / block_bytes * BLOCK_SLOTS;
        let mut free = 0usize;
        let mut sorted = self.sorted.as_slice();
        for first in (0..slots).step_by(BLOCK_SLOTS) {
            let head = first / BLOCK_SLOTS * block_bytes;
            let Ok(offset) = u8::try_from(free.saturating_sub(first)) else { return false };
            blocks[head] = offset;
            let mut occupieds = 0u64;
            let mut previous = usize::MAX;
            while let Some((&hash, rest)) = sorted.split_first() {
                let quotient = (hash >> 16) as usize;
                if quotient >= first + BLOCK_SLOTS {
                    break;
                }
                sorted = rest;
                // No branch on whether the run continues: it would be mispredicted every other time.
                let goes_on = quotient == previous;
                previous = quotient;
                debug_assert!(quotient >= first || quotient == previous, "quotients ascend");
                let slot = free.max(quotient);
                if slot >= slots {
                    return false;
                }
                occupieds |= 1 << (quotient - first);
                let before = slot.saturating_sub(1);
                blocks[runend_byte(before, block_bytes)] &= !(u8::from(goes_on) << (before % 8));
                blocks[runend_byte(slot, block_bytes)] |= 1 << (slot % 8);
                let place = slot / BLOCK_SLOTS * block_bytes
                    + BLOCK_HEAD_BYTES
                    + slot % BLOCK_SLOTS * remainder_bytes;
                blocks[place] = hash.to_le_bytes()[0];
                free = slot + 1;
            }
            blocks[head + 1..][..8].copy_from_slice(&occupieds.to_le_bytes());
        }
        true
    }
}

/// Index of the byte that holds the runend bit of `slot`.
#[inline]
fn runend_byte(slot: usize, block_bytes: usize) -> usize {
    slot / BLOCK_SLOTS * block_bytes + RUNENDS_AT + slot % BLOCK_SLOTS / 8
}

/// Moves the distinct values of a sorted slice to its front and returns their number.
fn dedup(sorted: &mut [u32]) -> usize {
    debug_assert!(sorted.is_sorted(), "equal hashes are adjacent");
    let mut kept = 0;
    for at in 0..sorted.len() {
        if kept == 0 || sorted[kept - 1] != sorted[at] {
            sorted[kept] = sorted[at];
            kept += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests;
