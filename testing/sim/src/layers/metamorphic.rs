//! One script on all trees and in several ways of running it: all answers must be equal. No model is involved
//! that could share an error.
//!
//! **Invariants**
//! - Ways differ only in aspects that users cannot observe: sizes of pages and leaves, memory, and the time
//!   of background work.
//! - An answer that a way cannot give (a snapshot does not survive a reopen) is excluded from the comparison.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::KeyspaceOptions;
use testudo_base::{Error, ErrorKind, Result, checksum::checksum64};
use testudo_env::{Env, MemEnv};
use testudo_testkit::{
    Generator, Key, Profile, Script, Value, Weights,
    configuration::{crash_configurations, trees},
    engine_store::{DIRECTORY, EngineOpener},
    op::{Change, Op},
    read_state,
    store::{Opener, Pair, RawScan, RawWalk, RawWrite, Store, View},
};

use crate::{
    LayerReport, Limits,
    sweep::{Enough, Outcome, chosen, counted, judge, search},
};

pub(crate) const NAME: &str = "metamorphic";
pub(crate) const UNIT: &str = "scripts";

/// Operations of one script.
const OP_COUNT: usize = 2_000;
/// Enough scripts to run every tree in every other way.
const SCRIPTS_SHORT: u64 = 20;
const SMALL_MEMORY: u64 = 1 << 20;
const LARGE_MEMORY: u64 = 64 << 20;

/// Schedule of implicit work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Only where the script requests it.
    AsWritten,
    /// A flush after this many writes.
    Flush(usize),
    /// A step after every write.
    Step,
    /// A reopen after this many ops.
    Reopen(usize),
    /// A different division of the memory after this many writes.
    Share(usize),
    /// Neither flushes nor steps: everything stays in the write buffers as long as it fits.
    Lazy,
}

/// A way of running a script.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    memory_bytes: u64,
    pace: Pace,
}

/// The way in which all trees are run, and the reference for all others.
const PLAIN: Way = Way { name: "plain", memory_bytes: 4 << 20, pace: Pace::AsWritten };
/// The other ways; each seed runs each of them with one tree, all trees in turn.
const WAYS: [Way; 7] = [
    Way { name: "least memory", memory_bytes: SMALL_MEMORY, pace: Pace::AsWritten },
    Way { name: "much memory, lazy", memory_bytes: LARGE_MEMORY, pace: Pace::Lazy },
    Way { name: "a flush after every write", memory_bytes: SMALL_MEMORY, pace: Pace::Flush(1) },
    Way { name: "a flush after every tenth write", memory_bytes: SMALL_MEMORY, pace: Pace::Flush(10) },
    Way { name: "other shares after every tenth write", memory_bytes: SMALL_MEMORY, pace: Pace::Share(10) },
    Way { name: "a step after every write", memory_bytes: SMALL_MEMORY, pace: Pace::Step },
    Way { name: "a reopening after every 50 ops", memory_bytes: SMALL_MEMORY, pace: Pace::Reopen(50) },
];

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    // The trees come from `trees`; one configuration per seed runs them all.
    let mut configurations = chosen(NAME, limits, crash_configurations())?;
    configurations.truncate(1);
    let op_count = limits.script_length(OP_COUNT);
    let enough = Enough { unit: UNIT, count: limits.count_or(SCRIPTS_SHORT) };
    search(
        limits,
        &configurations,
        enough,
        |_| Ok(()),
        |_, seed| judge(NAME, None, Some(seed), || run_seed(seed, op_count)),
    )
}

/// Scripts without power losses, because different ways may lose different amounts.
fn profile(seed: u64) -> Profile {
    let weights = Weights { crash: 0, arm: 0, kill: 0, snapshot: 60, drop: 8, ..Weights::default() };
    let base = match seed % 4 {
        0 => Profile::tall(),
        1 => Profile { key_count: 120, ..Profile::default() },
        2 => Profile::alike(),
        _ => Profile::default(),
    };
    Profile { weights, ..base }
}

