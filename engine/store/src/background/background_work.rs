//! Executors, wakeups and prepared jobs of background work.
//!
//! **Invariants**
//! - Prepared jobs are installed by the holder of `flush_lock`. No thread waits for that lock with one: it
//!   leaves the job here and goes on.

use testudo_base::{
    KeyspaceId,
    sync::{Arc, Condvar, Mutex, atomic::AtomicU32},
};
use testudo_contract::Executor;

use crate::background::{
    executor::Executors,
    job_limits::JobLimits,
    jobs_in_progress::{JobsInProgress, PreparedJob},
};

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
    pub jobs: Arc<JobsInProgress>,
    pub limits: JobLimits,
    /// Prepared jobs that wait to be installed, oldest first.
    prepared: Mutex<Vec<PreparedJob>>,
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
            limits: JobLimits::default(),
            prepared: Mutex::default(),
        }
    }

    /// Leaves a prepared job to the next holder of `flush_lock`.
    pub fn hand_in(&self, job: PreparedJob) {
        self.prepared.lock().push(job);
        self.jobs.note_prepared();
    }

    /// Waits until a job of the keyspace has ended, or a prepared job waits to be installed; returns at once
    /// if no job of it is in progress.
    pub fn wait_for_job_of(&self, keyspace: KeyspaceId) {
        self.jobs.wait_for_one_of(keyspace, || self.prepared_jobs() > 0);
    }

    /// Number of prepared jobs that wait to be installed.
    pub fn prepared_jobs(&self) -> usize {
        self.prepared.lock().len()
    }

    /// Takes the prepared job at this place, counted round and round; `None` if there are none.
    pub fn take_prepared(&self, place: usize) -> Option<PreparedJob> {
        let mut prepared = self.prepared.lock();
        let place = place.checked_rem(prepared.len())?;
        Some(prepared.remove(place))
    }

    /// Drops all prepared jobs: their space is released.
    pub fn drop_prepared(&self) {
        let prepared = std::mem::take(&mut *self.prepared.lock());
        drop(prepared);
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
