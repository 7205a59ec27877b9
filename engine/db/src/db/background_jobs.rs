//! The handle to limit, pause and watch the background jobs of an open store.
//!
//! **Invariants**
//! - No setting changes an answer or a file format.
//! - Jobs that a flush waits for run even while paused or over the limit: writers wait for that flush.

use std::mem;

use testudo_base::sync::Arc;
use testudo_store::{Store, background::jobs_in_progress::InProgress};

use crate::Db;

/// The background jobs of an open store, from [`Db::background`]. Settings are not persisted: they end when
/// the store is closed.
#[derive(Clone, Debug)]
pub struct Background {
    store: Arc<Store>,
}

/// A background job in progress, from [`Background::jobs`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackgroundJob {
    /// Name of the keyspace.
    pub keyspace: String,
    /// Description of the job.
    pub what: &'static str,
    /// Bytes of entries that it has merged.
    pub done_bytes: u64,
    /// Bytes of entries that it merges in total, as far as known.
    pub total_bytes: u64,
    /// Upper bound on the bytes that it reads, and on those that it writes.
    pub bytes_max: u64,
}

impl BackgroundJob {
    fn of(job: &InProgress) -> Self {
        let (done_bytes, total_bytes) = job.progress.state();
        let (keyspace, what, bytes_max) = (job.name.to_string(), job.what, job.bytes_max);
        Self { keyspace, what, done_bytes, total_bytes, bytes_max }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.store.is_forked() {
            mem::forget(Arc::clone(&self.store));
        }
    }
}

impl Background {
    pub(crate) fn of(db: &Db) -> Self {
        Self { store: Arc::clone(db.store()) }
    }

    /// Stops beginning jobs until [`Background::resume`]; those in progress end. Flushes continue, as do jobs
    /// that a flush waits for because the tree is too far behind, and those of [`Db::compact`] and
    /// [`Keyspace::compact_range`](crate::Keyspace::compact_range). Meanwhile reads search more runs, and
    /// space of overwritten entries is not released.
    pub fn pause(&self) {
        self.store.background.limits.set_paused(true);
    }

    /// Begins jobs again.
    pub fn resume(&self) {
        self.store.background.limits.set_paused(false);
        self.store.background.job_wakeup.wake();
    }

    /// Whether jobs are paused.
    pub fn is_paused(&self) -> bool {
        self.store.background.limits.is_paused()
    }

    /// Limits the bytes that jobs read per second; they write about as much. `None` removes the limit. It is
    /// kept on average: after a job, the next one waits until its bytes are paid for. With a limit, jobs are
    /// smaller. Jobs that a flush waits for count, but do not wait.
    pub fn set_bytes_per_second(&self, bytes: Option<u64>) {
        self.store.background.limits.set_bytes_per_second(bytes);
        self.store.background.job_wakeup.wake();
    }

    /// The limit of [`Background::set_bytes_per_second`].
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.store.background.limits.bytes_per_second()
    }

    /// The jobs in progress, in the order in which they began; none in a forked child.
    pub fn jobs(&self) -> Vec<BackgroundJob> {
        if self.store.is_forked() {
            return Vec::new();
        }
        self.store.background.jobs.all().iter().map(BackgroundJob::of).collect()
    }
}
