//! Definition of each workload: operation mix, distribution and default number of operations.
//!
//! A to f are from Cooper, Silberstein, Tam, Ramakrishnan and Sears, "Benchmarking cloud serving systems
//! with YCSB" (SoCC 2010).
//!
//! **Invariants**
//! - The shares of a mix add up to 100.

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
    /// Inserts at the end of each thread's queue, reads and removals at its front.
    Queues,
}

impl Workload {
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
            Self::Overwrite | Self::RangeOverwrite | Self::ClusterOverwrite => {
                Shape::Mixed(Mix { updates: 100, ..none })
            }
            Self::Range | Self::RangeHotScans | Self::RangeScan(_) => {
                Shape::Mixed(Mix { scans: 100, ..none })
            }
            Self::Absent => Shape::Mixed(Mix { absent: 100, ..none }),
            Self::RangeHot => Shape::Mixed(Mix { reads: 100, ..none }),
            Self::Mixgraph => Shape::Mixed(mixgraph::OPERATIONS),
            Self::Multiget => Shape::Batches,
            Self::Scan => Shape::FullScan,
            Self::DeleteHalf => Shape::Removals(2),
            Self::DeleteMost => Shape::Removals(100),
            Self::Queue => Shape::Queues,
            Self::PutDelete => Shape::Mixed(Mix { updates: 70, removals: 30, ..none }),
        }
    }

    /// Whether one more thread updates records concurrently with the mix.
    pub(crate) fn has_updates_beside(self) -> bool {
        matches!(self, Self::RangeHot | Self::RangeHotScans)
    }

    /// Whether the workload uses a separate keyspace, which is empty at first.
    pub(crate) fn has_own_keyspace(self) -> bool {
        matches!(self, Self::Seq | Self::Queue)
    }

    /// Whether the mix is preceded by a warm-up, if one is requested.
    pub(crate) fn has_warm_up(self) -> bool {
        !matches!(self.shape(), Shape::Fill | Shape::Removals(_) | Shape::Queues)
    }

    /// Returns the length of all scans; `range_length` is that of workloads without one in their name. `None`
    /// if lengths vary.
    pub(crate) fn scan_length(self, range_length: u64) -> Option<u64> {
        match self {
            Self::Range | Self::RangeHotScans => Some(range_length),
            Self::RangeScan(length) => Some(length),
            _ => None,
        }
    }

    /// Whether the workload leaves fewer records than before.
    pub(crate) fn removes_records(self) -> bool {
        matches!(self, Self::DeleteHalf | Self::DeleteMost | Self::PutDelete)
    }

    /// Whether the workload changes values of existing records.
    pub(crate) fn updates_records(self) -> bool {
        let of_core = matches!(self, Self::A | Self::UniformA | Self::B | Self::F);
        let only = matches!(self, Self::Overwrite | Self::RangeOverwrite | Self::ClusterOverwrite);
        of_core || only || matches!(self, Self::Mixgraph | Self::PutDelete) || self.has_updates_beside()
    }

    pub(crate) fn default_distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            Self::RangeHot | Self::RangeHotScans | Self::RangeOverwrite | Self::RangeScan(_) => {
                Distribution::RangeHot
            }
            Self::Mixgraph => Distribution::Mixgraph,
            Self::A | Self::B | Self::C | Self::E | Self::F => Distribution::Zipfian,
            Self::Load | Self::Seq | Self::Queue | Self::UniformA | Self::UniformC => Distribution::Uniform,
            Self::Overwrite | Self::ClusterOverwrite | Self::PutDelete => Distribution::Uniform,
            Self::Multiget | Self::Range | Self::Scan | Self::Absent => Distribution::Uniform,
            Self::DeleteHalf | Self::DeleteMost => Distribution::Uniform,
        }
    }

    pub(crate) fn default_ops(self, smoke: bool) -> u64 {
        let is_of_scans = matches!(self, Self::E | Self::Range | Self::RangeHotScans | Self::RangeScan(_));
        match (self.shape(), smoke) {
            // Ends when all records to be removed are.
            (Shape::Removals(_), _) => u64::MAX,
            (_, false) if is_of_scans => 200_000,
            (_, true) if is_of_scans => 200,
            (_, false) => 2_000_000,
            (_, true) => 2_000,
        }
    }
}

#[cfg(test)]
mod tests;