fn run_seed(seed: u64, op_count: usize) -> std::result::Result<LayerReport, String> {
    let script = Generator::new(&profile(seed), seed).script(op_count);
    let trees = trees();
    let mut reference: Option<Vec<Option<u64>>> = None;
    let mut report = LayerReport::default();
    let every_tree = trees.iter().map(|tree| (PLAIN, tree));
    let turn = testudo_base::num::usize_of(seed % testudo_base::num::u64_of(trees.len()));
    let other_ways =
        WAYS.into_iter().enumerate().map(|(index, way)| (way, &trees[(index + turn) % trees.len()]));
    for (way, (tree, options)) in every_tree.chain(other_ways) {
        let opener = EngineOpener { options: *options, memory_bytes: way.memory_bytes };
        let describe = |wrong: String| format!("{tree}, {}: {wrong}", way.name);
        let answers = Performance::run(&opener, &script, way.pace, seed).map_err(describe)?;
        report.merge(counted("ops", script.0.len()));
        report.merge(counted(way.name, 1));
        match &reference {
            None => reference = Some(answers),
            Some(reference) => compare(reference, &answers, &script).map_err(describe)?,
        }
    }
    report.merge(counted(UNIT, 1));
    Ok(report)
}

fn compare(
    reference: &[Option<u64>],
    answers: &[Option<u64>],
    script: &Script,
) -> std::result::Result<(), String> {
    let differs = |(a, b): (&Option<u64>, &Option<u64>)| a.zip(*b).is_some_and(|(a, b)| a != b);
    match reference.iter().zip(answers).position(differs) {
        None if reference.len() == answers.len() => Ok(()),
        None => Err("it gave a different number of answers".into()),
        Some(step) => {
            let op = script.0.get(step).map_or("the final content".into(), Op::to_string);
            Err(format!("step {step}, {op}: a different answer than the first tree, plain"))
        }
    }
}

/// A store during a script.
struct Performance<'a> {
    opener: &'a EngineOpener,
    machine: Arc<MemEnv>,
    snapshots: BTreeMap<u8, Box<dyn View>>,
    store: Option<Box<dyn Store>>,
    /// Whether a reopen of this way has ended snapshots that others may still have.
    has_reopened: bool,
}

/// A hash of an answer; `None` if this way cannot give it.
type Answer = Option<u64>;
/// The answer of an op without a result.
const DONE: u64 = 2;
/// The answer of all ops on a missing keyspace.
const NO_KEYSPACE: u64 = 1;
/// A refusal that every way must give: a conflict, a keyspace that is not in the snapshot.
const REFUSED: u64 = 3;

impl<'a> Performance<'a> {
    fn run(
        opener: &'a EngineOpener,
        script: &Script,
        pace: Pace,
        seed: u64,
    ) -> std::result::Result<Vec<Answer>, String> {
        let machine = MemEnv::new(seed);
        let mut performance =
            Self { opener, machine, snapshots: BTreeMap::new(), store: None, has_reopened: false };
        let mut answers = Vec::new();
        let mut writes = 0;
        for (step, op) in script.0.iter().enumerate() {
            let fail = |error| format!("step {step}, {op}: {error:?}");
            let is_work = matches!(op, Op::Flush | Op::CompactRange { .. } | Op::Step { .. });
            let answer =
                if is_work && pace == Pace::Lazy { Some(DONE) } else { performance.op(op).map_err(fail)? };
            answers.push(answer);
            writes += usize::from(op.is_write());
            performance.keep_pace(pace, step, writes, op.is_write()).map_err(fail)?;
        }
        let last = performance.last().map_err(|error| format!("the final content: {error:?}"))?;
        answers.push(Some(last));
        performance.check_length_of_merges()?;
        Ok(answers)
    }

    fn keep_pace(&mut self, pace: Pace, step: usize, writes: usize, is_write: bool) -> Result<()> {
        match pace {
            Pace::Flush(every) if is_write && writes.is_multiple_of(every) => self.store()?.flush(),
            Pace::Share(every) if is_write && writes.is_multiple_of(every) => {
                self.store()?.share_memory(testudo_base::num::u64_of(writes / every))
            }
            Pace::Step if is_write => self.store()?.step().map(drop),
            Pace::Reopen(every) if (step + 1).is_multiple_of(every) => {
                self.has_reopened = true;
                self.reopen()
            }
            _ => Ok(()),
        }
    }

    fn store(&mut self) -> Result<&mut dyn Store> {
        let store = match self.store.take() {
            Some(store) => store,
            None => self.opener.open(Arc::clone(&self.machine) as Arc<dyn Env>)?,
        };
        Ok(&mut **self.store.insert(store))
    }

