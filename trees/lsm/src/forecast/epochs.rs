//! Epochs of inserts, and their histograms (TreeLine §4.6; T4).
//!
//! The inserts of an epoch are sampled; those of the next one are counted by parts that had about equally
//! many of the sample. The lesser of both shares of a part is expected to repeat. The paper's sample is one
//! of all inserts so far. With that, keys that only grow fall into the last part of every epoch, although no
//! place gets inserts twice.
//!
//! **Invariants**
//! - Memory is bounded: the sample of an epoch, and two histograms.

use testudo_base::{num::usize_of, sync::Arc};

use super::{histogram::Histogram, reservoir::Reservoir};

/// Sampled keys per part of a histogram.
const SAMPLED_FOR_EACH_PART: usize = 5;

/// Size of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochSize {
    /// Inserts.
    pub inserts: u64,
    /// Parts of its histogram.
    pub parts: usize,
}

/// A forecast: the shares of ranges of keys in the inserts of the last two epochs.
#[derive(Clone, Debug)]
pub struct InsertShares {
    pub(crate) histogram: Arc<Histogram>,
}

impl InsertShares {
    /// Share of the inserts between two keys, without `high` above `low`.
    pub fn between(&self, low: &[u8], high: Option<&[u8]>) -> f64 {
        self.histogram.share_between(low, high)
    }

    /// How well the last two epochs agree, from 0 to 1.
    pub fn agreement(&self) -> f64 {
        (0..self.histogram.parts()).map(|part| self.histogram.share(part)).sum()
    }
}

/// Counting of inserts.
#[derive(Debug)]
pub struct Epochs {
    size: EpochSize,
    sample: Reservoir,
    /// Counts by parts of the epoch before.
    counting: Option<Histogram>,
    counted: u64,
    ended: Option<InsertShares>,
}

impl Epochs {
    /// Starts the first epoch.
    pub fn new(size: EpochSize) -> Self {
        let sample = Reservoir::new(sample_keys(size));
        Self { size, sample, counting: None, counted: 0, ended: None }
    }

    /// Counts an insert of a new key. Returns whether it ended an epoch, after which one of size `next`
    /// begins.
    pub fn note_insert(&mut self, key: &[u8], next: EpochSize) -> bool {
        self.sample.offer(key);
        if let Some(counting) = &mut self.counting {
            counting.count(key);
        }
        self.counted += 1;
        if self.counted < self.size.inserts {
            return false;
        }
        let parts = Histogram::of_sample(self.sample.take_sorted(sample_keys(next)), self.size.parts);
        let ended = self.counting.replace(parts);
        self.ended = ended.map(|histogram| InsertShares { histogram: Arc::new(histogram) });
        (self.size, self.counted) = (next, 0);
        true
    }

    /// Inserts of an epoch, at present.
    pub(crate) fn epoch_inserts(&self) -> u64 {
        self.size.inserts
    }

    /// Returns the forecast; `None` before the second epoch has ended.
    pub fn shares(&self) -> Option<&InsertShares> {
        self.ended.as_ref()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let ended = self.ended.as_ref().map_or(0, |ended| ended.histogram.memory_bytes());
        self.sample.memory_bytes() + self.counting.as_ref().map_or(0, Histogram::memory_bytes) + ended
    }
}

fn sample_keys(size: EpochSize) -> usize {
    size.parts.saturating_mul(SAMPLED_FOR_EACH_PART).min(usize_of(size.inserts))
}

#[cfg(test)]
mod tests;
