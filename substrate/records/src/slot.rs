//! A slot of the index: 64 bits with the position and the usage of a record.
//!
//! ```text
//! 63 ‥ 37 tag │ 36 35 priority │ 34 ‥ 15 segment │ 14 ‥ 0 place in the segment, in words
//! ```
//!
//! **Invariants**
//! - No record is at place 0 of its segment, so that 0 is the empty slot.

use testudo_base::num::{low32, u64_of, usize_of};

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

#[cfg(test)]
mod tests;
