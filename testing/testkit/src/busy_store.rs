//! A store that is written to while copies of it are made, and the expected contents of a copy.
//!
//! **Invariants**
//! - A seed determines the sequence of writes.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{Db, Durability, Entry, ErrorKind, Keyspace, Result, Snapshot, VerifyLevel};
use testudo_base::num::usize_of;
use testudo_db::maintenance::Stepping as _;
use testudo_env::{Env, MemEnv, SplitMix};

use crate::{engine_store::EngineOpener, store::Pair};

/// Distinct keys of each keyspace.
const KEYS: u64 = 300;

/// Everything in a store, by keyspace.
pub type Contents = BTreeMap<String, Vec<Pair>>;

/// An open store with three keyspaces, and the source of its writes.
#[derive(Debug)]
pub struct BusyStore {
    /// The store.
    pub db: Db,
    /// Its keyspaces.
    pub keyspaces: Vec<Keyspace>,
    random: SplitMix,
}

impl BusyStore {
    /// Opens or creates the store in `directory`.
    pub fn open(opener: &EngineOpener, env: Arc<dyn Env>, directory: &Path, seed: u64) -> Result<Self> {
        let db = opener.open_db(env, directory)?;
        let mut keyspaces = Vec::new();
        for name in ["alpha", "beta", "empty"] {
            keyspaces.push(db.keyspace(name, || opener.options.merge_operator("append"))?);
        }
        Ok(Self { db, keyspaces, random: SplitMix::new(seed) })
    }

    /// Performs `count` random actions: writes, removals, batches, background work, occasional flushes.
    pub fn work(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let keyspace = self.keyspaces[usize_of(self.random.below(2))].clone();
            let key = format!("key{:05}", self.random.below(KEYS));
            match self.random.below(20) {
                0..=1 => keyspace.merge(&key, self.random.next_u64().to_le_bytes())?,
                2..=10 => keyspace.insert(&key, self.value())?,
                11..=13 => keyspace.remove(&key)?,
                14 | 15 => {
                    let mut batch = self.db.batch();
                    for keyspace in &self.keyspaces[..2] {
                        batch.insert(keyspace, &key, self.random.next_u64().to_le_bytes());
                    }
                    batch.durability(Durability::Buffered).commit()?;
                }
                16 if self.random.below(25) == 0 => self.db.flush()?,
                _ => drop(self.db.step()?),
            }
        }
        Ok(())
    }

    fn value(&mut self) -> Vec<u8> {
        let longest = if self.random.below(40) == 0 { 9_000 } else { 200 };
        let length = usize_of(self.random.below(longest));
        let byte = self.random.next_u64().to_le_bytes()[0];
        vec![byte; length]
    }

    /// Contents of the store at a snapshot.
    pub fn contents_at(&self, snapshot: &Snapshot) -> Result<Contents> {
        let mut contents = Contents::new();
        for keyspace in &self.keyspaces {
            contents.insert(keyspace.name().to_owned(), pairs(snapshot.iter(keyspace)?)?);
        }
        Ok(contents)
    }
}

/// Contents of a store.
pub fn contents_of(db: &Db) -> Result<Contents> {
    let mut contents = Contents::new();
    for name in db.keyspace_names() {
        if let Some(keyspace) = db.open_keyspace(&name)? {
            contents.insert(name, pairs(keyspace.iter()?)?);
        }
    }
    Ok(contents)
}

fn pairs(entries: impl Iterator<Item = Result<Entry>>) -> Result<Vec<Pair>> {
    let pair = |entry: Result<Entry>| {
        let (key, value) = entry?.into_pair()?;
        Ok((key.into_vec(), value.into_vec()))
    };
    entries.map(pair).collect()
}

/// Opens a store and reads everything; panics unless it is valid.
pub fn read_whole(opener: &EngineOpener, machine: &Arc<MemEnv>, directory: &str) -> Contents {
    let env: Arc<dyn Env> = Arc::<MemEnv>::clone(machine);
    let db = opener.open_db(env, Path::new(directory)).expect("the store opens");
    let report = db.verify(VerifyLevel::Full).expect("the store can be read");
    assert_eq!(report.findings, [], "{directory}");
    contents_of(&db).expect("every record can be read")
}

/// Whether the directory is a store. If so, it must be valid and hold `expected`. If not, opening it must not
/// create one.
pub fn judge_copy(
    opener: &EngineOpener,
    machine: &Arc<MemEnv>,
    directory: &str,
    expected: &Contents,
    what: &str,
) -> bool {
    let env: Arc<dyn Env> = Arc::<MemEnv>::clone(machine);
    let builder = Db::builder(directory).env(env).memory_bytes(opener.memory_bytes);
    match builder.clone().create(false).open() {
        Ok(db) => {
            drop(db);
            assert!(
                read_whole(opener, machine, directory) == *expected,
                "{what}: the copy has different contents"
            );
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
            let names = machine.list_dir(Path::new(directory)).unwrap_or_default();
            if names.iter().any(|entry| entry.name != "LOCK") {
                let outcome = builder.open().map_err(|error| error.kind());
                assert_eq!(outcome.err(), Some(ErrorKind::Invalid), "{what}: {names:?}");
            }
            false
        }
    }
}
