//! Forecast of inserts into a range of keys (TreeLine §4.6; T4), so that pages get free space in advance.
//!
//! Inserts are counted over an *epoch* of a fixed number of inserts, by the parts of a histogram. The parts
//! have about equally many inserts each, according to a sample of all inserts so far. When an epoch ends its
//! histogram is kept until the next one ends. Each of the following epochs is expected to repeat it.
//!
//! **Invariants**
//! - Memory is bounded: the sample, and two histograms.

mod histogram;
mod reservoir;

use histogram::Histogram;
use reservoir::Reservoir;

use crate::groups::PageFill;

/// Sampled keys per part of a histogram.
const SAMPLED_FOR_EACH_PART: usize = 10;

/// Settings of forecasts. The defaults are those of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastOptions {
    /// Inserts per epoch. Default 100,000.
    pub epoch_inserts: u64,
    /// Parts of a histogram. Default 20,000.
    pub parts: usize,
    /// Number of epochs to forecast. Default 100.
    pub epochs_ahead: u32,
}

impl Default for ForecastOptions {
    fn default() -> Self {
        Self { epoch_inserts: 100_000, parts: 20_000, epochs_ahead: 100 }
    }
}

/// A forecast from the inserts so far.
#[derive(Debug)]
pub struct InsertForecast {
    options: ForecastOptions,
    sample: Reservoir,
    counting: Option<Histogram>,
    counted: u64,
    ended: Option<Histogram>,
}

impl InsertForecast {
    /// Creates a forecast without data.
    pub fn new(options: ForecastOptions) -> Self {
        let sample = Reservoir::new(options.parts.saturating_mul(SAMPLED_FOR_EACH_PART));
        Self { options, sample, counting: None, counted: 0, ended: None }
    }

    /// Records an insert of a new key.
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

    /// Expected number of inserts with keys in `[low, high)`, unbounded without `high`; `None` before the
    /// first counted epoch has ended.
    pub fn expected(&self, low: &[u8], high: Option<&[u8]>) -> Option<f64> {
        let ended = self.ended.as_ref()?;
        Some(ended.between(low, high) * f64::from(self.options.epochs_ahead))
    }
}

/// Returns the fill of pages that have `records` records now, with `expected` more to come: all of them fit
/// the pages, and the existing ones are spread evenly over these.
///
/// No page gets less than `least_bytes`: the forecast may be wrong.
#[expect(clippy::cast_possible_truncation, reason = "a fraction of the goal is not negative and fits")]
#[expect(clippy::cast_sign_loss, reason = "a fraction of the goal is not negative and fits")]
pub fn fill_for(fill: &PageFill, records: f64, expected: f64, least_bytes: u64) -> PageFill {
    let share = if records > 0.0 { records / (records + expected.max(0.0)) } else { 1.0 };
    let goal_bytes = ((fill.goal_bytes as f64 * share) as u64).clamp(least_bytes, fill.goal_bytes);
    PageFill { goal_bytes, ..*fill }
}

#[cfg(test)]
mod tests;
