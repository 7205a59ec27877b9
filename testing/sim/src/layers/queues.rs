#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]
//! Queues, windows and sessions: reads at an end are correct, and their cost does not grow with removals.
//!
//! The cost of a read is counted, not timed: the tombstones that it passes one by one.
//!
//! **Invariants**
//! - Every answer matches a map, also while snapshots are held, and when a key returns between a read and the
//!   removal of the key that it found.
//! - Only reads of a pattern count; reads that check its answers do not.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    ops::Bound::{Excluded, Unbounded},
};

use testudo::{Db, Entry, Keyspace, Result, Snapshot};
use testudo_base::num::usize_of;
use testudo_db::maintenance::Stepping as _;
use testudo_env::{MemEnv, SplitMix};
use testudo_testkit::{
    configuration::{Configuration, crash_configurations},
    engine_store::DIRECTORY,
};

use crate::{
    LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, counted, judge, sweep},
};

pub(crate) const NAME: &str = "queues";
/// Unit of the count.
pub(crate) const UNIT: &str = "rounds";
/// Rounds of each pattern on each tree in the short form.
const ROUNDS_SHORT: u64 = 2_000;
/// The mean over this many rounds …
const WINDOW: u64 = 500;
/// … may be at most this percentage of the mean of the first ones …
const GROWTH_PERCENT: u64 = 120;
/// … or of this many tombstones per round, if those passed fewer.
const PASSED_USUALLY: u64 = 8;
/// Initial number of entries.
const WAITING: u64 = 100;
/// Entries that are occasionally removed without a read.
const TAKEN_TOGETHER: usize = 30;
/// Number of snapshots held.
const HELD: usize = 3;

type Pattern = fn(&mut Bed, u64);

const PATTERNS: [(&str, Pattern); 7] = [
    ("queue", queue),
    ("reverse queue", reverse_queue),
    ("stack", stack),
    ("window", window),
    ("prefixes", prefixes),
    ("sessions", sessions),
    ("returning", returning),
];

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let rounds = limits.count_or(ROUNDS_SHORT);
    let rounds = if rounds == u64::MAX { 1_000_000 } else { rounds };
    let items =
        configurations.iter().flat_map(|configuration| PATTERNS.map(|pattern| (configuration, pattern)));
    sweep(limits, items, None, |(configuration, (name, pattern))| {
        judge(NAME, Some(&configuration.name), None, || {
            let mut bed = Bed::new(configuration);
            let mut first = None;
            for round in 0..rounds {
                pattern(&mut bed, round);
                if round % WINDOW == WINDOW - 1 {
                    let passed = mem::take(&mut bed.passed) + bed.passed_since();
                    bed.check(round);
                    let usual = *first.get_or_insert(passed.max(PASSED_USUALLY * WINDOW));
                    if passed * 100 > usual * GROWTH_PERCENT {
                        return Err(format!(
                            "{name}: {passed} tombstones passed in {WINDOW} rounds after {round}, {usual} at \
                             first"
                        ));
                    }
                }
            }
            bed.db.check_invariants().unwrap();
            bed.db.close().unwrap();
            limits.tick(rounds);
            let mut report = counted(UNIT, usize_of(rounds));
            LayerReport::merge(&mut report, counted("snapshots read", bed.snapshots_read));
            Ok(report)
        })
    })
}

/// A snapshot, and its expected first and last key.
struct Held {
    snapshot: Snapshot,
    ends: [Option<Vec<u8>>; 2],
}

struct Bed {
    db: Db,
    keyspace: Keyspace,
    model: BTreeMap<Vec<u8>, u64>,
    random: SplitMix,
    held: VecDeque<Held>,
    snapshots_read: usize,
    /// Tombstones that reads have passed since the last window, without those since the last check.
    passed: u64,
    /// The store's count at the last check.
    passed_before: u64,
    /// State for patterns that need some.
    keys: VecDeque<Vec<u8>>,
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn key_of(entry: Option<Result<Entry>>) -> Option<Vec<u8>> {
    entry.map(|entry| entry.unwrap().key().to_vec())
}

impl Bed {
    fn new(configuration: &Configuration) -> Self {
        let env = MemEnv::new(7);
        let db = configuration.opener.open_db(env, DIRECTORY.as_ref()).unwrap();
        let keyspace = db.keyspace("queue", || configuration.opener.options).unwrap();
        Self {
            db,
            keyspace,
            model: BTreeMap::new(),
            random: SplitMix::new(7),
            held: VecDeque::new(),
            snapshots_read: 0,
            passed: 0,
            passed_before: 0,
            keys: VecDeque::new(),
        }
    }

