//! The references to values that end in a piece of work.
//!
//! A merge may drop as many references as it reads, so they are kept as bits of the values' numbers: a list
//! would take 24 bytes for each, of a tree whose values are outside as much as the tree itself.
//!
//! **Invariants**
//! - A bit is set if the reference ended an odd number of times more, or less, than it was made. Each is to
//!   end once more than it was made, or as often; then the bits are what ended, and as many as
//!   [`SegmentDrops::values`] says.

use std::collections::BTreeMap;

use crate::{RunId, ValueReference};

/// Numbers of a word.
const WORD_BITS: u32 = u64::BITS;

/// What became of references to values: how often each of them ended and was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceDrops(BTreeMap<RunId, SegmentDrops>);

/// Of the references to values of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentDrops {
    /// How many ended, less those that were made.
    values: i64,
    /// The same for bytes of their values.
    bytes: i64,
    /// Numbers of values, of 64 in a row in each word.
    words: BTreeMap<u32, u64>,
}

impl ReferenceDrops {
    /// An entry with the reference ends.
    pub fn dropped(&mut self, reference: &ValueReference) {
        self.note(reference, 1);
    }

    /// An entry with the reference is made of others.
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

    /// What there is of each segment, by its id.
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
    /// How many references ended, less those that were made.
    pub fn values(&self) -> i64 {
        self.values
    }

    /// Bytes of the values that these lead to.
    pub fn bytes(&self) -> i64 {
        self.bytes
    }

    /// The numbers of the values to which they led, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.words.iter().flat_map(|(at, bits)| {
            (0..WORD_BITS).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at * WORD_BITS + bit)
        })
    }
}

#[cfg(test)]
mod tests;
