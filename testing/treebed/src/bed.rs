//! A tree of one family, its durable state, and its expected contents.
//!
//! **Invariants**
//! - Every published edit leaves exactly the references that its tree has.

use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc};

use testudo_base::{OwnedEntry, Result, RunId, Seqno, sync::atomic::Ordering::Relaxed};
use testudo_contract::{
    JOB_BYTES, Job, JobRequest, LeastGain, OutlineLine, Part, PartUse, Prepared, Reclaim, ReclaimLimits,
    Scope, Tree, TreeEdit, Updates, Work,
};
use testudo_env::{FaultyEnv, MemEnv, OpenMode, SplitMix};
use testudo_run::Run;
use testudo_storage::DataFile;

use crate::{
    Backwards, Batch, Durable, Model, Objects, RunsByAge, VecUpdates, check_contents, data_file, entries_of,
    look_up, put_into, random_key, work_on,
};

/// Settings of a tree of one family.
pub trait Family: Copy + fmt::Debug {
    /// Whether [`Bed::apply`] does the jobs that the next update has to wait for.
    const CATCHES_UP: bool;
    /// Number of jobs between two checks of the tree.
    const CHECK_EVERY: u64;
    /// Number of jobs between two checks that read all runs.
    const READ_EVERY: u64;

    /// Opens the tree that `objects` describe; an empty one if there are none.
    fn open(&self, data: &Arc<DataFile>, objects: Objects) -> Result<Arc<dyn Tree>>;
    /// Returns the runs that the objects name, with the keys for which they count.
    fn layout(&self, objects: Objects) -> Vec<PartUse>;
    /// Limit on the bytes of a job that the bed requests.
    fn job_bytes(&self) -> u64 {
        JOB_BYTES
    }
    /// Checks the shape of a tree after an edit.
    fn check_shape(&self, _tree: &dyn Tree) {}
}

/// A tree with its durable state and its expected contents.
#[derive(Debug)]
pub struct Bed<F> {
    /// Environment of the data file.
    pub env: Arc<FaultyEnv>,
    /// Context of the tree's work.
    pub work: Work,
    /// The current state.
    pub tree: Arc<dyn Tree>,
    /// Its objects and references.
    pub durable: Durable,
    /// Its settings.
    pub options: F,
    /// Its expected contents.
    pub model: Model,
    /// Seqno of the newest updates.
    pub sealed: Seqno,
    /// The job so far that came closest to its bound.
    pub largest_job: JobBytes,
}

/// Bytes of a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobBytes {
    /// Bytes that it read or wrote, whichever are more.
    pub bytes: u64,
    /// Bound that its tree stated.
    pub bytes_max: u64,
}

impl JobBytes {
    /// Returns the one that is closer to its bound.
    fn closer(self, other: Self) -> Self {
        let is_closer = u128::from(other.bytes) * u128::from(self.bytes_max)
            > u128::from(self.bytes) * u128::from(other.bytes_max);
        if self.bytes_max == 0 || is_closer { other } else { self }
    }
}

/// A job between its two halves.
#[derive(Debug)]
pub struct JobInFlight {
    /// The part of the tree that it reads and replaces.
    pub scope: Scope,
    what: &'static str,
    prepared: Prepared,
    /// Ids of the runs written.
    written: Range<RunId>,
    bytes_max: u64,
}

impl<F: Family> Bed<F> {
    /// Creates an empty tree on a new data file.
    pub fn new(options: F) -> Self {
        let env = FaultyEnv::new(MemEnv::new(1));
        let work = work_on(&*env, Arc::new(Backwards::default()));
        let tree = options.open(&work.data, Objects::new()).unwrap();
        let (durable, model) = (Durable::default(), Model::new());
        Self { env, work, tree, durable, options, model, sealed: Seqno(0), largest_job: JobBytes::default() }
    }

    /// Applies the changes of the edit, and checks its reference counts.
    pub fn publish(&mut self, edit: TreeEdit) {
        self.durable.apply(&self.work.data, &edit.changes);
        self.tree = edit.tree;
        self.options.check_shape(&*self.tree);
        self.durable.check_references(&*self.tree);
    }

    /// Applies updates.
    pub fn apply(&mut self, batch: Batch) {
        self.apply_only(batch);
        if F::CATCHES_UP {
            self.catch_up();
        }
    }

    /// Applies updates even if the tree's jobs are behind.
    pub fn apply_only(&mut self, batch: Batch) {
        self.apply_with(batch, |tree, work, updates| tree.apply(work, updates));
    }

    /// Applies updates on top.
    pub fn apply_on_top(&mut self, batch: Batch) {
        self.apply_with(batch, |tree, work, updates| tree.apply_on_top(work, updates));
    }

