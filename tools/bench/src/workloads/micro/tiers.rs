//! Point queries of a tree whose node has twelve tiers, with all pages cached.
//!
//! | case | operation |
//! |---|---|
//! | leaf | a point query of a key that only a leaf has |
//! | tier | a point query of a key in the tiers, uniform over these keys |
//! | absent | a point query of an absent key |
//!
//! **Invariants**
//! - Everything is in memory; reads are verified as usual.

use std::{hint::black_box, sync::Arc};

use testudo::Result;
use testudo_base::{Cursor, Entry, KeyspaceId, Kind, RunId, Seqno, checksum::hash_key, num::u64_of};
use testudo_betree::{BeTree, BeTreeOptions, Policy};
use testudo_contract::{InlineExecutor, Progress, RunIds, Tree, Updates, Work};
use testudo_run::{Access, KeyBounds, Lookup};

use super::{
    Bench,
    growing_file::growing_data_file,
    records::{KEY_BYTES, VALUE, key},
};

const CASES: [&str; 3] = ["leaf", "tier", "absent"];
const CACHE_BYTES: u64 = 256 << 20;
const LEAF_BYTES: u64 = 1 << 20;
const RECORD_BYTES: u64 = 124;
/// Records that are written first; they fill about fifty leaves.
const LEAF_RECORDS: u64 = 350_000;
/// Records of the tiers, oldest first. Tiers of more than an eighth of a node's buffer are never merged.
const TIER_RECORDS: [u64; 12] =
    [70_000, 70_000, 70_000, 70_000, 24_000, 12_000, 6_000, 3_000, 1_500, 750, 375, 180];

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_names("tiers", &CASES)?;
    let data = growing_data_file(CACHE_BYTES)?;
    let work = Work {
        data: Arc::clone(&data),
        keyspace: KeyspaceId(1),
        keyspace_name: Arc::from("micro"),
        full_merge: Arc::default(),
        values: None,
        run_ids: Arc::new(RunIds::starting_at(RunId(1))),
        executor: Arc::new(InlineExecutor),
        progress: Arc::new(Progress::default()),
        keys: KeyBounds::default(),
    };
    let options = BeTreeOptions { leaf_bytes: LEAF_BYTES, ..BeTreeOptions::new(Policy::Turtle) };
    let mut tree: Arc<dyn Tree> = BeTree::empty(options, &data);
    let mut seqno = 0;
    let mut first = 0;
    for count in std::iter::once(LEAF_RECORDS).chain(TIER_RECORDS) {
        seqno += 1;
        let updates = SortedKeys { keys: sorted(first, count), sealed: Seqno(seqno) };
        tree = tree.apply(&work, Arc::new(updates))?.tree;
        first += count;
    }
    let tiers = tree.outline().iter().filter(|line| line.what == "tier").count();
    assert_eq!(tiers, TIER_RECORDS.len(), "each of these batches remains a separate tier");
    let get = |number: u64| {
        let key = key(number);
        tree.get(&key, hash_key(&key), Access::Blocking).expect("valid pages")
    };
    for number in 0..first {
        black_box(get(number));
    }
    let ops = bench.args.ops;
    let buffered = first - LEAF_RECORDS;
    if bench.wants("leaf", "testudo") {
        bench.measure("tiers", "leaf", ops, |number| {
            assert!(matches!(get(number.wrapping_mul(7919) % LEAF_RECORDS), Lookup::Found(..)));
        })?;
    }
    if bench.wants("tier", "testudo") {
        bench.measure("tiers", "tier", ops, |number| {
            let number = LEAF_RECORDS + number.wrapping_mul(7919) % buffered;
            assert!(matches!(get(number), Lookup::Found(..)));
        })?;
    }
    if bench.wants("absent", "testudo") {
        bench.measure("tiers", "absent", ops, |number| {
            assert!(get(first + number.wrapping_mul(7919) % LEAF_RECORDS) == Lookup::Absent);
        })?;
    }
    Ok(())
}

fn sorted(first: u64, count: u64) -> Arc<[[u8; KEY_BYTES]]> {
    let mut keys: Vec<_> = (first..first + count).map(key).collect();
    keys.sort_unstable();
    keys.into()
}

/// Updates that assign the common value to each of some keys.
#[derive(Debug)]
struct SortedKeys {
    keys: Arc<[[u8; KEY_BYTES]]>,
    sealed: Seqno,
}

impl Updates for SortedKeys {
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        Box::new(KeyCursor { keys: Arc::clone(&self.keys), at: usize::MAX })
    }
    fn sealed_seqno(&self) -> Seqno {
        self.sealed
    }
    fn bytes(&self) -> u64 {
        u64_of(self.keys.len()) * RECORD_BYTES
    }
    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        let place = |bound: &[u8]| self.keys.partition_point(|key| key.as_slice() < bound);
        let (from, to) = (low.map_or(0, place), high.map_or(self.keys.len(), place));
        u64_of(to.saturating_sub(from)) * RECORD_BYTES
    }
    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((self.keys.first()?.to_vec(), self.keys.last()?.to_vec()))
    }
}

#[derive(Debug)]
struct KeyCursor {
    keys: Arc<[[u8; KEY_BYTES]]>,
    at: usize,
}

impl Cursor for KeyCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        self.at = self.keys.len().wrapping_sub(1);
        Ok(())
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.keys.partition_point(|k| k.as_slice() < key);
        Ok(())
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.keys.partition_point(|k| k.as_slice() < key).wrapping_sub(1);
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.at = self.at.wrapping_add(1);
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }
    fn entry(&self) -> Option<Entry<'_>> {
        let key = self.keys.get(self.at)?;
        Some(Entry { key, kind: Kind::Value, value: &VALUE })
    }
}
