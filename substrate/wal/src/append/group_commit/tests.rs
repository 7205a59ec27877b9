use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use super::*;

const LONG: Duration = Duration::from_secs(1);

/// A log of numbers: how many commits were made, how many are durable, and in how many rounds.
#[derive(Default)]
struct Log {
    group: GroupCommit,
    reserved: AtomicU64,
    durable: AtomicU64,
    rounds: AtomicU64,
}

impl Log {
    fn commit(&self) {
        let upto = self.reserved.fetch_add(1, SeqCst) + 1;
        let is_durable = || self.durable.load(SeqCst) >= upto;
        self.group.wait_or_lead(Seqno(upto), is_durable, || Ok(()), || self.lead()).unwrap();
        assert!(is_durable());
    }

    fn lead(&self) -> Result<()> {
        let covered = self.reserved.load(SeqCst);
        if self.group.covers(Seqno(covered)) {
            self.group.took(LONG);
        }
        self.durable.fetch_max(covered, SeqCst);
        self.rounds.fetch_add(1, SeqCst);
        Ok(())
    }
}

#[test]
fn arrivals_during_gathering_join_the_round() {
    let is_shared = || {
        let log = Log::default();
        *log.group.rounds.lock() = Rounds { expected: 2, length: LONG, ..Rounds::default() };
        thread::scope(|scope| {
            let first = scope.spawn(|| log.commit());
            while !log.group.rounds.lock().is_gathering && !first.is_finished() {
                thread::yield_now();
            }
            log.commit();
        });
        log.rounds.load(SeqCst) == 1
    };
    // On a busy machine gathering may end before the second caller arrives.
    assert!((0..1000).any(|_| is_shared()));
}

#[test]
fn all_waiters_finish_even_if_expected_callers_never_arrive() {
    let (threads, commits) = if cfg!(miri) { (3, 5) } else { (8, 200) };
    let log = Log::default();
    thread::scope(|scope| {
        for thread in 0..threads {
            let log = &log;
            // Some leave early, so that gathering waits for them without success.
            scope.spawn(move || (0..commits / (thread % 3 + 1)).for_each(|_| log.commit()));
        }
    });
    assert_eq!(log.durable.load(SeqCst), log.reserved.load(SeqCst));
    assert!(log.rounds.load(SeqCst) <= log.reserved.load(SeqCst));
}

#[test]
fn lone_caller_never_gathers() {
    let log = Log::default();
    for _ in 0..3 {
        log.commit();
        let rounds = log.group.rounds.lock();
        assert_eq!((rounds.expected, rounds.arrived, rounds.length), (1, 0, Duration::ZERO));
    }
}

#[test]
fn gathering_is_bounded_and_skipped_for_short_rounds() {
    let limit = |length: Duration, arrived: u32| {
        Rounds { length, arrived, expected: 3, ..Rounds::default() }.gathering_limit()
    };
    assert_eq!(limit(Duration::from_micros(100), 1), Some(Duration::from_micros(50)));
    assert_eq!(limit(Duration::from_micros(100), 3), None);
    assert_eq!(limit(Duration::from_micros(30), 1), None);
    assert_eq!(limit(LONG, 2), Some(GATHERING_MAX));
}

#[test]
fn unsuccessful_gathering_backs_off_and_success_resets_it() {
    let mut rounds = Rounds { expected: 2, arrived: 1, length: LONG, ..Rounds::default() };
    let rests = |rounds: &mut Rounds| (0..).take_while(|_| rounds.gathering_limit().is_none()).count();
    for expected in [0, 1, 3, 7, 15, 31, 63, 63] {
        assert_eq!(rests(&mut rounds), expected);
        rounds.record_gathering();
    }
    assert_eq!(rests(&mut rounds), 63);
    rounds.arrived = 2;
    rounds.record_gathering();
    rounds.arrived = 1;
    assert_eq!(rests(&mut rounds), 0);
}
