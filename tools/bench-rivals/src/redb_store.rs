//! redb as a benchmark subject.
//!
//! Every insert is a transaction. Without `--sync` a commit is durable only if the last durable commit is at
//! least half a second old. This bounds both the loss in a crash and the pages that redb cannot reuse yet.
//!
//! **Invariants**
//! - The cache gets [`CACHE_SHARE`] of the memory; the rest is for the page cache and the pages of commits in
//!   flight.

use std::{
    ops::Bound,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};
use testudo::{Error, Result};
use testudo_bench::{Readings, Records, Settings, Subject};
use testudo_env::{Env, RealEnv};

use crate::failure::failed;

const PLACE: &str = "redb";
const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("ycsb-0");
/// Cache share of the memory, in percent.
const CACHE_SHARE: u64 = 60;
const SYNC_INTERVAL: Duration = Duration::from_millis(500);

/// An open database.
pub(crate) struct Redb {
    db: Arc<Database>,
    is_synced: bool,
    env: Arc<RealEnv>,
    dir: PathBuf,
}

impl Subject for Redb {
    type Records = RedbRecords;
    const NAME: &'static str = "redb";

    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        let cache_bytes = settings.memory_bytes / 100 * CACHE_SHARE;
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(cache_bytes).unwrap_or(usize::MAX));
        let db = builder.create(dir.join("data.redb")).map_err(failed(PLACE))?;
        let env = Arc::clone(&settings.env);
        Ok(Self { db: Arc::new(db), is_synced: settings.sync, env, dir: dir.to_owned() })
    }

    fn kind(&self) -> String {
        "copy-on-write b".to_owned()
    }

    fn records(&self, name: &str) -> Result<RedbRecords> {
        if name != "ycsb-0" {
            return Err(Error::invalid(format!("redb: one keyspace only, not {name}")));
        }
        let transaction = self.db.begin_write().map_err(failed(PLACE))?;
        transaction.open_table(TABLE).map_err(failed(PLACE))?;
        transaction.commit().map_err(failed(PLACE))?;
        Ok(RedbRecords {
            db: Arc::clone(&self.db),
            is_synced: self.is_synced,
            env: Arc::clone(&self.env),
            synced_at: Mutex::new(self.env.monotonic()),
        })
    }

    fn drop_records(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let transaction = self.db.begin_write().map_err(failed(PLACE))?;
        transaction.commit().map_err(failed(PLACE))
    }

    fn readings(&self) -> Readings {
        Readings::of_process(&self.dir)
    }

    fn close(self) -> Result<()> {
        drop(self.db);
        Ok(())
    }
}

/// The one table.
pub(crate) struct RedbRecords {
    db: Arc<Database>,
    is_synced: bool,
    env: Arc<RealEnv>,
    synced_at: Mutex<Duration>,
}

impl RedbRecords {
    fn begin(&self) -> Result<WriteTransaction> {
        let mut transaction = self.db.begin_write().map_err(failed(PLACE))?;
        if !self.is_synced && !self.is_sync_due() {
            transaction.set_durability(Durability::None).map_err(failed(PLACE))?;
        }
        Ok(transaction)
    }

    fn is_sync_due(&self) -> bool {
        let mut synced_at = self.synced_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = self.env.monotonic();
        let is_due = now.saturating_sub(*synced_at) >= SYNC_INTERVAL;
        if is_due {
            *synced_at = now;
        }
        is_due
    }
}

impl Records for RedbRecords {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = self.begin()?;
        {
            let mut table = transaction.open_table(TABLE).map_err(failed(PLACE))?;
            table.insert(key, value).map_err(failed(PLACE))?;
        }
        transaction.commit().map_err(failed(PLACE))
    }

    fn insert_ordered(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let transaction = self.begin()?;
        {
            let mut table = transaction.open_table(TABLE).map_err(failed(PLACE))?;
            for (key, value) in pairs {
                table.insert(&key[..], &value[..]).map_err(failed(PLACE))?;
            }
        }
        transaction.commit().map_err(failed(PLACE))
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        let transaction = self.begin()?;
        {
            let mut table = transaction.open_table(TABLE).map_err(failed(PLACE))?;
            table.remove(key).map_err(failed(PLACE))?;
        }
        transaction.commit().map_err(failed(PLACE))
    }

    fn get<T>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        let transaction = self.db.begin_read().map_err(failed(PLACE))?;
        let table = transaction.open_table(TABLE).map_err(failed(PLACE))?;
        let found = table.get(key).map_err(failed(PLACE))?;
        Ok(see(found.as_ref().map(redb::AccessGuard::value)))
    }

    fn multi_get(&self, keys: &[Vec<u8>], mut see: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let transaction = self.db.begin_read().map_err(failed(PLACE))?;
        let table = transaction.open_table(TABLE).map_err(failed(PLACE))?;
        for (index, key) in keys.iter().enumerate() {
            let found = table.get(&key[..]).map_err(failed(PLACE))?;
            see(index, found.as_ref().map(redb::AccessGuard::value));
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
        let transaction = self.db.begin_read().map_err(failed(PLACE))?;
        let table = transaction.open_table(TABLE).map_err(failed(PLACE))?;
        let bounds = (Bound::Included(first), end.map_or(Bound::Unbounded, Bound::Excluded));
        for entry in table.range::<&[u8]>(bounds).map_err(failed(PLACE))? {
            let (key, value) = entry.map_err(failed(PLACE))?;
            if !see(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}