    fn passed_since(&self) -> u64 {
        self.db.stats().scans.tombstones_passed - self.passed_before
    }

    fn insert(&mut self, key: Vec<u8>, round: u64) {
        self.keyspace.insert(&key, [round.to_be_bytes(); 5].concat()).unwrap();
        self.model.insert(key, round);
    }

    fn remove(&mut self, key: &[u8]) {
        self.keyspace.remove(key).unwrap();
        self.model.remove(key);
    }

    /// Reads the first key.
    fn first(&self) -> Option<Vec<u8>> {
        let first = key_of(self.keyspace.iter().unwrap().next());
        assert_eq!(first.as_ref(), self.model.keys().next(), "the first");
        first
    }

    /// Reads the last key.
    fn last(&self) -> Option<Vec<u8>> {
        let last = key_of(self.keyspace.iter().unwrap().next_back());
        assert_eq!(last.as_ref(), self.model.keys().next_back(), "the last");
        last
    }

    /// Checks all entries, in both directions, and the snapshots. Not counted as a read.
    fn check(&mut self, round: u64) {
        while self.db.step().unwrap() {}
        let forward: Vec<_> =
            self.keyspace.iter().unwrap().map(|entry| entry.unwrap().key().to_vec()).collect();
        assert!(forward.iter().eq(self.model.keys()), "forward, in round {round}");
        let back = self.keyspace.iter().unwrap().rev().map(|entry| entry.unwrap().key().to_vec());
        assert!(back.eq(self.model.keys().rev().cloned()), "backward, in round {round}");
        self.look_at_snapshots(round);
        self.passed_before = self.db.stats().scans.tombstones_passed;
    }

    /// Checks the snapshots only, between reads.
    fn look_at_snapshots(&mut self, round: u64) {
        for Held { snapshot, ends } in &self.held {
            let iter = || snapshot.iter(&self.keyspace).unwrap();
            let found = [key_of(iter().next()), key_of(iter().next_back())];
            assert_eq!(found, *ends, "a snapshot, in round {round}");
            self.snapshots_read += 1;
        }
        let ends = [self.model.keys().next().cloned(), self.model.keys().next_back().cloned()];
        self.held.push_back(Held { snapshot: self.db.snapshot().unwrap(), ends });
        if self.held.len() > HELD {
            self.held.pop_front();
        }
    }

    /// Does occasional background work and replaces snapshots.
    fn go_on(&mut self, round: u64) {
        if round.is_multiple_of(16) {
            let _ = self.db.step().unwrap();
        }
        if round % 170 == 99 {
            self.uncounted(|bed| bed.look_at_snapshots(round));
        }
    }

