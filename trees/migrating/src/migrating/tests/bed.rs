//! A keyspace of one tree, or of two during a migration; its objects in the manifest, and its expected
//! contents.

use std::collections::VecDeque;

use testudo_base::Seqno;
use testudo_betree::{BeTree, BeTreeOptions, Policy};
use testudo_contract::{InlineExecutor, JobRequest, LeastGain, PartUse};
use testudo_env::MemEnv;
use testudo_lsm::{LsmOptions, LsmTree};
use testudo_run::Run;
use testudo_storage::{Change, DataFile};
use testudo_treebed::{
    Batch, Durable, KEYSPACE, Model, VecUpdates, check_contents, entries_of, put_into, work_on,
};

use super::*;
use crate::{Objects, Slot};

/// Limit on the bytes of a job.
const JOB_BYTES_MAX: u64 = 24 << 10;

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

    /// A leveled tree with compaction buffers.
    pub(super) const fn retaining_leveled(run_bytes: u64, growth_factor: u32, level1_flushes: u32) -> Self {
        let options = LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() };
        Self::Lsm(LsmOptions { retained_percent: 100, ..options })
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

pub(super) struct Bed {
    work: Work,
    pub(super) tree: Arc<dyn Tree>,
    /// The current or destination family; before it the source.
    families: VecDeque<Family>,
    pub(super) durable: Durable,
    pub(super) model: Model,
    sealed: Seqno,
}

impl Bed {
    pub(super) fn new(family: Family) -> Self {
        let work = work_on(&*MemEnv::new(1), Arc::new(InlineExecutor));
        let tree = family.open(&work.data, Objects::new()).unwrap();
        let (durable, model) = (Durable::default(), Model::new());
        Self { work, tree, families: VecDeque::from([family]), durable, model, sealed: Seqno(0) }
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
        self.tree = self.open(self.durable.objects.clone()).unwrap();
        self.tree.check_invariants(true).unwrap();
    }

    pub(super) fn layout(&self) -> Vec<PartUse> {
        if !self.is_moving() {
            return self.family().layout(Slot::at_rest(self.durable.objects.clone()).unwrap().1);
        }
        let (course, from, to) = Course::divide(self.durable.objects.clone()).unwrap();
        course.layout(self.families[0].layout(from), self.families[1].layout(to))
    }

    fn do_changes(&mut self, changes: &[Change]) {
        self.durable.apply(&self.work.data, changes);
    }

    /// Applies the changes of the edit, and checks its reference counts.
    fn publish(&mut self, edit: TreeEdit) {
        self.do_changes(&edit.changes);
        self.tree = edit.tree;
        self.durable.check_references(&*self.tree);
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
        self.sealed.0 += 10;
        let updates = Arc::new(VecUpdates::new(entries_of(&batch), self.sealed));
        let edit = apply(&*self.tree, &self.work, updates).unwrap();
        self.publish(edit);
        put_into(&mut self.model, batch);
    }

    pub(super) fn move_to(&mut self, family: Family) {
        let (slot, _) = Slot::at_rest(self.durable.objects.clone()).unwrap();
        self.do_changes(&[Course::beginning(slot).put(KEYSPACE)]);
        self.families.push_back(family);
        self.reopen();
    }

    pub(super) fn turn(&mut self) {
        let (course, ..) = Course::divide(self.durable.objects.clone()).unwrap();
        self.do_changes(&[course.turned().put(KEYSPACE)]);
        self.families.swap(0, 1);
        self.reopen();
    }

    pub(super) fn prepare(&self) -> Option<Prepared> {
        let request = JobRequest { is_idle: true, busy: &[], bytes_max: JOB_BYTES_MAX };
        let job = self.tree.pick_job(&request)?;
        let bytes_max = self.tree.job_bytes_max(JOB_BYTES_MAX);
        let before = self.work.progress.state().1;
        let prepared = self.tree.prepare(&self.work, &job).unwrap();
        let read = self.work.progress.state().1 - before;
        let mut leveled = self.families.iter().map(|family| matches!(family, Family::Lsm(_)));
        let is_portion = job.what == "move keys to another tree";
        // Portions are read from the first of them.
        let is_bounded = if is_portion { leveled.next() == Some(true) } else { leveled.all(|is| is) };
        assert!(
            read <= bytes_max || !is_bounded,
            "{} reads {read} bytes, up to {bytes_max} are allowed: {:?}",
            job.what,
            self.families
        );
        Some(prepared)
    }

    /// Installs a prepared job; returns whether it was installed.
    pub(super) fn install(&mut self, prepared: Prepared) -> bool {
        let edit = self.tree.install(&self.work, prepared).unwrap();
        let is_installed = edit.is_some();
        edit.into_iter().for_each(|edit| self.publish(edit));
        is_installed
    }

    /// Compacts a range; returns the number of jobs.
    pub(super) fn compact_range(&mut self, range: &KeyBounds) -> u32 {
        let (mut rest, mut jobs) = (range.clone(), 0);
        while let Some(RangeJob { job, done_below }) = self.tree.pick_range(&rest, JOB_BYTES_MAX).unwrap() {
            let prepared = self.tree.prepare(&self.work, &job).unwrap();
            assert!(self.install(prepared), "no update in between");
            jobs += 1;
            let Some(end) = done_below else { break };
            assert!(Some(&end) >= rest.low.as_ref(), "jobs proceed in key order");
            rest.low = Some(end);
        }
        jobs
    }

    /// Does all jobs.
    pub(super) fn finish(&mut self) {
        for _ in 0..3000 {
            let Some(prepared) = self.prepare() else { return assert!(!self.is_moving()) };
            assert!(self.install(prepared), "no update in between");
        }
        panic!("jobs never end: {:?}", self.tree.pick_job(&JobRequest::only(true)));
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
        assert!(self.durable.references.is_empty(), "something is left");
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.durable.references.keys().map(|span| span.bytes()).sum()
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
        check_contents(&*self.tree, &self.model, (0..50).map(|_| random_key(random)));
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
