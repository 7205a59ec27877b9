//! A place for stores on the real file system, and the expected content of a store there.
//!
//! **Invariants**
//! - Everything is below one temporary directory, which is removed with the place.

#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use testudo::{Db, Durability, Error, ErrorKind, Keyspace, VerifyLevel};
use testudo_env::{Env, RealEnv};
use testudo_testkit::engine_store::EngineOpener;

/// Location of the stores and their settings.
pub(super) struct Place {
    opener: EngineOpener,
    guard: tempfile::TempDir,
}

/// An open store with one keyspace, and its expected content.
pub(super) struct Subject {
    pub(super) db: Db,
    keyspace: Keyspace,
    expected: Expected,
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Records that were synced, and records that were only acknowledged before the store lost its lock.
#[derive(Clone, Default)]
pub(super) struct Expected {
    synced: Records,
    acknowledged: Records,
}

impl Place {
    pub(super) fn new(opener: EngineOpener) -> Result<Self, String> {
        let guard = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        Ok(Self { opener, guard })
    }

    /// Path of a name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.guard.path().join(name)
    }

    pub(super) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// Opens the store, which holds `expected`.
    pub(super) fn open(&self, name: &str, expected: Expected) -> Subject {
        let db = self.try_open(name).unwrap();
        let keyspace = db.keyspace("k", || self.opener.options).unwrap();
        Subject { db, keyspace, expected }
    }

    pub(super) fn try_open(&self, name: &str) -> testudo::Result<Db> {
        self.opener.open_db(RealEnv::new(), &self.path(name))
    }

    /// Opens the store at this path, checks that it is valid and holds exactly `expected`, and closes it.
    pub(super) fn check(&self, name: &str, expected: &Expected) {
        let subject = self.open(name, expected.clone());
        subject.check();
        let report = subject.db.verify(VerifyLevel::Full).unwrap();
        assert!(report.is_valid(), "{name}: {:?}", report.findings);
        subject.db.close().unwrap();
    }

    /// Same as [`Place::contents`], once nothing changes any more: a write that began while the lock was in
    /// its place may still complete.
    pub(super) fn settled_contents(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut before = self.contents(name);
        loop {
            RealEnv::new().sleep(std::time::Duration::from_millis(100));
            let now = self.contents(name);
            if now == before {
                return now;
            }
            before = now;
        }
    }

    /// All files below the directory, with their bytes.
    pub(super) fn contents(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        files_below(&self.path(name))
            .into_iter()
            .map(|path| (path.clone(), fs::read(&path).unwrap()))
            .collect()
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

impl Subject {
    /// Writes `count` records of about a KiB and makes them durable.
    pub(super) fn write(&mut self, what: &str, count: u32) {
        self.try_write(what, count).unwrap();
    }

    /// Same as [`Subject::write`]; records that were not synced are not expected.
    pub(super) fn try_write(&mut self, what: &str, count: u32) -> testudo::Result<()> {
        for (key, value) in (0..count).map(|n| record(what, n)) {
            self.keyspace.insert(&key, &value)?;
            self.expected.acknowledged.insert(key, value);
        }
        self.db.persist(Durability::Sync)?;
        self.expected.synced.append(&mut self.expected.acknowledged);
        Ok(())
    }

    /// Checks that exactly the expected records are present.
    pub(super) fn check(&self) {
        let found: Records = self
            .keyspace
            .iter()
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.key().to_vec(), entry.value().unwrap().to_vec()))
            .collect();
        let Expected { synced, acknowledged } = &self.expected;
        let lost = synced.keys().filter(|key| !found.contains_key(*key)).count();
        assert_eq!(lost, 0, "records lost of {}", synced.len());
        for (key, value) in &found {
            let written = synced.get(key).or_else(|| acknowledged.get(key));
            assert_eq!(written, Some(value), "{}", String::from_utf8_lossy(key));
        }
    }

    pub(super) fn expected(&self) -> Expected {
        self.expected.clone()
    }

    /// Closes the store; returns its expected content.
    pub(super) fn close(self) -> Expected {
        self.db.close().unwrap();
        self.expected
    }

    /// Closes a store that has lost its lock; the error must say so.
    pub(super) fn close_without_lock(self) -> Expected {
        require_lost(self.db.close());
        self.expected
    }
}

fn record(what: &str, n: u32) -> (Vec<u8>, Vec<u8>) {
    let number = n.wrapping_mul(0x9e37_79b9);
    (format!("{what} {number:010}").into_bytes(), format!("{what} {n} ").repeat(100).into_bytes())
}

/// Panics unless the outcome is the error of an owner without a lock.
pub(super) fn require_lost<T>(outcome: testudo::Result<T>) -> Error {
    let Err(error) = outcome else { panic!("a write succeeded without a lock") };
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(error.to_string().contains("LOCK was removed or replaced"), "{error}");
    error
}
