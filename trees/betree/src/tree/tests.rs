use std::{
    cell::{Cell, RefCell},
    path::Path,
};

use testudo_age_order::RunsByAge;
use testudo_base::{
    Entry, ExtentSpan, Incarnation, Kind, OwnedEntry, RunId, Seqno, StoreId, checksum::hash_key,
};
use testudo_contract::{Progress, RunIds};
use testudo_env::{Env, FaultyEnv, MemEnv, OpenMode, OpenOptions, SplitMix};
use testudo_run::KeyBounds;
use testudo_share::some_of;
use testudo_storage::Change;

use super::*;
use crate::Policy;

const KEYSPACE: KeyspaceId = KeyspaceId(3);
/// Intervals, in jobs, of checking the tree and of reading all of its runs.
const CHECK_EVERY: u32 = 16;
const READ_EVERY: u32 = 64;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn turtle(leaf_bytes: u64, max_pivots: usize) -> BeTreeOptions {
    BeTreeOptions { leaf_bytes, max_pivots, ..BeTreeOptions::new(Policy::Turtle) }
}

fn splinter(leaf_bytes: u64, max_pivots: usize) -> BeTreeOptions {
    BeTreeOptions { leaf_bytes, max_pivots, ..BeTreeOptions::new(Policy::Splinter) }
}

/// Sorted updates in a vector.
#[derive(Debug)]
struct VecUpdates(Arc<Vec<OwnedEntry>>, Seqno);

impl Updates for VecUpdates {
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        Box::new(VecCursor { entries: Arc::clone(&self.0), at: usize::MAX })
    }
    fn sealed_seqno(&self) -> Seqno {
        self.1
    }
    fn bytes(&self) -> u64 {
        self.0.iter().map(|entry| u64_of(entry.as_entry().user_bytes())).sum()
    }
    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        let bounds = KeyBounds { low: low.map(<[u8]>::to_vec), high: high.map(<[u8]>::to_vec) };
        let inside = self.0.iter().filter(|entry| bounds.contains(&entry.key));
        inside.map(|entry| u64_of(entry.as_entry().user_bytes())).sum()
    }
    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((self.0.first()?.key.clone(), self.0.last()?.key.clone()))
    }
}

#[derive(Debug)]
struct VecCursor {
    entries: Arc<Vec<OwnedEntry>>,
    at: usize,
}

impl Cursor for VecCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        self.at = self.entries.len().wrapping_sub(1);
        Ok(())
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.entries.partition_point(|entry| entry.key.as_slice() < key);
        Ok(())
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.entries.partition_point(|entry| entry.key.as_slice() < key).wrapping_sub(1);
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }
    fn entry(&self) -> Option<Entry<'_>> {
        self.entries.get(self.at).map(OwnedEntry::as_entry)
    }
}

struct Bed {
    env: Arc<FaultyEnv>,
    work: Work,
    tree: Arc<dyn Tree>,
    objects: BTreeMap<ObjectId, Arc<[u8]>>,
    references: BTreeMap<ExtentSpan, i32>,
    options: BeTreeOptions,
    model: Model,
    sealed: Seqno,
}

impl Bed {
    fn runs(&self) -> Vec<Arc<Run>> {
        self.tree.parts().into_iter().map(|Part::Run(run)| run).collect()
    }

    fn new(options: BeTreeOptions) -> Self {
        let env = FaultyEnv::new(MemEnv::new(1));
        let path = Path::new("/data");
        let file = env.open(path, OpenOptions { mode: OpenMode::CreateNew, direct: true }).unwrap();
        let data =
            DataFile::new(file, StoreId(7), 1 << 20, std::iter::empty(), Some(Incarnation(1))).unwrap();
        let work = Work {
            full_merge: Arc::default(),
            data,
            keyspace: KEYSPACE,
            keyspace_name: Arc::from("tests"),
            values: None,
            run_ids: Arc::new(RunIds::starting_at(RunId(1))),
            executor: Arc::new(parts::Backwards::default()),
            progress: Arc::new(Progress::default()),
            keys: KeyBounds::default(),
        };
        let tree = BeTree::empty(options, &work.data);
        Self {
            env,
            work,
            tree,
            objects: BTreeMap::new(),
            references: BTreeMap::new(),
            options,
            model: Model::new(),
            sealed: Seqno(0),
        }
    }

