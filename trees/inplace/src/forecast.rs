//! How many records will come to a range of keys (TreeLine §4.6; T4), so that pages are given room for them
//! before they come.
//!
//! Inserts are counted over an *epoch*, so many inserts, by the parts of a histogram. The parts have about
//! equally many inserts each, as a sample of all inserts so far has it. When an epoch ends its histogram is
//! kept until the next one ends, and says what the following epochs bring: the same again.
//!
//! **Invariants**
//! - Memory is bounded: the sample, and two histograms.

mod histogram;
mod reservoir;

use histogram::Histogram;
use reservoir::Reservoir;

use crate::groups::PageFill;

/// Keys of the sample for each part of a histogram.
const SAMPLED_FOR_EACH_PART: usize = 10;

/// Settings of forecasts. The defaults are those of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastOptions {
    /// Inserts of an epoch. Default 100,000.
    pub epoch_inserts: u64,
    /// Parts of a histogram. Default 20,000.
    pub parts: usize,
    /// Epochs that are forecast. Default 100.
    pub epochs_ahead: u32,
}

impl Default for ForecastOptions {
    fn default() -> Self {
        Self { epoch_inserts: 100_000, parts: 20_000, epochs_ahead: 100 }
    }
}

/// What inserts so far say of those to come.
#[derive(Debug)]
pub struct InsertForecast {
    options: ForecastOptions,
    sample: Reservoir,
    counting: Option<Histogram>,
    counted: u64,
    ended: Option<Histogram>,
}

impl InsertForecast {
    /// Nothing is known yet.
    pub fn new(options: ForecastOptions) -> Self {
        let sample = Reservoir::new(options.parts.saturating_mul(SAMPLED_FOR_EACH_PART));
        Self { options, sample, counting: None, counted: 0, ended: None }
    }

    /// A record with a new key came.
    pub fn note_insert(&mut self, key: &[u8]) {
        self.sample.offer(key);
        if let Some(counting) = &mut self.counting {
            counting.count(key);
        }
        self.counted += 1;
        if self.counted < self.options.epoch_inserts {
            return;
        }
        let next = Histogram::of_sample(self.sample.sorted(), self.options.parts);
        self.ended = self.counting.replace(next);
        self.counted = 0;
    }

    /// How many records are expected with keys from `low` on, before `high` if that is there; `None` before
    /// the first epoch whose inserts were counted has ended.
    pub fn expected(&self, low: &[u8], high: Option<&[u8]>) -> Option<f64> {
        let ended = self.ended.as_ref()?;
        Some(ended.between(low, high) * f64::from(self.options.epochs_ahead))
    }
}

/// How full pages are made that have `records` records of about `record_bytes` now, where so many more are
/// expected: as many pages as all of them will need, with what there is spread evenly over these.
///
/// No page gets less than `least_bytes`: what is expected may not come.
#[expect(clippy::cast_possible_truncation, reason = "a share of the goal")]
#[expect(clippy::cast_sign_loss, reason = "a share of the goal")]
pub fn fill_for(fill: &PageFill, records: f64, expected: f64, least_bytes: u64) -> PageFill {
    let share = if records > 0.0 { records / (records + expected.max(0.0)) } else { 1.0 };
    let goal_bytes = ((fill.goal_bytes as f64 * share) as u64).clamp(least_bytes, fill.goal_bytes);
    PageFill { goal_bytes, ..*fill }
}

#[cfg(test)]
mod tests;
