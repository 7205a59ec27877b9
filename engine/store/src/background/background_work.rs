//! Executors, wakeups and jobs of background work.
//!
//! **Invariants**
//! - A job refers to the list of jobs, never the other way round: a store that is dropped between the two
//!   halves of a job is freed with it.

use std::collections::{BTreeMap, btree_map::Entry};

use testudo_base::{
    KeyspaceId,
    sync::{Arc, Condvar, Mutex, atomic::AtomicU32},
};
use testudo_contract::{Executor, Prepared, Progress};

use crate::{background::executor::Executors, keyspace::KeyspaceCore};

/// State of background work.
#[derive(Debug)]
pub struct BackgroundWork {
    /// Runs the tasks of flushes.
    pub executor: Arc<dyn Executor>,
    /// Runs the tasks of jobs, while no task of a flush waits.
    pub job_executor: Arc<dyn Executor>,
    /// There are no background threads: the same work is done in steps, on request.
    pub is_stepped: bool,
    /// Steps so far, in stepped execution.
    pub steps: AtomicU32,
    /// Wakes the flush thread.
    pub wakeup: Wakeup,
    /// Wakes the job threads.
    pub job_wakeup: Wakeup,
    /// Wakes the sync thread.
    pub sync_wakeup: Wakeup,
    pub jobs: Arc<JobsUnderway>,
    /// A job prepared in one step of stepped execution, to be installed in a later one.
    pub kept: Mutex<Option<PreparedJob>>,
}

impl BackgroundWork {
    pub fn new(executors: Executors, is_stepped: bool) -> Self {
        Self {
            executor: executors.flushes,
            job_executor: executors.jobs,
            is_stepped,
            steps: 0.into(),
            wakeup: Wakeup::default(),
            job_wakeup: Wakeup::default(),
            sync_wakeup: Wakeup::default(),
            jobs: Arc::default(),
            kept: Mutex::default(),
        }
    }

    /// Keeps a prepared job for a later step.
    pub fn keep(&self, job: PreparedJob) {
        let before = self.kept.lock().replace(job);
        debug_assert!(
            before.is_none(),
            "the job of an earlier step was taken before another one was prepared"
        );
    }

    /// Takes the prepared job of an earlier step.
    pub fn take_kept(&self) -> Option<PreparedJob> {
        self.kept.lock().take()
    }

    /// Wakes the flush thread.
    pub fn wake(&self) {
        self.wakeup.wake();
    }

    /// Wakes all background threads.
    pub fn wake_all(&self) {
        self.wakeup.wake();
        self.job_wakeup.wake();
        self.sync_wakeup.wake();
    }
}

/// Wakes background threads.
#[derive(Debug, Default)]
pub struct Wakeup {
    pub is_woken: Mutex<bool>,
    pub changed: Condvar,
}

impl Wakeup {
    pub fn wake(&self) {
        *self.is_woken.lock() = true;
        self.changed.notify_all();
    }
}

/// The jobs in progress, and the number being prepared.
#[derive(Debug, Default)]
struct JobCounts {
    /// Jobs begun and not ended, at most one per keyspace.
    underway: BTreeMap<KeyspaceId, Arc<Progress>>,
    /// Number of them being prepared, concurrently with flushes.
    preparing: usize,
}

/// The jobs that have begun and not ended.
#[derive(Debug, Default)]
pub struct JobsUnderway {
    counts: Mutex<JobCounts>,
    /// Signaled when a job has ended or is prepared.
    changed: Condvar,
}

/// A job of a keyspace in progress.
#[derive(Debug)]
pub struct Underway {
    pub keyspace: Arc<KeyspaceCore>,
    /// Its progress, and the entries it has dropped.
    pub progress: Arc<Progress>,
    jobs: Arc<JobsUnderway>,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.jobs.counts.lock().underway.remove(&self.keyspace.id);
        self.jobs.changed.notify_all();
    }
}

/// A job whose first half is done.
#[derive(Debug)]
pub struct PreparedJob {
    // Dropped first: its space is free before the job ends.
    pub prepared: Prepared,
    pub underway: Underway,
}

/// A job that writes concurrently with flushes.
pub struct Preparing<'a>(&'a JobsUnderway);

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().preparing -= 1;
        self.0.changed.notify_all();
    }
}

impl JobsUnderway {
    /// Begins a job of a keyspace, unless one is in progress.
    pub fn begin(self: &Arc<Self>, keyspace: &Arc<KeyspaceCore>) -> Option<Underway> {
        let progress: Arc<Progress> = Arc::default();
        match self.counts.lock().underway.entry(keyspace.id) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(Arc::clone(&progress)),
        };
        debug_assert_eq!(progress.state().0, 0, "a job begins with nothing done");
        Some(Underway { keyspace: Arc::clone(keyspace), progress, jobs: Arc::clone(self) })
    }

    /// Progress of the job of a keyspace, if one is in progress.
    pub fn of(&self, keyspace: KeyspaceId) -> Option<Arc<Progress>> {
        self.counts.lock().underway.get(&keyspace).cloned()
    }

    /// Marks that a job writes, until the returned guard is dropped.
    pub fn begin_preparing(&self) -> Preparing<'_> {
        self.counts.lock().preparing += 1;
        Preparing(self)
    }

    /// Waits until no job writes. Jobs that begin later see state set before the call.
    pub fn wait_until_none_prepares(&self) {
        let mut counts = self.counts.lock();
        while counts.preparing > 0 {
            self.changed.wait(&mut counts);
        }
    }

    pub fn is_any_underway(&self) -> bool {
        !self.counts.lock().underway.is_empty()
    }

    /// Waits until a job has ended; returns `false` if none is in progress.
    pub fn wait_for_one(&self) -> bool {
        let mut counts = self.counts.lock();
        let before = counts.underway.len();
        while !counts.underway.is_empty() && counts.underway.len() >= before {
            self.changed.wait(&mut counts);
        }
        before > 0
    }
}
