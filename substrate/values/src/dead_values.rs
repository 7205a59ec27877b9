//! Which values of a segment are dead: a bit for each that was ever written to it.
//!
//! **Invariants**
//! - `dead` counts the bits that are set; none is set beyond `count`.

use testudo_base::{
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
};

/// Bits of a word.
const WORD_BITS: u32 = 64;

/// A set of numbers of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadValues {
    count: u32,
    dead: u32,
    /// Empty as long as none is dead.
    words: Vec<u64>,
}

impl DeadValues {
    /// None of `count` values.
    pub fn none_of(count: u32) -> Self {
        Self { count, dead: 0, words: Vec::new() }
    }

    /// All of `count` values.
    pub(crate) fn all_of(count: u32) -> Self {
        let mut all = Self::none_of(count);
        for number in 0..count {
            let is_new = all.insert(number);
            debug_assert!(is_new, "each once");
        }
        all
    }

    /// Value `number` lives after all; `false` if there is no such value that is dead.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        self.words[usize_of(u64::from(number / WORD_BITS))] &= !(1 << (number % WORD_BITS));
        self.dead -= 1;
        true
    }

    /// How many values there are, dead ones included.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many are dead.
    pub fn dead(&self) -> u32 {
        self.dead
    }

    /// Whether value `number` is dead.
    pub fn contains(&self, number: u32) -> bool {
        let word = self.words.get(usize_of(u64::from(number / WORD_BITS)));
        word.is_some_and(|word| word >> (number % WORD_BITS) & 1 == 1)
    }

    /// Value `number` dies; `false` if there is no such value that lives.
    #[must_use]
    pub fn insert(&mut self, number: u32) -> bool {
        if number >= self.count || self.contains(number) {
            return false;
        }
        self.words.resize(usize_of(u64::from(self.count.div_ceil(WORD_BITS))), 0);
        self.words[usize_of(u64::from(number / WORD_BITS))] |= 1 << (number % WORD_BITS);
        self.dead += 1;
        true
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_u32(out, self.count);
        codec::put_u32(out, u32_of(self.words.len()));
        self.words.iter().for_each(|word| codec::put_u64(out, *word));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let (count, length) = (reader.u32()?, reader.u32()?);
        if length != 0 && length != count.div_ceil(WORD_BITS) || u64::from(length) * 8 > 1 << 30 {
            return Err(Damage("a segment has an impossible number of values"));
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
            return Err(Damage("a segment has dead values that it never had"));
        }
        Ok(Self { count, dead, words })
    }
}

#[cfg(test)]
mod tests;
