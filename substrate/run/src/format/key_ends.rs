//! The key range of a run, in a bounded number of bytes.
//!
//! A reference is kept in memory for every run, and keys can be long: at most [`MAX_END_BYTES`] of the first
//! and the last key are kept. These are bounds, exact for shorter keys. [`crate::Run::exact_ends`] reads the
//! exact keys.
//!
//! Encoded (little-endian; `str` = u32 length and bytes): first key str · last key str · u8, 1 if the first
//! key was cut + 2 if the last one was.
//!
//! **Invariants**
//! - The first key starts with `first`, the last key with `last`; each is equal to it unless it was cut.
//! - Only a key longer than [`MAX_END_BYTES`] is cut, to that length.

use testudo_base::{
    codec::{self, Damage, Reader},
    key,
    num::u16_of,
    planted,
};

use crate::KeyBounds;

/// Maximum bytes kept of the first and of the last key.
pub const MAX_END_BYTES: usize = 256;

const FIRST_IS_CUT: u8 = 1;
const LAST_IS_CUT: u8 = 2;

/// Bounds of the keys of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEnds {
    /// Both ends concatenated, or one if they are equal.
    bytes: Box<[u8]>,
    first_end: u16,
    last_start: u16,
    cuts: u8,
}

impl KeyEnds {
    /// Creates the ends of a run from `first` to `last`.
    pub fn of(first: &[u8], last: &[u8]) -> Self {
        debug_assert!(first <= last, "the first key must not exceed the last");
        fn kept(key: &[u8]) -> &[u8] {
            &key[..key.len().min(MAX_END_BYTES)]
        }
        let cut = |key: &[u8], mark: u8| if key.len() > MAX_END_BYTES { mark } else { 0 };
        Self::from_kept(kept(first), kept(last), cut(first, FIRST_IS_CUT) | cut(last, LAST_IS_CUT))
    }

    fn from_kept(first: &[u8], last: &[u8], cuts: u8) -> Self {
        let bytes: Box<[u8]> = if first == last { first.into() } else { [first, last].concat().into() };
        let last_start = bytes.len() - last.len();
        Self { first_end: u16_of(first.len()), last_start: u16_of(last_start), bytes, cuts }
    }

    /// The first key, or the first [`MAX_END_BYTES`] of it: a lower bound of all keys of the run.
    #[inline]
    pub fn first(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.first_end)).unwrap_or_default()
    }

    /// The last key, or the first [`MAX_END_BYTES`] of it.
    #[inline]
    pub fn last(&self) -> &[u8] {
        self.bytes.get(usize::from(self.last_start)..).unwrap_or_default()
    }

    /// Whether the first key was cut.
    pub fn first_is_cut(&self) -> bool {
        self.cuts & FIRST_IS_CUT != 0
    }

    /// Whether the last key was cut.
    #[inline]
    pub fn last_is_cut(&self) -> bool {
        self.cuts & LAST_IS_CUT != 0
    }

    /// Whether all keys of the run are certainly ≥ `key`.
    #[inline]
    pub fn begin_at_or_after(&self, key: &[u8]) -> bool {
        self.first() >= key
    }

    /// Whether all keys of the run are certainly less than `key`.
    #[inline]
    pub fn end_before(&self, key: &[u8]) -> bool {
        self.last() < key && !self.goes_on_with(key)
    }

    /// Whether the last key was cut so that it is unknown whether `key` is beyond it.
    #[inline]
    fn goes_on_with(&self, key: &[u8]) -> bool {
        self.last_is_cut() && key.starts_with(self.last()) && !planted!("cut-last-key-taken-for-whole")
    }

    /// Whether `key` may be within the ends.
    #[inline]
    pub fn may_hold(&self, key: &[u8]) -> bool {
        self.first() <= key && !self.end_before(key)
    }

    /// Returns the smallest range that certainly contains all keys.
    pub fn bounds(&self) -> KeyBounds {
        let low = (!self.first().is_empty()).then(|| self.first().to_vec());
        let high = if self.last_is_cut() {
            key::prefix_end(self.last())
        } else {
            Some([self.last(), &[0][..]].concat())
        };
        KeyBounds { low, high }
    }

    /// Whether `key` can be the first key.
    pub fn can_begin_with(&self, key: &[u8]) -> bool {
        *self.first() == key[..key.len().min(MAX_END_BYTES)]
            && self.first_is_cut() == (key.len() > MAX_END_BYTES)
    }

    /// Whether `key` can be the last key.
    pub fn can_end_with(&self, key: &[u8]) -> bool {
        *self.last() == key[..key.len().min(MAX_END_BYTES)]
            && self.last_is_cut() == (key.len() > MAX_END_BYTES)
    }

    /// Whether the run certainly has a key ≥ `border`.
    pub fn reach(&self, border: &[u8]) -> bool {
        self.last() >= border
    }

    /// Whether the run certainly has a key less than `border`.
    pub fn begin_before(&self, border: &[u8]) -> bool {
        self.first() < border && !(self.first_is_cut() && border.starts_with(self.first()))
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.first());
        codec::put_bytes(out, self.last());
        codec::put_u8(out, self.cuts);
    }

    /// Decodes the encoding.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let (first, last) = (reader.bytes(MAX_END_BYTES)?, reader.bytes(MAX_END_BYTES)?);
        let ends = Self::from_kept(first, last, reader.u8()?);
        let fits = |key: &[u8], is_cut: bool| !is_cut || key.len() == MAX_END_BYTES;
        let is_valid = ends.first() <= ends.last()
            && ends.cuts <= FIRST_IS_CUT | LAST_IS_CUT
            && fits(ends.first(), ends.first_is_cut())
            && fits(ends.last(), ends.last_is_cut());
        if is_valid { Ok(ends) } else { Err(Damage("the key ends of a run are inconsistent")) }
    }
}

#[cfg(test)]
mod tests;
