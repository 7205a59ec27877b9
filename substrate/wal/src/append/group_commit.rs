//! Rounds of syncing: one waiter leads a round on its own thread; the others wait for it or for the next one.
//!
//! The waiters served by a round wake up a little later than the next leader. If that leader began at once,
//! threads that commit in a loop would split into two halves, each waiting for the other's round. So a leader
//! first *gathers*: it waits for as many callers as took part in the last round or arrived while it ran
//! (decision 0028). The wait is limited to a fraction of a round's duration.
//!
//! **Invariants**
//! - At most one round runs. Its leader seals first, so that it covers every commit reserved before the
//!   round.
//! - A waiter sleeps only while a round runs. Waiters covered by the round sleep on one condition variable
//!   and are all woken at its end. Those of the next round sleep on another, and one of them is woken to lead
//!   it. A waiter woken to lead that has nothing left to do wakes the next one.
//! - A single thread never sleeps and never hands over.
//! - Gathering always ends by its time limit, and commits that arrive meanwhile are covered by the round.
//!   After `n` unsuccessful gatherings in a row, the next `2^n - 1` rounds do not gather, 63 at most.

use std::time::Duration;

use testudo_base::{
    Result, Seqno, planted,
    sync::{Condvar, Mutex, MutexGuard},
};

/// Gathering lasts at most this fraction of a round's duration.
const GATHERING_DIVISOR: u32 = 2;
/// If half a round is shorter than this, sleeping and waking up takes longer than gathering saves.
const GATHERING_MIN: Duration = Duration::from_micros(20);
/// Callers that commit in a loop have returned by then, however slow the device is.
const GATHERING_MAX: Duration = Duration::from_millis(1);
/// Maximum number of rounds that skip gathering after unsuccessful ones.
const SKIPPED_ROUNDS_MAX: u32 = 63;

#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    rounds: Mutex<Rounds>,
    /// Where the waiters of round `n` sleep: at `n % 2`.
    ended: [Condvar; 2],
    /// Where the leader sleeps while it gathers.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct Rounds {
    is_running: bool,
    number: u64,
    /// Last seqno covered by the running round; 0 until its leader has determined it.
    covered: Seqno,
    /// The leader of the round is gathering; new callers wait for this round, not for the next.
    is_gathering: bool,
    /// Callers that have arrived for the next round, or for the one that is gathering.
    arrived: u32,
    /// Callers covered by the running round.
    participants: u32,
    /// Number of callers for which the next round waits.
    expected: u32,
    /// Duration of the last round for which more than one caller was expected.
    length: Duration,
    /// Upcoming rounds that skip gathering, and their number after the last unsuccessful gathering.
    rounds_to_skip: u32,
    penalty: u32,
}

impl Rounds {
    /// Number of the round that makes `upto` durable: the running one or the next.
    fn number_that_covers(&self, upto: Seqno) -> u64 {
        debug_assert!(self.is_running, "a round runs");
        if self.is_gathering || upto <= self.covered { self.number } else { self.number + 1 }
    }

    /// How long the new round waits for others; `None` if none are missing, if waiting would not pay, or if
    /// it was unsuccessful before.
    fn gathering_limit(&mut self) -> Option<Duration> {
        let limit = (self.length / GATHERING_DIVISOR).min(GATHERING_MAX);
        if self.arrived >= self.expected || limit < GATHERING_MIN {
            return None;
        }
        let is_skipped = self.rounds_to_skip > 0;
        self.rounds_to_skip = self.rounds_to_skip.saturating_sub(1);
        (!is_skipped).then_some(limit)
    }

    /// Adjusts the penalty at the end of gathering.
    fn record_gathering(&mut self) {
        let is_in_vain = self.arrived < self.expected;
        self.penalty = if is_in_vain { (2 * self.penalty + 1).min(SKIPPED_ROUNDS_MAX) } else { 0 };
        debug_assert!(self.penalty <= SKIPPED_ROUNDS_MAX, "gathering is tried again");
        self.rounds_to_skip = self.penalty;
    }
}

