//! Random scripts from a seed and a [`Profile`].
//!
//! **Invariants**
//! - Equal seeds and profiles give equal scripts.
//! - A key number maps to the same key in every script of a profile.

use std::{collections::VecDeque, ops::Bound};

use testudo_base::{
    MAX_KEY_BYTES,
    num::{low32, u32_of, u64_of, usize_of},
};
use testudo_env::{CrashPolicy, SplitMix};

use crate::{
    Key, Profile, Script, Value, Weights,
    op::{Change, Crash, Move, Op, Scan, Slot, Span, Walk, Write},
};

/// Slots for snapshots.
const SNAPSHOT_SLOTS: u64 = 3;
/// Five trees to switch a keyspace to, each with four placements or the unchanged placement, which is as
/// likely as two others.
const TREE_CHOICES: u64 = 30;
/// Distinguishes the seed of the choices of compacted ranges.
const SEED_OF_RANGES: u64 = 0x5ca1_ab1e;
/// Common key prefixes.
const PREFIXES: [&str; 5] = ["", "a", "b/", "user/", "user/with-a-long-shared-prefix/and-more-of-it/"];

/// Lengths of shared prefixes: at and around the bytes of a key that indexes and references keep, and beyond.
const LONG_STARTS: [u32; 4] = [254, 256, 900, 4200];

/// Generator of ops.
#[derive(Debug)]
pub struct Generator<'a> {
    profile: &'a Profile,
    random: SplitMix,
    /// Choices of compacted ranges: a stream of its own, so that they change nothing else in a script.
    ranges: SplitMix,
    /// Ops queued before the next random one.
    queue: VecDeque<Op>,
}

/// Generates one op of a kind.
type Make<'a> = fn(&mut Generator<'a>) -> Op;

impl<'a> Generator<'a> {
    /// Creates a generator whose first ops create the keyspaces.
    pub fn new(profile: &'a Profile, seed: u64) -> Self {
        let queue = (0..profile.keyspace_count).map(|keyspace| Op::Create { keyspace }).collect();
        let ranges = SplitMix::new(seed ^ SEED_OF_RANGES);
        Self { profile, random: SplitMix::new(seed), ranges, queue }
    }

    /// Returns the next `count` ops.
    pub fn script(&mut self, count: usize) -> Script {
        Script((0..count).map(|_| self.op()).collect())
    }

