//! RocksDB as a benchmark subject, in four profiles: plain, with values in blob files, tuned, and with a log
//! that is written only when its buffer is full.
//!
//! **Invariants**
//! - A database is one map; no column families are used.

mod library;
mod options;
mod store;

use std::{path::Path, path::PathBuf, sync::Arc};

use testudo::{Error, Result};
use testudo_bench::{Readings, Records, Settings, Subject};

use options::{Options, Profile};
use store::Store;

/// RocksDB with the profile of number `PROFILE` ([`Profile::of`]).
pub(crate) struct RocksDb<const PROFILE: u8> {
    store: Arc<Store>,
    dir: PathBuf,
}

/// Checks that the library can be used; returns the reason if it cannot.
pub(crate) fn check() -> std::result::Result<(), String> {
    library::functions().map(|_| ())
}

impl<const PROFILE: u8> Subject for RocksDb<PROFILE> {
    type Records = RocksRecords;
    const NAME: &'static str = match Profile::of(PROFILE) {
        Profile::Plain => "rocksdb",
        Profile::Blobs => "blobdb",
        Profile::Tuned => "rocksdb-tuned",
        Profile::ManualWal => "rocksdb-manual-wal",
    };

    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        let functions = library::functions().map_err(Error::invalid)?;
        let options = Options::new(functions, Profile::of(PROFILE), settings.memory_bytes);
        let store = Store::open(functions, dir, options, settings.sync)?;
        Ok(Self { store: Arc::new(store), dir: dir.to_owned() })
    }

    fn kind(&self) -> String {
        "leveled".to_owned()
    }

    fn records(&self, name: &str) -> Result<RocksRecords> {
        if name != "ycsb-0" {
            return Err(Error::invalid(format!("{}: one keyspace only, not {name}", Self::NAME)));
        }
        Ok(RocksRecords(Arc::clone(&self.store)))
    }

    fn drop_records(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.store.flush()
    }

    fn readings(&self) -> Readings {
        Readings::of_process(&self.dir)
    }

    fn close(self) -> Result<()> {
        drop(self.store);
        Ok(())
    }
}

/// The records of a database.
pub(crate) struct RocksRecords(Arc<Store>);

impl Records for RocksRecords {
    #[inline]
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.0.delete(key)
    }

    #[inline]
    fn get<T>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        self.0.get(key, see)
    }

    fn multi_get(&self, keys: &[Vec<u8>], see: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.0.multi_get(keys, see)
    }

    fn scan(
        &self,
        first: &[u8],
        end: Option<&[u8]>,
        expected: Option<u64>,
        see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.0.scan(first, end, expected.is_none(), see)
    }
}
