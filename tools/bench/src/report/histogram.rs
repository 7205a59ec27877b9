//! Latencies of one kind of operation: recorded in nanoseconds, reported in microseconds.
//!
//! **Invariants**
//! - Three significant digits up to 60 s, in about 110 KB; longer latencies count as 60 s.

use std::time::Duration;

use serde::Serialize;
use testudo_base::num::low64;

const LONGEST_NANOS: u64 = 60_000_000_000;

/// Mean and percentiles in microseconds; all zero without any measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// Counts of latencies.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(hdrhistogram::Histogram<u32>);

impl Histogram {
    pub(crate) fn new() -> Self {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, LONGEST_NANOS, 3);
        Self(counts.expect("the bounds are in order"))
    }

    #[inline]
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(low64(latency.as_nanos()));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        if self.count() == 0 {
            return Percentiles::default();
        }
        // The upper end of a bucket may exceed the largest recorded value.
        let at = |quantile| self.0.value_at_quantile(quantile).min(self.0.max()) as f64 / 1e3;
        Percentiles {
            mean: self.0.mean() / 1e3,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests;
