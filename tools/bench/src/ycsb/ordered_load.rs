//! Record numbers in the order of their keys, in parts that fit into little memory.
//!
//! Keys are scrambled numbers, so their order is found by sorting: the key space is cut into parts, and for each of them
//! all numbers are looked through.
//!
//! **Invariants**
//! - Every record comes once; no part holds much more than [`PART_RECORDS`].

use testudo_base::num::usize_of;

use super::keys::KeyMaker;

/// Records of a part, on average (4 MiB while it is sorted).
const PART_RECORDS: u64 = 1 << 18;

/// An iterator of parts, each a list of record numbers.
#[derive(Debug)]
pub(crate) struct PartsInOrder {
    keys: KeyMaker,
    records: u64,
    next: u64,
    parts: u64,
}

impl PartsInOrder {
    /// The records below `records`.
    pub(crate) fn new(keys: KeyMaker, records: u64) -> Self {
        Self { keys, records, next: 0, parts: records.div_ceil(PART_RECORDS) }
    }
}

impl Iterator for PartsInOrder {
    type Item = Vec<u64>;

    fn next(&mut self) -> Option<Vec<u64>> {
        if self.next == self.parts {
            return None;
        }
        let boundary = |part: u64| self.keys.positions() * u128::from(part) / u128::from(self.parts);
        let range = boundary(self.next)..boundary(self.next + 1);
        self.next += 1;
        let mut found = Vec::with_capacity(usize_of(PART_RECORDS + PART_RECORDS / 64));
        for record in 0..self.records {
            let position = self.keys.position(record);
            if range.contains(&u128::from(position)) {
                found.push((position, record));
            }
        }
        found.sort_unstable();
        Some(found.into_iter().map(|(_, record)| record).collect())
    }
}

#[cfg(test)]
mod tests;
