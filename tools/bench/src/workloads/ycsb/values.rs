//! The value of a record: its number, its version, then bytes derived from both.
//!
//! **Invariants**
//! - A value identifies its record and version, and every byte of it can be checked.

use testudo_base::num::{u64_of, usize_of};

use super::mixgraph;
use crate::{args::Mix, workloads::values};

/// Record number (8 bytes) and version (1 byte).
const HEADER_BYTES: usize = 9;
/// Minimum length of a checkable value.
pub(crate) const VALUE_BYTES_MIN: usize = 16;

/// Modulus of versions.
pub(crate) const VERSIONS: u8 = 16;

/// Returns a seed that is distinct for every record of a version, so that a damaged record number is
/// detected.
fn seed_of(record: u64, version: u8) -> u64 {
    record.wrapping_mul(0xa076_1d64_78bd_642f).wrapping_add(u64::from(version) << 60)
}

/// Value lengths of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lengths {
    /// All records have this length.
    Same(usize),
    /// As in the mixgraph model.
    Pareto,
    /// Three lengths: the percentage of records with the first, and with the second.
    Mix(u64, u64),
}

/// Value lengths of the mixes, as in Parallax's evaluation (thesis, section 5.1).
const MIXED_BYTES: [usize; 3] = [9, 104, 1004];

impl Lengths {
    /// Returns the lengths chosen by the flags of a run.
    pub(crate) fn of_flags(value_bytes: u64, mix: Option<Mix>) -> Self {
        match mix {
            None => Self::Same(usize_of(value_bytes)),
            Some(Mix::Pareto) => Self::Pareto,
            Some(Mix::S) => Self::Mix(100, 0),
            Some(Mix::M) => Self::Mix(0, 100),
            Some(Mix::L) => Self::Mix(0, 0),
            Some(Mix::Sd) => Self::Mix(60, 20),
            Some(Mix::Md) => Self::Mix(20, 60),
            Some(Mix::Ld) => Self::Mix(20, 20),
        }
    }

    /// Returns the length of a record's value, the same for all its versions.
    #[inline]
    pub(crate) fn of(self, record: u64) -> usize {
        match self {
            Self::Same(bytes) => bytes,
            // The midpoint of one of 2^32 intervals.
            Self::Pareto => {
                let part = (seed_of(record, 0) >> 32) as f64;
                mixgraph::value_bytes((part + 0.5) / 2f64.powi(32))
            }
            Self::Mix(short, middle) => match (seed_of(record, 0) >> 33) % 100 {
                part if part < short => MIXED_BYTES[0],
                part if part < short + middle => MIXED_BYTES[1],
                _ => MIXED_BYTES[2],
            },
        }
    }

    /// Returns the mean length.
    pub(crate) fn mean(self) -> u64 {
        match self {
            Self::Same(bytes) => u64_of(bytes),
            Self::Pareto => mixgraph::VALUE_BYTES_MEAN,
            Self::Mix(short, middle) => {
                let [a, b, c] = MIXED_BYTES.map(u64_of);
                (short * a + middle * b + (100 - short - middle) * c) / 100
            }
        }
    }
}

/// Fills `value` for `record` at `version`.
#[inline]
pub(crate) fn write(record: u64, version: u8, value: &mut [u8]) {
    value[..8].copy_from_slice(&record.to_le_bytes());
    value[8] = version;
    values::fill(seed_of(record, version), &mut value[HEADER_BYTES..]);
}

/// Returns record and version of a valid value with a length of `lengths`, or the reason if it is invalid.
#[inline]
pub(crate) fn read(value: &[u8], lengths: Lengths) -> Result<(u64, u8), &'static str> {
    let length = value.len();
    let Some((record, rest)) = value.split_first_chunk::<8>() else {
        return Err("the value is too short");
    };
    let record = u64::from_le_bytes(*record);
    let Some(&version) = rest.first().filter(|_| length == lengths.of(record)) else {
        return Err("the value has a wrong length");
    };
    if version < VERSIONS && values::matches(seed_of(record, version), &rest[1..]) {
        Ok((record, version))
    } else {
        Err("the bytes of the value are inconsistent")
    }
}

#[cfg(test)]
mod tests;
