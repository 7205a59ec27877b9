//! Interface of a store to the workloads, so that any store runs the same operations and checks.
//!
//! Testudo is one subject ([`testudo_subject`]); a package outside this workspace implements the
//! interface for its rivals. Calls are resolved at compile time, so the measured loop has no dispatch cost.
//!
//! **Invariants**
//! - Values are passed by reference; a store that can lend its bytes need not copy them.
//! - Counters are cumulative since the store was opened or since the process began; callers take differences.

pub(crate) mod scratch;
pub(crate) mod testudo_subject;

use std::{path::Path, sync::Arc};

use testudo::{Db, DbStats, Error, ErrorKind, Result};
use testudo_env::RealEnv;

use crate::{Context, StoreArgs, measure::process};

/// Settings that a store is opened with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Memory budget of the store, write buffers and caches together.
    pub memory_bytes: u64,
    /// Every write is durable before it is acknowledged.
    pub sync: bool,
    /// Number of threads that will use the store.
    pub threads: usize,
    /// Kind of tree, for stores with several.
    pub tree: String,
    /// Size of a full leaf, where there are leaves; `None` for the tree's default.
    pub leaf_bytes: Option<u64>,
    /// Value placement, for stores with several; `None` for the default of the tree.
    pub placement: Option<testudo::Placement>,
    /// Whether the hot set is saved at closing and restored at opening, where supported.
    pub warm_restart: bool,
    /// Whether merge output that replaces pages in use stays in memory, where supported.
    pub warm_merges: bool,
    /// Maximum size of retained merged runs, as a percentage of a Bε-tree's bytes, where supported.
    pub retain_merged: u32,
    /// Whether single records are cached in addition to pages, where supported.
    pub record_cache: bool,
    /// The machine.
    pub env: Arc<RealEnv>,
}

impl Settings {
    /// Settings of the store that these flags describe, without synced writes; the rest as applications have
    /// it.
    pub(crate) fn of(args: &StoreArgs, threads: usize, context: &Context) -> Self {
        Self {
            memory_bytes: args.memory,
            sync: false,
            threads,
            tree: args.tree.clone(),
            leaf_bytes: args.leaf_bytes,
            placement: args.placement,
            warm_restart: true,
            warm_merges: false,
            retain_merged: 0,
            record_cache: true,
            env: context.env.clone(),
        }
    }

    /// Settings of a store of an experiment, without synced writes and without a saved hot set.
    pub(crate) fn of_experiment(memory_bytes: u64, threads: usize, tree: &str, context: &Context) -> Self {
        Self {
            memory_bytes,
            sync: false,
            threads,
            tree: tree.to_owned(),
            leaf_bytes: None,
            placement: None,
            warm_restart: false,
            warm_merges: false,
            retain_merged: 0,
            record_cache: true,
            env: context.env.clone(),
        }
    }
}

/// A store under measurement.
pub trait Subject: Sized + Sync {
    /// One of its ordered maps.
    type Records: Records;
    /// Name in results.
    const NAME: &'static str;

    /// Opens the store in `dir`, an existing directory; creates the store if it does not exist.
    ///
    /// # Errors
    /// Errors of the store.
    fn open(dir: &Path, settings: &Settings) -> Result<Self>;

    /// Returns the version or kind of tree, for results.
    fn kind(&self) -> String;

    /// Opens the map called `name`, or creates it.
    ///
    /// # Errors
    /// Errors of the store; `Invalid` if it has no room for another map.
    fn records(&self, name: &str) -> Result<Self::Records>;

    /// Opens or creates the maps with these names, with the store's method for many.
    ///
    /// # Errors
    /// As [`Subject::records`].
    fn many_records(&self, names: &[String]) -> Result<Vec<Self::Records>> {
        names.iter().map(|name| self.records(name)).collect()
    }

    /// Removes the map called `name`, if it exists.
    ///
    /// # Errors
    /// Errors of the store.
    fn drop_records(&self, name: &str) -> Result<()>;