    fn reopen(&mut self) -> Result<()> {
        self.snapshots.clear();
        match self.store.take() {
            Some(store) => store.close(),
            None => Ok(()),
        }
    }

    /// Checks that operands are refused if they make a value in the write buffer exceed the maximum length.
    fn check_length_of_merges(&self) -> std::result::Result<(), String> {
        if self.opener.memory_bytes > SMALL_MEMORY {
            return Ok(());
        }
        let fail = |error: Error| format!("a value that grows: {error:?}");
        let env = Arc::clone(&self.machine) as Arc<dyn Env>;
        let db = self.opener.open_db(env, Path::new(DIRECTORY)).map_err(fail)?;
        let appending = || KeyspaceOptions::default().merge_operator("append");
        let keyspace = db.keyspace("growing", appending).map_err(fail)?;
        let half = vec![b'x'; testudo_base::num::usize_of(self.opener.memory_bytes / 8 + 1)];
        keyspace.insert("key", &half).map_err(fail)?;
        match keyspace.merge("key", &half) {
            Err(error) if error.kind() == ErrorKind::Invalid => db.close().map_err(fail),
            outcome => Err(format!("an operand makes a value too long, and the answer is {outcome:?}")),
        }
    }

    /// Checks all content and every invariant, before and after a reopen.
    fn last(&mut self) -> Result<u64> {
        self.snapshots.clear();
        let mut hashes = [0; 2];
        for hash in &mut hashes {
            let store = self.store()?;
            store.check_invariants()?;
            store.verify()?;
            *hash = read_state(store)?.fingerprint();
            self.reopen()?;
        }
        Ok(checksum64(&hashes[0].to_le_bytes(), hashes[1]))
    }

    fn op(&mut self, op: &Op) -> Result<Answer> {
        if let Some(slot) = keyspace_of(op)
            && !self.store()?.keyspaces()?.contains(&slot)
        {
            return Ok(Some(NO_KEYSPACE));
        }
        let done = |result: Result<()>| result.map(|()| Some(DONE));
        match op {
            Op::Create { keyspace } => done(self.store()?.create(*keyspace)),
            Op::Drop { keyspace } => Ok(Some(u64::from(self.store()?.drop_keyspace(*keyspace)?))),
            Op::SetTree { keyspace, choice } => done(self.store()?.set_tree(*keyspace, *choice)),
            Op::Insert { keyspace, key, value } => {
                done(self.store()?.insert(*keyspace, &key.bytes(), &value.bytes()))
            }
            Op::Remove { keyspace, key } => done(self.store()?.remove(*keyspace, &key.bytes())),
            Op::Merge { keyspace, key, operand } => {
                done(self.store()?.merge(*keyspace, &key.bytes(), &operand.bytes()))
            }
            Op::Batch { writes, synced } => {
                let present = self.store()?.keyspaces()?;
                let writes = writes.iter().filter(|write| present.contains(&write.keyspace));
                let raw: Vec<RawWrite> = writes
                    .map(|write| RawWrite {
                        keyspace: write.keyspace,
                        key: write.key.bytes(),
                        value: write.value.map(Value::bytes),
                    })
                    .collect();
                done(self.store()?.commit(&raw, *synced))
            }
            Op::Get { keyspace, key } => Ok(hash_value(&self.store()?.get(*keyspace, &key.bytes())?)),
            Op::MultiGet { keyspace, keys } => {
                let keys: Vec<_> = keys.iter().map(Key::bytes).collect();
                Ok(Some(hash(&self.store()?.multi_get(*keyspace, &keys)?)))
            }
            Op::Scan { keyspace, scan } => {
                Ok(hash_pairs(&self.store()?.scan(*keyspace, &RawScan::of(scan))?))
            }
            Op::Update { keyspace, key, change } => self.update(*keyspace, &key.bytes(), *change),
            Op::Swap { keyspace, key, right, value } => {
                self.swap(*keyspace, &key.bytes(), *right, value.map(Value::bytes))
            }
            Op::Persist => done(self.store()?.persist()),
            Op::Flush => done(self.store()?.flush()),
            Op::CompactRange { keyspace, span } => {
                let store = self.store()?;
                if store.keyspaces()?.contains(keyspace) {
                    store.compact_range(*keyspace, &RawScan::of_span(span))?;
                }
                Ok(Some(DONE))
            }
            Op::Step { count } => {
                (0..*count).try_for_each(|_| self.store()?.step().map(drop))?;
                Ok(Some(DONE))
            }
            Op::Reopen => {
                self.reopen()?;
                Ok(Some(DONE))
            }
            Op::Verify => {
                self.store()?.check_invariants()?;
                done(self.store()?.verify())
            }
            _ => self.snapshot_op(op),
        }
    }

