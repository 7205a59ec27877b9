//! The jobs in progress: those that have begun and are neither installed nor dropped.
//!
//! A keyspace has several jobs at once if their scopes do not overlap. The scopes are listed before the state
//! is loaded from which a job is picked, and compared again when it begins. So a job that ends in between is
//! either in the list or in the state.
//!
//! **Invariants**
//! - Scopes of jobs of one keyspace do not overlap.
//! - A job refers to this list, never the other way round: a store that is dropped between the two halves of
//!   a job is freed with it.
//! - While a keyspace is reserved, only the holder of the reservation begins jobs of it.

use std::collections::BTreeMap;

use testudo_base::{
    KeyspaceId, planted,
    sync::{Arc, Condvar, Mutex, scaled},
};
use testudo_contract::{Job, Prepared, Progress, Scope};

use crate::keyspace::KeyspaceCore;

/// Maximum number of jobs of one keyspace in progress.
pub const JOBS_OF_KEYSPACE: usize = scaled(4, 2);

/// A job in progress.
#[derive(Clone, Debug)]
pub struct InProgress {
    keyspace: KeyspaceId,
    /// Name of its keyspace.
    pub name: Arc<str>,
    /// Description of the job.
    pub what: &'static str,
    scope: Scope,
    pub progress: Arc<Progress>,
    /// Upper bound on the bytes that it reads, and on those that it writes.
    pub bytes_max: u64,
}

#[derive(Debug, Default)]
struct Jobs {
    /// By number, in the order in which they began.
    jobs: BTreeMap<u64, InProgress>,
    /// Number of the next job.
    next: u64,
    /// Keyspaces whose next job waits for all others to end, once for each waiter.
    reserved: Vec<KeyspaceId>,
    /// Number of jobs that write, concurrently with flushes.
    preparing: usize,
}

impl Jobs {
    fn of(&self, keyspace: KeyspaceId) -> impl Iterator<Item = &InProgress> {
        self.jobs.values().filter(move |job| job.keyspace == keyspace)
    }
}

/// The jobs in progress.
#[derive(Debug, Default)]
pub struct JobsInProgress {
    jobs: Mutex<Jobs>,
    /// Signaled when a job has ended or is prepared.
    changed: Condvar,
}

/// A job that has begun; dropping it ends the job.
#[derive(Debug)]
pub struct BegunJob {
    pub keyspace: Arc<KeyspaceCore>,
    /// Its progress, and the entries it has dropped.
    pub progress: Arc<Progress>,
    /// As of [`InProgress`].
    pub bytes_max: u64,
    number: u64,
    jobs: Arc<JobsInProgress>,
}

impl Drop for BegunJob {
    fn drop(&mut self) {
        self.jobs.jobs.lock().jobs.remove(&self.number);
        self.jobs.changed.notify_all();
    }
}

/// A job whose first half is done.
#[derive(Debug)]
pub struct PreparedJob {
    // Dropped first: its space is free before the job ends.
    pub prepared: Prepared,
    pub begun: BegunJob,
}

/// A job that writes concurrently with flushes.
pub struct Preparing<'a>(&'a JobsInProgress);

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.0.jobs.lock().preparing -= 1;
        self.0.changed.notify_all();
    }
}

/// A keyspace that is kept for one caller.
#[derive(Debug)]
pub struct Reservation<'a> {
    jobs: &'a JobsInProgress,
    keyspace: KeyspaceId,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut jobs = self.jobs.jobs.lock();
        let at = jobs.reserved.iter().position(|keyspace| *keyspace == self.keyspace);
        debug_assert!(at.is_some(), "a reservation ends once");
        at.map(|at| jobs.reserved.swap_remove(at));
    }
}

