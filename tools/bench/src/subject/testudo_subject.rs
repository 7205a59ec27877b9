//! Testudo as a benchmark subject.
//!
//! **Invariants**
//! - Only the public interface is used, as in any program.

use std::{path::Path, sync::Arc};

use testudo::{Db, Durability, Keyspace, KeyspaceOptions, Result, TreePreset};
use testudo_env::Env;

use crate::{
    args::keyspace_options,
    subject::{PageCounts, PageWork, Readings, Records, Settings, Subject},
};

/// Name of the tree that replaces single pages.
const TREELINE: &str = "treeline";

/// An open store, and the options of its keyspaces.
#[derive(Debug)]
pub struct Testudo {
    db: Db,
    options: KeyspaceOptions,
    tree_name: String,
}

impl Subject for Testudo {
    type Records = Keyspace;
    const NAME: &'static str = "testudo";

    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        let options = keyspace_options(&settings.tree, settings.leaf_bytes, settings.placement)?;
        let durability = if settings.sync { Durability::Sync } else { Durability::Buffered };
        let env: Arc<dyn Env> = settings.env.clone();
        let builder = Db::builder(dir).memory_bytes(settings.memory_bytes).durability(durability).env(env);
        let builder = builder.warm_restart(settings.warm_restart).warm_merges(settings.warm_merges);
        let builder = builder.record_cache(settings.record_cache).retain_merged(settings.retain_merged);
        Ok(Self { db: builder.open()?, options, tree_name: settings.tree.clone() })
    }

    fn kind(&self) -> String {
        self.tree_name.clone()
    }

    fn records(&self, name: &str) -> Result<Keyspace> {
        self.db.keyspace(name, || self.options)
    }

    fn many_records(&self, names: &[String]) -> Result<Vec<Keyspace>> {
        self.db.keyspaces(names.iter().map(String::as_str), || self.options)
    }

    fn drop_records(&self, name: &str) -> Result<()> {
        self.db.drop_keyspace(name).map(|_| ())
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    fn readings(&self) -> Readings {
        Readings::from(&self.db.stats())
    }

    fn close(self) -> Result<()> {
        self.db.close()
    }

    fn testudo(&self) -> Option<&Db> {
        Some(&self.db)
    }
}

impl Records for Keyspace {
    #[inline]
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Keyspace::insert(self, key, value)
    }

    #[inline]
    fn remove(&self, key: &[u8]) -> Result<()> {
        Keyspace::remove(self, key)
    }

    #[inline]
    fn get<T>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        let found = Keyspace::get(self, key)?;
        Ok(see(found.as_deref()))
    }

    fn multi_get(&self, keys: &[Vec<u8>], mut see: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let found = Keyspace::multi_get(self, keys)?;
        for (index, value) in found.iter().enumerate() {
            see(index, value.as_deref());
        }
        Ok(())
    }

    fn tree(&self) -> Option<String> {
        Some(self.options().get_tree().to_string())
    }

    fn set_tree(&self, tree: &str) -> Result<()> {
        Keyspace::set_tree(self, tree.parse::<TreePreset>()?)
    }

    fn is_moving(&self) -> bool {
        self.stats().moving.from.is_some()
    }

    fn page_counts(&self) -> Option<PageCounts> {
        let tree = self.stats().tree;
        let work = PageWork {
            replaced: tree.pages_replaced,
            overflowed: tree.pages_overflowed,
            joined: tree.pages_joined,
            moved_groups: tree.groups_moved,
            inserts: tree.page_inserts,
            forecast_hits: tree.forecast_hits,
            rewritten_runs: tree.runs_rewritten,
            direct_flushes: tree.direct_flushes,
        };
        let counts = PageCounts {
            replaced: tree.replaced_pages,
            overflow: tree.overflow_pages,
            index_bytes: tree.index_bytes,
            continued_bytes: tree.continued_bytes,
            work,
        };
        (tree.name == TREELINE).then_some(counts)
    }

    fn scan(
        &self,
        first: &[u8],
        end: Option<&[u8]>,
        expected: Option<u64>,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let entries = match end {
            Some(end) => self.range(first..end)?,
            None => self.range(first..)?,
        };
        let expected = expected.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        for entry in entries.take(expected) {
            let entry = entry?;
            if !see(entry.key(), &entry.value()?) {
                break;
            }
        }
        Ok(())
    }
}