    /// Does something that is not a read of the pattern.
    fn uncounted(&mut self, check: impl FnOnce(&mut Self)) {
        self.passed += self.passed_since();
        check(self);
        self.passed_before = self.db.stats().scans.tombstones_passed;
    }
}

/// Inserts at the end, removes at the front.
fn queue(bed: &mut Bed, round: u64) {
    bed.insert(key(round + WAITING), round);
    if round >= WAITING {
        let first = bed.first().unwrap();
        bed.remove(&first);
    }
    bed.go_on(round);
}

/// Inserts at the front, removes at the end.
fn reverse_queue(bed: &mut Bed, round: u64) {
    bed.insert(key(u64::MAX - round), round);
    if round >= WAITING {
        let last = bed.last().unwrap();
        bed.remove(&last);
    }
    bed.go_on(round);
}

/// Inserts and removes at the end, alternately growing and shrinking.
fn stack(bed: &mut Bed, round: u64) {
    let falls = round % (WAITING * 4) >= WAITING * 2 + 2;
    if falls && !bed.model.is_empty() {
        let last = bed.last().unwrap();
        bed.remove(&last);
    } else {
        let depth = bed.last().map_or(0, |last| u64::from_be_bytes(last.try_into().unwrap()));
        bed.insert(key(depth + 1), round);
    }
    bed.go_on(round);
}

/// Removes old entries, many at once.
fn window(bed: &mut Bed, round: u64) {
    bed.insert(key(round), round);
    let _ = bed.first();
    if round % 50 == 49 {
        let end = key(round.saturating_sub(WAITING));
        let old: Vec<_> =
            bed.keyspace.range(..&end[..]).unwrap().map(|entry| entry.unwrap().key().to_vec()).collect();
        assert!(old.iter().eq(bed.model.range(..end).map(|(key, _)| key)), "what is old");
        let mut batch = bed.db.batch();
        old.iter().for_each(|key| batch.remove(&bed.keyspace, key));
        batch.commit().unwrap();
        old.iter().for_each(|key| _ = bed.model.remove(key));
    }
    bed.go_on(round);
}

/// Many queues.
fn prefixes(bed: &mut Bed, round: u64) {
    const QUEUES: u64 = 20;
    let prefix = round * 7 % QUEUES;
    bed.insert([key(prefix), key(round)].concat(), round);
    if round >= WAITING {
        let prefix = key(prefix);
        let first = key_of(bed.keyspace.prefix(&prefix).unwrap().next()).unwrap();
        assert_eq!(
            Some(&first),
            bed.model.range(prefix..).next().map(|(key, _)| key),
            "the first of a prefix"
        );
        bed.remove(&first);
    }
    bed.go_on(round);
}

/// Inserts anywhere; removes the oldest session.
fn sessions(bed: &mut Bed, round: u64) {
    let session = key(bed.random.next_u64());
    bed.insert(session.clone(), round);
    bed.keys.push_back(session.clone());
    if bed.keys.len() > usize_of(WAITING) {
        let oldest = bed.keys.pop_front().unwrap();
        bed.remove(&oldest);
    }
    let _ = (bed.first(), bed.last());
    if round % 7 == 3 {
        // As many tombstones follow a key as are between any two keys.
        bed.uncounted(|bed| {
            let next = key_of(bed.keyspace.range((Excluded(&session[..]), Unbounded)).unwrap().next());
            let expected = bed.model.range::<Vec<u8>, _>((Excluded(&session), Unbounded)).next();
            assert_eq!(next.as_ref(), expected.map(|(key, _)| key), "the one behind");
        });
    }
    bed.go_on(round);
}

/// A queue to whose front jobs return, also between the start of a scan and its first step.
fn returning(bed: &mut Bed, round: u64) {
    queue(bed, round);
    if round < WAITING * 2 {
        return;
    }
    let popped = round - WAITING;
    match round % 40 {
        7 => bed.insert(key(popped - 3), round),
        17 => bed.insert(key(popped / 2), round),
        27 => {
            let expected = bed.first();
            let mut early = bed.keyspace.iter().unwrap();
            bed.insert(key(round % 100), round);
            assert_eq!(key_of(early.next()), expected, "of a scan that began before");
            let first = bed.first().unwrap();
            bed.remove(&first);
        }
        37 => {
            // Many keys are removed, with no read since. A scan that began before one of them returned passes
            // them all, and must not hide that key from later scans.
            let gone: Vec<_> = bed.model.keys().take(TAKEN_TOGETHER).cloned().collect();
            gone.iter().for_each(|key| bed.remove(key));
            let mut early = bed.keyspace.iter().unwrap();
            let back = gone[TAKEN_TOGETHER / 2].clone();
            bed.insert(back.clone(), round);
            let expected = bed.model.keys().nth(1).cloned();
            assert_eq!(key_of(early.next()), expected, "of a scan that began before");
            assert_eq!(bed.first(), Some(back.clone()));
            bed.remove(&back);
            for number in 0..TAKEN_TOGETHER {
                bed.insert([key(round + WAITING), vec![u8::try_from(number).unwrap()]].concat(), round);
            }
        }
        _ => {}
    }
}