    /// Starts writing everything written so far to its final place.
    ///
    /// # Errors
    /// Errors of the store.
    fn flush(&self) -> Result<()>;

    /// Returns the current measurements.
    fn readings(&self) -> Readings;

    /// Closes the store; all its maps have been dropped by now.
    ///
    /// # Errors
    /// Errors of the store.
    fn close(self) -> Result<()>;

    /// Returns the store as a Testudo store, if it is one.
    fn testudo(&self) -> Option<&Db> {
        None
    }
}

/// An ordered map of a store.
pub trait Records: Send + Sync {
    /// Writes one record.
    ///
    /// # Errors
    /// Errors of the store.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes new records in key order, with the store's fastest method.
    ///
    /// # Errors
    /// Errors of the store.
    fn insert_ordered(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        pairs.iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Removes one record.
    ///
    /// # Errors
    /// Errors of the store; `Unsupported` if removal is not implemented for this store.
    fn remove(&self, _key: &[u8]) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "removal is not implemented for this store"))
    }

    /// Passes the value of `key` to `see`, if there is one.
    ///
    /// # Errors
    /// Errors of the store.
    fn get<T>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T>;

    /// Passes the values of all `keys` to `see`, each with its index, in order.
    ///
    /// # Errors
    /// Errors of the store.
    fn multi_get(&self, keys: &[Vec<u8>], see: impl FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// Returns the current tree of the map, for stores with several trees.
    fn tree(&self) -> Option<String> {
        None
    }

    /// Moves the map to another tree, online.
    ///
    /// # Errors
    /// Errors of the store; `Invalid` if it has only one tree.
    fn set_tree(&self, _tree: &str) -> Result<()> {
        Err(Error::invalid("this store has no choice of trees"))
    }

    /// Whether the map is still moving to the tree that was set.
    fn is_moving(&self) -> bool {
        false
    }

    /// Returns the page counts of the map, if its tree replaces single pages.
    fn page_counts(&self) -> Option<PageCounts> {
        None
    }

    /// Passes the records from `first` (inclusive) to `end` (exclusive) to `see`, in order, until it returns
    /// false. `expected` is an upper bound on the number of records, roughly; `None` is all.
    ///
    /// # Errors
    /// Errors of the store.
    fn scan(
        &self,
        first: &[u8],
        end: Option<&[u8]>,
        expected: Option<u64>,
        see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;
}

/// Pages of a map whose tree replaces single pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Pages that were replaced since their run was written.
    pub replaced: u64,
    /// Overflow pages of replaced pages.
    pub overflow: u64,
    /// Bytes of index pages.
    pub index_bytes: u64,
    /// Bytes of records that cannot be updated page by page.
    pub continued_bytes: u64,
    /// Work since the store was opened.
    pub work: PageWork,
}

/// Work of a tree that replaces single pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageWork {
    /// Pages that were replaced.
    pub replaced: u64,
    /// Those that needed an overflow page.
    pub overflowed: u64,
    /// Pages that were joined with others.
    pub joined: u64,
    /// Groups of pages that were moved to be near each other.
    pub moved_groups: u64,
    /// New keys that came into pages.
    pub inserts: u64,
    /// Those on pages that needed no overflow page for them.
    pub forecast_hits: u64,
    /// Runs with few incoming records that were rewritten instead.
    pub rewritten_runs: u64,
    /// Flushes straight into pages.
    pub direct_flushes: u64,
}

impl PageCounts {
    /// Returns the sums of two maps.
    pub(crate) fn plus(mut self, more: Self) -> Self {
        self.replaced += more.replaced;
        self.overflow += more.overflow;
        self.index_bytes += more.index_bytes;
        self.continued_bytes += more.continued_bytes;
        self.work.add(more.work);
        self
    }
}

