//! Data set of the tour: the real put and delete history of ten public repositories, as atomic batches.
//!
//! `tools/bench/fixtures/README.md` documents its source and line format. Value sizes are scaled down and
//! value bytes are synthetic.
//!
//! **Invariants**
//! - The model of a history equals the contents of a store after all its batches.

use std::{collections::BTreeMap, io::Read};

use testudo_base::num::usize_of;
use testudo_bench::GIT_TRACE;

use super::made_up;
use crate::failure::Failure;

const VALUE_BYTES_DIVISOR: u64 = 64;
const VALUE_BYTES_MAX: u64 = 64 << 10;

/// The history as text.
pub(super) struct History(Vec<u8>);

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// Sets the value of a key.
    Put(&'a [u8], Content),
    /// Removes a key.
    Delete(&'a [u8]),
}

/// Value, described by its seed and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    seed: u64,
    bytes: usize,
}

impl Content {
    pub(super) fn value(self) -> Vec<u8> {
        made_up::value(self.seed, self.bytes)
    }

    pub(super) fn is(self, value: &[u8]) -> bool {
        made_up::is_value(value, self.seed, self.bytes)
    }
}

/// Expected contents of a store.
pub(super) type Model<'a> = BTreeMap<&'a [u8], Content>;

impl History {
    /// Decompresses the data set.
    pub(super) fn decode() -> Result<Self, Failure> {
        let damaged = |reason: &dyn std::fmt::Display| Failure::new(format!("built-in data set: {reason}"));
        let mut text = Vec::new();
        let mut decoder =
            ruzstd::decoding::StreamingDecoder::new(GIT_TRACE).map_err(|error| damaged(&error))?;
        decoder.read_to_end(&mut text).map_err(|error| damaged(&error))?;
        Ok(Self(text))
    }

    /// Returns the batches in commit order.
    pub(super) fn batches(&self) -> Batches<'_> {
        Batches { rest: &self.0, operations: 0 }
    }
}

/// Iterator over the batches.
pub(super) struct Batches<'a> {
    rest: &'a [u8],
    operations: u64,
}

impl<'a> Batches<'a> {
    fn next_line(&mut self) -> Option<&'a [u8]> {
        let at = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = &self.rest[..at];
        self.rest = &self.rest[at + 1..];
        Some(line)
    }

    fn next_change(&mut self) -> Option<Change<'a>> {
        let line = self.next_line()?;
        self.operations += 1;
        match line.split_first_chunk::<2>()? {
            (b"D ", key) => Some(Change::Delete(key)),
            (b"P ", rest) => {
                let at = rest.iter().position(|&byte| byte == b' ')?;
                let bytes = number(&rest[..at])? / VALUE_BYTES_DIVISOR;
                let key = &rest[at + 1..];
                let seed = made_up::seed_of(key, self.operations);
                Some(Change::Put(key, Content { seed, bytes: usize_of(bytes.min(VALUE_BYTES_MAX)) }))
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Vec<Change<'a>>, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.next_line()?;
        let mut words = line.split(|&byte| byte == b' ');
        let count = words.nth(2).and_then(number);
        let batch = match count {
            Some(count) => (0..count).map(|_| self.next_change()).collect(),
            None => None,
        };
        Some(batch.ok_or_else(|| Failure::new("built-in data set: malformed line")))
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
