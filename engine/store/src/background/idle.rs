//! When a keyspace is idle, and when postponed work may be done: pure arithmetic over time.
//!
//! A keyspace is idle by itself, whatever is written into others. Work on it is done one piece after the
//! other while the whole store is idle. While other keyspaces are written, there is a pause after each piece
//! that is several times as long as the piece took. A flush that becomes due meanwhile waits for it, which
//! costs writers nothing as long as flushes end that much before the next one begins.
//!
//! A keyspace that is idle for longer is at rest: its write buffer is flushed, too, however small it is,
//! since what was overwritten or removed takes space until then.
//!
//! **Invariants**
//! - A keyspace that is written now and then is flushed for rest at most once in its longest pause.
//! - While others write, work takes at most one part in [`PAUSES`] + 1 of the time, unless a single piece
//!   takes longer than [`LONGEST_PIECE`].

use std::time::Duration;

/// A keyspace that was neither written nor flushed for so long is idle, if that is also twice as long as
/// between its last two flushes.
pub const IDLE_AFTER: Duration = Duration::from_secs(1);
/// A keyspace that is idle for so long, and twice as long as between its last two flushes, is at rest.
pub const REST_AFTER: Duration = Duration::from_secs(5);
/// Longer pauses than this between two flushes say nothing about the next one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How many times as long as a piece of work the pause after it is.
const PAUSES: u32 = 15;
/// A piece that took longer than this was held up, and says nothing about the next one.
const LONGEST_PIECE: Duration = Duration::from_secs(1);

/// Since when nothing has come into a keyspace, or into any.
#[derive(Debug)]
pub struct Idle {
    since: Duration,
    last_flush: Option<Duration>,
    /// Between the last two flushes.
    pause: Duration,
}

impl Idle {
    pub fn from(now: Duration) -> Self {
        Self { since: now, last_flush: None, pause: Duration::ZERO }
    }

    /// Something was written, or something else is a reason to begin anew.
    pub fn interrupt(&mut self, now: Duration) {
        self.since = now;
    }

    /// Something was flushed.
    pub fn record_flush(&mut self, now: Duration) {
        self.pause =
            self.last_flush.map_or(Duration::ZERO, |last| now.saturating_sub(last)).min(LONGEST_PAUSE);
        self.last_flush = Some(now);
        self.since = now;
    }

    pub fn is_idle(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= IDLE_AFTER.max(self.pause * 2)
    }

    /// Whether nothing is expected to come for a good while.
    pub fn is_at_rest(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= REST_AFTER.max(self.pause * 2)
    }

    /// How long nothing was flushed.
    pub fn since_flush(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_flush.unwrap_or_default())
    }
}

/// How often work may be done while others write.
#[derive(Debug, Default)]
pub struct Throttle {
    /// When the last piece ended.
    ended: Duration,
    /// How long it took.
    took: Duration,
}

impl Throttle {
    /// A piece of work was done.
    pub fn note(&mut self, began: Duration, ended: Duration) {
        (self.ended, self.took) = (ended, ended.saturating_sub(began).min(LONGEST_PIECE));
    }

    /// Work found no space on the device.
    pub fn record_stall(&mut self, now: Duration) {
        (self.ended, self.took) = (now, LONGEST_PIECE);
    }

    /// Whether a piece of work may be begun. `since_flush`: how long the store has flushed nothing, as a sign
    /// of what is left between two flushes. That should be twice what a piece takes; the longer none was
    /// done, the less is asked, so that all are done some day.
    pub fn allows(&self, now: Duration, since_flush: Duration) -> bool {
        let since = now.saturating_sub(self.ended);
        let pause = self.took * PAUSES;
        since >= pause
            && since.as_nanos() * since_flush.as_nanos() >= pause.as_nanos() * 2 * self.took.as_nanos()
    }
}

#[cfg(test)]
mod tests;
