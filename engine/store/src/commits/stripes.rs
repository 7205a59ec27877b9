//! Locks that serialize writes to the same key, so that read-modify-write is atomic among all writers.
//!
//! **Invariants**
//! - Stripes are locked in increasing order, before the commit lock, and released after the memtable insert.

use testudo_base::{
    KeyspaceId,
    checksum::hash_key,
    num::{u64_of, usize_of},
    sync::{Mutex, MutexGuard, is_held, scaled},
};

const STRIPES: usize = scaled(1024, 16);

/// The write stripes of a store.
#[derive(Debug)]
pub struct Stripes(Box<[Mutex<()>]>);

impl Default for Stripes {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Mutex::new(())).collect())
    }
}

impl Stripes {
    fn index(keyspace: KeyspaceId, key: &[u8]) -> usize {
        let hash = hash_key(key) ^ u64::from(keyspace.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize_of((hash >> 20) % u64_of(STRIPES))
    }

    /// Locks the stripe of one key.
    pub fn lock_one(&self, keyspace: KeyspaceId, key: &[u8]) -> MutexGuard<'_, ()> {
        self.0[Self::index(keyspace, key)].lock()
    }

    /// Whether some thread holds the stripe of this key, for assertions.
    pub fn is_locked(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        is_held(&self.0[Self::index(keyspace, key)])
    }

    /// Locks the stripes of many keys.
    pub fn lock_many<'k>(
        &self,
        keys: impl Iterator<Item = (KeyspaceId, &'k [u8])>,
    ) -> Vec<MutexGuard<'_, ()>> {
        let mut indices: Vec<usize> = keys.map(|(keyspace, key)| Self::index(keyspace, key)).collect();
        indices.sort_unstable();
        indices.dedup();
        debug_assert!(
            indices.is_sorted_by(|a, b| a < b),
            "stripes are locked in increasing order, each once"
        );
        indices.into_iter().map(|index| self.0[index].lock()).collect()
    }
}
