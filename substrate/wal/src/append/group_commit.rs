//! Rounds of syncing: one waiter leads a round on its own thread, the others wait for it or for the next one.
//!
//! Whoever a round has served wakes up a little later than the next leader. Were that one to begin at once,
//! threads that commit again and again would come in two halves, each waiting for the other's round. So a
//! leader first *gathers*: it waits until as many have come as took part in the last round or came while it
//! ran, for a part of what a round takes (decision 0028).
//!
//! **Invariants**
//! - At most one round runs. Its leader seals first, so that it covers every commit reserved before it began.
//! - A waiter sleeps only while a round runs. The waiters that the round covers sleep at one condition
//!   variable and are all woken at its end; those of the next round at another, and one of them is woken to
//!   lead it. A waiter woken to lead that has nothing left to do passes the call on.
//! - With one thread there is no sleeping and no hand-over.
//! - Gathering ends by itself, whoever comes, and what comes meanwhile is covered by the round. After `n`
//!   times in a row in vain the next `2^n - 1` rounds gather nobody, 63 at most.

use std::time::Duration;

use testudo_base::{
    Result, Seqno, planted,
    sync::{Condvar, Mutex, MutexGuard},
};

/// Of what a round takes, as long as this part of it others are waited for.
const GATHERING_DIVISOR: u32 = 2;
/// Where half a round is shorter, sleeping and waking up takes longer than what gathering would save.
const GATHERING_MIN: Duration = Duration::from_micros(20);
/// Whoever comes back at once has come back by then, however slow the device is.
const GATHERING_MAX: Duration = Duration::from_millis(1);
/// Rounds that gather nobody, at most, after gathering in vain.
const SKIPPED_ROUNDS_MAX: u32 = 63;

#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    rounds: Mutex<Rounds>,
    /// Where waiters of round `n` sleep: at `n % 2`.
    ended: [Condvar; 2],
    /// Where the leader sleeps while it gathers.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct Rounds {
    is_running: bool,
    number: u64,
    /// Last seqno that the running round covers; 0 until its leader knows.
    covered: Seqno,
    /// The leader of the round waits for others; they wait for this round, not for the next.
    is_gathering: bool,
    /// Callers that have come for the next round, or for the one that gathers.
    arrived: u32,
    /// Those that the round covers, for as long as it runs.
    participants: u32,
    /// How many the next round waits for.
    expected: u32,
    /// How long the last round took in which more than one caller was expected.
    length: Duration,
    /// Rounds to come that gather nobody, and how many that were after the last time in vain.
    rounds_to_skip: u32,
    penalty: u32,
}

impl Rounds {
    /// The round that makes `upto` durable, if one runs: it, or the next one.
    fn number_that_covers(&self, upto: Seqno) -> u64 {
        debug_assert!(self.is_running, "a round runs");
        if self.is_gathering || upto <= self.covered { self.number } else { self.number + 1 }
    }

    /// How long the round that begins waits for others; `None` if none are missing, or if it would take too
    /// long or was in vain before.
    fn gathering_limit(&mut self) -> Option<Duration> {
        let limit = (self.length / GATHERING_DIVISOR).min(GATHERING_MAX);
        if self.arrived >= self.expected || limit < GATHERING_MIN {
            return None;
        }
        let is_skipped = self.rounds_to_skip > 0;
        self.rounds_to_skip = self.rounds_to_skip.saturating_sub(1);
        (!is_skipped).then_some(limit)
    }

    /// Learns from the end of gathering.
    fn record_gathering(&mut self) {
        let is_in_vain = self.arrived < self.expected;
        self.penalty = if is_in_vain { (2 * self.penalty + 1).min(SKIPPED_ROUNDS_MAX) } else { 0 };
        self.rounds_to_skip = self.penalty;
    }
}

impl GroupCommit {
    /// Returns when `is_durable` says so or an error of `check`; leads a round if none runs. REQUIRES: `upto`
    /// was reserved, so that a round that is sealed from now on covers it.
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

    /// Who leaves might have been woken to lead the next round.
    fn wake_next_leader(&self, rounds: &Rounds) {
        if !rounds.is_running {
            self.condition(rounds.number + 1).notify_one();
        }
    }

    /// Begins a round, after waiting for others if that is worth it; it ends when what is returned is
    /// dropped.
    fn begin_round<'a>(&'a self, mut rounds: MutexGuard<'a, Rounds>) -> RunningRound<'a> {
        debug_assert!(!rounds.is_running && !rounds.is_gathering, "no round runs");
        rounds.is_running = true;
        rounds.number += 1;
        rounds.covered = Seqno(0);
        self.gather(&mut rounds);
        rounds.participants = std::mem::take(&mut rounds.arrived);
        RunningRound(self)
    }

    /// Waits for those that are expected, if the rounds say so.
    fn gather(&self, rounds: &mut MutexGuard<'_, Rounds>) {
        let Some(limit) = rounds.gathering_limit() else { return };
        rounds.is_gathering = true;
        self.gathered.wait_while_for(rounds, |rounds| rounds.arrived < rounds.expected, limit);
        rounds.is_gathering = false;
        rounds.record_gathering();
    }

    /// Told by the leader: the round that runs makes everything up to `seqno` durable. Says whether
    /// [`GroupCommit::took`] wants to know how long that takes.
    pub(crate) fn covers(&self, seqno: Seqno) -> bool {
        let mut rounds = self.rounds.lock();
        debug_assert!(rounds.is_running, "the leader tells it, while its round runs");
        rounds.covered = seqno;
        rounds.expected > 1
    }

    /// Told by the leader: the round took so long.
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
