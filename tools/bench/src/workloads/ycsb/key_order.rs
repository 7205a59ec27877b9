//! The records of a keyspace in key order, in memory, cut into stretches of consecutive keys.
//!
//! Keys are scrambled numbers, so neighbors in key order cannot be computed from each other.
//!
//! **Invariants**
//! - Every record is in one stretch. No key of another record lies between two keys of a stretch.
//! - All stretches have the same number of records, except the last one, which may be shorter.

use testudo_base::num::{u64_of, usize_of};
use testudo_env::SplitMix;

use super::{keys::KeyMaker, oracle::RECORDS_MAX, zipf::below};

/// Records of a stretch.
pub(crate) const STRETCH_RECORDS: usize = 32;
/// Mean number of records that are sorted by comparison.
const BUCKET_RECORDS: u64 = 64;
/// Record numbers fit into 32 bits, which halves the memory.
const _: () = assert!(RECORDS_MAX <= 1 << 32);

/// Numbers of all records, in the order of their keys.
pub(crate) struct KeyOrder(Vec<u32>);

impl KeyOrder {
    /// Sorts the records below `records`. This needs little memory in addition to the result: its peak counts
    /// for the workload that follows.
    pub(crate) fn new(keys: KeyMaker, records: u64) -> Self {
        let buckets = records.div_ceil(BUCKET_RECORDS).max(1);
        let bucket_of = |record: u32| usize_of(keys.part(u64::from(record), buckets));
        let numbers = || (0..records).filter_map(|record| u32::try_from(record).ok());
        // Of each bucket: its size, then its start, then its end.
        let mut bounds = vec![0u32; usize_of(buckets)];
        numbers().for_each(|record| bounds[bucket_of(record)] += 1);
        let mut start = 0;
        for bound in &mut bounds {
            start += std::mem::replace(bound, start);
        }
        let mut order = vec![0u32; usize_of(records)];
        for record in numbers() {
            let next = &mut bounds[bucket_of(record)];
            order[*next as usize] = record;
            *next += 1;
        }
        let mut start = 0;
        for end in bounds {
            let end = end as usize;
            order[start..end].sort_unstable_by_key(|record| keys.position(u64::from(*record)));
            start = end;
        }
        Self(order)
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn bytes(&self) -> u64 {
        u64_of(self.0.capacity() * size_of::<u32>())
    }

    /// Picks a stretch, all with the same probability. REQUIRES: there are records.
    #[inline]
    pub(crate) fn pick_stretch(&self, random: &mut SplitMix) -> &[u32] {
        let stretches = self.0.len().div_ceil(STRETCH_RECORDS);
        let first = usize_of(below(random, u64_of(stretches))) * STRETCH_RECORDS;
        &self.0[first..self.0.len().min(first + STRETCH_RECORDS)]
    }
}

#[cfg(test)]
mod tests;