    fn apply_with(
        &mut self,
        batch: Batch,
        apply: impl Fn(&dyn Tree, &Work, Arc<dyn Updates>) -> Result<TreeEdit>,
    ) {
        let updates = self.updates_of(entries_of(&batch));
        let edit = apply(&*self.tree, &self.work, updates).unwrap();
        self.publish(edit);
        self.tree.check_invariants(true).unwrap();
        put_into(&mut self.model, batch);
    }

    /// Returns the next updates, of these entries.
    pub fn updates_of(&mut self, entries: Vec<OwnedEntry>) -> Arc<VecUpdates> {
        self.sealed.0 += 10;
        Arc::new(VecUpdates::new(entries, self.sealed))
    }

    /// Like [`Bed::apply_only`], followed by all jobs that are due.
    pub fn apply_and_move(&mut self, batch: Batch) {
        self.apply_only(batch);
        assert!(self.run_jobs_up_to(500, false) < 500, "jobs never end: {:?}", self.pick_job(false));
    }

    /// Does the jobs that the next update has to wait for.
    pub fn catch_up(&mut self) {
        while self.tree.behind_bytes() > 0 {
            assert!(self.run_job(false), "jobs are behind");
        }
    }

    /// Does all jobs of an idle tree.
    pub fn run_jobs(&mut self) {
        assert!(self.run_jobs_up_to(2000, true) < 2000, "jobs never end: {:?}", self.pick_job(true));
    }

    /// Does at most `count_max` jobs; returns their number.
    pub fn run_jobs_up_to(&mut self, count_max: u64, is_idle: bool) -> u64 {
        let mut count = 0;
        while count < count_max && self.run_job(is_idle) {
            count += 1;
            // Nodes and runs are immutable, and a job replaces a few of them: a deep check after every one
            // would mostly reread the same.
            if count % F::CHECK_EVERY == 0 {
                self.tree.check_invariants(count % F::READ_EVERY == 0).unwrap();
            }
        }
        self.tree.check_invariants(true).unwrap();
        count
    }

    /// Does the next job; returns whether there was one.
    fn run_job(&mut self, is_idle: bool) -> bool {
        let Some(job) = self.pick_job(is_idle) else { return false };
        assert!(self.run_job_with(&job, |_| {}), "no update in between");
        true
    }

    /// Picks the next job, if no other is in flight.
    pub fn pick_job(&self, is_idle: bool) -> Option<Job> {
        self.pick_job_outside(is_idle, &[])
    }

    /// Picks the next job outside of these scopes.
    pub fn pick_job_outside(&self, is_idle: bool, busy: &[Scope]) -> Option<Job> {
        self.tree.pick_job(&JobRequest { is_idle, busy, bytes_max: self.options.job_bytes() })
    }

    /// Prepares a job, calls `between`, which may change the tree, and installs the job; returns whether it
    /// was installed, that is, not overtaken. Checks that it is within the bound that the tree states.
    pub fn run_job_with(&mut self, job: &Job, between: impl FnOnce(&mut Self)) -> bool {
        let job = self.prepare(job, self.options.job_bytes());
        between(self);
        self.install(job)
    }

    /// Prepares a job that was requested with `bytes_max`, and checks that it reads no more than the tree
    /// states.
    pub fn prepare(&mut self, job: &Job, bytes_max: u64) -> JobInFlight {
        let bytes_max = self.tree.job_bytes_max(bytes_max);
        let (read, first) = (self.work.progress.state().1, self.work.run_ids.next());
        let prepared = self.tree.prepare(&self.work, job).unwrap();
        let read = self.work.progress.state().1 - read;
        assert!(read <= bytes_max, "{} reads {read} bytes, up to {bytes_max} are allowed", job.what);
        self.largest_job = self.largest_job.closer(JobBytes { bytes: read, bytes_max });
        let written = first..self.work.run_ids.next();
        JobInFlight { scope: job.scope.clone(), what: job.what, prepared, written, bytes_max }
    }

    /// Installs a prepared job; returns whether it was not overtaken. Checks that it wrote no more than the
    /// tree has stated.
    pub fn install(&mut self, job: JobInFlight) -> bool {
        let JobInFlight { what, prepared, written, bytes_max, .. } = job;
        let Some(edit) = self.tree.install(&self.work, prepared).unwrap() else { return false };
        self.publish(edit);
        let runs = self.runs();
        let new: BTreeMap<RunId, u64> = runs
            .iter()
            .map(|run| run.reference())
            .filter(|run| written.contains(&run.id))
            .map(|run| (run.id, run.user_bytes))
            .collect();
        let bytes: u64 = new.values().sum();
        // The bytes of a part of a run are known by its pages, which may be filled unequally.
        let written_max = bytes_max + bytes_max / 8;
        assert!(bytes <= written_max, "{what} writes {bytes} bytes, up to {bytes_max} are allowed");
        self.largest_job = self.largest_job.closer(JobBytes { bytes, bytes_max });
        true
    }

