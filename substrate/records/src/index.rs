//! The index of a shard: buckets of eight slots, one cache line each. A slot has the position and the usage
//! of a record in 64 bits:
//!
//! ```text
//! 63 ‥ 37 tag │ 36 35 priority │ 34 ‥ 15 segment │ 14 ‥ 0 place in the segment, in words
//! ```
//!
//! A key maps to one bucket; if the bucket is full, its least valuable record is evicted. So there are no
//! chains, and a lookup costs one cache line.
//!
//! **Invariants**
//! - Slots are changed under the lock of the shard, except for priorities, which readers raise.
//! - No record is at place 0 of its segment, so that 0 is the empty slot.
//! - The memory of the index is charged to the pool.

use testudo_base::{
    chunks::ChunkPool,
    num::{low32, u64_of, usize_of},
    sync::{
        Arc, SharedSlice,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
        scaled, shared_slice,
    },
};

const PLACE_BITS: u32 = 15;
const SEGMENT_BITS: u32 = 20;
const PRIORITY_SHIFT: u32 = PLACE_BITS + SEGMENT_BITS;
const TAG_SHIFT: u32 = PRIORITY_SHIFT + 2;
const LOCATION_MASK: u64 = (1 << PRIORITY_SHIFT) - 1;

/// Number of bits of a tag.
pub(crate) const TAG_BITS: u32 = 64 - TAG_SHIFT;
/// Maximum number of segments of a shard.
pub(crate) const SEGMENTS_MAX: u32 = 1 << SEGMENT_BITS;
/// Maximum words of a segment.
pub(crate) const SEGMENT_WORDS_MAX: usize = 1 << PLACE_BITS;
/// Maximum number of uses counted.
pub(crate) const PRIORITY_MAX: u8 = 3;

/// Position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u32,
    pub(crate) place: usize,
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u64);

impl Slot {
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn new(tag: u32, priority: u8, at: Location) -> Self {
        debug_assert!(at.place > 0 && at.place < SEGMENT_WORDS_MAX, "place 0 is the empty slot");
        debug_assert!(at.segment < SEGMENTS_MAX, "ids of segments are bounded");
        debug_assert!(priority <= PRIORITY_MAX && tag >> TAG_BITS == 0, "priority and tag fit");
        let location = u64::from(at.segment) << PLACE_BITS | u64_of(at.place);
        Self(u64::from(tag) << TAG_SHIFT | u64::from(priority) << PRIORITY_SHIFT | location)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn tag(self) -> u32 {
        low32(self.0 >> TAG_SHIFT)
    }

    pub(crate) fn priority(self) -> u8 {
        u8::try_from(self.0 >> PRIORITY_SHIFT & 3).expect("two bits")
    }

    pub(crate) fn location(self) -> Location {
        let location = self.0 & LOCATION_MASK;
        Location {
            segment: low32(location >> PLACE_BITS),
            place: usize_of(location & ((1 << PLACE_BITS) - 1)),
        }
    }

    /// Returns the slot with one more use; `None` if the count is saturated.
    pub(crate) fn raised(self) -> Option<Self> {
        (self.priority() < PRIORITY_MAX).then(|| Self(self.0 + (1 << PRIORITY_SHIFT)))
    }
}

/// Number of slots in a bucket.
pub(crate) const WAYS: usize = scaled(8, 2);

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Bucket([AtomicU64; WAYS]);

#[derive(Debug)]
pub(crate) struct Index {
    buckets: SharedSlice<Bucket>,
    pool: Arc<ChunkPool>,
}

impl Bucket {
    /// Loads all slots.
    #[inline]
    pub(crate) fn load(&self) -> [Slot; WAYS] {
        std::array::from_fn(|way| Slot(self.0[way].load(Acquire)))
    }

    /// REQUIRES: the lock of the shard is held.
    pub(crate) fn set(&self, way: usize, slot: Slot) {
        debug_assert!(way < WAYS, "a way of the bucket");
        self.0[way].store(slot.0, Release);
    }

    /// Counts a use, unless the slot was changed concurrently.
    #[inline]
    pub(crate) fn raise(&self, way: usize, seen: Slot) {
        if let Some(raised) = seen.raised() {
            let _ = self.0[way].compare_exchange(seen.0, raised.0, Relaxed, Relaxed);
        }
    }

    /// Returns the way whose slot refers to `location`.
    pub(crate) fn way_to(&self, location: Location) -> Option<(usize, Slot)> {
        let slots = self.load();
        let way = slots.iter().position(|slot| !slot.is_empty() && slot.location() == location)?;
        Some((way, slots[way]))
    }

    /// Returns the way for a new record: an empty one, or that of the least valuable record.
    pub(crate) fn way_for<W: Ord>(&self, tag: u32, worth: impl Fn(Slot) -> W) -> (usize, Slot) {
        let slots = self.load();
        let first = usize_of(u64::from(tag)) % WAYS;
        let ways = (0..WAYS).map(|turn| (first + turn) % WAYS);
        let way = ways.clone().find(|way| slots[*way].is_empty());
        let least = || ways.min_by_key(|way| worth(slots[*way])).expect("a bucket has ways");
        let way = way.unwrap_or_else(least);
        (way, slots[way])
    }
}

impl Index {
    pub(crate) fn new(bucket_count: usize, pool: &Arc<ChunkPool>) -> Self {
        let buckets = shared_slice(bucket_count.max(1));
        pool.charge_slice(u64_of(size_of_val(&*buckets)));
        Self { buckets, pool: Arc::clone(pool) }
    }

    #[inline]
    pub(crate) fn bucket(&self, tag: u32) -> &Bucket {
        debug_assert!(tag >> TAG_BITS == 0, "a tag of {TAG_BITS} bits");
        &self.buckets[usize_of((u64::from(tag) * u64_of(self.buckets.len())) >> TAG_BITS)]
    }

    pub(crate) fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.buckets.len() * WAYS
    }

    /// Moves the slots to an index with another number of buckets; returns it and the number of slots.
    /// Records that do not fit are evicted.
    pub(crate) fn resized<W: Ord>(&self, bucket_count: usize, worth: impl Fn(Slot) -> W) -> (Self, usize) {
        let next = Self::new(bucket_count, &self.pool);
        let mut count = 0;
        for slot in self.buckets.iter().flat_map(Bucket::load).filter(|slot| !slot.is_empty()) {
            let bucket = next.bucket(slot.tag());
            let (way, present) = bucket.way_for(slot.tag(), &worth);
            if present.is_empty() {
                count += 1;
            } else if worth(present) >= worth(slot) {
                continue;
            }
            bucket.set(way, slot);
        }
        debug_assert!(count <= next.slot_count(), "every record has a slot");
        (next, count)
    }

    /// Bytes of memory used.
    pub(crate) fn bytes(&self) -> u64 {
        u64_of(size_of_val(&*self.buckets))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.pool.discharge_slice(self.bytes());
    }
}

/// Returns the tag of a key: the high bits of its hash, which is spread over keyspaces.
#[inline]
pub(crate) fn tag_of(hash: u64) -> u32 {
    low32(hash >> (64 - TAG_BITS))
}

#[cfg(test)]
mod tests;
