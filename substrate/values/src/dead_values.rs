//! The dead values of a segment: one bit for each value ever written to it.
//!
//! **Invariants**
//! - `dead` is the number of set bits; none is set at or beyond `count`.

use testudo_base::{
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
};

/// Bits of a word.
const WORD_BITS: u32 = 64;

/// Set of the numbers of dead values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadValues {
    count: u32,
    dead: u32,
    /// Empty while no value is dead.
    words: Vec<u64>,
}

impl DeadValues {
    /// Creates an empty set for a segment of `count` values.
    pub fn none_of(count: u32) -> Self {
        Self { count, dead: 0, words: Vec::new() }
    }

    /// Creates the set of all of `count` values.
    pub(crate) fn all_of(count: u32) -> Self {
        let mut all = Self::none_of(count);
        for number in 0..count {
            let is_new = all.insert(number);
            debug_assert!(is_new, "each number is new");
        }
        all
    }

    /// Marks value `number` live again; `false` if it is not a dead value.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        self.words[usize_of(u64::from(number / WORD_BITS))] &= !(1 << (number % WORD_BITS));
        debug_assert!(self.dead > 0, "dead values are counted");
        self.dead -= 1;
        true
    }

    /// Number of values, including dead ones.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of dead values.
    pub fn dead(&self) -> u32 {
        self.dead
    }

    /// Whether value `number` is dead.
    pub fn contains(&self, number: u32) -> bool {
        let word = self.words.get(usize_of(u64::from(number / WORD_BITS)));
        word.is_some_and(|word| word >> (number % WORD_BITS) & 1 == 1)
    }

    /// Marks value `number` dead; `false` if it does not exist or is dead already.
    #[must_use]
    pub fn insert(&mut self, number: u32) -> bool {
        if number >= self.count || self.contains(number) {
            return false;
        }
        self.words.resize(usize_of(u64::from(self.count.div_ceil(WORD_BITS))), 0);
        self.words[usize_of(u64::from(number / WORD_BITS))] |= 1 << (number % WORD_BITS);
        self.dead += 1;
        debug_assert!(self.dead <= self.count, "a value dies once");
        true
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(
            self.words.is_empty() || u32_of(self.words.len()) == self.count.div_ceil(WORD_BITS),
            "a bit per value"
        );
        codec::put_u32(out, self.count);
        codec::put_u32(out, u32_of(self.words.len()));
        self.words.iter().for_each(|word| codec::put_u64(out, *word));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let (count, length) = (reader.u32()?, reader.u32()?);
        if length != 0 && length != count.div_ceil(WORD_BITS) || u64::from(length) * 8 > 1 << 30 {
            return Err(Damage("a segment has an invalid number of values"));
        }
        let mut bits = Reader::new(reader.take(usize_of(u64::from(length)) * 8)?);
        let mut words = Vec::new();
        while !bits.is_empty() {
            words.push(bits.u64()?);
        }
        let dead = words.iter().map(|word| word.count_ones()).sum();
        let beyond = words.last().map_or(0, |last| match count % WORD_BITS {
            0 => 0,
            used => last >> used,
        });
        if beyond != 0 {
            return Err(Damage("a segment has dead values beyond its count"));
        }
        Ok(Self { count, dead, words })
    }
}

#[cfg(test)]
mod tests;
