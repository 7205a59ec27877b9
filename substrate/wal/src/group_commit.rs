//! Rounds of syncing: one waiter leads a round on its own thread, the others wait for it or for the next one.
//!
//! **Invariants**
//! - At most one round runs. Its leader seals first, so that it covers every commit reserved before it began.
//! - A waiter sleeps only while a round runs. The waiters that the round covers sleep at one condition
//!   variable and are all woken at its end; those of the next round at another, and one of them is woken to
//!   lead it. A waiter woken to lead that has nothing left to do passes the call on.
//! - With one thread there is no sleeping and no hand-over.

use testudo_base::{
    Result, Seqno, planted,
    sync::{Condvar, Mutex},
};

#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    rounds: Mutex<Rounds>,
    /// Where waiters of round `n` sleep: at `n % 2`.
    ended: [Condvar; 2],
}

#[derive(Debug, Default)]
struct Rounds {
    is_running: bool,
    number: u64,
    /// Last seqno that the running round covers; 0 until its leader knows.
    covered: Seqno,
}

impl GroupCommit {
    /// Returns when `is_durable` says so or an error of `check`; leads a round if none runs.
    pub(crate) fn wait_or_lead(
        &self,
        upto: Seqno,
        is_durable: impl Fn() -> bool,
        check: impl Fn() -> Result<()>,
        lead: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut rounds = self.rounds.lock();
        loop {
            let outcome = if is_durable() { Some(Ok(())) } else { check().err().map(Err) };
            if let Some(outcome) = outcome {
                if !rounds.is_running {
                    self.condition(rounds.number + 1).notify_one();
                }
                return outcome;
            }
            if rounds.is_running {
                let number = if upto <= rounds.covered { rounds.number } else { rounds.number + 1 };
                self.condition(number).wait(&mut rounds);
                continue;
            }
            rounds.is_running = true;
            rounds.number += 1;
            rounds.covered = Seqno(0);
            drop(rounds);
            let round = RunningRound(self);
            let outcome = lead();
            drop(round);
            return outcome;
        }
    }

    /// Told by the leader: the round that runs makes everything up to `seqno` durable.
    pub(crate) fn covers(&self, seqno: Seqno) {
        self.rounds.lock().covered = seqno;
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
        self.0.condition(rounds.number).notify_all();
        if !planted!("next-leader-not-woken") {
            self.0.condition(rounds.number + 1).notify_one();
        }
    }
}
