//! A keyspace of one tree, or of two during a migration; its objects in the manifest, and its expected
//! contents.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    path::Path,
};

use testudo_base::{
    Entry, ExtentSpan, Incarnation, KeyspaceId, Kind, OwnedEntry, RunId, Seqno, StoreId, checksum::hash_key,
    num::u64_of,
};
use testudo_betree::{BeTree, BeTreeOptions, Policy};
use testudo_contract::{InlineExecutor, LeastGain, PartUse, Progress, RunIds};
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};
use testudo_lsm::{LsmOptions, LsmTree};
use testudo_run::Run;
use testudo_storage::{Change, DataFile};

use super::*;
use crate::{Objects, Slot};

const KEYSPACE: KeyspaceId = KeyspaceId(3);

pub(super) type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A tree with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    BeTree(BeTreeOptions),
    Lsm(LsmOptions),
}

impl Family {
    const fn betree(policy: Policy, leaf_bytes: u64, max_pivots: usize) -> Self {
        Self::BeTree(BeTreeOptions { leaf_bytes, max_pivots, ..BeTreeOptions::new(policy) })
    }

    pub(super) const fn turtle(leaf_bytes: u64, max_pivots: usize) -> Self {
        Self::betree(Policy::Turtle, leaf_bytes, max_pivots)
    }

    pub(super) const fn splinter(leaf_bytes: u64, max_pivots: usize) -> Self {
        Self::betree(Policy::Splinter, leaf_bytes, max_pivots)
    }

    pub(super) const fn leveled(run_bytes: u64, growth_factor: u32, level1_flushes: u32) -> Self {
        Self::Lsm(LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() })
    }

    fn open(self, data: &Arc<DataFile>, objects: Objects) -> Result<Arc<dyn Tree>> {
        Ok(match self {
            Self::BeTree(options) => BeTree::open(options, data, KEYSPACE, objects)?,
            Self::Lsm(options) => LsmTree::open(options, data, KEYSPACE, objects)?,
        })
    }

    fn layout(self, objects: Objects) -> Vec<PartUse> {
        match self {
            Self::BeTree(_) => testudo_betree::read_layout(objects).unwrap(),
            Self::Lsm(_) => testudo_lsm::read_layout(objects).unwrap(),
        }
    }
}

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
        self.bytes_between(None, None)
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

impl VecCursor {
    fn first_from(&self, key: &[u8]) -> usize {
        self.entries.partition_point(|entry| entry.key.as_slice() < key)
    }
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
        self.at = self.first_from(key);
        Ok(())
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.first_from(key).wrapping_sub(1);
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

pub(super) struct Bed {
    work: Work,
    pub(super) tree: Arc<dyn Tree>,
    /// The current or destination family; before it the source.
    families: VecDeque<Family>,
    pub(super) objects: Objects,
    references: BTreeMap<ExtentSpan, i32>,
    pub(super) model: BTreeMap<Vec<u8>, Vec<u8>>,
    sealed: Seqno,
}

impl Bed {
    pub(super) fn new(family: Family) -> Self {
        let env = MemEnv::new(1);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        let file = env.open(Path::new("/data"), options).unwrap();
        let data = DataFile::new(file, StoreId(7), 1 << 20, std::iter::empty(), Some(Incarnation(1)));
        let work = Work {
            full_merge: Arc::default(),
            data: data.unwrap(),
            keyspace: KEYSPACE,
            keyspace_name: Arc::from("tests"),
            run_ids: Arc::new(RunIds::starting_at(RunId(1))),
            executor: Arc::new(InlineExecutor),
            progress: Arc::new(Progress::default()),
            keys: KeyBounds::default(),
            values: None,
        };
        let tree = family.open(&work.data, Objects::new()).unwrap();
        let (objects, references, model) = Default::default();
        Self { work, tree, families: VecDeque::from([family]), objects, references, model, sealed: Seqno(0) }
    }

    /// Returns the current or destination family.
    pub(super) fn family(&self) -> Family {
        *self.families.back().unwrap()
    }

    pub(super) fn is_moving(&self) -> bool {
        self.families.len() > 1
    }

