//! How much space a store takes while a workload runs, at most.
//!
//! **Invariants**
//! - It is looked at a few times a second by the thread that watches, so that nobody who works waits for it.

use std::time::Duration;

/// Time from one look to the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// The most space that was seen.
pub(crate) struct SpaceWatch<'a> {
    disk_bytes: &'a dyn Fn() -> u64,
    due: Duration,
    peak_bytes: u64,
}

impl<'a> SpaceWatch<'a> {
    /// Watches what `disk_bytes` says.
    pub(crate) fn new(disk_bytes: &'a dyn Fn() -> u64) -> Self {
        Self { disk_bytes, due: Duration::ZERO, peak_bytes: 0 }
    }

    /// Looks, if it is time to.
    pub(crate) fn look(&mut self, now: Duration) {
        if now >= self.due {
            self.due = now + INTERVAL;
            self.peak_bytes = self.peak_bytes.max((self.disk_bytes)());
        }
    }

    /// The most that was seen.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }
}

#[cfg(test)]
mod tests;
