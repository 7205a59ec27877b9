//! When a keyspace is idle, and when postponed work may run: pure arithmetic over time.
//!
//! Each keyspace is idle or not, independent of writes to others. While the whole store is idle, postponed
//! work runs step after step. While other keyspaces are written, each step is followed by a pause several
//! times as long as the step. A flush that becomes due meanwhile waits for the step, which costs writers
//! nothing as long as flushes end that much before the next one begins.
//!
//! A keyspace that is idle for longer is at rest: its write buffer is flushed too, however small, because
//! overwritten or removed data occupies space until then.
//!
//! **Invariants**
//! - A keyspace that is written occasionally is flushed for rest at most once per longest pause.
//! - While other keyspaces are written, work takes at most one part in `PAUSES` + 1 of the time, unless a
//!   single step takes longer than `LONGEST_STEP`.

use std::time::Duration;

/// A keyspace neither written nor flushed for this long is idle, if that is also twice the interval between
/// its last two flushes.
pub const IDLE_AFTER: Duration = Duration::from_secs(1);
/// A keyspace idle for this long, and for twice the interval between its last two flushes, is at rest.
pub const REST_AFTER: Duration = Duration::from_secs(5);
/// Upper bound of the interval between two flushes: longer ones do not predict the next.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A keyspace that is flushed regularly is not idle before this many times the interval between flushes.
const PAUSES_MISSED: u64 = 2;
/// Expected time between two flushes, as a multiple of the duration of a step, for a step to begin.
const STEPS_BETWEEN: u128 = 2;
/// Length of the pause after a step of work, as a multiple of the step.
const PAUSES: u32 = 15;
/// Upper bound of the duration of a step: a longer one was delayed, and does not predict the next.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// Time since the last write to a keyspace, or to any. In nanoseconds: a store may have thousands.
#[derive(Debug)]
pub struct Idle {
    since: u64,
    /// Time of the last flush; `NEVER` if there was none.
    last_flush: u64,
    /// Interval between the last two flushes.
    pause: u64,
}

const NEVER: u64 = u64::MAX;

const _: () =
    assert!(REST_AFTER.as_nanos() > IDLE_AFTER.as_nanos(), "a keyspace is idle before it is at rest");
const _: () =
    assert!(LONGEST_PAUSE.as_nanos() > REST_AFTER.as_nanos(), "pauses of keyspaces at rest are seen");

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER - 1)
}

impl Idle {
    pub fn from(now: Duration) -> Self {
        Self { since: nanos(now), last_flush: NEVER, pause: 0 }
    }

    /// Restarts the idle time, after a write or for another reason.
    pub fn interrupt(&mut self, now: Duration) {
        self.since = nanos(now);
    }

    /// Records a flush.
    pub fn record_flush(&mut self, now: Duration) {
        let now = nanos(now);
        let pause = if self.last_flush == NEVER { 0 } else { now.saturating_sub(self.last_flush) };
        debug_assert!(now != NEVER, "a time of the clock");
        self.pause = pause.min(nanos(LONGEST_PAUSE));
        self.last_flush = now;
        self.since = now;
    }

    pub fn is_idle(&self, now: Duration) -> bool {
        nanos(now).saturating_sub(self.since) >= nanos(IDLE_AFTER).max(self.pause * PAUSES_MISSED)
    }

    /// Whether no writes are expected for a long time.
    pub fn is_at_rest(&self, now: Duration) -> bool {
        nanos(now).saturating_sub(self.since) >= nanos(REST_AFTER).max(self.pause * PAUSES_MISSED)
    }

    /// Time since the last flush.
    pub fn since_flush(&self, now: Duration) -> Duration {
        let last_flush = if self.last_flush == NEVER { 0 } else { self.last_flush };
        Duration::from_nanos(nanos(now).saturating_sub(last_flush))
    }
}

/// Limits the rate of postponed work while other keyspaces are written.
#[derive(Debug, Default)]
pub struct Throttle {
    /// End of the last step.
    ended: Duration,
    /// Duration of the last step.
    took: Duration,
}

impl Throttle {
    /// Records a step of work.
    pub fn note(&mut self, began: Duration, ended: Duration) {
        (self.ended, self.took) = (ended, ended.saturating_sub(began).min(LONGEST_STEP));
    }

    /// Records that work found no space on the device.
    pub fn record_stall(&mut self, now: Duration) {
        (self.ended, self.took) = (now, LONGEST_STEP);
    }

    /// Whether a step of work may begin. `since_flush`: time since the last flush of the store, an estimate
    /// of the time left between two flushes. It must be twice the duration of a step; the requirement falls
    /// the longer no step was done, so that all are done eventually.
    pub fn allows(&self, now: Duration, since_flush: Duration) -> bool {
        debug_assert!(self.took <= LONGEST_STEP, "longer steps predict nothing");
        let since = now.saturating_sub(self.ended);
        let pause = self.took * PAUSES;
        since >= pause
            && since.as_nanos() * since_flush.as_nanos()
                >= pause.as_nanos() * STEPS_BETWEEN * self.took.as_nanos()
    }
}

#[cfg(test)]
mod tests;
