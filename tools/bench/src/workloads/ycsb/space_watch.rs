//! How much space a store takes while a workload runs, at most and over time.
//!
//! **Invariants**
//! - It is looked at a few times a second by the thread that watches, so that nobody who works waits for it.

use std::time::Duration;

use testudo_base::num::usize_of;

use crate::subject::Readings;

/// Time from one look to the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// What was seen of the space.
pub(crate) struct SpaceWatch<'a> {
    readings: &'a dyn Fn() -> Readings,
    began: Option<Duration>,
    due: Duration,
    peak_bytes: u64,
    live_bytes_by_second: Vec<u64>,
}

impl<'a> SpaceWatch<'a> {
    /// Watches what `readings` say.
    pub(crate) fn new(readings: &'a dyn Fn() -> Readings) -> Self {
        let (began, due, peak_bytes, live_bytes_by_second) = Default::default();
        Self { readings, began, due, peak_bytes, live_bytes_by_second }
    }

    /// Looks, if it is time to.
    pub(crate) fn look(&mut self, now: Duration) {
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        let second = usize_of((now - *self.began.get_or_insert(now)).as_secs());
        let Readings { disk_bytes, live_bytes, .. } = (self.readings)();
        self.peak_bytes = self.peak_bytes.max(disk_bytes);
        let sizes = &mut self.live_bytes_by_second;
        // In a second in which nobody has looked it is as it was seen last.
        let last = sizes.last().copied().unwrap_or_default();
        sizes.resize(second.max(sizes.len()), last);
        if sizes.len() == second {
            sizes.push(0);
        }
        sizes[second] = live_bytes.max(sizes[second]);
    }

    /// The most that was seen.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// The most that was not free in each second since the first look.
    pub(crate) fn live_bytes_by_second(self) -> Vec<u64> {
        self.live_bytes_by_second
    }
}

#[cfg(test)]
mod tests;