impl PageWork {
    /// Adds the work of another map.
    fn add(&mut self, more: Self) {
        self.replaced += more.replaced;
        self.overflowed += more.overflowed;
        self.joined += more.joined;
        self.moved_groups += more.moved_groups;
        self.inserts += more.inserts;
        self.forecast_hits += more.forecast_hits;
        self.rewritten_runs += more.rewritten_runs;
        self.direct_flushes += more.direct_flushes;
    }

    /// Returns the work since `before`; all of it if the store was opened again since then.
    pub(crate) fn since(self, before: Self) -> Self {
        let is_later = self.replaced >= before.replaced
            && self.overflowed >= before.overflowed
            && self.joined >= before.joined
            && self.moved_groups >= before.moved_groups
            && self.inserts >= before.inserts
            && self.forecast_hits >= before.forecast_hits
            && self.rewritten_runs >= before.rewritten_runs
            && self.direct_flushes >= before.direct_flushes;
        if !is_later {
            return self;
        }
        Self {
            replaced: self.replaced - before.replaced,
            overflowed: self.overflowed - before.overflowed,
            joined: self.joined - before.joined,
            moved_groups: self.moved_groups - before.moved_groups,
            inserts: self.inserts - before.inserts,
            forecast_hits: self.forecast_hits - before.forecast_hits,
            rewritten_runs: self.rewritten_runs - before.rewritten_runs,
            direct_flushes: self.direct_flushes - before.direct_flushes,
        }
    }
}

/// Measurements of a store; those it does not support are zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings {
    /// Bytes written to the device.
    pub device_bytes_written: u64,
    /// Bytes read from the device.
    pub device_bytes_read: u64,
    /// Disk space of the files, in bytes.
    pub disk_bytes: u64,
    /// Part of `disk_bytes` that is not free.
    pub live_bytes: u64,
    /// Reads of pages for queries.
    pub page_reads: u64,
    /// Reads of larger units.
    pub stream_reads: u64,
    /// Lookups that found their page in the cache.
    pub cache_hits: u64,
    /// Lookups that did not.
    pub cache_misses: u64,
    /// Part of the written bytes that went to the log.
    pub wal_bytes_written: u64,
    /// Flushes, checkpoints or other writes of full write buffers.
    pub flushes: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Time that writers were throttled, in microseconds.
    pub throttled_micros: u64,
    /// Background jobs of trees.
    pub jobs: u64,
    /// Bytes read and written by the largest job since the store was opened.
    pub job_bytes_max: u64,
    /// Limit of these bytes.
    pub job_bytes_limit: u64,
}

impl Readings {
    /// Returns what the operating system reports for any store: device I/O of the process, and the disk space
    /// of the files below `dir`.
    pub fn of_process(dir: &Path) -> Self {
        let (io, disk_bytes) = (process::io(), process::disk_bytes(dir));
        Self {
            device_bytes_written: io.map_or(0, |io| io.write_bytes),
            device_bytes_read: io.map_or(0, |io| io.read_bytes),
            disk_bytes,
            live_bytes: disk_bytes,
            ..Self::default()
        }
    }
}

impl From<&DbStats> for Readings {
    fn from(stats: &DbStats) -> Self {
        Self {
            device_bytes_written: stats.io.bytes_written,
            device_bytes_read: stats.io.bytes_read,
            disk_bytes: stats.space.disk_bytes,
            live_bytes: stats.space.live_bytes,
            page_reads: stats.io.page_reads,
            stream_reads: stats.io.stream_reads,
            cache_hits: stats.page_cache.hits,
            cache_misses: stats.page_cache.misses,
            wal_bytes_written: stats.io.wal_bytes_written,
            flushes: stats.flush.count,
            syncs: stats.log.syncs,
            throttled_micros: stats.stalls.throttled_micros,
            jobs: stats.jobs.count,
            job_bytes_max: stats.jobs.max_bytes,
            job_bytes_limit: stats.jobs.bytes_limit,
        }
    }
}
