//! A thread of the soak: writes and reads its own keys, and tracks the allowed versions of each.
//!
//! **Invariants**
//! - A key's version on the device is at least the last synced one and at most the last attempted one.
//! - Every `GONE_EVERY`-th version of a key is its removal.

use testudo::{Db, Durability, Error, Keyspace, Result};
use testudo_env::SplitMix;

/// Interval of versions that are removals; version 0 is one too.
const GONE_EVERY: u32 = 7;
/// Errors after which the thread stops for the round.
const ERRORS_MAX: usize = 20;

/// Versions of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Certainly on the device.
    synced: u32,
    /// Acknowledged.
    acknowledged: u32,
    /// Attempted; above `acknowledged` after an error.
    attempted: u32,
}

/// A thread's keys.
#[derive(Debug)]
pub(super) struct Writer {
    number: u32,
    writers: u32,
    keyspaces: u32,
    known: Vec<Known>,
    /// Keys written since the last sync.
    unsynced: Vec<u32>,
    random: SplitMix,
}

/// Whether a version of a key is a removal.
fn is_removal(version: u32) -> bool {
    version.is_multiple_of(GONE_EVERY)
}

/// Value of a version: key and version, then bytes that depend on both.
fn value_of(key: u32, version: u32) -> Vec<u8> {
    let mut random = SplitMix::new(u64::from(key) << 32 | u64::from(version));
    let length = if random.percent(1) { 6_000 } else { 20 + random.below(500) };
    let mut value = vec![0; usize::try_from(length).unwrap()];
    random.fill(&mut value);
    value[..4].copy_from_slice(&key.to_be_bytes());
    value[4..8].copy_from_slice(&version.to_be_bytes());
    value
}

/// Version of a value.
fn version_of(key: u32, value: &[u8]) -> u32 {
    let version = u32::from_be_bytes(value[4..8].try_into().unwrap());
    assert!(value == value_of(key, version), "key {key}: a value that was never written");
    version
}

impl Writer {
    pub(super) fn new(number: u32, writers: u32, keys: u32, keyspaces: u32, seed: u64) -> Self {
        let known = vec![Known::default(); usize::try_from(keys).unwrap()];
        Self { number, writers, keyspaces, known, unsynced: Vec::new(), random: SplitMix::new(seed) }
    }

    fn key_count(&self) -> u32 {
        u32::try_from(self.known.len()).unwrap()
    }

    /// Returns the keyspace and the bytes of a key number.
    fn place<'a>(&self, keyspaces: &'a [Keyspace], key: u32) -> (&'a Keyspace, [u8; 8]) {
        let keyspace = &keyspaces[usize::try_from(key % self.keyspaces).unwrap()];
        // Spread over the key range, with neighbors of both writers.
        let spread = u64::from(key * self.writers + self.number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (keyspace, spread.to_be_bytes())
    }

    fn known(&mut self, key: u32) -> &mut Known {
        &mut self.known[usize::try_from(key).unwrap()]
    }

    /// Writes every key once.
    pub(super) fn fill(&mut self, keyspaces: &[Keyspace]) -> Result<()> {
        (0..self.key_count()).try_for_each(|key| self.write(keyspaces, key))
    }

    /// Does `ops` operations; returns their errors, and stops after too many.
    pub(super) fn work(&mut self, db: &Db, keyspaces: &[Keyspace], ops: u64) -> Vec<Error> {
        let mut errors = Vec::new();
        for _ in 0..ops {
            let keys = u64::from(self.key_count());
            let key = u32::try_from(self.random.below(keys)).unwrap();
            let outcome = match self.random.below(1000) {
                0..600 => self.write(keyspaces, key),
                600..602 => self.sync(db),
                602..640 => self.scan(keyspaces, key),
                _ => self.read(keyspaces, key),
            };
            errors.extend(outcome.err());
            if errors.len() >= ERRORS_MAX {
                break;
            }
        }
        errors
    }

    fn write(&mut self, keyspaces: &[Keyspace], key: u32) -> Result<()> {
        let (keyspace, bytes) = self.place(keyspaces, key);
        let known = self.known(key);
        known.attempted += 1;
        let version = known.attempted;
        if is_removal(version) {
            keyspace.remove(bytes)?;
        } else {
            keyspace.insert(bytes, value_of(key, version))?;
        }
        self.known(key).acknowledged = version;
        self.unsynced.push(key);
        Ok(())
    }

    fn sync(&mut self, db: &Db) -> Result<()> {
        db.persist(Durability::Sync)?;
        for key in std::mem::take(&mut self.unsynced) {
            let known = self.known(key);
            known.synced = known.acknowledged;
        }
        Ok(())
    }

    fn read(&mut self, keyspaces: &[Keyspace], key: u32) -> Result<()> {
        let (keyspace, bytes) = self.place(keyspaces, key);
        let found = keyspace.get(bytes)?;
        let known = *self.known(key);
        judge(key, found.as_deref(), known.acknowledged, known.attempted);
        Ok(())
    }

    /// Reads a few neighbors: keys increase, and each value is one that its key once had.
    fn scan(&mut self, keyspaces: &[Keyspace], key: u32) -> Result<()> {
        let (keyspace, from) = self.place(keyspaces, key);
        let mut previous: Option<Vec<u8>> = None;
        for entry in keyspace.range(from..)?.take(20) {
            let (key, value) = entry?.into_pair()?;
            assert!(previous.as_deref().is_none_or(|previous| previous < &*key), "keys do not increase");
            let number = u32::from_be_bytes(value[..4].try_into().unwrap());
            version_of(number, &value);
            previous = Some(key.to_vec());
        }
        Ok(())
    }

    /// Checks all keys of a reopened store and continues from its content; returns the bytes of keys and
    /// values.
    pub(super) fn check(&mut self, keyspaces: &[Keyspace], is_clean: bool) -> u64 {
        let mut live_bytes = 0;
        let mut keys: Vec<u32> = (0..self.key_count()).collect();
        // In the order of the store, so that neighbors are read together.
        keys.sort_unstable_by_key(|key| (key % self.keyspaces, self.place(keyspaces, *key).1));
        for key in keys {
            let (keyspace, bytes) = self.place(keyspaces, key);
            let found = keyspace.get(bytes).unwrap();
            let known = *self.known(key);
            let least = if is_clean { known.acknowledged } else { known.synced };
            let version = judge(key, found.as_deref(), least, known.attempted);
            *self.known(key) = Known { synced: version, acknowledged: version, attempted: version };
            live_bytes += found.map_or(0, |value| value.len() + bytes.len()) as u64;
        }
        self.unsynced.clear();
        live_bytes
    }
}

/// Returns the version found; panics unless it is in `least..=most`.
fn judge(key: u32, found: Option<&[u8]>, least: u32, most: u32) -> u32 {
    let Some(value) = found else {
        let version = (least..=most).rev().find(|version| is_removal(*version));
        return version
            .unwrap_or_else(|| panic!("key {key} is missing; its version must be from {least} to {most}"));
    };
    let version = version_of(key, value);
    assert!((least..=most).contains(&version), "key {key} has version {version}, not {least} to {most}");
    version
}
