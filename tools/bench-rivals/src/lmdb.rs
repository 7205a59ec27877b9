//! LMDB as a benchmark subject, through `heed`.
//!
//! Every insert is a transaction. Without `--sync` nothing is synced, like a log that is written but not
//! synced: an acknowledged write survives a process crash, but not a machine crash.
//!
//! **Invariants**
//! - The file is mapped for reading and written with ordinary write calls, so its pages count as page cache.
#![expect(unsafe_code, reason = "mapping a file is unsafe: no other process may change it")]

use std::{
    ops::Bound,
    path::{Path, PathBuf},
};

use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, types::Bytes};
use testudo::Result;
use testudo_bench::{Readings, Records, Settings, Subject};

use crate::failure::failed;

/// Size of the address space for the file, more than any run needs.
const MAP_BYTES: usize = 1 << 38;
const PLACE: &str = "lmdb";

/// An open environment.
pub(crate) struct Lmdb {
    env: Env,
    dir: PathBuf,
}

impl Subject for Lmdb {
    type Records = LmdbRecords;
    const NAME: &'static str = "lmdb";

    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        // LMDB's documentation: read-ahead is wasteful where the data is larger than memory.
        let mut flags = EnvFlags::NO_READ_AHEAD;
        if !settings.sync {
            flags |= EnvFlags::NO_SYNC;
        }
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_dbs(64);
        // SAFETY: without syncs a machine crash can corrupt the store; the run asks for exactly that.
        unsafe { options.flags(flags) };
        // SAFETY: the directory belongs to this run, which opens it once at a time.
        let env = unsafe { options.open(dir) }.map_err(failed(PLACE))?;
        Ok(Self { env, dir: dir.to_owned() })
    }

    fn kind(&self) -> String {
        "b+".to_owned()
    }

    fn records(&self, name: &str) -> Result<LmdbRecords> {
        let transaction = self.env.write_txn().map_err(failed(PLACE))?;
        let created = self.env.create_databases_and_commit(transaction, |env, transaction| {
            env.create_database::<Bytes, Bytes>(transaction, Some(name)).map(CommitOrAbort::<_, ()>::Commit)
        });
        let database = created.map_err(failed(PLACE))?.unwrap_commit();
        Ok(LmdbRecords { env: self.env.clone(), database })
    }

    fn drop_records(&self, name: &str) -> Result<()> {
        let records = self.records(name)?;
        let mut transaction = self.env.write_txn().map_err(failed(PLACE))?;
        records.database.clear(&mut transaction).map_err(failed(PLACE))?;
        transaction.commit().map_err(failed(PLACE)).map(|_| ())
    }

    fn flush(&self) -> Result<()> {
        self.env.force_sync().map_err(failed(PLACE))
    }

    fn readings(&self) -> Readings {
        Readings::of_process(&self.dir)
    }

    fn close(self) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

/// A named database.
pub(crate) struct LmdbRecords {
    env: Env,
    database: Database<'static, Bytes, Bytes>,
}

impl Records for LmdbRecords {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn().map_err(failed(PLACE))?;
        self.database.put(&mut transaction, key, value).map_err(failed(PLACE))?;
        transaction.commit().map_err(failed(PLACE)).map(|_| ())
    }

    fn insert_ordered(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.env.write_txn().map_err(failed(PLACE))?;
        for (key, value) in pairs {
            let put = self.database.put_with_flags(&mut transaction, PutFlags::APPEND, key, value);
            put.map_err(failed(PLACE))?;
        }
        transaction.commit().map_err(failed(PLACE)).map(|_| ())
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn().map_err(failed(PLACE))?;
        self.database.delete(&mut transaction, key).map_err(failed(PLACE))?;
        transaction.commit().map_err(failed(PLACE)).map(|_| ())
    }

    fn get<T>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        let transaction = self.env.read_txn().map_err(failed(PLACE))?;
        let found = self.database.get(&transaction, key).map_err(failed(PLACE))?;
        Ok(see(found))
    }

    fn multi_get(&self, keys: &[Vec<u8>], mut see: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let transaction = self.env.read_txn().map_err(failed(PLACE))?;
        for (index, key) in keys.iter().enumerate() {
            see(index, self.database.get(&transaction, key).map_err(failed(PLACE))?);
        }
        Ok(())
    }

    fn scan(
        &self,
        first: &[u8],
        end: Option<&[u8]>,
        _expected: Option<u64>,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let transaction = self.env.read_txn().map_err(failed(PLACE))?;
        // LMDB has no empty keys.
        let first = if first.is_empty() { Bound::Unbounded } else { Bound::Included(first) };
        let bounds = (first, end.map_or(Bound::Unbounded, Bound::Excluded));
        for entry in self.database.range(&transaction, &bounds).map_err(failed(PLACE))? {
            let (key, value) = entry.map_err(failed(PLACE))?;
            if !see(key, value) {
                break;
            }
        }
        Ok(())
    }
}