    fn commit(&mut self, edit: TreeEdit, deep: bool) {
        self.publish(edit);
        self.tree.check_invariants(deep).unwrap();
    }

    /// Applies the changes of the edit, and checks its reference counts.
    fn publish(&mut self, edit: TreeEdit) {
        for change in &edit.changes {
            match change {
                Change::PutObject(_, id, bytes) => {
                    self.objects.insert(*id, Arc::from(bytes.as_slice()));
                }
                Change::DeleteObject(_, id) => assert!(self.objects.remove(id).is_some(), "object {id}"),
                Change::References(span, delta) => *self.references.entry(*span).or_default() += delta,
                other => panic!("unexpected {other:?}"),
            }
        }
        let deltas = edit.changes.iter().filter_map(|change| match change {
            Change::References(span, delta) => Some((*span, *delta)),
            _ => None,
        });
        self.work.data.extents().apply_durable(deltas);
        self.references.retain(|_, count| *count != 0);
        self.tree = edit.tree;
        let is_wide =
            |line: &OutlineLine| line.what == "node" && line.count > u64_of(self.options.max_pivots);
        assert!(!self.tree.outline().iter().any(is_wide), "a changed node has too many pivots");
        let mut recount: BTreeMap<ExtentSpan, i32> = BTreeMap::new();
        for span in self.tree.references() {
            *recount.entry(span).or_default() += 1;
        }
        assert_eq!(recount, self.references);
    }

    fn apply(&mut self, updates: BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        self.apply_only(updates);
        self.catch_up();
    }

    /// Applies updates even if the tree's jobs are behind.
    fn apply_only(&mut self, updates: BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        self.apply_with(updates, |tree, work, updates| tree.apply(work, updates));
    }

    /// Does the jobs that the next update has to wait for.
    fn catch_up(&mut self) {
        while self.tree.behind_bytes() > 0 {
            let job = self.tree.pick_job(false).expect("there is something to do");
            let prepared = self.tree.prepare(&self.work, &job).unwrap();
            let edit = self.tree.install(&self.work, prepared).unwrap();
            self.publish(edit.expect("no update in between"));
        }
    }

    fn apply_on_top(&mut self, updates: BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        self.apply_with(updates, |tree, work, updates| tree.apply_on_top(work, updates));
    }

