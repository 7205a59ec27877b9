use std::{
    cell::{Cell, RefCell},
    path::Path,
};

use testudo_age_order::RunsByAge;
use testudo_base::{
    Entry, ExtentSpan, Incarnation, Kind, OwnedEntry, RunId, Seqno, StoreId,
    checksum::hash_key,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
use testudo_contract::{Executor, LeastGain, Opaque, Progress, RunIds, Task};
use testudo_env::{Env, FaultyEnv, MemEnv, OpenMode, OpenOptions, SplitMix};
use testudo_run::{KeyBounds, Run};
use testudo_storage::Change;

use super::*;
use crate::update::jobs::Action;

mod age_order;
mod beside;
mod compaction_buffer;
mod conservation;
mod damage;
mod in_order;
mod joining;
mod level_shape;
mod longest_keys;
mod model;
mod operands;
mod page_updates;
mod reclaiming;
mod scan_charges;
mod scan_reads;
mod tombstones;
mod warm_merges;

const KEYSPACE: KeyspaceId = KeyspaceId(3);
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(run_bytes: u64, growth_factor: u32, level1_flushes: u32) -> LsmOptions {
    LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() }
}

/// The same settings with page updates at the bottom.
fn updating(run_bytes: u64, growth_factor: u32, level1_flushes: u32) -> LsmOptions {
    LsmOptions { updates_pages: true, ..options(run_bytes, growth_factor, level1_flushes) }
}

/// Runs the last task first, and records the maximum number of tasks at once.
#[derive(Debug, Default)]
struct Backwards {
    tasks_max: AtomicUsize,
}

impl Executor for Backwards {
    fn run_all(&self, tasks: Vec<Task>) {
        self.tasks_max.fetch_max(tasks.len(), Relaxed);
        tasks.into_iter().rev().for_each(|task| task());
    }

    fn workers(&self) -> usize {
        3
    }
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

type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A tree, its objects in the manifest, and its expected contents.
struct Bed {
    env: Arc<FaultyEnv>,
    work: Work,
    tree: Arc<dyn Tree>,
    objects: BTreeMap<ObjectId, Arc<[u8]>>,
    references: BTreeMap<ExtentSpan, i32>,
    options: LsmOptions,
    model: Model,
    sealed: Seqno,
}

impl Bed {
    fn new(options: LsmOptions) -> Self {
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
            executor: Arc::new(Backwards::default()),
            progress: Arc::new(Progress::default()),
            keys: KeyBounds::default(),
        };
        let tree = LsmTree::empty(options, &work.data);
        let (objects, references, model) = (BTreeMap::new(), BTreeMap::new(), Model::new());
        Self { env, work, tree, objects, references, options, model, sealed: Seqno(0) }
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
        let mut recount: BTreeMap<ExtentSpan, i32> = BTreeMap::new();
        for span in self.tree.references() {
            *recount.entry(span).or_default() += 1;
        }
        assert_eq!(recount, self.references);
    }

    fn apply(&mut self, updates: Batch) {
        self.apply_with(updates, |tree, work, updates| tree.apply(work, updates));
    }

    fn apply_on_top(&mut self, updates: Batch) {
        self.apply_with(updates, |tree, work, updates| tree.apply_on_top(work, updates));
    }

