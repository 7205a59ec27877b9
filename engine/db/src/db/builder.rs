//! Builder of settings for opening a store.

use std::{path::Path, sync::Arc};

use testudo_base::{Result, merge_operator::MergeOperator};
use testudo_env::Env;
use testudo_options::{Durability, Settings};

use crate::Db;

/// Settings for opening a store, from [`Db::builder`]; each has a default.
#[derive(Clone, Debug)]
pub struct DbBuilder(pub(crate) Settings);

impl DbBuilder {
    pub(crate) fn new(directory: &Path) -> Self {
        Self(Settings::new(directory))
    }

    /// Sets the memory budget in bytes. It covers all memory of the store: write buffers, caches, log buffers
    /// and background work. Default 256 MiB, minimum 1 MiB.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.0.memory_bytes = bytes;
        self
    }

    /// Sets the default durability: that of single writes, and of batches that set none. A
    /// [`Batch`](crate::Batch::durability) can raise it, never lower it. [`Durability::Buffered`] unless set.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.0.durability = durability;
        self
    }

    /// Registers a merge operator in addition to the built-in [`MergeOperators`]. If two have the same name,
    /// the later one replaces the earlier. Keyspaces that name it use it from the opening on, also in
    /// background work. Without it their operands are kept, but [`Keyspace::merge`](crate::Keyspace::merge)
    /// and reads that meet operands fail.
    ///
    /// [`MergeOperators`]: testudo_base::merge_operator::MergeOperators
    #[must_use]
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        self.0.merge_operators.register(operator);
        self
    }

    /// Opens an existing store read-only, without writing a byte of it. Several processes may do so at once,
    /// but not while another has it open for writing. Log contents beyond the memory budget go to a temporary
    /// file in `TMPDIR`, `/var/tmp` or `/tmp` while the store is open.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.0.read_only = true;
        self
    }

    /// Sets whether a missing store is created, together with its directory and missing parent directories;
    /// all names are durable. Default `true`.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.0.create = create;
        self
    }

    /// Makes the store temporary: opening creates its directory, which must not exist while its parent must.
    /// Closing removes the store's files, and the directory if it is then empty. `Invalid` together with
    /// [`DbBuilder::read_only`] or `create(false)`.
    #[must_use]
    pub fn temporary(mut self) -> Self {
        self.0.temporary = true;
        self
    }

    /// Sets whether the store saves the set of cached pages and records, at close and at intervals before,
    /// and restores it during the first reads of the next opening. Default `true`. `false` neither saves nor
    /// restores; a read-only store never saves. The saved set is a hint: no answer depends on the file
    /// `hot-set`.
    #[must_use]
    pub fn warm_restart(mut self, warm_restart: bool) -> Self {
        self.0.warm_restart = warm_restart;
        self
    }

    /// Sets whether a merge keeps the pages in memory that replace pages used by queries, so that merges slow
    /// down reads less. Default `false`: the gain depends on the workload. Answers do not depend on it.
    #[must_use]
    pub fn warm_merges(mut self, warm_merges: bool) -> Self {
        self.0.warm_merges = warm_merges;
        self
    }

    /// Sets how much extra device space a Bε-tree may use for leaves and runs that were merged but that
    /// queries still find in memory, in percent of the tree's own bytes. Point reads are answered from their
    /// pages (LSbM §4, there for levels). They are dropped as soon as their pages leave memory or space is
    /// short. Default 0; more than 100 is treated as 100. Answers do not depend on it. An lsbm tree
    /// ([`Tree::lsbm`]) has its own percentage.
    ///
    /// [`Tree::lsbm`]: testudo_options::Tree::lsbm
    #[must_use]
    pub fn retain_merged(mut self, percent: u32) -> Self {
        self.0.retained_percent = percent.min(100);
        self
    }

    /// Creates a new store that stays marked as unfinished until the caller removes the mark.
    #[must_use]
    pub(crate) fn unfinished(mut self) -> Self {
        self.0.unfinished = true;
        self
    }

    /// Sets whether single records used by queries are cached in addition to pages. Default `true`: a record
    /// takes far less memory than its page. `false` leaves the memory to pages, to measure their effect.
    /// Answers do not depend on it.
    #[must_use]
    pub fn record_cache(mut self, record_cache: bool) -> Self {
        self.0.record_cache = record_cache;
        self
    }

    /// Sets the number of threads that merge for flushes and background jobs, and of the jobs that run at
    /// once; 1 to 64. Default: the number of cores, at least 2 and at most 8. A few more threads log, sync
    /// and schedule.
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.0.background_threads = Some(threads);
        self
    }

    /// Limits the bytes that background jobs read per second; default: no limit. See
    /// [`Background::set_bytes_per_second`](crate::Background::set_bytes_per_second).
    #[must_use]
    pub fn job_bytes_per_second(mut self, bytes: u64) -> Self {
        self.0.job_bytes_per_second = Some(bytes);
        self
    }

    /// Sets the operating system interface; for tests.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.0.env = env;
        self
    }

    /// Opens the store and recovers from a crash if necessary.
    ///
    /// Errors:
    ///
    /// - `Invalid`: the directory holds something else, or an unfinished copy or salvage; there is no store
    ///   and creation is disabled; a temporary store whose directory exists or whose other settings
    ///   contradict it; a budget below 1 MiB.
    /// - `Locked`: the store is already open.
    /// - `Unsupported`: a newer format.
    /// - `Corruption`, with file and offset: damage that a crash cannot explain.
    /// - `OutOfSpace`, `Io`: recovery cannot write or read. Opening can be retried.
    pub fn open(self) -> Result<Db> {
        Db::open_with(&self.0)
    }
}
