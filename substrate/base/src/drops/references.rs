//! References to values that a step of work drops.
//!
//! A merge may drop as many references as it reads, so they are kept as bit sets of value numbers. A list
//! would take 24 bytes per reference: as much as the tree itself, if its values are separated.
//!
//! **Invariants**
//! - A bit is set if the counts of drops and makes of the reference differ by an odd number. Each reference
//!   must be dropped either once more than it was made, or equally often; then the bits are the dropped ones,
//!   and their number is [`SegmentDrops::values`].

use std::collections::BTreeMap;

use crate::{RunId, ValueReference};

/// Value numbers per word.
const WORD_BITS: u32 = u64::BITS;

/// Net drops of references to values: how often each was dropped and made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceDrops(BTreeMap<RunId, SegmentDrops>);

/// Net drops of references to the values of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentDrops {
    /// Number of references dropped, minus those made.
    values: i64,
    /// Bytes of their values, dropped minus made.
    bytes: i64,
    /// Bits of value numbers, 64 per word.
    words: BTreeMap<u32, u64>,
}

impl ReferenceDrops {
    /// Records that an entry with the reference was dropped.
    pub fn dropped(&mut self, reference: &ValueReference) {
        self.note(reference, 1);
    }

    /// Records that an entry with the reference was made from others.
    pub fn made(&mut self, reference: &ValueReference) {
        self.note(reference, -1);
    }

    fn note(&mut self, reference: &ValueReference, sign: i64) {
        let of_segment = self.0.entry(reference.segment).or_default();
        of_segment.values += sign;
        of_segment.bytes += sign * i64::from(reference.length);
        *of_segment.words.entry(reference.number / WORD_BITS).or_default() ^=
            1 << (reference.number % WORD_BITS);
    }

    /// Iterates over the segments, by id.
    pub fn iter(&self) -> impl Iterator<Item = (RunId, &SegmentDrops)> {
        self.0.iter().map(|(segment, drops)| (*segment, drops))
    }
}

impl std::ops::AddAssign for ReferenceDrops {
    fn add_assign(&mut self, mut more: Self) {
        if more.0.len() > self.0.len() {
            std::mem::swap(self, &mut more);
        }
        for (segment, more) in more.0 {
            let of_segment = self.0.entry(segment).or_default();
            of_segment.values += more.values;
            of_segment.bytes += more.bytes;
            for (at, bits) in more.words {
                *of_segment.words.entry(at).or_default() ^= bits;
            }
        }
    }
}

impl SegmentDrops {
    /// Number of references dropped, minus those made.
    pub fn values(&self) -> i64 {
        self.values
    }

    /// Bytes of their values.
    pub fn bytes(&self) -> i64 {
        self.bytes
    }

    /// Numbers of the values that they referred to, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.words.iter().flat_map(|(at, bits)| {
            (0..WORD_BITS).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at * WORD_BITS + bit)
        })
    }
}

#[cfg(test)]
mod tests;