    /// Picks jobs in `rounds` rounds, in some of them as for an idle tree, and does each with
    /// [`Bed::run_job_with`]; calls `between` also if there is none. Returns the numbers of installed and
    /// overtaken jobs.
    pub fn run_jobs_with(
        &mut self,
        rounds: u64,
        is_idle: impl Fn(u64) -> bool,
        mut between: impl FnMut(&mut Self, u64),
    ) -> (u64, u64) {
        let (mut installed, mut overtaken) = (0, 0);
        for round in 0..rounds {
            match self.pick_job(is_idle(round)) {
                None => between(self, round),
                Some(job) if self.run_job_with(&job, |bed| between(bed, round)) => installed += 1,
                Some(_) => overtaken += 1,
            }
            self.tree.check_invariants(round % F::CHECK_EVERY == 0).unwrap();
        }
        (installed, overtaken)
    }

    /// Does the reclaim step with the largest gain; `limit` may reduce the step picked. `tried`: steps
    /// without progress since the tree has changed. Returns `None` if there is no step.
    pub fn reclaim_step(
        &mut self,
        least_gain: LeastGain,
        tried: &mut Vec<Reclaim>,
        limit: impl Fn(&mut Reclaim),
    ) -> Option<Reclaim> {
        loop {
            let limits = ReclaimLimits { space_bytes: 1 << 30, least_gain, but: tried };
            let mut reclaim = self.tree.pick_reclaim(&limits).unwrap()?;
            limit(&mut reclaim);
            let edit = self.tree.reclaim(&self.work, &reclaim).unwrap();
            let extents = Arc::clone(self.work.data.extents());
            if reclaim.is_progress(&edit, &extents) {
                tried.clear();
                let live_bytes = extents.stats().live_bytes;
                self.publish(edit);
                let wins = reclaim.is_merge || extents.stats().live_bytes < live_bytes;
                assert!(wins, "{reclaim:?} gains nothing");
                return Some(reclaim);
            }
            tried.push(reclaim);
        }
    }

    /// Reopens the tree.
    pub fn reopen(&mut self) {
        self.tree = self.options.open(&self.work.data, self.durable.objects.clone()).unwrap();
    }

    /// Reopens the file and the tree, with empty caches.
    pub fn cool(&mut self, cache_bytes: u64) {
        self.env.set_plan(None);
        let small_runs_apart = self.work.data.small_runs_apart().load(Relaxed);
        self.work.data = data_file(&*self.env, OpenMode::Write, cache_bytes, self.durable.live());
        self.work.data.small_runs_apart().store(small_runs_apart, Relaxed);
        self.reopen();
    }

    /// Checks the contents, and the answers for 50 random keys.
    #[track_caller]
    pub fn check(&self, random: &mut SplitMix) {
        check_contents(&*self.tree, &self.model, (0..50).map(|_| random_key(random)));
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        look_up(&*self.tree, key)
    }

    /// Returns all runs to which the tree refers.
    pub fn runs(&self) -> Vec<Arc<Run>> {
        self.tree.parts().into_iter().map(|Part::Run(run)| run).collect()
    }

    /// Returns the runs that the objects name, with the keys for which they count.
    pub fn layout(&self) -> Vec<(Arc<Run>, PartUse)> {
        let id = |part: &PartUse| -> RunId {
            let PartUse::Run(used) = part;
            used.reference.id
        };
        let runs = self.runs();
        let run_of = |part: &PartUse| runs.iter().find(|run| run.reference().id == id(part)).unwrap();
        let layout = self.options.layout(self.durable.objects.clone());
        layout.into_iter().map(|part| (Arc::clone(run_of(&part)), part)).collect()
    }

    /// Checks like a salvage without a manifest, with all runs, obsolete ones included.
    #[track_caller]
    pub fn check_runs(&self, found: &mut RunsByAge) {
        found.check(&self.runs(), &self.model);
    }

    /// Returns the lines of one kind in the outline.
    pub fn lines(&self, what: &str) -> Vec<OutlineLine> {
        self.tree.outline().into_iter().filter(|line| line.what == what).collect()
    }

    /// Bytes in runs written so far, as the data file counts them.
    pub fn written_bytes(&self) -> u64 {
        self.work.data.io_stats().written_bytes
    }
}
