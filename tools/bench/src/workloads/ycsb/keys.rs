//! The key of a record: "user" and the digits of its number, scrambled so that consecutive numbers scatter.
//!
//! **Invariants**
//! - Distinct numbers below [`KeyMaker::capacity`] have distinct keys of the same length.
//! - Keys compare like their positions, so the key space can be cut into equal parts.

use testudo::{Error, Result};
use testudo_base::{
    MAX_KEY_BYTES,
    num::{low64, u64_of},
};

const PREFIX: &[u8; 4] = b"user";
/// Digits of the largest 64-bit number; longer keys are padded at the end.
const DIGITS_MAX: usize = 20;
const DIGITS_MIN: usize = 4;
/// Sorts after every digit.
const AFTER_DIGITS: u8 = b'9' + 1;

/// Makes keys of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyMaker {
    key_bytes: usize,
    digits: usize,
    position_bits: u32,
    scrambled: bool,
    /// Bits of a number that are not scrambled.
    adjacent_bits: u32,
}

impl KeyMaker {
    /// Creates a maker of keys of `key_bytes`, in random order.
    pub(crate) fn new(key_bytes: usize) -> Result<Self> {
        let shortest = PREFIX.len() + DIGITS_MIN;
        if !(shortest..=MAX_KEY_BYTES).contains(&key_bytes) {
            let message = format!("--key-bytes {key_bytes}: keys have {shortest} to {MAX_KEY_BYTES} bytes");
            return Err(Error::invalid(message));
        }
        let digits = (key_bytes - PREFIX.len()).min(DIGITS_MAX);
        // The widest power of two that the digits hold.
        let position_bits =
            if digits == DIGITS_MAX { 64 } else { (1..digits).fold(10u64, |power, _| power * 10).ilog2() };
        Ok(Self { key_bytes, digits, position_bits, scrambled: true, adjacent_bits: 0 })
    }

    /// Returns a maker of the same keys in numerical order.
    pub(crate) fn in_order(self) -> Self {
        Self { scrambled: false, ..self }
    }

    /// Returns a maker with which `count` consecutive records are adjacent, from each multiple of `count` on.
    /// REQUIRES: `count` is a power of two.
    pub(crate) fn adjacent(self, count: u64) -> Self {
        debug_assert!(count.is_power_of_two());
        Self { adjacent_bits: count.trailing_zeros(), ..self }
    }

    /// Returns the number of consecutive records that are adjacent.
    pub(crate) fn adjacent_records(&self) -> u64 {
        1 << self.adjacent_bits
    }

    /// Returns the number of distinct keys.
    pub(crate) fn capacity(&self) -> u64 {
        if self.position_bits == 64 { u64::MAX } else { 1 << self.position_bits }
    }

    /// Bytes of every key.
    pub(crate) fn key_bytes(&self) -> u64 {
        u64_of(self.key_bytes)
    }

    /// Writes the key of record `number` to `key`.
    #[inline]
    pub(crate) fn write(&self, number: u64, key: &mut Vec<u8>) {
        self.write_position(self.position(number), key);
    }

    /// Writes a key that no record has to `key`: that of record `number` with its last byte replaced by one
    /// greater than any digit.
    #[inline]
    pub(crate) fn write_absent(&self, number: u64, key: &mut Vec<u8>) {
        self.write(number, key);
        if let Some(last) = key.last_mut() {
            *last = AFTER_DIGITS;
        }
    }

    /// Writes the first key of part `part` of `parts` equal parts of the key space to `key`.
    pub(crate) fn write_boundary(&self, part: usize, parts: usize, key: &mut Vec<u8>) {
        let position = self.positions() * u128::from(u64_of(part)) / u128::from(u64_of(parts));
        self.write_position(u64::try_from(position).unwrap_or(u64::MAX), key);
    }

    /// Returns which of `parts` equal parts of the key space has the key of record `number`.
    pub(crate) fn part(&self, number: u64, parts: u64) -> u64 {
        low64((u128::from(self.position(number)) * u128::from(parts)) >> self.position_bits)
    }

    /// Returns the distance of record `number` from the start of the key space, 0 to 1.
    pub(crate) fn fraction(&self, number: u64) -> f64 {
        self.position(number) as f64 / self.positions() as f64
    }

    /// Returns the number of positions.
    pub(crate) fn positions(&self) -> u128 {
        1u128 << self.position_bits
    }

    /// Returns the position of record `number` in key order.
    pub(crate) fn position(&self, number: u64) -> u64 {
        if !self.scrambled {
            return number;
        }
        let first = scramble(number >> self.adjacent_bits, self.position_bits - self.adjacent_bits);
        first << self.adjacent_bits | (number & (self.adjacent_records() - 1))
    }

    #[inline]
    fn write_position(&self, mut position: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(PREFIX);
        key.resize(self.key_bytes, b'0');
        let digits = &mut key[PREFIX.len()..PREFIX.len() + self.digits];
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (position % 10) as u8;
            position /= 10;
        }
    }
}

/// Permutes the numbers of `bits` bits: each step is invertible.
#[inline]
fn scramble(number: u64, bits: u32) -> u64 {
    let mask = u64::MAX >> (64 - bits);
    let half = bits.div_ceil(2);
    let mut mixed = number & mask;
    for factor in [0x9fb2_1c65_1e98_df25, 0xd6e8_feb8_6659_fd93] {
        mixed ^= mixed >> half;
        mixed = mixed.wrapping_mul(factor) & mask;
    }
    mixed ^ (mixed >> half)
}

#[cfg(test)]
mod tests;
