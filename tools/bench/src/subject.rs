//! What a workload needs of a store, so that the same operations and checks can be asked of any.
//!
//! Testudo is one subject ([`crate::subject::testudo`]); a package outside this workspace makes its rivals
//! others. Calls are resolved at compile time: the loop that measures pays nothing for the choice.
//!
//! **Invariants**
//! - A value is shown where it lies; a store that can lend its bytes is not made to copy them.
//! - Every reading is a count since the store was opened or since the process began; differences are taken.

pub(crate) mod scratch;
pub(crate) mod testudo_subject;

use std::{path::Path, sync::Arc};

use testudo::{Db, DbStats, Error, ErrorKind, Result};
use testudo_env::RealEnv;

use crate::measure::process;

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes that the store may use, write buffers and caches together.
    pub memory_bytes: u64,
    /// Every write is durable before it is acknowledged.
    pub sync: bool,
    /// Threads that will use it.
    pub threads: usize,
    /// Kind of tree, where there is a choice.
    pub tree: String,
    /// Bytes of a full leaf, where there are leaves and the choice is not left to the tree.
    pub leaf_bytes: Option<u64>,
    /// Where values are put, where there is a choice and it is not left to the kind of tree.
    pub placement: Option<testudo::Placement>,
    /// What is hot when it is closed is read back when it is opened, where a store can do that.
    pub warm_restart: bool,
    /// What merges write in the place of pages in use stays in memory, where a store can do that.
    pub warm_merges: bool,
    /// Hundredths of a Bε-tree's bytes that merged runs may take beside it, where a store can do that.
    pub retain_merged: u32,
    /// Single records are cached beside pages, where a store can do that.
    pub record_cache: bool,
    /// The machine.
    pub env: Arc<RealEnv>,
}

/// A store under measurement.
pub trait Subject: Sized + Sync {
    /// One of its ordered maps.
    type Records: Records;
    /// Name in results.
    const NAME: &'static str;

    /// Opens the store in `dir`, an existing directory; creates it if nothing is there.
    ///
    /// # Errors
    /// What the store says.
    fn open(dir: &Path, settings: &Settings) -> Result<Self>;

    /// Version or kind of tree, for results.
    fn kind(&self) -> String;

    /// Opens the map called `name`, or creates it.
    ///
    /// # Errors
    /// What the store says; `Invalid` if it has no room for one more.
    fn records(&self, name: &str) -> Result<Self::Records>;

    /// Opens or creates the maps with these names, in the store's way for many.
    ///
    /// # Errors
    /// As [`Subject::records`].
    fn many_records(&self, names: &[String]) -> Result<Vec<Self::Records>> {
        names.iter().map(|name| self.records(name)).collect()
    }

    /// Removes the map called `name`, if it is there.
    ///
    /// # Errors
    /// What the store says.
    fn drop_records(&self, name: &str) -> Result<()>;

    /// Begins to bring everything written so far to where it shall stay.
    ///
    /// # Errors
    /// What the store says.
    fn flush(&self) -> Result<()>;

    /// The present measurements.
    fn readings(&self) -> Readings;

    /// Closes the store; all its maps are gone by now.
    ///
    /// # Errors
    /// What the store says.
    fn close(self) -> Result<()>;

    /// The store as a Testudo store, if it is one.
    fn testudo(&self) -> Option<&Db> {
        None
    }
}

/// An ordered map of a store.
pub trait Records: Send + Sync {
    /// Writes one record.
    ///
    /// # Errors
    /// What the store says.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes new records in the order of their keys, in the fastest way that the store has.
    ///
    /// # Errors
    /// What the store says.
    fn insert_ordered(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        pairs.iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Removes one record.
    ///
    /// # Errors
    /// What the store says; `Unsupported` where this program does not know how the store removes.
    fn remove(&self, _key: &[u8]) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "removing is not measured with this store"))
    }

    /// Shows the value of `key`, if there is one.
    ///
    /// # Errors
    /// What the store says.
    fn get<T>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T>;

    /// Shows the values of all `keys`, each with its index, in order.
    ///
    /// # Errors
    /// What the store says.
    fn multi_get(&self, keys: &[Vec<u8>], see: impl FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// The tree that it is stored in, where there is a choice.
    fn tree(&self) -> Option<String> {
        None
    }

    /// Stores it in another tree from now on, while it is in use.
    ///
    /// # Errors
    /// What the store says; `Invalid` if there is no choice.
    fn set_tree(&self, _tree: &str) -> Result<()> {
        Err(Error::invalid("this store has no choice of trees"))
    }

    /// Whether it is still on its way to the tree that was set.
    fn is_moving(&self) -> bool {
        false
    }

    /// Shows the records from `first` on and below `end`, in order, until `see` says that it has enough. At
    /// most about `expected` will be asked for; `None` is all.
    ///
    /// # Errors
    /// What the store says.
    fn scan(
        &self,
        first: &[u8],
        end: Option<&[u8]>,
        expected: Option<u64>,
        see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;
}

/// Measurements of a store; those that it does not have are zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings {
    /// Bytes written to the device.
    pub device_bytes_written: u64,
    /// Bytes read from it.
    pub device_bytes_read: u64,
    /// Bytes that the files occupy.
    pub disk_bytes: u64,
    /// Bytes of these that are not free.
    pub live_bytes: u64,
    /// Reads of pages for queries.
    pub page_reads: u64,
    /// Reads of larger pieces.
    pub stream_reads: u64,
    /// Look-ups that found their page in the cache.
    pub cache_hits: u64,
    /// Look-ups that did not.
    pub cache_misses: u64,
    /// Bytes of those written that went to the log.
    pub wal_bytes_written: u64,
    /// Checkpoints, or what else writes full write buffers.
    pub flushes: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Time that writers rested, in microseconds.
    pub throttled_micros: u64,
}

impl Readings {
    /// What the operating system knows of any store: device I/O of the process, and room that the files below
    /// `dir` occupy.
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
            device_bytes_written: stats.device_bytes_written,
            device_bytes_read: stats.device_bytes_read,
            disk_bytes: stats.disk_bytes,
            live_bytes: stats.live_bytes,
            page_reads: stats.page_reads,
            stream_reads: stats.stream_reads,
            cache_hits: stats.cache_hits,
            cache_misses: stats.cache_misses,
            wal_bytes_written: stats.wal_bytes_written,
            flushes: stats.flushes,
            syncs: stats.wal_syncs,
            throttled_micros: stats.throttled_micros,
        }
    }
}
