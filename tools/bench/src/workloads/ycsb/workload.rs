//! Definition of each workload: operation mix, distribution and default number of operations.
//!
//! A to f are from Cooper, Silberstein, Tam, Ramakrishnan and Sears, "Benchmarking cloud serving systems
//! with YCSB" (SoCC 2010).
//!
//! **Invariants**
//! - The shares of a mix add up to 100.

use clap::ValueEnum;

use super::mixgraph;
use crate::{Distribution, Workload};

/// Keys of one batch of `multiget`.
pub(crate) const BATCH_KEYS: usize = 32;

/// Percentages of operations; the remainder to 100 are read-modify-writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) reads: u64,
    pub(crate) updates: u64,
    pub(crate) removals: u64,
    pub(crate) inserts: u64,
    pub(crate) scans: u64,
    /// Reads of absent keys.
    pub(crate) absent: u64,
}

/// Shape of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Inserts of new records, each thread in its share of the numbers.
    Fill,
    /// Single operations, drawn from a mix.
    Mixed(Mix),
    /// Reads of several keys at once.
    Batches,
    /// Scans of everything in order, each thread in its part of the key space.
    FullScan,
    /// Removals of all records but one in this many (of every second with 2), each thread in its share.
    Removals(u64),
}

impl Workload {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn shape(self) -> Shape {
        let none = Mix::default();
        match self {
            Self::Load | Self::Seq => Shape::Fill,
            Self::A | Self::UniformA => Shape::Mixed(Mix { reads: 50, updates: 50, ..none }),
            Self::B => Shape::Mixed(Mix { reads: 95, updates: 5, ..none }),
            Self::C | Self::UniformC => Shape::Mixed(Mix { reads: 100, ..none }),
            Self::D => Shape::Mixed(Mix { reads: 95, inserts: 5, ..none }),
            Self::E => Shape::Mixed(Mix { scans: 95, inserts: 5, ..none }),
            Self::F => Shape::Mixed(Mix { reads: 50, ..none }),
            Self::Overwrite => Shape::Mixed(Mix { updates: 100, ..none }),
            Self::Range | Self::RangeHotScans => Shape::Mixed(Mix { scans: 100, ..none }),
            Self::Absent => Shape::Mixed(Mix { absent: 100, ..none }),
            Self::RangeHot => Shape::Mixed(Mix { reads: 100, ..none }),
            Self::Mixgraph => Shape::Mixed(mixgraph::OPERATIONS),
            Self::Multiget => Shape::Batches,
            Self::Scan => Shape::FullScan,
            Self::DeleteEverySecond => Shape::Removals(2),
            Self::DeleteMost => Shape::Removals(100),
            Self::PutDelete => Shape::Mixed(Mix { updates: 70, removals: 30, ..none }),
        }
    }

    /// Whether one more thread updates records concurrently with the mix.
    pub(crate) fn has_updates_beside(self) -> bool {
        matches!(self, Self::RangeHot | Self::RangeHotScans)
    }

    /// Whether the workload leaves fewer records than before.
    pub(crate) fn removes_records(self) -> bool {
        matches!(self, Self::DeleteEverySecond | Self::DeleteMost | Self::PutDelete)
    }

    /// Whether the workload changes values of existing records.
    pub(crate) fn updates_records(self) -> bool {
        let of_mix = matches!(self, Self::A | Self::UniformA | Self::B | Self::F | Self::Overwrite);
        of_mix || matches!(self, Self::Mixgraph | Self::PutDelete) || self.has_updates_beside()
    }

    pub(crate) fn default_distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            Self::RangeHot | Self::RangeHotScans => Distribution::RangeHot,
            Self::Mixgraph => Distribution::Mixgraph,
            Self::A | Self::B | Self::C | Self::E | Self::F => Distribution::Zipfian,
            Self::Load | Self::Seq | Self::UniformA | Self::UniformC | Self::Overwrite => {
                Distribution::Uniform
            }
            Self::Multiget | Self::Range | Self::Scan | Self::Absent => Distribution::Uniform,
            Self::DeleteEverySecond | Self::DeleteMost | Self::PutDelete => Distribution::Uniform,
        }
    }

    pub(crate) fn default_ops(self, smoke: bool) -> u64 {
        match (self, smoke) {
            (Self::E | Self::Range | Self::RangeHotScans, false) => 200_000,
            (Self::E | Self::Range | Self::RangeHotScans, true) => 200,
            (_, false) => 2_000_000,
            (_, true) => 2_000,
        }
    }
}

#[cfg(test)]
mod tests;
