//! The model of a ZippyDB shard: distributions of accessed keys, value lengths and scan lengths.
//!
//! Cao, Dong, Vemuri and Du, "Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at
//! Facebook" (FAST 2020), with the parameters of RocksDB's `db_bench mixgraph`. A few key ranges are hot, and
//! so are some keys in each. Each variable is drawn independently, whereas `db_bench` derives all of them
//! from one number per operation. All versions of a record have the same value length.
//!
//! **Invariants**
//! - The record of a seed depends only on the seed, its range and the initial number of records.

use testudo_base::num::{low64, usize_of};
use testudo_env::SplitMix;

use super::{
    keys::KeyMaker,
    workload::Mix,
    zipf::{below, unit},
};
use crate::report::size::floor;

/// Percentages of operations: gets, puts of existing records, and seeks, which scan on.
pub(crate) const OPERATIONS: Mix =
    Mix { reads: 83, updates: 14, removals: 0, inserts: 0, scans: 3, absent: 0 };

/// Number of equal ranges of the key space.
const RANGES: usize = 30;
/// Seed for the order of the ranges.
const SHUFFLE_SEED: u64 = 0x6d69_7867;
/// Maximum draws for a record of a range; one in [`RANGES`] hits.
const DRAWS_MAX: u32 = 2_000;
/// Upper bounds of scan lengths (exclusive) and value lengths (inclusive).
const SCAN_ENTRIES_MAX: u64 = 10_000;
const VALUE_BYTES_MAX: u64 = 1_024;
const VALUE_BYTES_MIN: u64 = 10;

/// Returns the access weight of the range of this rank, counted from 1: two exponentials.
fn weight(rank: f64) -> f64 {
    14.18 * (-2.917 * rank).exp() + 0.0164 * (-0.080_82 * rank).exp()
}

/// A generalized Pareto distribution from 0, rounded up.
fn pareto(share: f64, shape: f64, scale: f64) -> u64 {
    floor((scale * (share.powf(-shape) - 1.0) / shape).ceil())
}

/// Returns the length of a value; `share` is uniform in (0, 1).
pub(crate) fn value_bytes(share: f64) -> usize {
    let bytes = pareto(share, 0.2615, 25.45).max(VALUE_BYTES_MIN);
    let bytes = if bytes > VALUE_BYTES_MAX { bytes % VALUE_BYTES_MAX } else { bytes };
    usize_of(bytes.max(VALUE_BYTES_MIN))
}

/// Mean of [`value_bytes`].
pub(crate) const VALUE_BYTES_MEAN: u64 = 36;

/// Returns the length of a scan, in entries.
pub(crate) fn scan_length(random: &mut SplitMix) -> u64 {
    (pareto(open_unit(random), 2.517, 14.236) % SCAN_ENTRIES_MAX).max(1)
}

/// Returns a number uniform in (0, 1).
fn open_unit(random: &mut SplitMix) -> f64 {
    unit(random).max(f64::EPSILON)
}

/// Picks records by the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyModel {
    keys: KeyMaker,
    /// Initial number of records.
    records: u64,
    /// Cumulative access shares at the end of each range, hottest first.
    ends: [f64; RANGES],
    /// Position in the key space of each range, hottest first.
    places: [u8; RANGES],
}

impl KeyModel {
    pub(crate) fn new(records: u64, keys: KeyMaker) -> Self {
        let mut ends = [0.0; RANGES];
        let mut sum = 0.0;
        for (end, rank) in ends.iter_mut().zip(1u8..) {
            sum += weight(f64::from(rank));
            *end = sum;
        }
        ends.iter_mut().for_each(|end| *end /= sum);
        let mut places = [0; RANGES];
        places.iter_mut().zip(0..).for_each(|(place, number)| *place = number);
        let mut random = SplitMix::new(SHUFFLE_SEED);
        for last in (1..RANGES).rev() {
            places.swap(last, usize_of(below(&mut random, testudo_base::num::u64_of(last) + 1)));
        }
        Self { keys, records, ends, places }
    }

    /// Draws a range of the key space, out of [`RANGES`].
    fn range(&self, random: &mut SplitMix) -> u8 {
        let share = unit(random);
        let rank = self.ends.partition_point(|end| *end <= share).min(RANGES - 1);
        self.places[rank]
    }

    /// Draws a record of one of the ranges; smaller seeds are drawn more often.
    pub(crate) fn pick(&self, random: &mut SplitMix) -> u64 {
        let range = self.range(random);
        let seed = floor((open_unit(random) / 0.002_312).powf(1.0 / 0.3467).ceil());
        self.record_of(range, seed)
    }

    /// Returns the record of a seed.
    fn record_of(&self, range: u8, seed: u64) -> u64 {
        let mut draws = SplitMix::new(low64(u128::from(seed) << 8 | u128::from(range)));
        let mut draw = || below(&mut draws, self.records);
        let parts = f64::from(u8::try_from(RANGES).unwrap_or(u8::MAX));
        let is_inside = |record: &u64| {
            floor(self.keys.fraction(*record) * parts).min(u64::from(u8::MAX)) == u64::from(range)
        };
        let found = (0..DRAWS_MAX).map(|_| draw()).find(is_inside);
        found.unwrap_or_else(draw)
    }
}

#[cfg(test)]
mod tests;
