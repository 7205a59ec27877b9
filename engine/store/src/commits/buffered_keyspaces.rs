//! The keyspaces with non-empty write buffers. Among thousands of keyspaces they are few, and flushes, seals
//! and the log visit no others.
//!
//! **Invariants**
//! - A keyspace of the catalogue is listed if a commit has chosen one of its buffers that is not flushed yet.
//!   It is inserted and removed under the commit lock.

use std::collections::BTreeMap;

use testudo_base::{
    KeyspaceId,
    sync::{Arc, Mutex},
};

use crate::keyspace::KeyspaceCore;

/// Keyspaces with non-empty write buffers.
#[derive(Debug, Default)]
pub struct BufferedKeyspaces(Mutex<BTreeMap<KeyspaceId, Arc<KeyspaceCore>>>);

impl BufferedKeyspaces {
    /// Adds a keyspace when a commit first chooses one of its buffers.
    pub fn insert(&self, keyspace: &Arc<KeyspaceCore>) {
        debug_assert!(!keyspace.is_dropped(), "no commit chooses a buffer of a dropped keyspace");
        self.0.lock().insert(keyspace.id, Arc::clone(keyspace));
    }

    /// Removes a keyspace that is no longer in the catalogue.
    pub fn remove(&self, keyspace: KeyspaceId) {
        self.0.lock().remove(&keyspace);
    }

    /// Removes a keyspace whose buffers are all empty after a flush.
    pub fn remove_if_empty(&self, keyspace: &KeyspaceCore) {
        let view = keyspace.view.load();
        if view.sealed.is_empty() && view.active.first_commit().is_none() {
            self.remove(keyspace.id);
        }
    }

    /// All of them, in order of their ids.
    pub fn all(&self) -> Vec<Arc<KeyspaceCore>> {
        self.0.lock().values().cloned().collect()
    }
}
