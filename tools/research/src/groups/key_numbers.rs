//! Numbers for keys, so that a line can be fitted to them (T7: any keys, not only integers).
//!
//! The common prefix of a group's keys is ignored. After it, each byte is a digit of a mixed-radix number:
//! its radix covers only the range of bytes that occur at that position. So decimal digits in a text are as
//! regular as an integer of eight bytes.
//!
//! **Invariants**
//! - A greater key never has a lesser number, even for keys other than those the numbers were made for.

use testudo_base::key;

/// Upper bound of numbers, which are multiplied by slopes.
const NUMBERS_MAX: u64 = 1 << 62;
/// Each position with more than one byte at least doubles the numbers; others cost only memory.
const POSITIONS_MAX: usize = 64;

/// The range of bytes at one position, and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digit {
    least: u8,
    most: u8,
    weight: u64,
}

/// A mapping of a group's keys to numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyNumbers {
    prefix: Vec<u8>,
    digits: Vec<Digit>,
    greatest: u64,
}

impl KeyNumbers {
    /// Creates a mapping for sorted keys. Other keys get numbers, too.
    pub(crate) fn of<'a>(keys: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let first = keys.clone().next().unwrap_or_default();
        let last = keys.clone().last().unwrap_or_default();
        let shared = key::common_prefix(first, last);
        let mut ranges: Vec<(u8, u8)> = Vec::new();
        for rest in keys.map(|key| &key[shared..]) {
            for (at, &byte) in rest.iter().enumerate().take(POSITIONS_MAX) {
                match ranges.get_mut(at) {
                    Some((least, most)) => (*least, *most) = ((*least).min(byte), (*most).max(byte)),
                    None => ranges.push((byte, byte)),
                }
            }
        }
        let mut count = 1u64;
        let radix = |(least, most): (u8, u8)| u64::from(most - least) + 1;
        let fits = |range: &(u8, u8)| {
            count = count.saturating_mul(radix(*range));
            count <= NUMBERS_MAX
        };
        let ranges: Vec<(u8, u8)> = ranges.into_iter().take_while(fits).collect();
        let mut weight = 1;
        let mut digits = Vec::with_capacity(ranges.len());
        for (least, most) in ranges.into_iter().rev() {
            digits.push(Digit { least, most, weight });
            weight *= radix((least, most));
        }
        digits.reverse();
        Self { prefix: first[..shared].to_vec(), digits, greatest: weight - 1 }
    }

    /// Returns the number of a key.
    pub(crate) fn number(&self, key: &[u8]) -> u64 {
        let Some(rest) = key.strip_prefix(self.prefix.as_slice()) else {
            return if key < self.prefix.as_slice() { 0 } else { self.greatest };
        };
        let mut number = 0;
        for (digit, &byte) in self.digits.iter().zip(rest) {
            if byte < digit.least {
                return number;
            }
            if byte > digit.most {
                // The maximum of this digit and all following ones.
                let whole = u64::from(digit.most - digit.least) * digit.weight;
                return number + whole + (digit.weight - 1);
            }
            number += u64::from(byte - digit.least) * digit.weight;
        }
        number
    }

    /// Returns the greatest number.
    #[cfg(test)]
    pub(crate) fn greatest(&self) -> u64 {
        self.greatest
    }
}

#[cfg(test)]
mod tests;
