//! fjall as a benchmark subject.
//!
//! **Invariants**
//! - Write buffers and cache are small relative to the memory: fjall reads and writes through the page cache,
//!   which counts against the same limit.
//! - There are more workers than the two cores: a full memtable grows until a free worker seals it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    compaction::Leveled,
    config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry},
};
use testudo::Result;
use testudo_bench::{Readings, Records, Settings, Subject};

use crate::failure::failed;

const PLACE: &str = "fjall";
const MIB: u64 = 1 << 20;

/// An open database.
pub(crate) struct Fjall {
    db: Database,
    memory_bytes: u64,
    is_synced: bool,
    dir: PathBuf,
}

impl Subject for Fjall {
    type Records = FjallRecords;
    const NAME: &'static str = "fjall";

    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        // A quarter of the memory, as fjall's documentation recommends; the open-file limit is well below the
        // available descriptors.
        let builder = Database::builder(dir)
            .cache_size(settings.memory_bytes / 4)
            .max_journaling_size(128 * MIB)
            .worker_threads(4)
            .max_cached_files(Some(512));
        let db = builder.open().map_err(failed(PLACE))?;
        let (memory_bytes, is_synced) = (settings.memory_bytes, settings.sync);
        Ok(Self { db, memory_bytes, is_synced, dir: dir.to_owned() })
    }

    fn kind(&self) -> String {
        "leveled".to_owned()
    }

    fn records(&self, name: &str) -> Result<FjallRecords> {
        let memtable_bytes = (self.memory_bytes / 16).clamp(MIB, 16 * MIB);
        let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable_bytes)
                .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(memtable_bytes)))
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
                .filter_policy(FilterPolicy::all(bloom))
        };
        let keyspace = self.db.keyspace(name, options).map_err(failed(PLACE))?;
        let sync_through = self.is_synced.then(|| self.db.clone());
        Ok(FjallRecords { keyspace, sync_through })
    }

    fn drop_records(&self, name: &str) -> Result<()> {
        if !self.db.keyspace_exists(name) {
            return Ok(());
        }
        self.db.delete_keyspace(self.records(name)?.keyspace).map_err(failed(PLACE))
    }

    fn flush(&self) -> Result<()> {
        for name in self.db.list_keyspace_names() {
            self.records(&name)?.keyspace.rotate_memtable_and_wait().map_err(failed(PLACE))?;
        }
        Ok(())
    }

    fn readings(&self) -> Readings {
        Readings::of_process(&self.dir)
    }

    fn close(self) -> Result<()> {
        self.db.persist(PersistMode::SyncAll).map_err(failed(PLACE))
    }
}

/// A keyspace.
pub(crate) struct FjallRecords {
    keyspace: Keyspace,
    /// The database, if every write is to be durable.
    sync_through: Option<Database>,
}

impl FjallRecords {
    /// Makes the last write durable, if writes are synced.
    fn persist(&self) -> Result<()> {
        match &self.sync_through {
            Some(db) => db.persist(PersistMode::SyncData).map_err(failed(PLACE)),
            None => Ok(()),
        }
    }
}

impl Records for FjallRecords {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(failed(PLACE))?;
        self.persist()
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(failed(PLACE))?;
        self.persist()
    }

    fn get<T>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        let found = self.keyspace.get(key).map_err(failed(PLACE))?;
        Ok(see(found.as_deref()))
    }

    fn multi_get(&self, keys: &[Vec<u8>], mut see: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            let found = self.keyspace.get(key).map_err(failed(PLACE))?;
            see(index, found.as_deref());
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
        let entries = match end {
            Some(end) => self.keyspace.range(first..end),
            None => self.keyspace.range(first..),
        };
        for entry in entries {
            let (key, value) = entry.into_inner().map_err(failed(PLACE))?;
            if !see(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}
