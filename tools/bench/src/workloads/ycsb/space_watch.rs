//! Space of a store while a workload runs: peak and over time.
//!
//! **Invariants**
//! - The watching thread samples it a few times per second, so that no working thread waits for it.

use std::time::Duration;

use testudo_base::num::usize_of;

use crate::subject::Readings;

/// Sampling interval.
const INTERVAL: Duration = Duration::from_millis(100);

/// Samples of the space.
pub(crate) struct SpaceWatch<'a> {
    readings: &'a dyn Fn() -> Readings,
    began: Option<Duration>,
    due: Duration,
    peak_bytes: u64,
    live_bytes_by_second: Vec<u64>,
}

impl<'a> SpaceWatch<'a> {
    /// Creates a watch over `readings`.
    pub(crate) fn new(readings: &'a dyn Fn() -> Readings) -> Self {
        let (began, due, peak_bytes, live_bytes_by_second) = Default::default();
        Self { readings, began, due, peak_bytes, live_bytes_by_second }
    }

    /// Takes a sample, if one is due.
    pub(crate) fn look(&mut self, now: Duration) {
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        let second = usize_of((now - *self.began.get_or_insert(now)).as_secs());
        let Readings { disk_bytes, live_bytes, .. } = (self.readings)();
        self.peak_bytes = self.peak_bytes.max(disk_bytes);
        let sizes = &mut self.live_bytes_by_second;
        // Seconds without a sample repeat the last value.
        let last = sizes.last().copied().unwrap_or_default();
        sizes.resize(second.max(sizes.len()), last);
        if sizes.len() == second {
            sizes.push(0);
        }
        sizes[second] = live_bytes.max(sizes[second]);
    }

    /// Returns the peak disk space.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Returns the peak of the live bytes in each second since the first sample.
    pub(crate) fn live_bytes_by_second(self) -> Vec<u64> {
        self.live_bytes_by_second
    }
}

#[cfg(test)]
mod tests;