impl GroupCommit {
    /// Returns once `is_durable` is true or `check` fails; leads a round if none runs. REQUIRES: `upto` was
    /// reserved, so that a round sealed from now on covers it.
    pub(crate) fn wait_or_lead(
        &self,
        upto: Seqno,
        is_durable: impl Fn() -> bool,
        check: impl Fn() -> Result<()>,
        lead: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut rounds = self.rounds.lock();
        if upto > rounds.covered && !is_durable() {
            self.arrive(&mut rounds);
        }
        loop {
            let outcome = if is_durable() { Some(Ok(())) } else { check().err().map(Err) };
            if let Some(outcome) = outcome {
                self.wake_next_leader(&rounds);
                return outcome;
            }
            if !rounds.is_running {
                break;
            }
            let number = rounds.number_that_covers(upto);
            self.condition(number).wait(&mut rounds);
        }
        let _round = self.begin_round(rounds);
        lead()
    }

    /// Notes a caller whose commit no round covers yet.
    fn arrive(&self, rounds: &mut Rounds) {
        rounds.arrived += 1;
        if rounds.is_gathering && rounds.arrived == rounds.expected {
            self.gathered.notify_one();
        }
    }

    /// Passes on the call to lead: a caller that leaves might have been woken for it.
    fn wake_next_leader(&self, rounds: &Rounds) {
        if !rounds.is_running {
            self.condition(rounds.number + 1).notify_one();
        }
    }

    /// Begins a round, after gathering if that is worth it; it ends when the returned value is dropped.
    fn begin_round<'a>(&'a self, mut rounds: MutexGuard<'a, Rounds>) -> RunningRound<'a> {
        debug_assert!(!rounds.is_running && !rounds.is_gathering, "no round runs");
        rounds.is_running = true;
        rounds.number += 1;
        rounds.covered = Seqno(0);
        self.gather(&mut rounds);
        rounds.participants = std::mem::take(&mut rounds.arrived);
        RunningRound(self)
    }

    /// Waits for the expected callers if that is worth it.
    fn gather(&self, rounds: &mut MutexGuard<'_, Rounds>) {
        let Some(limit) = rounds.gathering_limit() else { return };
        rounds.is_gathering = true;
        self.gathered.wait_while_for(rounds, |rounds| rounds.arrived < rounds.expected, limit);
        debug_assert!(rounds.is_running, "a leader gathers for its own round");
        rounds.is_gathering = false;
        rounds.record_gathering();
    }

    /// Called by the leader: the running round makes everything up to `seqno` durable. Returns whether
    /// [`GroupCommit::took`] needs the duration.
    pub(crate) fn covers(&self, seqno: Seqno) -> bool {
        let mut rounds = self.rounds.lock();
        debug_assert!(rounds.is_running, "the leader calls this while its round runs");
        rounds.covered = seqno;
        rounds.expected > 1
    }

    /// Called by the leader: records the duration of the round.
    pub(crate) fn took(&self, length: Duration) {
        self.rounds.lock().length = length;
    }

    fn condition(&self, round: u64) -> &Condvar {
        &self.ended[usize::from(round % 2 == 1)]
    }
}

/// Ends the round when dropped, so that waiters are woken even if the leader panics.
struct RunningRound<'a>(&'a GroupCommit);

impl Drop for RunningRound<'_> {
    fn drop(&mut self) {
        let mut rounds = self.0.rounds.lock();
        debug_assert!(rounds.is_running && !rounds.is_gathering, "a round ends once, after gathering");
        rounds.is_running = false;
        rounds.expected = rounds.participants + rounds.arrived;
        self.0.condition(rounds.number).notify_all();
        if !planted!("next-leader-not-woken") {
            self.0.condition(rounds.number + 1).notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