    /// Returns the next op.
    pub fn op(&mut self) -> Op {
        if let Some(op) = self.queue.pop_front() {
            return op;
        }
        let weights = &self.profile.weights;
        let choices: [(u32, Make<'a>); 25] = [
            (weights.insert, |g| Op::Insert { keyspace: g.slot(), key: g.key(), value: g.value() }),
            (weights.remove, |g| Op::Remove { keyspace: g.slot(), key: g.key() }),
            (weights.batch, Self::batch),
            (weights.merge, |g| Op::Merge { keyspace: g.slot(), key: g.key(), operand: g.operand() }),
            (weights.get, |g| Op::Get { keyspace: g.slot(), key: g.key() }),
            (weights.multi_get, |g| Op::MultiGet { keyspace: g.slot(), keys: g.keys() }),
            (weights.scan, |g| Op::Scan { keyspace: g.slot(), scan: g.scan() }),
            (weights.update, |g| Op::Update { keyspace: g.slot(), key: g.key(), change: g.change() }),
            (weights.swap, Self::swap),
            (weights.snapshot, |g| Op::Snapshot { slot: g.snapshot_slot() }),
            (weights.snapshot_get, |g| Op::SnapshotGet {
                slot: g.snapshot_slot(),
                keyspace: g.slot(),
                key: g.key(),
            }),
            (weights.snapshot_scan, |g| Op::SnapshotScan {
                slot: g.snapshot_slot(),
                keyspace: g.slot(),
                scan: g.scan(),
            }),
            (weights.snapshot_check, |g| Op::SnapshotCheck { slot: g.snapshot_slot() }),
            (weights.snapshot_drop, |g| Op::SnapshotDrop { slot: g.snapshot_slot() }),
            (weights.create, |g| Op::Create { keyspace: g.slot() }),
            (weights.drop, Self::drop_keyspace),
            (weights.set_tree, |g| Op::SetTree { keyspace: g.slot(), choice: g.tree_choice() }),
            (weights.persist, |_| Op::Persist),
            (weights.flush, |_| Op::Flush),
            (weights.step, Self::step),
            (weights.reopen, |_| Op::Reopen),
            (weights.kill, |_| Op::Kill),
            (weights.crash, |g| Op::Crash(g.crash())),
            (weights.arm, |g| Op::Arm {
                after: g.random.below(g.profile.arm_operations_max),
                crash: g.crash(),
            }),
            (weights.verify, |_| Op::Verify),
        ];
        let picked = self.weighted(&choices.map(|(weight, _)| weight));
        choices[picked].1(self)
    }

    /// Returns the key with a number below [`Profile::key_count`].
    pub fn key_of(profile: &Profile, number: u32) -> Key {
        match number {
            0 => return Key::of(""),
            1 => return Key::of([0]),
            2 => return Key::of([255, 255]),
            _ => {}
        }
        let prefix = PREFIXES[usize_of(u64::from(number)) % PREFIXES.len()];
        let mut key = Key::of(format!("{prefix}{number:04}"));
        let one_in = profile.long_key_one_in;
        if profile.shares_long_starts && !number.is_multiple_of(5) {
            let pad = LONG_STARTS[usize_of(u64::from(number)) % LONG_STARTS.len()];
            return Key { tail: key.stem, ..Key::padded(prefix, pad) };
        }
        if profile.longest_keys && (5..7).contains(&number) {
            key.pad = u32_of(MAX_KEY_BYTES - key.stem.len());
        } else if one_in > 0 && number.is_multiple_of(one_in) {
            key.pad = (number * 37) % 3000;
        }
        key
    }

    fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut left = self.random.below(total);
        for (index, &weight) in weights.iter().enumerate() {
            match left.checked_sub(weight.into()) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        unreachable!("the draw is below the sum of the weights")
    }

    fn small(&mut self, bound: u32) -> u32 {
        low32(self.random.below(bound.into()))
    }

    fn slot(&mut self) -> Slot {
        let slot = self.random.below(self.profile.keyspace_count.into());
        Slot::try_from(slot).unwrap_or(0)
    }

    fn snapshot_slot(&mut self) -> u8 {
        u8::try_from(self.random.below(SNAPSHOT_SLOTS)).unwrap_or(0)
    }

    /// Picks half of the keys from all of them, the others from a small hot subset.
    fn key(&mut self) -> Key {
        let all = self.profile.key_count;
        let bound = if self.random.percent(50) { all } else { (all / 16).max(8).min(all) };
        Self::key_of(self.profile, self.small(bound))
    }

    fn keys(&mut self) -> Vec<Key> {
        (0..self.random.below(20)).map(|_| self.key()).collect()
    }

    fn value(&mut self) -> Value {
        let sizes = &self.profile.values;
        let huge = sizes.huge_bytes;
        let picked = self.weighted(&[sizes.empty, sizes.small, sizes.medium, sizes.page, sizes.huge]);
        let length = match picked {
            0 => 0,
            1 => 1 + self.small(120),
            2 => 120 + self.small(1880),
            3 => 4000 + self.small(5000),
            _ => huge / 2 + self.small(huge / 2 + 1),
        };
        Value { seed: low32(self.random.next_u64()), length }
    }

    /// Returns a short operand: many of them accumulate in one value.
    fn operand(&mut self) -> Value {
        Value { seed: low32(self.random.next_u64()), length: self.small(24) }
    }

    fn value_or_none(&mut self) -> Option<Value> {
        (!self.random.percent(25)).then(|| self.value())
    }

    fn batch(&mut self) -> Op {
        let count = self.random.below(u64::from(self.profile.batch_writes_max) + 1);
        let write = |_| Write { keyspace: self.slot(), key: self.key(), value: self.value_or_none() };
        let mut writes: Vec<Write> = (0..count).map(write).collect();
        let mut bytes = 0;
        let fits = writes.iter().position(|Write { key, value, .. }| {
            bytes += key.length() + value.map_or(0, |value| usize_of(value.length.into()));
            bytes > self.profile.batch_bytes_max
        });
        writes.truncate(fits.map_or(writes.len(), |too_many| too_many.max(1)));
        Op::Batch { writes, synced: self.random.percent(self.profile.synced_percent) }
    }

    fn change(&mut self) -> Change {
        match self.random.below(5) {
            0 => Change::Remove,
            1 => Change::Set(self.value()),
            _ => Change::Follow(self.value()),
        }
    }

    fn swap(&mut self) -> Op {
        let right = !self.random.percent(25);
        Op::Swap { keyspace: self.slot(), key: self.key(), right, value: self.value_or_none() }
    }

    /// Drops a keyspace; most are recreated immediately under the same name.
    fn drop_keyspace(&mut self) -> Op {
        let keyspace = self.slot();
        if self.random.percent(70) {
            self.queue.push_back(Op::Create { keyspace });
        }
        Op::Drop { keyspace }
    }

    /// Runs background jobs. Now and then this is a compaction of a range instead.
    fn step(&mut self) -> Op {
        let step = Op::Step { count: 1 + self.small(4) };
        let Weights { step: weight, compact_range, .. } = self.profile.weights;
        if self.ranges.below(weight.max(1).into()) >= u64::from(compact_range) {
            return step;
        }
        std::mem::swap(&mut self.random, &mut self.ranges);
        let (keyspace, span) = (self.slot(), self.span());
        std::mem::swap(&mut self.random, &mut self.ranges);
        Op::CompactRange { keyspace, span }
    }

    fn tree_choice(&mut self) -> u8 {
        u8::try_from(self.random.below(TREE_CHOICES)).unwrap_or(0)
    }

    fn span(&mut self) -> Span {
        match self.random.below(8) {
            0 => Span::All,
            1 | 2 => {
                let mut key = self.key();
                let length = self.random.below(u64_of(key.stem.len()) + 1);
                key.stem.truncate(usize_of(length));
                Span::Prefix(Key::of(key.stem))
            }
            _ => self.range(),
        }
    }

    fn scan(&mut self) -> Scan {
        let span = self.span();
        let walk = match self.random.below(8) {
            0..=3 => Walk::Forward,
            4 | 5 => Walk::Backward,
            6 => Walk::Zigzag,
            _ if self.random.percent(30) => Walk::Seek(self.key()),
            _ => Walk::Moves(self.moves()),
        };
        // Long scans are rare; the limit ends most walks early.
        let limit = if self.random.percent(3) { 100_000 } else { self.small(40) };
        Scan { span, walk, limit }
    }

    fn moves(&mut self) -> Vec<Move> {
        let count = 1 + self.random.below(8);
        let step = |_| match self.random.below(3) {
            0 => Move::Front(1 + self.small(5)),
            1 => Move::Back(1 + self.small(5)),
            _ => Move::Seek(self.key()),
        };
        (0..count).map(step).collect()
    }

    fn range(&mut self) -> Span {
        let mut bound = || match self.random.below(5) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(self.key()),
            _ => Bound::Included(self.key()),
        };
        let (lower, upper) = (bound(), bound());
        match (&lower, &upper) {
            // Swap most inverted ranges.
            (Bound::Included(low), Bound::Included(high)) if low > high => Span::Range(upper, lower),
            _ => Span::Range(lower, upper),
        }
    }

    fn crash(&mut self) -> Crash {
        let policy = CrashPolicy::random(self.random.next_u64());
        let mut nested = Vec::new();
        while nested.len() < 3 && self.random.percent(self.profile.nested_percent) {
            nested.push(self.random.below(self.profile.nested_operations_max));
        }
        Crash { policy, seed: self.random.next_u64(), nested }
    }
}

#[cfg(test)]
mod tests;