impl JobsInProgress {
    /// Returns the scopes of a keyspace's jobs; `None` if no further one may begin. `reservation`: of the
    /// caller, if it has one.
    pub fn busy(&self, keyspace: KeyspaceId, reservation: Option<&Reservation<'_>>) -> Option<Vec<Scope>> {
        let jobs = self.jobs.lock();
        let is_reserved = reservation.is_none() && jobs.reserved.contains(&keyspace);
        let busy: Vec<Scope> = jobs.of(keyspace).map(|job| job.scope.clone()).collect();
        let has_room = !is_reserved && busy.len() < JOBS_OF_KEYSPACE;
        has_room.then(|| if planted!("jobs-that-touch-begun") { Vec::new() } else { busy })
    }

    /// Begins a job of a tree with this bound, unless one has begun since [`JobsInProgress::busy`] that it
    /// overlaps.
    pub fn begin(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceCore>,
        job: &Job,
        bytes_max: u64,
        reservation: Option<&Reservation<'_>>,
    ) -> Option<BegunJob> {
        let mut jobs = self.jobs.lock();
        let is_reserved = reservation.is_none() && jobs.reserved.contains(&keyspace.id);
        let overlaps = jobs.of(keyspace.id).any(|other| other.scope.overlaps(&job.scope));
        if is_reserved || (overlaps && !planted!("jobs-that-touch-begun")) {
            return None;
        }
        debug_assert!(!overlaps, "jobs in progress do not overlap");
        let progress: Arc<Progress> = Arc::default();
        let number = jobs.next;
        jobs.next += 1;
        let (what, scope) = (job.what, job.scope.clone());
        let shared = Arc::clone(&progress);
        let (id, name) = (keyspace.id, Arc::clone(&keyspace.name));
        let in_progress = InProgress { keyspace: id, name, what, scope, progress: shared, bytes_max };
        let before = jobs.jobs.insert(number, in_progress);
        debug_assert!(before.is_none(), "a job has a number of its own");
        Some(BegunJob { keyspace: Arc::clone(keyspace), progress, bytes_max, number, jobs: Arc::clone(self) })
    }

    /// Keeps other callers from beginning jobs of a keyspace, until the returned guard is dropped.
    pub fn reserve(&self, keyspace: KeyspaceId) -> Reservation<'_> {
        self.jobs.lock().reserved.push(keyspace);
        Reservation { jobs: self, keyspace }
    }

    /// All jobs, in the order in which they began.
    pub fn all(&self) -> Vec<InProgress> {
        self.jobs.lock().jobs.values().cloned().collect()
    }

    /// Progress of the jobs of a keyspace.
    pub fn of(&self, keyspace: KeyspaceId) -> Vec<Arc<Progress>> {
        self.jobs.lock().of(keyspace).map(|job| Arc::clone(&job.progress)).collect()
    }

    /// Marks that a job writes, until the returned guard is dropped.
    pub fn begin_preparing(&self) -> Preparing<'_> {
        self.jobs.lock().preparing += 1;
        Preparing(self)
    }

    /// Waits until no job writes. Jobs that begin later see state set before the call.
    pub fn wait_until_none_prepares(&self) {
        let mut jobs = self.jobs.lock();
        while jobs.preparing > 0 {
            self.changed.wait(&mut jobs);
        }
    }

    pub fn is_any_in_progress(&self) -> bool {
        !self.jobs.lock().jobs.is_empty()
    }

    /// Waits until a job of the keyspace has ended, or `is_over`; returns at once if none is in progress.
    pub fn wait_for_one_of(&self, keyspace: KeyspaceId, is_over: impl Fn() -> bool) {
        let mut jobs = self.jobs.lock();
        let present: Vec<u64> =
            jobs.jobs.iter().filter(|(_, job)| job.keyspace == keyspace).map(|(number, _)| *number).collect();
        while !present.is_empty() && !is_over() && present.iter().all(|number| jobs.jobs.contains_key(number))
        {
            self.changed.wait(&mut jobs);
        }
    }

    /// Signals that a job is prepared.
    pub fn note_prepared(&self) {
        let _jobs = self.jobs.lock();
        self.changed.notify_all();
    }
}