    pub(super) fn open(&self, objects: Objects) -> Result<Arc<dyn Tree>> {
        let damaged = |why: testudo_base::codec::Damage| Error::corruption("manifest", 0, why.0);
        if !self.is_moving() {
            let (slot, objects) = Slot::at_rest(objects).map_err(damaged)?;
            return Ok(slot.with(self.family().open(&self.work.data, objects)?));
        }
        let (course, from, to) = Course::divide(objects).map_err(damaged)?;
        let slots = course.slots();
        let from = slots.0.with(self.families[0].open(&self.work.data, from)?);
        let to = slots.1.with(self.families[1].open(&self.work.data, to)?);
        Ok(Migrating::new(course, from, to))
    }

    pub(super) fn reopen(&mut self) {
        self.tree = self.open(self.objects.clone()).unwrap();
        self.tree.check_invariants(true).unwrap();
    }

    pub(super) fn layout(&self) -> Vec<PartUse> {
        if !self.is_moving() {
            return self.family().layout(Slot::at_rest(self.objects.clone()).unwrap().1);
        }
        let (course, from, to) = Course::divide(self.objects.clone()).unwrap();
        course.layout(self.families[0].layout(from), self.families[1].layout(to))
    }

    fn do_changes(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::PutObject(_, id, bytes) => {
                    self.objects.insert(*id, Arc::from(bytes.as_slice()));
                }
                Change::DeleteObject(_, id) => assert!(self.objects.remove(id).is_some(), "object {id}"),
                Change::References(span, delta) => *self.references.entry(*span).or_default() += delta,
                other => panic!("unexpected {other:?}"),
            }
        }
        let deltas = changes.iter().filter_map(|change| match change {
            Change::References(span, delta) => Some((*span, *delta)),
            _ => None,
        });
        self.work.data.extents().apply_durable(deltas);
        self.references.retain(|_, count| *count != 0);
    }

    /// Applies the changes of the edit, and checks its reference counts.
    fn publish(&mut self, edit: TreeEdit) {
        self.do_changes(&edit.changes);
        self.tree = edit.tree;
        let mut recount: BTreeMap<ExtentSpan, i32> = BTreeMap::new();
        for span in self.tree.references() {
            *recount.entry(span).or_default() += 1;
        }
        assert_eq!(recount, self.references);
        self.tree.check_invariants(true).unwrap();
        if self.is_moving() && self.tree.as_movable().is_some() {
            self.families.pop_front();
        }
    }

    pub(super) fn apply(&mut self, batch: Batch) {
        self.apply_by(batch, |tree, work, updates| tree.apply(work, updates));
    }

    pub(super) fn apply_on_top(&mut self, batch: Batch) {
        self.apply_by(batch, |tree, work, updates| tree.apply_on_top(work, updates));
    }

    fn apply_by(
        &mut self,
        batch: Batch,
        apply: impl Fn(&dyn Tree, &Work, Arc<dyn Updates>) -> Result<TreeEdit>,
    ) {
        let entries = batch.iter().map(|(key, value)| OwnedEntry {
            key: key.clone(),
            kind: if value.is_some() { Kind::Value } else { Kind::Tombstone },
            value: value.clone().unwrap_or_default(),
        });
        self.sealed.0 += 10;
        let updates = Arc::new(VecUpdates(Arc::new(entries.collect()), self.sealed));
        let edit = apply(&*self.tree, &self.work, updates).unwrap();
        self.publish(edit);
        for (key, value) in batch {
            match value {
                Some(value) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
        }
    }

    pub(super) fn move_to(&mut self, family: Family) {
        let (slot, _) = Slot::at_rest(self.objects.clone()).unwrap();
        self.do_changes(&[Course::beginning(slot).put(KEYSPACE)]);
        self.families.push_back(family);
        self.reopen();
    }

    pub(super) fn turn(&mut self) {
        let (course, ..) = Course::divide(self.objects.clone()).unwrap();
        self.do_changes(&[course.turned().put(KEYSPACE)]);
        self.families.swap(0, 1);
        self.reopen();
    }

    pub(super) fn prepare(&self) -> Option<Prepared> {
        let job = self.tree.pick_job(true)?;
        Some(self.tree.prepare(&self.work, &job).unwrap())
    }

    /// Installs a prepared job; returns whether it was installed.
    pub(super) fn install(&mut self, prepared: Prepared) -> bool {
        let edit = self.tree.install(&self.work, prepared).unwrap();
        let is_installed = edit.is_some();
        edit.into_iter().for_each(|edit| self.publish(edit));
        is_installed
    }

    /// Does all jobs.
    pub(super) fn finish(&mut self) {
        for _ in 0..3000 {
            let Some(prepared) = self.prepare() else { return assert!(!self.is_moving()) };
            assert!(self.install(prepared), "no update in between");
        }
        panic!("jobs never end: {:?}", self.tree.pick_job(true));
    }

    /// Does one reclaim step, if there is one.
    pub(super) fn reclaim(&mut self) {
        let limits = ReclaimLimits { space_bytes: u64::MAX, least_gain: LeastGain::None, but: &[] };
        if let Some(reclaim) = self.tree.pick_reclaim(&limits).unwrap() {
            let edit = self.tree.reclaim(&self.work, &reclaim).unwrap();
            self.publish(edit);
        }
    }

    /// Releases everything.
    pub(super) fn release(&mut self) {
        self.do_changes(&self.tree.release());
        assert!(self.references.is_empty(), "something is left");
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.references.keys().map(|span| span.bytes()).sum()
    }

    pub(super) fn runs(&self) -> Vec<Arc<Run>> {
        self.tree.parts().into_iter().map(|Part::Run(run)| run).collect()
    }

    /// Checks like a salvage, with all runs, obsolete ones included, without a manifest and with one.
    pub(super) fn check_runs(&self, found: &mut RunsByAge) {
        let runs = self.runs();
        found.check(&runs, &self.model);
        found.check_layout(&runs, self.layout(), &self.model);
    }

    pub(super) fn check(&self, random: &mut SplitMix) {
        let mut cursor = self.tree.cursor();
        let of_model = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        let seen = |cursor: &dyn Cursor| {
            let entry = cursor.entry()?;
            Some((entry.key.to_vec(), entry.value.to_vec()))
        };
        cursor.seek_first().unwrap();
        for expected in self.model.iter().map(of_model) {
            skip_tombstones(&mut *cursor, true);
            assert_eq!(seen(&*cursor), Some(expected));
            cursor.next().unwrap();
        }
        skip_tombstones(&mut *cursor, true);
        assert!(cursor.entry().is_none());
        cursor.seek_last().unwrap();
        for expected in self.model.iter().rev().map(of_model) {
            skip_tombstones(&mut *cursor, false);
            assert_eq!(seen(&*cursor), Some(expected));
            cursor.prev().unwrap();
        }
        for _ in 0..50 {
            let key = random_key(random);
            assert_eq!(self.get(&key), self.model.get(&key).cloned());
            cursor.seek(&key).unwrap();
            skip_tombstones(&mut *cursor, true);
            assert_eq!(seen(&*cursor), self.model.range(key.clone()..).next().map(of_model));
            cursor.seek_before(&key).unwrap();
            skip_tombstones(&mut *cursor, false);
            assert_eq!(seen(&*cursor), self.model.range(..key).next_back().map(of_model));
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
        match answer {
            Lookup::Found(Kind::Value, value, _) => Some(value),
            _ => None,
        }
    }
}

fn skip_tombstones(cursor: &mut dyn Cursor, forward: bool) {
    while cursor.entry().is_some_and(|entry| entry.kind == Kind::Tombstone) {
        if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
    }
}

fn random_key(random: &mut SplitMix) -> Vec<u8> {
    match random.below(40) {
        0 => Vec::new(),
        1 => vec![b'z'; usize::try_from(random.below(6000)).unwrap()],
        2 => [vec![b'k'; 3000], vec![u8::try_from(random.below(256)).unwrap()]].concat(),
        _ => format!("key{:05}", random.below(3000)).into_bytes(),
    }
}

/// Updates of keys that are scattered, or close together.
pub(super) fn random_batch(random: &mut SplitMix, most: u64, delete_percent: u8) -> Batch {
    let close = random.percent(30).then(|| random.below(2900));
    let mut batch = Batch::new();
    for _ in 0..1 + random.below(most) {
        let key = match close {
            Some(close) => format!("key{:05}", close + random.below(100)).into_bytes(),
            None => random_key(random),
        };
        let bytes = if random.percent(2) { 5000 } else { random.below(150) };
        let value = vec![u8::try_from(random.below(256)).unwrap(); usize::try_from(bytes).unwrap()];
        batch.insert(key, (!random.percent(delete_percent)).then_some(value));
    }
    batch
}