    fn apply_with(
        &mut self,
        updates: Batch,
        apply: impl Fn(&dyn Tree, &Work, Arc<dyn Updates>) -> Result<TreeEdit>,
    ) {
        let entries = updates.iter().map(|(key, value)| OwnedEntry {
            key: key.clone(),
            kind: if value.is_some() { Kind::Value } else { Kind::Tombstone },
            value: value.clone().unwrap_or_default(),
        });
        self.sealed.0 += 10;
        let updates_now = Arc::new(VecUpdates(Arc::new(entries.collect()), self.sealed));
        let edit = apply(&*self.tree, &self.work, updates_now).unwrap();
        self.publish(edit);
        self.tree.check_invariants(true).unwrap();
        for (key, value) in updates {
            match value {
                Some(value) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
        }
    }

    /// Like [`Bed::apply`], followed by all jobs that are due.
    fn apply_and_move(&mut self, updates: Batch) {
        self.apply(updates);
        assert!(self.run_jobs_up_to(500, false) < 500, "jobs never end: {:?}", self.tree.pick_job(false));
    }

    /// Does all jobs of an idle tree.
    fn run_jobs(&mut self) {
        assert!(self.run_jobs_up_to(2000, true) < 2000, "jobs never end: {:?}", self.tree.pick_job(true));
    }

    /// Does at most `count_max` jobs; returns their number.
    fn run_jobs_up_to(&mut self, count_max: u64, is_idle: bool) -> u64 {
        let mut count = 0;
        while count < count_max
            && let Some(job) = self.tree.pick_job(is_idle)
        {
            let prepared = self.tree.prepare(&self.work, &job).unwrap();
            let edit = self.tree.install(&self.work, prepared).unwrap();
            self.publish(edit.expect("no update in between"));
            count += 1;
            self.tree.check_invariants(count % 16 == 0).unwrap();
        }
        self.tree.check_invariants(true).unwrap();
        count
    }

    fn runs(&self) -> Vec<Arc<Run>> {
        self.tree.parts().into_iter().map(|Part::Run(run)| run).collect()
    }

    /// Checks like a salvage without a manifest, with all runs, obsolete ones included.
    fn check_runs(&self, found: &mut RunsByAge) {
        found.check(&self.runs(), &self.model);
    }

    fn reopen(&mut self) {
        let objects = self.objects.clone();
        self.tree = LsmTree::open(self.options, &self.work.data, KEYSPACE, objects).unwrap();
    }

    /// Reopens the file and the tree, with empty caches.
    fn cool(&mut self, cache_bytes: u64) {
        self.env.set_plan(None);
        let options = OpenOptions { mode: OpenMode::Write, direct: true };
        let file = self.env.open(Path::new("/data"), options).unwrap();
        let live = self.references.iter().map(|(span, count)| (*span, u32::try_from(*count).unwrap()));
        let small_runs_apart = self.work.data.small_runs_apart().load(Relaxed);
        self.work.data = DataFile::new(file, StoreId(7), cache_bytes, live, Some(Incarnation(1))).unwrap();
        self.work.data.small_runs_apart().store(small_runs_apart, Relaxed);
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
            assert_eq!(self.get(&key), self.model.get(&key).cloned());
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
                Lookup::Waiting => self.tree.load_pages(&wanted.take()).unwrap(),
                answer => break answer,
            }
        };
        assert_eq!(answer, self.tree.get(key, hash, Access::Blocking).unwrap());
        match answer {
            Lookup::Found(Kind::Value, value, _) => Some(value),
            _ => None,
        }
    }

    /// Bytes in runs written so far, as the data file counts them.
    fn written_bytes(&self) -> u64 {
        self.work.data.io_stats().written_bytes
    }

    /// Lines of one kind in the outline.
    fn lines(&self, what: &str) -> Vec<OutlineLine> {
        self.tree.outline().into_iter().filter(|line| line.what == what).collect()
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

/// Updates of keys that are scattered, or close together.
fn random_batch(random: &mut SplitMix, count_max: u64, delete_percent: u8) -> Batch {
    let (first, width, is_narrow) = (random.below(2500), 1 + random.below(500), random.percent(50));
    let mut updates = Batch::new();
    for _ in 0..1 + random.below(count_max) {
        let key = match is_narrow {
            false => random_key(random),
            true => format!("key{:05}", first + random.below(width)).into_bytes(),
        };
        let value = (!random.percent(delete_percent)).then(|| random_value(random));
        updates.insert(key, value);
    }
    updates
}

fn random_run(seed: u64, options: LsmOptions, rounds: u64) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut pinned: Vec<(Arc<dyn Tree>, Model)> = Vec::new();
    for round in 0..rounds {
        let delete_percent = if (round / 20) % 2 == 1 { 70 } else { 15 };
        let batch = random_batch(&mut random, 400, delete_percent);
        bed.apply(batch);
        if random.percent(60) {
            let jobs = random.below(4);
            bed.run_jobs_up_to(jobs, false);
        }
        if random.percent(20) {
            bed.run_jobs();
        }
        if random.percent(20) {
            bed.reopen();
        }
        if random.percent(10) {
            pinned.push((Arc::clone(&bed.tree), bed.model.clone()));
        }
        if random.percent(25) {
            bed.check(&mut random);
        }
    }
    for (tree, model) in pinned {
        let mut cursor = tree.cursor();
        cursor.seek_first().unwrap();
        for (key, value) in model {
            skip_tombstones(&mut cursor, true);
            let entry = cursor.entry().expect("an entry of a snapshot is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            cursor.next().unwrap();
        }
    }
    let all = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(all);
    let everything: Batch = (0..3000).map(|n| (format!("key{n:05}").into_bytes(), None)).collect();
    for _ in 0..10 {
        bed.apply(everything.clone());
    }
    bed.run_jobs();
    bed.check(&mut random);
}

#[test]
fn a_tree_of_tiny_runs_matches_a_map() {
    for seed in 0..4 {
        random_run(seed, options(4096, 3, 2), 60);
        random_run(seed, updating(4096, 3, 2), 60);
    }
}

#[test]
fn a_tree_of_small_runs_matches_a_map() {
    for seed in 10..13 {
        random_run(seed, options(20_000, 10, 4), 60);
        random_run(seed, options(20_000, 2, 1), 60);
        random_run(seed, updating(40_000, 2, 1), 60);
    }
}

#[test]
fn deleting_everything_leaves_almost_nothing() {
    let mut bed = Bed::new(options(8192, 4, 4));
    let keys: Vec<Vec<u8>> = (0..5000).map(|n| format!("k{n:06}").into_bytes()).collect();
    for part in keys.chunks(700) {
        bed.apply(part.iter().map(|key| (key.clone(), Some(vec![1; 50]))).collect());
    }
    for _ in 0..3 {
        bed.apply(keys.iter().map(|key| (key.clone(), None)).collect());
        bed.run_jobs();
    }
    let stats = bed.tree.stats();
    assert_eq!((stats.leaves, stats.buffered_runs), (0, 0), "{stats:?}");
    assert!(stats.stored_bytes < 5000 * 60 / 2, "{stats:?}");
}

#[test]
fn a_large_flush_is_written_by_several_workers() {
    let mut bed = Bed::new(options(16 << 10, 10, 4));
    let workers = Arc::new(Backwards::default());
    let key = |n: u64| format!("user{n:08}").into_bytes();
    bed.apply((0..6000).map(|n| (key(n * 2), Some(vec![b'v'; 100]))).collect());
    bed.apply((0..6000).map(|n| (key(n * 2), Some(vec![b'w'; 100]))).collect());
    bed.work.executor = Arc::clone(&workers) as Arc<dyn Executor>;
    bed.apply((0..6000).map(|n| (key(n * 2 + 1), Some(vec![b'x'; 100]))).collect());
    let tasks = workers.tasks_max.load(Relaxed);
    assert!((4..=12).contains(&tasks), "{tasks} tasks");
    bed.check(&mut SplitMix::new(1));
}
