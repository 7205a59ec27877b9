//! References that tree entries have in place of values stored in value segments (decision 0045).
//!
//! | kind of entry | bytes |
//! |---|---|
//! | reference | segment varint, number varint, length of the value varint |
//! | unmerged reference | a reference, then operands as in `operands_format.rs` |
//! | referred | a reference, then the value |
//!
//! A value written in pieces is in no segment: its reference has the highest bit and the value's own number
//! in place of the segment (decision 0050).
//!
//! **Invariants**
//! - A reference is never reused: segment ids are run ids, and each value of a segment has its own number.

use crate::{
    Kind, RunId,
    codec::{Damage, Reader, put_varint},
    num::u64_of,
};

/// Set in the segment field if the value is in pieces.
const PIECES_BIT: u64 = 1 << 63;

/// Identifies a value in a value segment, or a long value. The key is that of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueReference {
    /// The segment: the id of the run as which it was first written.
    pub segment: RunId,
    /// Number of the value in the segment, counted from 0 when it was written.
    pub number: u32,
    /// Bytes of the value.
    pub length: u32,
}

impl ValueReference {
    /// A reference to the long value with this number, which is stored in pieces.
    pub fn to_long_value(number: u64, length: u32) -> Self {
        debug_assert!(number < PIECES_BIT, "numbers of values in pieces are below the bit");
        Self { segment: RunId(PIECES_BIT | number), number: 0, length }
    }

    /// Number of the long value that it refers to; `None` if the value is in a segment.
    pub fn long_value(&self) -> Option<u64> {
        (self.segment.0 & PIECES_BIT != 0).then_some(self.segment.0 & !PIECES_BIT)
    }

    /// Whether the value is in a value segment.
    pub fn is_in_segment(&self) -> bool {
        self.segment.0 & PIECES_BIT == 0
    }

    /// Whether the entry refers to a long value, which is in no segment.
    pub fn is_to_long_value(kind: Kind, value: &[u8]) -> bool {
        Self::of(kind, value).is_ok_and(|reference| reference.is_some_and(|found| !found.is_in_segment()))
    }

    /// Appends the encoded reference.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_varint(out, self.segment.0);
        put_varint(out, u64::from(self.number));
        put_varint(out, u64::from(self.length));
        debug_assert_eq!(Self::split(&out[start..]), Ok((*self, &[][..])), "it decodes to itself");
    }

    /// Decodes a reference; returns it and the bytes after it.
    pub fn split(bytes: &[u8]) -> Result<(Self, &[u8]), Damage> {
        let mut reader = Reader::new(bytes);
        let segment = RunId(reader.varint()?);
        let number = narrow(reader.varint()?)?;
        let length = narrow(reader.varint()?)?;
        Ok((Self { segment, number, length }, reader.rest()))
    }

    /// Returns the reference of an entry, if it has one.
    pub fn of(kind: Kind, value: &[u8]) -> Result<Option<Self>, Damage> {
        match kind {
            Kind::Value | Kind::Tombstone | Kind::Operands | Kind::Unmerged | Kind::Referred => Ok(None),
            Kind::Reference => match Self::split(value)? {
                (reference, []) => Ok(Some(reference)),
                _ => Err(Damage("bytes follow a reference")),
            },
            Kind::UnmergedReference => Ok(Some(Self::split(value)?.0)),
        }
    }

    /// Splits an entry of a value segment into its reference and the value behind it.
    pub fn split_referred(bytes: &[u8]) -> Result<(Self, &[u8]), Damage> {
        let (reference, value) = Self::split(bytes)?;
        let fits = u64_of(value.len()) == u64::from(reference.length);
        fits.then_some((reference, value)).ok_or(Damage("a value's length differs from its reference"))
    }
}

fn narrow(number: u64) -> Result<u32, Damage> {
    u32::try_from(number).map_err(|_| Damage("a number in a reference is too large"))
}

#[cfg(test)]
mod tests;
