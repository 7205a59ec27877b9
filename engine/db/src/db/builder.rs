//! How a store is opened.

use std::{path::Path, sync::Arc};

use testudo_base::{Result, merge_operator::MergeOperator};
use testudo_env::Env;
use testudo_options::{Durability, Settings};

use crate::Db;

/// Settings of [`Db::builder`]; every one has a default.
#[derive(Clone, Debug)]
pub struct DbBuilder(Settings);

impl DbBuilder {
    pub(crate) fn new(directory: &Path) -> Self {
        Self(Settings::new(directory))
    }

    /// Everything that the store may hold in memory, in bytes: write buffers, caches, log buffers and what
    /// background work needs. Default 256 MiB, least 1 MiB.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.0.memory_bytes = bytes;
        self
    }

    /// The durability of writes, at least; a [`Batch`](crate::Batch::durability) can ask for more, never for
    /// less. Default [`Durability::Buffered`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.0.durability = durability;
        self
    }

    /// Makes a merge operator known, beside the built-in ones of [`MergeOperators`](testudo_base::merge_operator::MergeOperators);
    /// of two with one name the later counts. Keyspaces that state its name use it from the opening on, in
    /// the background too. Without it their operands are kept, but
    /// [`Keyspace::merge`](crate::Keyspace::merge) and reads that meet operands fail.
    #[must_use]
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        self.0.merge_operators.register(operator);
        self
    }

    /// Opens an existing store without writing a byte of it; several readers may do so at once, but no
    /// writer beside them. What the log holds beyond the memory budget is kept in a temporary file, in
    /// `TMPDIR`, `/var/tmp` or `/tmp`, for as long as the store is open.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.0.read_only = true;
        self
    }

    /// Whether a store is created where there is none, with its directory and those above that do not exist,
    /// all with durable names. Default `true`.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.0.create = create;
        self
    }

    /// A store that makes its directory, which must not exist (the one above must), and goes when it is
    /// closed: the files of the store, and the directory if nothing else is in it. `Invalid` together with
    /// [`DbBuilder::read_only`] or `create(false)`.
    #[must_use]
    pub fn temporary(mut self) -> Self {
        self.0.temporary = true;
        self
    }

    /// Whether the store notes what its caches hold when it is closed, and now and then before, and reads it
    /// back beside the first reads of the next opening. Default `true`. `false` neither notes nor reads
    /// anything; a store that is open for reading only notes nothing. What is noted is a hint: whatever
    /// becomes of the file `hot-set`, no answer depends on it.
    #[must_use]
    pub fn warm_restart(mut self, warm_restart: bool) -> Self {
        self.0.warm_restart = warm_restart;
        self
    }

    /// Whether what a merge writes in the place of pages that queries use stays in memory, as those did, so
    /// that merges cost reads less. Default `false`: whether it pays depends on the load. It changes no
    /// answer.
    #[must_use]
    pub fn warm_merges(mut self, warm_merges: bool) -> Self {
        self.0.warm_merges = warm_merges;
        self
    }

    /// How much of its bytes on the device a Bε-tree may take beside, in hundredths, for leaves and runs
    /// that were merged but that queries still find in memory: point reads are answered out of their pages
    /// (LSbM §4, there for levels). Default 0. They are given up as soon as their pages are not in memory,
    /// or space is short. More than 100 is taken for 100. It changes no answer. [`Tree::lsbm`] has it by
    /// itself.
    ///
    /// [`Tree::lsbm`]: testudo_options::Tree::lsbm
    #[must_use]
    pub fn retain_merged(mut self, percent: u32) -> Self {
        self.0.retained_percent = percent.min(100);
        self
    }

    /// Whether small runs have index and filter in pages of their own, as large ones do. For tests: their
    /// stores are small. It changes no answer.
    #[doc(hidden)]
    #[must_use]
    pub fn small_runs_apart(mut self, small_runs_apart: bool) -> Self {
        self.0.small_runs_apart = small_runs_apart;
        self
    }

    /// Makes a new store that stays marked as unfinished until somebody removes the mark.
    #[must_use]
    pub(crate) fn unfinished(mut self) -> Self {
        self.0.unfinished = true;
        self
    }

    /// Whether single records that queries use stay in memory beside pages. Default `true`: a record takes
    /// far less of it than its page. `false` leaves the memory to pages, to measure what those do. It changes
    /// no answer.
    #[must_use]
    pub fn record_cache(mut self, record_cache: bool) -> Self {
        self.0.record_cache = record_cache;
        self
    }

    /// The operating system to use; for tests.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.0.env = env;
        self
    }

    /// Opens the store, after recovering what a crash may have left.
    ///
    /// Errors:
    ///
    /// - `Invalid`: the directory is something else, or a copy or salvage that was not finished; it holds no
    ///   store, and none may be created; a temporary store whose directory exists, or that contradicts other
    ///   settings; a budget below 1 MiB.
    /// - `Locked`: the store is open elsewhere.
    /// - `Unsupported`: a newer format.
    /// - `Corruption`, with file and offset: damage that recovery cannot explain by a crash.
    /// - `OutOfSpace`, `Io`: what recovery has to write or read. It can be repeated.
    pub fn open(self) -> Result<Db> {
        Db::open_with(&self.0)
    }
}
