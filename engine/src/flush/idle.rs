//! When a keyspace rests, and when work that only makes up for something may be done: pure arithmetic over time.
//!
//! A keyspace rests by itself, whatever others do. Work on it is done one piece after the other while the whole store is quiet.
//! While others write, there is a pause after each piece that is several times as long as the piece took. A drain
//! that becomes due meanwhile waits for it, which costs writers nothing as long as drains end that much before the next one begins.
//!
//! **Invariants**
//! - While others write, work takes at most one part in [`PAUSES`] + 1 of the time, unless a single piece takes longer than [`LONGEST_PIECE`].

use std::time::Duration;

/// What was neither written nor drained for so long rests, if that is also twice as long as between its last two drains.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Longer pauses than this between two drains say nothing about the next one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Pieces of work that would have had room in the pause after one.
const PAUSES: u32 = 15;
/// A piece that took longer than this was held up, and says nothing about the next one.
const LONGEST_PIECE: Duration = Duration::from_secs(1);

/// Since when nothing has come into a keyspace, or into any.
#[derive(Debug)]
pub(crate) struct Quiet {
    since: Duration,
    last_drain: Option<Duration>,
    /// Between the last two drains.
    pause: Duration,
}

impl Quiet {
    pub(crate) fn from(now: Duration) -> Self {
        Self { since: now, last_drain: None, pause: Duration::ZERO }
    }

    /// Something was written, or something else is a reason to begin anew.
    pub(crate) fn interrupt(&mut self, now: Duration) {
        self.since = now;
    }

    /// Something was drained.
    pub(crate) fn note_drain(&mut self, now: Duration) {
        self.pause =
            self.last_drain.map_or(Duration::ZERO, |last| now.saturating_sub(last)).min(LONGEST_PAUSE);
        self.last_drain = Some(now);
        self.since = now;
    }

    pub(crate) fn is_quiet(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= QUIET_AFTER.max(self.pause * 2)
    }

    /// How long nothing was drained.
    pub(crate) fn since_drain(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_drain.unwrap_or_default())
    }
}

/// How often work may be done while others write.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the last piece ended.
    ended: Duration,
    /// How long it took.
    took: Duration,
}

impl Pace {
    /// A piece of work was done.
    pub(crate) fn note(&mut self, began: Duration, ended: Duration) {
        (self.ended, self.took) = (ended, ended.saturating_sub(began).min(LONGEST_PIECE));
    }

    /// Work found no room.
    pub(crate) fn note_stall(&mut self, now: Duration) {
        (self.ended, self.took) = (now, LONGEST_PIECE);
    }

    /// Whether a piece of work may be begun. `since_drain`: how long the store has drained nothing, as a sign of what is left between two drains.
    /// That should be twice what a piece takes; the longer none was done, the less is asked, so that all are done some day.
    pub(crate) fn allows(&self, now: Duration, since_drain: Duration) -> bool {
        let since = now.saturating_sub(self.ended);
        let pause = self.took * PAUSES;
        since >= pause
            && since.as_nanos() * since_drain.as_nanos() >= pause.as_nanos() * 2 * self.took.as_nanos()
    }
}

#[cfg(test)]
mod tests;