    fn apply_with(
        &mut self,
        updates: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        apply: impl Fn(&dyn Tree, &Work, Arc<dyn Updates>) -> Result<TreeEdit>,
    ) {
        let entries: Vec<OwnedEntry> = updates
            .iter()
            .map(|(key, value)| OwnedEntry {
                key: key.clone(),
                kind: if value.is_some() { Kind::Value } else { Kind::Tombstone },
                value: value.clone().unwrap_or_default(),
            })
            .collect();
        self.sealed.0 += 10;
        let updates_now = Arc::new(VecUpdates(Arc::new(entries), self.sealed));
        let edit = apply(&*self.tree, &self.work, updates_now).unwrap();
        self.commit(edit, true);
        for (key, value) in updates {
            match value {
                Some(value) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
        }
    }

    fn run_jobs(&mut self) {
        for count in 1..=2000 {
            let Some(job) = self.tree.pick_job(true) else {
                return self.tree.check_invariants(true).unwrap();
            };
            let prepared = self.tree.prepare(&self.work, &job).unwrap();
            let edit = self.tree.install(&self.work, prepared).unwrap();
            self.publish(edit.expect("no update in between"));
            // Nodes and runs are immutable, and a job replaces a few of them: a check after every one would
            // mostly reread the same.
            if count % CHECK_EVERY == 0 {
                self.tree.check_invariants(count % READ_EVERY == 0).unwrap();
            }
        }
        panic!("jobs never end: {:?}", self.tree.pick_job(true));
    }

    fn reopen(&mut self) {
        let objects = self.objects.clone();
        self.tree = BeTree::open(self.options, &self.work.data, KEYSPACE, objects).unwrap();
    }

    /// Reopens the file and the tree, with empty caches.
    fn cool(&mut self, cache_bytes: u64) {
        self.env.set_plan(None);
        let options = OpenOptions { mode: OpenMode::Write, direct: true };
        let file = self.env.open(Path::new("/data"), options).unwrap();
        let live = self.references.iter().map(|(span, count)| (*span, u32::try_from(*count).unwrap()));
        self.work.data = DataFile::new(file, StoreId(7), cache_bytes, live, Some(Incarnation(1))).unwrap();
        self.reopen();
    }

    fn check(&self, random: &mut SplitMix) {
        let mut cursor = self.tree.cursor();
        cursor.seek_first().unwrap();
        for (key, value) in &self.model {
            skip_tombstones(&mut cursor, true);
            let entry = cursor.entry().expect("an entry is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            cursor.next().unwrap();
        }
        skip_tombstones(&mut cursor, true);
        assert!(cursor.entry().is_none());
        cursor.seek_last().unwrap();
        for (key, value) in self.model.iter().rev() {
            skip_tombstones(&mut cursor, false);
            let entry = cursor.entry().expect("an entry is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            cursor.prev().unwrap();
        }
        for _ in 0..50 {
            let key = random_key(random);
            let expected = self.model.get(&key).cloned();
            assert_eq!(self.get(&key), expected);
            cursor.seek(&key).unwrap();
            skip_tombstones(&mut cursor, true);
            let next = self.model.range(key.clone()..).next();
            assert_eq!(cursor.entry().map(|entry| entry.key), next.map(|(key, _)| key.as_slice()));
            cursor.seek_before(&key).unwrap();
            skip_tombstones(&mut cursor, false);
            let before = self.model.range(..key).next_back();
            assert_eq!(cursor.entry().map(|entry| entry.key), before.map(|(key, _)| key.as_slice()));
        }
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let (wanted, progress) = (RefCell::new(Vec::new()), Cell::default());
        let hash = hash_key(key);
        let answer = loop {
            match self.tree.get(key, hash, Access::Collecting(&wanted, &progress)).unwrap() {
                Lookup::Waiting => self.work.data.load_pages(&wanted.take()).unwrap(),
                answer => break answer,
            }
        };
        assert_eq!(answer, self.tree.get(key, hash, Access::Blocking).unwrap());
        match answer {
            Lookup::Found(Kind::Value, value, _) => Some(value),
            _ => None,
        }
    }
}

fn skip_tombstones(cursor: &mut Box<dyn Cursor + Send>, forward: bool) {
    while cursor.entry().is_some_and(|entry| entry.kind == Kind::Tombstone) {
        if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
    }
}

fn random_key(random: &mut SplitMix) -> Vec<u8> {
    match random.below(20) {
        0 => Vec::new(),
        1 => vec![b'z'; usize::try_from(random.below(6000)).unwrap()],
        _ => format!("key{:05}", random.below(3000)).into_bytes(),
    }
}

fn random_value(random: &mut SplitMix) -> Vec<u8> {
    let length = match random.below(100) {
        0 => 30_000,
        1..4 => 5000,
        4..10 => 0,
        _ => random.below(150),
    };
    vec![u8::try_from(random.below(256)).unwrap(); usize::try_from(length).unwrap()]
}

fn random_run(seed: u64, options: BeTreeOptions, rounds: u64, switch_percent: u8) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    for round in 0..rounds {
        let count = 1 + random.below(400);
        let delete_percent = if (round / 20) % 2 == 1 { 70 } else { 15 };
        let mut updates = BTreeMap::new();
        for _ in 0..count {
            let value = (!random.percent(delete_percent)).then(|| random_value(&mut random));
            updates.insert(random_key(&mut random), value);
        }
        bed.apply(updates);
        if random.percent(20) {
            bed.run_jobs();
        }
        if random.percent(20) {
            if random.percent(switch_percent) {
                let policies = [Policy::Turtle, Policy::Splinter];
                bed.options.policy = policies[usize::try_from(random.below(2)).unwrap()];
            }
            bed.reopen();
        }
        if random.percent(25) {
            bed.check(&mut random);
        }
    }
    let all = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(all);
    let everything: BTreeMap<_, _> = (0..3000).map(|n| (format!("key{n:05}").into_bytes(), None)).collect();
    for _ in 0..10 {
        bed.apply(everything.clone());
    }
    bed.run_jobs();
    bed.check(&mut random);
}

#[test]
fn a_tree_of_tiny_leaves_matches_a_map() {
    for seed in some_of(0..4, 4, 0) {
        random_run(seed, turtle(4096, 4), 60, 0);
        random_run(seed, splinter(4096, 4), 60, 0);
    }
}

#[test]
fn a_tree_of_small_leaves_matches_a_map() {
    for seed in some_of(10..13, 3, 0) {
        random_run(seed, turtle(20_000, 8), 60, 0);
        random_run(seed, splinter(20_000, 8), 60, 0);
    }
}

#[test]
fn a_tree_that_changes_its_policy_matches_a_map() {
    for seed in some_of(20..23, 3, 0) {
        random_run(seed, turtle(20_000, 8), 60, 50);
    }
}

#[test]
fn sequential_updates_are_written_about_once() {
    for options in [turtle(256 << 10, 16), splinter(256 << 10, 16)] {
        let mut bed = Bed::new(options);
        for batch in 0..8u64 {
            let key = |n| format!("{:012}", batch * 20_000 + n).into_bytes();
            bed.apply((0..20_000u64).map(|n| (key(n), Some(vec![7; 100]))).collect());
        }
        let user: u64 = bed.model.iter().map(|(key, value)| u64_of(key.len() + value.len())).sum();
        let written = bed.work.data.io_stats().written_bytes;
        assert!(written < user * 13 / 10, "{written} bytes for {user}: {options:?}");
    }
}

#[test]
fn deleting_everything_shrinks_the_tree_to_nothing() {
    for options in [turtle(8192, 4), splinter(8192, 4)] {
        delete_everything(options);
    }
}

fn delete_everything(options: BeTreeOptions) {
    let mut bed = Bed::new(options);
    let keys: Vec<Vec<u8>> = (0..5000).map(|n| format!("k{n:06}").into_bytes()).collect();
    bed.apply(keys.iter().map(|key| (key.clone(), Some(vec![1; 50]))).collect());
    assert!(bed.tree.stats().height > 2);
    for _ in 0..3 {
        bed.apply(keys.iter().map(|key| (key.clone(), None)).collect());
        bed.run_jobs();
    }
    let stats = bed.tree.stats();
    assert_eq!((stats.height, stats.leaves), (1, 0), "{stats:?}");
    assert!(stats.stored_bytes < 5000 * 60 / 2, "{stats:?}");
}

#[test]
fn a_small_leaf_in_many_pages_is_not_cut_and_joined_endlessly() {
    for options in [turtle(8192, 6), splinter(8192, 6)] {
        let mut bed = Bed::new(options);
        // Entries next to a large value get their own pages: four pages for less than five kilobytes.
        let value = |key: &[u8], bytes| (key.to_vec(), Some(vec![1; bytes]));
        bed.apply([value(b"a", 80), value(b"b", 4200), value(b"c", 80), value(b"d", 80)].into());
        bed.run_jobs();
        bed.check(&mut SplitMix::new(1));
    }
}

mod age_order;
mod beside;
mod bound;
mod cold_pivots;
mod conservation;
mod idle;
mod in_order;
mod later;
mod long_keys;
mod merge_reads;
mod operands;
mod parts;
mod point_reads;
mod reclaiming;
mod retained;
mod scan_charges;
mod scan_reads;
mod tombstones;
