#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]
//! Hundreds of snapshots and iterators: neighbors share the data that they hold.
//!
//! Writes continue between them, so each sees another state. The space that all of them hold on disk is
//! bounded by the bytes written, not by their number; memory is bounded by the budget. Answers are compared
//! with a model: those of snapshots, and of iterators that continue from their positions.
//!
//! **Invariants**
//! - Every number is a store counter on an in-memory disk: the same in each run.

use std::collections::BTreeMap;

use testudo::{Db, Iter, Keyspace, Snapshot};
use testudo_base::num::u64_of;
use testudo_db::maintenance::Stepping as _;
use testudo_env::MemEnv;
use testudo_testkit::{
    configuration::{Configuration, crash_configurations},
    engine_store::DIRECTORY,
};

use crate::{
    LayerReport, Limits,
    sweep::{Enough, Outcome, chosen, judge, search},
};

pub(crate) const NAME: &str = "holders";
pub(crate) const UNIT: &str = "snapshots";

/// Snapshots per run, and per short sweep: one run for each tree.
const SNAPSHOTS: u64 = 600;
const SNAPSHOTS_SHORT: u64 = 7 * SNAPSHOTS;
/// Writes between two snapshots.
const BETWEEN: u64 = 10;
const KEYS: u64 = 700;
/// Maximum bytes on disk per byte written: trees write data several times, and tree states are held as well.
const DISK_FACTOR: u64 = 16;
/// Disk space that a store of this size takes in any case.
const DISK_BYTES: u64 = 1 << 20;
/// Memory bounds of an iterator when there are many, and of all iterators.
const SMALL_ITERATOR_BYTES: u64 = 5 << 10;
const ITERATORS_BYTES: u64 = 1 << 20;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, crash_configurations())?;
    let enough = Enough { unit: UNIT, count: limits.count_or(SNAPSHOTS_SHORT) };
    search(
        limits,
        &configurations,
        enough,
        |_| Ok(()),
        |configuration, seed| {
            judge(NAME, Some(&configuration.name), Some(seed), || hold_many(configuration, seed))
        },
    )
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reproducible random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }
}

fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

/// A positioned iterator, with its remaining entries.
struct Standing {
    iter: Iter,
    left: Vec<(Vec<u8>, Vec<u8>)>,
}

struct Run {
    db: Db,
    keyspace: Keyspace,
    dice: Dice,
    model: Model,
    written_bytes: u64,
    snapshots: Vec<(Snapshot, Model)>,
    iterators: Vec<Standing>,
}

fn hold_many(configuration: &Configuration, seed: u64) -> Result<LayerReport, String> {
    let db = configuration.opener.open_db(MemEnv::new(seed), DIRECTORY.as_ref()).unwrap();
    let keyspace = db.keyspace("keyspace", || configuration.opener.options).unwrap();
    let mut run = Run {
        db,
        keyspace,
        dice: Dice(seed),
        model: Model::new(),
        written_bytes: 0,
        snapshots: Vec::new(),
        iterators: Vec::new(),
    };
    for round in 0..SNAPSHOTS {
        run.write(round);
        run.snapshots.push((run.db.snapshot().unwrap(), run.model.clone()));
        if round % 2 == 0 {
            run.open_iterator(round);
        }
        if round % 16 == 15 {
            while run.db.step().unwrap() {}
        }
        if round % 50 == 49 {
            run.check_bounds()?;
        }
    }
    run.db.flush().unwrap();
    run.check_bounds()?;
    run.db.check_invariants().unwrap();
    run.check_snapshots(3)?;
    run.check_iterators(2)?;
    // Most of them are dropped, and the others still show their states.
    let mut number = 0;
    run.snapshots.retain(|_| {
        number += 1;
        number % 40 == 0
    });
    for round in 0..40 {
        run.write(SNAPSHOTS + round);
    }
    run.db.flush().unwrap();
    run.check_snapshots(1)?;
    run.check_iterators(1)?;
    run.end()
}

impl Run {
    fn write(&mut self, round: u64) {
        for _ in 0..BETWEEN {
            // Some keys are written all the time, others occasionally.
            let number = if self.dice.below(3) == 0 { self.dice.below(5) } else { self.dice.below(KEYS) };
            let key = key(number);
            if self.dice.below(9) == 0 {
                self.keyspace.remove(&key).unwrap();
                self.model.remove(&key);
                self.written_bytes += u64_of(key.len());
                continue;
            }
            let mut value = vec![u8::try_from(number % 251).unwrap(); 100];
            value[..8].copy_from_slice(&round.to_le_bytes());
            self.keyspace.insert(&key, &value).unwrap();
            self.written_bytes += u64_of(key.len() + value.len());
            self.model.insert(key, value);
        }
    }