    fn snapshot_op(&mut self, op: &Op) -> Result<Answer> {
        let answer = match op {
            Op::Snapshot { slot } => {
                let view = self.store()?.snapshot()?;
                self.snapshots.insert(*slot, view);
                Some(DONE)
            }
            Op::SnapshotDrop { slot } => {
                self.snapshots.remove(slot);
                Some(DONE)
            }
            Op::SnapshotGet { slot, keyspace, key } => {
                self.ask(*slot, |view| view.get(*keyspace, &key.bytes()).map(|value| hash_value(&value)))?
            }
            Op::SnapshotScan { slot, keyspace, scan } => self.ask(*slot, |view| {
                view.scan(*keyspace, &RawScan::of(scan)).map(|pairs| hash_pairs(&pairs))
            })?,
            Op::SnapshotCheck { slot } => {
                let all = RawScan::all(RawWalk::Backward);
                self.ask(*slot, |view| view.scan(0, &all).map(|pairs| hash_pairs(&pairs)))?
            }
            other => return Err(Error::invalid(format!("an op with power losses: {other}"))),
        };
        Ok(answer)
    }

    /// Answer of a snapshot. It does not contain younger keyspaces.
    fn ask(&self, slot: u8, question: impl FnOnce(&dyn View) -> Result<Answer>) -> Result<Answer> {
        let Some(view) = self.snapshots.get(&slot) else {
            // Only a reopen of this way may have ended it.
            return Ok(if self.has_reopened { None } else { Some(REFUSED) });
        };
        match question(&**view) {
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(Some(REFUSED)),
            answer => answer,
        }
    }

    fn update(&mut self, keyspace: u8, key: &[u8], change: Change) -> Result<Answer> {
        let new = self.store()?.update(keyspace, key, &mut |old| match change {
            Change::Set(value) => Some(value.bytes()),
            Change::Follow(value) => Some(value.after(old)),
            Change::Remove => None,
        })?;
        Ok(hash_value(&new))
    }

    fn swap(&mut self, keyspace: u8, key: &[u8], right: bool, new: Option<Vec<u8>>) -> Result<Answer> {
        let current = self.store()?.get(keyspace, key)?;
        let expected = if right { current } else { Some(b"a value that nothing ever has".to_vec()) };
        match self.store()?.compare_and_swap(keyspace, key, expected.as_deref(), new.as_deref()) {
            Ok(()) => Ok(Some(DONE)),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(Some(REFUSED)),
            Err(error) => Err(error),
        }
    }
}

/// Keyspace without which an op does not apply.
fn keyspace_of(op: &Op) -> Option<u8> {
    match op {
        Op::SetTree { keyspace, .. }
        | Op::Insert { keyspace, .. }
        | Op::Remove { keyspace, .. }
        | Op::Merge { keyspace, .. }
        | Op::Get { keyspace, .. }
        | Op::MultiGet { keyspace, .. }
        | Op::Scan { keyspace, .. }
        | Op::Update { keyspace, .. }
        | Op::Swap { keyspace, .. } => Some(*keyspace),
        _ => None,
    }
}

fn hash_value(value: &Option<Vec<u8>>) -> Answer {
    Some(value.as_ref().map_or(0, |value| checksum64(value, 1)))
}

fn hash(values: &[Option<Vec<u8>>]) -> u64 {
    values.iter().fold(6, |sum, value| checksum64(&hash_value(value).unwrap_or(0).to_le_bytes(), sum))
}

fn hash_pairs(pairs: &[Pair]) -> Answer {
    Some(pairs.iter().fold(7, |sum, (key, value)| checksum64(value, checksum64(key, sum))))
}

#[cfg(test)]
mod tests;
