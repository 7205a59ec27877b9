//! Accesses of the simulation.
//!
//! Records are numbered in key order, so neighbors share a page.
//!
//! **Invariants**
//! - Equal seeds give equal accesses.

use std::sync::Arc;

use testudo_base::num::u64_of;
use testudo_bench::{Zipf, below, floor, scatter, stride_of};
use testudo_env::SplitMix;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read(u64),
    Scan { first: u64, count: u64 },
    Write(u64),
}

/// Length of a scan, in records.
const SCAN_RECORDS: u64 = 100;

/// An endless sequence of accesses.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Zipfian reads, hot records scattered.
    Scattered(Zipf),
    /// Zipfian reads, hot records adjacent.
    Clustered(Zipf),
    /// 98 % of reads uniform in a contiguous range, the others uniform everywhere.
    Range {
        count: u64,
    },
    /// 95 % reads, recent records most often; 5 % inserts of scattered records.
    Latest {
        zipf: Zipf,
        inserted: u64,
    },
    Uniform,
    /// Half zipfian reads, half zipfian updates, hot records scattered.
    Updates(Zipf),
    /// Scans with zipfian starts.
    Scans(Zipf),
    /// Both sources, alternating.
    Mixed(Box<[Self; 2]>),
    /// The model of a Facebook workload (Cao and others, FAST 2020): hot key ranges, hot keys in them, 83 %
    /// reads, 14 % writes, 3 % scans.
    Mixgraph(Box<[f64]>),
    /// Reads in trace order, restarting at the end.
    Trace {
        records: Arc<[u64]>,
        next: usize,
    },
}

/// A source with its random state.
#[derive(Clone, Debug)]
pub(super) struct Accesses {
    source: Source,
    records: u64,
    stride: u64,
    random: SplitMix,
}

impl Accesses {
    /// Creates accesses to records below `records`.
    pub(super) fn new(source: Source, records: u64, seed: u64) -> Self {
        Self { source, records, stride: stride_of(records), random: SplitMix::new(seed) }
    }
}

impl Iterator for Accesses {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let place = Place { records: self.records, stride: self.stride };
        Some(self.source.next(place, &mut self.random))
    }
}

/// The key space.
#[derive(Clone, Copy)]
struct Place {
    records: u64,
    stride: u64,
}

impl Place {
    fn scattered(self, rank: u64) -> u64 {
        scatter(rank, self.stride, self.records)
    }
}

impl Source {
    fn next(&mut self, place: Place, random: &mut SplitMix) -> Access {
        match self {
            Self::Scattered(zipf) => Access::Read(place.scattered(zipf.rank(random))),
            Self::Clustered(zipf) => Access::Read(zipf.rank(random)),
            Self::Range { .. } if random.percent(2) => Access::Read(below(random, place.records)),
            Self::Range { count } => Access::Read(place.records / 3 + below(random, *count)),
            Self::Latest { inserted, .. } if *inserted + 1 < place.records && random.percent(5) => {
                *inserted += 1;
                Access::Write(place.scattered(*inserted))
            }
            Self::Latest { zipf, inserted } => {
                Access::Read(place.scattered(inserted.saturating_sub(zipf.rank(random))))
            }
            Self::Uniform => Access::Read(below(random, place.records)),
            Self::Updates(zipf) if random.percent(50) => Access::Write(place.scattered(zipf.rank(random))),
            Self::Updates(zipf) => Access::Read(place.scattered(zipf.rank(random))),
            Self::Scans(zipf) => {
                Access::Scan { first: place.scattered(zipf.rank(random)), count: SCAN_RECORDS }
            }
            Self::Mixed(both) => {
                both.swap(0, 1);
                both[0].next(place, random)
            }
            Self::Mixgraph(shares) => mixgraph(place.records, shares, random),
            Self::Trace { records, next } => {
                let record = records[*next];
                *next = (*next + 1) % records.len();
                Access::Read(record)
            }
        }
    }
}

/// Number of key ranges of the model, and the heat of each: `f(x) = a·exp(b·x) + c·exp(d·x)`.
const RANGES: u64 = 30;
const RANGE_HEAT: [f64; 4] = [14.18, -2.917, 0.0164, -0.08082];

/// Returns the cumulative access shares of the ranges, hottest first.
pub(super) fn mixgraph_shares() -> Box<[f64]> {
    let [a, b, c, d] = RANGE_HEAT;
    let heat = |range: u64| {
        let x = (range + 1) as f64;
        a.mul_add((b * x).exp(), c * (d * x).exp())
    };
    let all: f64 = (0..RANGES).map(heat).sum();
    let up_to = |sum: &mut f64, range: u64| {
        *sum += heat(range) / all;
        Some(*sum)
    };
    (0..RANGES).scan(0.0, up_to).collect()
}

fn mixgraph(records: u64, shares: &[f64], random: &mut SplitMix) -> Access {
    let drawn = unit(random);
    let range = u64_of(shares.partition_point(|&share| share < drawn)).min(RANGES - 1);
    // Ranges are shuffled over the key space: 7 and 30 are coprime.
    let place = range * 7 % RANGES;
    let hot_key = floor((unit(random) / 0.002_312).powf(1.0 / 0.3467));
    let range_records = (records / RANGES).max(1);
    let record = place * range_records + below(&mut SplitMix::new(hot_key), range_records);
    match below(random, 100) {
        0..83 => Access::Read(record),
        83..97 => Access::Write(record),
        _ => {
            // Lengths follow a generalized Pareto distribution, modulo ten thousand.
            let length = floor(14.236 * (unit(random).powf(-2.517) - 1.0) / 2.517) % 10_000;
            Access::Scan { first: record, count: length + 1 }
        }
    }
}

/// Returns a random number above zero and at most one.
fn unit(random: &mut SplitMix) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Returns the keys of a trace as records, numbered in key order.
pub(super) fn records_of(keys: &[Vec<u8>]) -> Arc<[u64]> {
    let mut sorted: Vec<&Vec<u8>> = keys.iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let place = |key: &Vec<u8>| sorted.partition_point(|&before| before < key);
    keys.iter().map(|key| u64_of(place(key))).collect()
}

/// Returns the number of distinct records of a trace.
pub(super) fn count_of(records: &[u64]) -> u64 {
    records.iter().max().map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests;