    /// Opens an iterator and advances it a little, or far.
    fn open_iterator(&mut self, round: u64) {
        let from = if round.is_multiple_of(4) { Vec::new() } else { key(self.dice.below(KEYS)) };
        let mut iter = self.keyspace.range(from.clone()..).unwrap();
        let steps = usize::try_from(self.dice.below(120)).unwrap();
        let mut left: Vec<_> = self.model.range(from..).map(|(k, v)| (k.clone(), v.clone())).collect();
        for (key, _) in left.drain(..steps.min(left.len())) {
            assert_eq!(iter.next().unwrap().unwrap().key(), key, "a newly opened iterator");
        }
        if round.is_multiple_of(6)
            && let Some((key, _)) = left.pop()
        {
            assert_eq!(iter.next_back().unwrap().unwrap().key(), key, "an iterator from the back");
        }
        self.iterators.push(Standing { iter, left });
    }

    fn check_bounds(&self) -> Result<(), String> {
        let stats = self.db.stats();
        let (held, bound) = (stats.memory.memtable_bytes, stats.memory.budget_bytes);
        if held > bound {
            return Err(format!("{held} bytes of memtables under a budget of {bound}"));
        }
        let bound = (stats.memory.budget_bytes / 8).max(ITERATORS_BYTES)
            + u64_of(self.iterators.len()) * SMALL_ITERATOR_BYTES;
        if stats.scans.iterator_bytes > bound {
            let count = self.iterators.len();
            return Err(format!(
                "{count} iterators take {} bytes, {bound} at most",
                stats.scans.iterator_bytes
            ));
        }
        let disk = stats.space.live_bytes + stats.space.held_bytes;
        if disk > self.written_bytes * DISK_FACTOR + DISK_BYTES {
            let (count, written) = (self.snapshots.len(), self.written_bytes);
            return Err(format!("{count} snapshots hold {disk} bytes on disk after {written} bytes written"));
        }
        Ok(())
    }

    /// Compares every `step`th snapshot as a whole, and a few keys of each.
    fn check_snapshots(&mut self, step: usize) -> Result<(), String> {
        for (number, (snapshot, model)) in self.snapshots.iter().enumerate() {
            for _ in 0..3 {
                let key = key(self.dice.below(KEYS));
                let got = snapshot.get(&self.keyspace, &key).unwrap();
                if got.as_deref() != model.get(&key).map(Vec::as_slice) {
                    return Err(format!("snapshot {number} shows a wrong value of a key"));
                }
            }
            if number % step == 0 {
                let entries = snapshot.iter(&self.keyspace).unwrap();
                let entries = entries.map(|entry| entry.unwrap().into_pair().unwrap());
                let is_same = |((key, value), (k, v)): (_, (&Vec<u8>, &Vec<u8>))| {
                    let (key, value): (testudo::Slice, testudo::Slice) = (key, value);
                    *key == **k && *value == **v
                };
                let mut count = 0;
                let is_right = entries.inspect(|_| count += 1).zip(model).all(is_same);
                if !is_right || count != model.len() {
                    return Err(format!("snapshot {number} shows wrong entries"));
                }
            }
        }
        Ok(())
    }

    /// Advances every `step`th iterator to its end.
    fn check_iterators(&mut self, step: usize) -> Result<(), String> {
        let count = self.iterators.len();
        for (number, standing) in self.iterators.iter_mut().enumerate().filter(|(at, _)| at % step == 0) {
            let Standing { iter, left } = standing;
            for (key, value) in left.drain(..) {
                let entry = iter.next().map(|entry| entry.unwrap().into_pair().unwrap());
                if entry.is_none_or(|(k, v)| *k != *key || *v != *value) {
                    return Err(format!("iterator {number} of {count} continues with a wrong entry"));
                }
            }
            if iter.next().is_some() {
                return Err(format!("iterator {number} of {count} has too many entries"));
            }
        }
        Ok(())
    }

    /// Drops all holders: nothing remains held.
    fn end(self) -> Result<LayerReport, String> {
        let Self { db, keyspace, snapshots, iterators, .. } = self;
        let count = u64_of(iterators.len());
        drop((snapshots, iterators, keyspace));
        db.compact().unwrap();
        let stats = db.stats();
        if stats.space.held_bytes > 0 || stats.scans.iterator_bytes > 0 {
            let (held, open) = (stats.space.held_bytes, stats.scans.iterator_bytes);
            return Err(format!(
                "{held} bytes of the data file and {open} of memory are still held without holders"
            ));
        }
        let mut report = LayerReport::default();
        report.add(UNIT, SNAPSHOTS);
        report.add("iterators", count);
        Ok(report)
    }
}
